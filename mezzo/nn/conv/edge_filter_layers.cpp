#include "mezzo/nn/conv/edge_filter_layers.h"

#include <cmath>
#include <ostream>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/container/functional.h>

#include "mezzo/core/error.h"
#include "mezzo/nn/conv/conv_support.h"
#include "mezzo/nn/layer_support.h"
#include "mezzo/nn/normalization.h"
#include "mezzo/ops/ops.h"

namespace mezzo::nn {
namespace {

constexpr auto kNnConvName = "NNConv";
constexpr auto kCfConvName = "CFConv";
constexpr auto kGatedGcnConvName = "GatedGCNConv";

/// What comes before the last linear layer of a module.
struct Split {
  torch::nn::LinearImpl* last = nullptr;  ///< null if the module does not end in one
  at::Tensor hidden;                      ///< its input
};

/// Applies all of `module` but a last linear layer.
Split before_last_linear(const TensorModule& module, const at::Tensor& x) {
  const auto whole = module.ptr();
  if (auto* linear = dynamic_cast<torch::nn::LinearImpl*>(whole.get())) return {linear, x};
  auto* sequential = dynamic_cast<torch::nn::SequentialImpl*>(whole.get());
  if (sequential == nullptr || sequential->is_empty()) return {};
  auto* linear =
      dynamic_cast<torch::nn::LinearImpl*>(sequential->ptr(sequential->size() - 1).get());
  if (linear == nullptr) return {};
  at::Tensor hidden = x;
  for (auto part = sequential->begin(); part != sequential->end() - 1; ++part) {
    hidden = part->any_forward(hidden).get<at::Tensor>();
  }
  return {linear, hidden};
}

at::Tensor shifted_softplus(const at::Tensor& x) {
  return at::softplus(x).sub_(std::log(2.0));
}

/// The linear layer at this place of the module.
const torch::nn::LinearImpl& linear_at(const torch::nn::Sequential& module, std::size_t place) {
  return module->at<torch::nn::LinearImpl>(place);
}

}  // namespace

NNConvImpl::NNConvImpl(NNConvOptions layer_options, TensorModule function)
    : options(layer_options) {
  MEZZO_CHECK(!function.is_empty(), "{}: expected an edge_func, got none", kNnConvName);
  reset();
  edge_func = std::move(function);  // the caller's own module
  edge_func.register_in(*this, "edge_func");
}

void NNConvImpl::reset() {
  detail::check_in_and_out(kNnConvName, options);
  MEZZO_CHECK(!name_of(GinAggregators{}, options.aggregator).empty(),
              "{}: expected aggregator to be one of {}, got {}", kNnConvName,
              mezzo::detail::names(GinAggregators{}), name_of(Aggregators{}, options.aggregator));
  const std::int64_t in_dst = detail::width_of_destinations(kNnConvName, options);
  if (options.residual && in_dst != options.out_features) {
    res_fc = register_module("res_fc",
                             detail::linear_layer(in_dst, options.out_features, /*bias=*/false));
  }
  if (options.bias) bias = register_parameter("bias", at::empty({options.out_features}));
  edge_func = edge_func.clone();
  edge_func.register_in(*this, "edge_func");
  reset_parameters();
}

void NNConvImpl::reset_parameters() {
  if (bias.defined()) torch::nn::init::zeros_(bias);
  detail::reset_weights({&res_fc});
}

void NNConvImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format(
      "mezzo::nn::NNConv(in_features={}, in_features_dst={}, out_features={}, aggregator={}, "
      "residual={}, bias={})",
      options.in_features, options.in_features_dst, options.out_features,
      name_of(Aggregators{}, options.aggregator), options.residual, options.bias);
}

at::Tensor NNConvImpl::forward(const Topology& topology, const NodeRows& h,
                               const at::Tensor& edge_features) {
  const std::int64_t in = options.in_features, out = options.out_features;
  const std::int64_t num_src = topology.num_src(), num_dst = topology.num_dst();
  const std::int64_t num_edges = topology.num_edges();
  detail::check_node_rows(kNnConvName, topology, h, in,
                          detail::width_of_destinations(kNnConvName, options));
  MEZZO_CHECK(
      edge_features.defined() && edge_features.dim() >= 1 && edge_features.size(0) == num_edges,
      "{}: expected edge_features [{}, ...], one row per edge, got {}", kNnConvName, num_edges,
      detail::describe(edge_features));
  const at::Tensor rows = detail::is_sparse(h.src()) ? h.src().to_dense() : h.src();
  const ReduceOp reduce = detail::reduction(options.aggregator);

  const Split split = before_last_linear(edge_func, edge_features);
  const auto check_width = [&](std::int64_t width) {
    MEZZO_CHECK(width == in * out,
                "{}: expected edge_func to return {} numbers for each edge, got {}", kNnConvName,
                in * out, width);
  };
  if (split.last != nullptr) check_width(split.last->weight.size(0));
  at::Tensor result;
  const bool is_small = split.last != nullptr && split.hidden.dim() == 2 &&
                        split.hidden.size(1) * num_dst <= out * (num_edges + num_dst);
  if (is_small && reduce != ReduceOp::kMax) {
    // h_u W_e = the sum over k of e_k h_u W_k plus h_u times the bias as [in, out].
    const std::int64_t width = split.hidden.size(1);
    const at::Tensor outer =
        gspmm(topology, BinaryOp::kMul, reduce, rows.unsqueeze(1), split.hidden.unsqueeze(-1));
    const at::Tensor weight =
        split.last->weight.view({in, out, width}).permute({1, 2, 0}).reshape({out, width * in});
    result = mezzo::linear(outer.view({num_dst, width * in}), weight);
    if (split.last->bias.defined()) {
      const at::Tensor sums = gspmm(topology, BinaryOp::kCopyLhs, reduce, rows, std::nullopt);
      result = result + mezzo::linear(sums, split.last->bias.view({in, out}).t());
    }
  } else {
    const at::Tensor weights = split.last == nullptr
                                   ? edge_func.forward(edge_features)
                                   : detail::apply_linear(*split.last, split.hidden);
    MEZZO_CHECK(weights.dim() >= 1 && weights.size(0) == num_edges,
                "{}: expected edge_func to return [{}, ...], got {}", kNnConvName, num_edges,
                detail::describe(weights));
    if (num_edges > 0) check_width(weights.numel() / num_edges);
    result = gspmm(topology, BinaryOp::kMul, reduce, rows.view({num_src, in, 1}),
                   weights.reshape({num_edges, in, out}))
                 .sum(1);
  }
  if (!res_fc.is_empty()) {
    result = result + detail::linear_first_rows(h.dst(), num_dst, res_fc->weight);
  } else if (options.residual) {
    result = result + detail::residual_rows(h.dst(), num_dst, result.scalar_type());
  }
  return detail::add_parameter(result, bias);
}

CFConvImpl::CFConvImpl(CFConvOptions layer_options) : options(layer_options) {
  reset();
}

void CFConvImpl::reset() {
  detail::check_in_and_out(kCfConvName, options);
  detail::check_positive(kCfConvName, "edge_features", options.edge_features);
  detail::check_positive(kCfConvName, "hidden_features", options.hidden_features);
  using torch::nn::Functional;
  using torch::nn::Linear;
  const std::int64_t hidden = options.hidden_features;
  project_edge = register_module(
      "project_edge",
      torch::nn::Sequential(Linear(options.edge_features, hidden), Functional(shifted_softplus),
                            Linear(hidden, hidden), Functional(shifted_softplus)));
  project_node = register_module("project_node", Linear(options.in_features, hidden));
  project_out = register_module(
      "project_out",
      torch::nn::Sequential(Linear(hidden, options.out_features), Functional(shifted_softplus)));
}

void CFConvImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format(
      "mezzo::nn::CFConv(in_features={}, edge_features={}, hidden_features={}, out_features={})",
      options.in_features, options.edge_features, options.hidden_features, options.out_features);
}

at::Tensor CFConvImpl::forward(const Topology& topology, const NodeRows& h,
                               const at::Tensor& edge_features) {
  detail::check_input(kCfConvName, topology, h.src(), options.in_features);
  detail::check_edge_features(kCfConvName, topology, edge_features, h.src(),
                              {topology.num_edges(), options.edge_features});
  const at::Tensor hidden =
      shifted_softplus(detail::apply_linear(linear_at(project_edge, 0), edge_features));
  const at::Tensor filter =
      shifted_softplus(detail::apply_linear(linear_at(project_edge, 2), hidden));
  const at::Tensor received = gspmm(topology, BinaryOp::kMul, ReduceOp::kSum,
                                    detail::apply_linear(*project_node, h.src()), filter);
  return shifted_softplus(detail::apply_linear(linear_at(project_out, 0), received));
}

GatedGCNConvImpl::GatedGCNConvImpl(GatedGCNConvOptions layer_options)
    : options(std::move(layer_options)) {
  reset();
}

void GatedGCNConvImpl::reset() {
  const std::int64_t in = options.in_features, out = options.out_features;
  detail::check_in_and_out(kGatedGcnConvName, options);
  detail::check_positive(kGatedGcnConvName, "edge_features", options.edge_features);
  detail::check_probability(kGatedGcnConvName, "dropout", options.dropout);
  A = register_module("A", torch::nn::Linear(in, out));
  B = register_module("B", torch::nn::Linear(in, out));
  D = register_module("D", torch::nn::Linear(in, out));
  E = register_module("E", torch::nn::Linear(in, out));
  C = register_module("C", torch::nn::Linear(options.edge_features, out));
  normalize_nodes_ = detail::add_normalization(*this, "bn_node", Normalization::kBatch, out);
  normalize_edges_ = detail::add_normalization(*this, "bn_edge", Normalization::kBatch, out);
}

void GatedGCNConvImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format(
      "mezzo::nn::GatedGCNConv(in_features={}, edge_features={}, out_features={}, dropout={}, "
      "batch_norm={}, residual={})",
      options.in_features, options.edge_features, options.out_features, options.dropout,
      options.batch_norm, options.residual);
}

GatedGCNConvImpl::Result GatedGCNConvImpl::forward(const Topology& topology, const NodeRows& h,
                                                   const at::Tensor& edge_features) {
  detail::check_node_rows(kGatedGcnConvName, topology, h, options.in_features, options.in_features);
  detail::check_edge_features(kGatedGcnConvName, topology, edge_features, h.src(),
                              {topology.num_edges(), options.edge_features});
  const std::int64_t num_dst = topology.num_dst();
  // In place, as no gradient reads a sum: each tensor is as large as the result.
  at::Tensor edges = detail::apply_linear(*C, edge_features);
  edges.add_(gsddmm(topology, BinaryOp::kAdd, detail::apply_linear(*D, h.src()),
                    detail::linear_first_rows(h.dst(), num_dst, E->weight, E->bias)));
  const at::Tensor gates = at::sigmoid(edges);
  const at::Tensor received =
      gspmm(topology, BinaryOp::kMul, ReduceOp::kSum, detail::apply_linear(*B, h.src()), gates);
  const at::Tensor sums =
      gspmm(topology, BinaryOp::kCopyRhs, ReduceOp::kSum, std::nullopt, gates) + 1e-6;
  at::Tensor nodes =
      detail::linear_first_rows(h.dst(), num_dst, A->weight, A->bias) + received / sums;
  if (options.batch_norm) {
    nodes = normalize_nodes_(nodes);
    edges = normalize_edges_(edges);
  }
  nodes = detail::activate(options.activation, nodes);
  edges = detail::activate(options.activation, edges);
  const bool same_sizes =
      options.in_features == options.out_features && options.edge_features == options.out_features;
  if (options.residual && same_sizes) {
    nodes = nodes + detail::residual_rows(h.dst(), num_dst, nodes.scalar_type());
    edges = edges + edge_features.to(edges.scalar_type());
  }
  return {mezzo::feature_dropout(nodes, options.dropout, is_training()),
          mezzo::feature_dropout(edges, options.dropout, is_training())};
}

}  // namespace mezzo::nn
