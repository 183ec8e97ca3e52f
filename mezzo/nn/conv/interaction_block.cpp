#include "mezzo/nn/conv/interaction_block.h"

#include <ostream>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <fmt/format.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "mezzo/core/error.h"
#include "mezzo/nn/conv/conv_support.h"
#include "mezzo/nn/layer_norm.h"
#include "mezzo/nn/layer_support.h"
#include "mezzo/ops/dense/edge_mlp.h"
#include "mezzo/ops/ops.h"

namespace mezzo::nn {
namespace {

constexpr auto kInteractionBlockName = "InteractionBlock";

torch::nn::Sequential make_mlp(std::int64_t in, std::int64_t out,
                               const InteractionBlockOptions& options) {
  torch::nn::Sequential mlp;
  for (std::int64_t i = 0; i < options.hidden_layers; ++i) {
    mlp->push_back(
        torch::nn::Linear(i == 0 ? in : options.hidden_features, options.hidden_features));
    mlp->push_back(torch::nn::ReLU());
  }
  mlp->push_back(torch::nn::Linear(options.hidden_features, out));
  mlp->push_back(torch::nn::LayerNorm(std::vector<std::int64_t>{out}));
  return mlp;
}

/// The i-th linear layer of an MLP.
torch::nn::LinearImpl& linear_of(const torch::nn::Sequential& mlp, std::int64_t i) {
  return *mlp->ptr<torch::nn::LinearImpl>(static_cast<std::size_t>(2 * i));
}

torch::nn::LayerNormImpl& norm_of(const torch::nn::Sequential& mlp) {
  return *mlp->ptr<torch::nn::LayerNormImpl>(mlp->size() - 1);
}

void check_rows(const char* name, const at::Tensor& rows, std::int64_t num_rows,
                std::int64_t features, const Topology& topology, at::ScalarType weights) {
  MEZZO_CHECK(rows.defined() && at::isFloatingType(rows.scalar_type()) &&
                  rows.layout() == at::kStrided && rows.dim() == 2 && rows.size(0) == num_rows &&
                  rows.size(1) == features,
              "{}: expected floating strided {} [{}, {}], got {}", kInteractionBlockName, name,
              num_rows, features, detail::describe(rows));
  MEZZO_CHECK(rows.device() == topology.device(),
              "{}: expected {} on the graph's device {}, got {}", kInteractionBlockName, name,
              topology.device().str(), rows.device().str());
  MEZZO_CHECK(
      at::autocast::is_autocast_enabled(rows.device().type()) || rows.scalar_type() == weights,
      "{}: expected {} of the weights' dtype, {}, got {}", kInteractionBlockName, name,
      c10::toString(weights), c10::toString(rows.scalar_type()));
}

}  // namespace

InteractionBlockImpl::InteractionBlockImpl(InteractionBlockOptions layer_options)
    : options(layer_options) {
  if (options.hidden_features == 0) options.hidden_features = options.node_features;
  reset();
}

void InteractionBlockImpl::reset() {
  detail::check_positive(kInteractionBlockName, "node_features", options.node_features);
  detail::check_positive(kInteractionBlockName, "edge_features", options.edge_features);
  detail::check_positive(kInteractionBlockName, "hidden_features", options.hidden_features);
  detail::check_positive(kInteractionBlockName, "hidden_layers", options.hidden_layers);
  const std::int64_t node = options.node_features, edge = options.edge_features;
  edge_mlp = register_module("edge_mlp", make_mlp(2 * node + edge, edge, options));
  node_mlp = register_module("node_mlp", make_mlp(node + edge, node, options));
}

void InteractionBlockImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format(
      "mezzo::nn::InteractionBlock(node_features={}, edge_features={}, hidden_features={}, "
      "hidden_layers={})",
      options.node_features, options.edge_features, options.hidden_features, options.hidden_layers);
}

std::pair<at::Tensor, at::Tensor> InteractionBlockImpl::forward(const Topology& topology,
                                                                const at::Tensor& h,
                                                                const at::Tensor& e) {
  const std::int64_t node = options.node_features, edge = options.edge_features;
  const at::ScalarType weights = linear_of(edge_mlp, 0).weight.scalar_type();
  detail::check_one_node_set(kInteractionBlockName, topology);
  check_rows("h", h, topology.num_src(), node, topology, weights);
  check_rows("e", e, topology.num_edges(), edge, topology, weights);

  std::vector<at::Tensor> hidden_weights, hidden_biases;
  for (std::int64_t i = 1; i < options.hidden_layers; ++i) {
    hidden_weights.push_back(linear_of(edge_mlp, i).weight);
    hidden_biases.push_back(linear_of(edge_mlp, i).bias);
  }
  const auto stacked = [](const std::vector<at::Tensor>& all) {
    return all.empty() ? std::nullopt : std::optional(at::stack(all));
  };
  const auto columns = [](const at::Tensor& weight, std::int64_t first, std::int64_t count) {
    return weight.narrow(1, first, count);
  };
  const torch::nn::LinearImpl& on_ends = linear_of(edge_mlp, 0);
  const torch::nn::LinearImpl& edge_out = linear_of(edge_mlp, options.hidden_layers);
  auto [new_e, received] = mezzo::detail::edge_mlp(
      {.topology = mezzo::detail::hold(topology),
       .src = mezzo::linear(h, columns(on_ends.weight, 0, node)),
       .dst = mezzo::linear(h, columns(on_ends.weight, node, node), on_ends.bias),
       .edge = e,
       .weight = columns(on_ends.weight, 2 * node, edge),
       .hidden_weight = stacked(hidden_weights),
       .hidden_bias = stacked(hidden_biases),
       .out_weight = edge_out.weight,
       .out_bias = edge_out.bias,
       .norm_weight = norm_of(edge_mlp).weight,
       .norm_bias = norm_of(edge_mlp).bias});

  const torch::nn::LinearImpl& on_node = linear_of(node_mlp, 0);
  at::Tensor rows = mezzo::linear(h, columns(on_node.weight, 0, node), on_node.bias) +
                    mezzo::linear(received, columns(on_node.weight, node, edge));
  for (std::int64_t i = 1; i <= options.hidden_layers; ++i) {
    rows = detail::apply_linear(linear_of(node_mlp, i), rows.relu_());
  }
  rows = detail::layer_norm(norm_of(node_mlp), rows);
  return {h.to(rows.scalar_type()) + rows, new_e};
}

}  // namespace mezzo::nn
