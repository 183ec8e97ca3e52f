#include "mezzo/sampling/blocks/control_variate.h"

#include <utility>

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/graph/topology.h"
#include "mezzo/ops/ops.h"
#include "mezzo/runtime/sixteen_bits.h"
#include "mezzo/sampling/gather.h"
#include "mezzo/sampling/node_flow/node_flow_state.h"

namespace mezzo {
namespace {

void check_activations(const char* operation, const at::Tensor& h, std::int64_t rows,
                       std::int64_t width) {
  MEZZO_CHECK(h.defined() && h.layout() == at::kStrided && at::isFloatingType(h.scalar_type()) &&
                  h.dim() == 2 && h.size(0) == rows && h.size(1) == width,
              "{}: expected floating numbers [{}, {}], got {}", operation, rows, width,
              detail::describe(h));
}

void check_control_flow(const char* operation, const NodeFlow& flow, const Topology& topology,
                        std::size_t num_blocks) {
  MEZZO_CHECK(flow.parent().topology().is_same(topology),
              "{}: expected a node flow of the control variate's graph", operation);
  MEZZO_CHECK(flow.num_blocks() == static_cast<std::int64_t>(num_blocks),
              "{}: expected a node flow of {} blocks, one per width, got {}", operation, num_blocks,
              flow.num_blocks());
}

at::Tensor mean_over_edges(const Topology& topology, const at::Tensor& x) {
  return gspmm(topology, BinaryOp::kCopyLhs, ReduceOp::kMean, x, std::nullopt);
}

const Graph& on_cpu(const Graph& graph) {
  MEZZO_CHECK(graph.device().is_cpu(), "ControlVariate: expected a graph on the CPU, got one on {}",
              graph.device().str());
  return graph;
}

}  // namespace

ControlVariate::ControlVariate(const Graph& graph, ControlVariateOptions options)
    : source_(on_cpu(graph).topology(), options.neighbor_type) {
  MEZZO_CHECK(!options.widths.empty(), "ControlVariate: expected at least one width, got none");
  MEZZO_CHECK(
      options.dtype == at::kFloat || options.dtype == at::kDouble || is_16_bit(options.dtype),
      "ControlVariate: expected dtype float32, float64, bfloat16 or float16, got {}",
      c10::toString(options.dtype));
  for (const std::int64_t width : options.widths) {
    MEZZO_CHECK(width >= 1, "ControlVariate: expected widths of at least 1, got {}", width);
  }
  for (const std::int64_t width : options.widths) {
    histories_.push_back(at::zeros({graph.num_nodes(), width}, options.dtype));
  }
}

at::Tensor ControlVariate::mean(const NodeFlow& flow, std::int64_t block, const at::Tensor& h) {
  constexpr const char* kOperation = "ControlVariate::mean";
  check_control_flow(kOperation, flow, source_.topology(), histories_.size());
  const std::size_t i = detail::flow_index("block", block, histories_.size());
  const at::Tensor& history = histories_[i];
  const Topology& sampled = flow.block_topology(block);
  check_activations(kOperation, h, sampled.num_src(), history.size(1));
  MEZZO_CHECK(h.device() == flow.device(), "{}: expected h on {}, got {}", kOperation,
              flow.device().str(), h.device().str());
  const at::Tensor edges = flow.block_parent_eid(block);
  MEZZO_CHECK(edges.numel() == 0 || edges.min().item<std::int64_t>() >= 0,
              "{}: expected only edges of the parent, but block {} has an added self loop",
              kOperation, i);

  // Differences of nearly equal numbers must not be rounded to 16 bits first.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const auto layer = static_cast<std::int64_t>(i);
  const at::Tensor senders = flow.layer_parent_nid(layer).cpu();
  const at::Tensor receivers = flow.layer_parent_nid(layer + 1).cpu();
  const at::Tensor difference = h - gather_rows(history, senders).to(h.device());
  const at::Tensor estimate =
      mean_over_edges(sampled, difference) + mean_of_all(history, receivers).to(h.device());
  return estimate.to(h.scalar_type());
}

at::Tensor ControlVariate::mean_of_all(const at::Tensor& history, const at::Tensor& nodes) {
  const DrawnNeighbors all = source_.draw(nodes, {.type = source_.type()}, {}, 0, workspace_);
  return mean_over_edges(detail::topology_from_rows({all.offsets, all.neighbors, {}},
                                                    source_.num_nodes(), nodes.numel()),
                         history);
}

at::Tensor ControlVariate::correction(const Block& block, std::int64_t layer) {
  constexpr const char* kOperation = "ControlVariate::correction";
  const at::Tensor& history = histories_[detail::flow_index("layer", layer, histories_.size())];
  MEZZO_CHECK(block.device().is_cpu(), "{}: expected a block on the CPU, got one on {}", kOperation,
              block.device().str());
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const at::ScalarType dtype =
      is_16_bit(history.scalar_type()) ? at::kFloat : history.scalar_type();
  const at::Tensor drawn =
      mean_over_edges(block.topology(), gather_rows(history, block.src_nodes()));
  return mean_of_all(history, block.dst_nodes()).to(dtype) - drawn.to(dtype);
}

void ControlVariate::update(const NodeFlow& flow, std::int64_t layer, const at::Tensor& h) {
  constexpr const char* kOperation = "ControlVariate::update";
  check_control_flow(kOperation, flow, source_.topology(), histories_.size());
  const std::size_t i = detail::flow_index("layer", layer, histories_.size() + 1);
  MEZZO_CHECK(i < histories_.size(),
              "{}: expected a layer below the last, which sends no messages, got {}", kOperation,
              layer);
  const at::Tensor& history = histories_[i];
  check_activations(kOperation, h, flow.layer_size(layer), history.size(1));
  history.index_copy_(0, flow.layer_parent_nid(layer).cpu(), h.detach().to(history.options()));
}

void ControlVariate::update(const Block& block, std::int64_t layer, const at::Tensor& h) {
  const at::Tensor& history = histories_[detail::flow_index("layer", layer, histories_.size())];
  check_activations("ControlVariate::update", h, block.num_src(), history.size(1));
  history.index_copy_(0, block.src_nodes().cpu(), h.detach().to(history.options()));
}

at::Tensor ControlVariate::history(std::int64_t layer) const {
  return histories_[detail::flow_index("history", layer, histories_.size())];
}

void ControlVariate::set_history(std::int64_t layer, const at::Tensor& values) {
  at::Tensor& history = histories_[detail::flow_index("history", layer, histories_.size())];
  check_activations("ControlVariate::set_history", values, history.size(0), history.size(1));
  history.copy_(values.detach());
}

}  // namespace mezzo
