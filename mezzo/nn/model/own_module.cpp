#include "mezzo/nn/model/own_module.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "mezzo/core/error.h"
#include "mezzo/nn/layer_support.h"
#include "mezzo/nn/model/model_layers.h"

namespace mezzo::nn {
namespace {

using detail::kModelName;

/// columns: 0: any shape.
void check_rows_of(std::string_view part, const at::Tensor& rows, std::int64_t num_rows,
                   const char* of, std::int64_t columns) {
  MEZZO_CHECK(rows.defined() && rows.dim() >= 1 && rows.size(0) == num_rows &&
                  (columns == 0 || (rows.dim() == 2 && rows.size(1) == columns)),
              "{}: expected {} to return [{}, {}], one row per {}, got {}", kModelName, part,
              num_rows, columns == 0 ? "..." : std::to_string(columns), of, detail::describe(rows));
}

}  // namespace

void OwnModule::check() const {
  detail::check_positive(kModelName, "num_layers", num_layers);
  const std::vector<std::shared_ptr<torch::nn::Module>> parts = module->modules();
  MEZZO_CHECK(!head_module || std::find(parts.begin(), parts.end(), head_module) != parts.end(),
              "{}: expected the member `head` to be a submodule, got one that is not registered; "
              "write head = register_module(\"head\", ...)",
              kModelName);
}

at::Tensor OwnModule::run_layer(std::int64_t index, const Topology& topology, const NodeRows& x,
                                const at::Tensor& edge_rows, std::int64_t out_features) const {
  MEZZO_CHECK(forward_layer,
              "{}: expected a module with forward_layer(), got one that runs on whole graphs",
              kModelName);
  MEZZO_CHECK(!x.is_pair(), "{}: expected one tensor for a module of your own, got a pair",
              kModelName);
  at::Tensor rows = forward_layer(index, topology, x.src(), edge_rows);
  const bool are_outputs = index + 1 == num_layers && !forward_head;
  check_rows_of(fmt::format("layer {} of {}", index, num_layers), rows, topology.num_dst(),
                "destination", are_outputs ? out_features : 0);
  return rows;
}

at::Tensor OwnModule::run_graph(const ModelInput& input, const at::Tensor& x,
                                std::int64_t out_features) const {
  MEZZO_CHECK(input.topology() != nullptr,
              "{}: expected a whole graph for a module without forward_layer(), got {} blocks",
              kModelName, input.blocks()->size());
  at::Tensor rows = forward(input, x);
  const HeadTargets* const targets = input.targets();
  if (forward_head || targets == nullptr) {
    check_rows_of("forward()", rows, input.topology()->num_dst(), "node",
                  forward_head ? 0 : out_features);
  } else if (targets->graph_sizes.defined()) {
    check_rows_of("forward()", rows, targets->size(), "graph", out_features);
  } else {
    check_rows_of("forward()", rows, input.topology()->num_edges(), "edge", out_features);
  }
  return rows;
}

at::Tensor OwnModule::run_head(const at::Tensor& h, const HeadTargets& targets,
                               std::int64_t out_features) const {
  at::Tensor outputs = forward_head(h, targets);
  check_rows_of("the head", outputs, targets.size(), "edge, link or graph", out_features);
  return outputs;
}

}  // namespace mezzo::nn
