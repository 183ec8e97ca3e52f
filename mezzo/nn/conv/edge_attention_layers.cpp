#include "mezzo/nn/conv/edge_attention_layers.h"

#include <ostream>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/format.h>
#include <torch/nn/init.h>

#include "mezzo/core/error.h"
#include "mezzo/nn/conv/attention_support.h"
#include "mezzo/nn/conv/conv_support.h"
#include "mezzo/nn/layer_support.h"
#include "mezzo/ops/ops.h"

namespace mezzo::nn {
namespace {

constexpr auto kEgatConvName = "EGATConv";
constexpr auto kEdgeGatConvName = "EdgeGATConv";

/// attn . weight x of each head as a weight for x: [heads, in]. weight: [heads * width, in].
at::Tensor weight_of_projected_scores(const at::Tensor& attn, const at::Tensor& weight) {
  return (attn.squeeze(0).unsqueeze(-1) * weight.view({attn.size(1), attn.size(2), -1})).sum(1);
}

}  // namespace

EGATConvImpl::EGATConvImpl(EGATConvOptions layer_options) : options(layer_options) {
  reset();
}

void EGATConvImpl::reset() {
  detail::check_attention_sizes(kEgatConvName, options);
  detail::check_positive(kEgatConvName, "in_edge_features", options.in_edge_features);
  detail::check_positive(kEgatConvName, "out_edge_features", options.out_edge_features);
  const std::int64_t in_dst = detail::width_of_destinations(kEgatConvName, options);
  const std::int64_t width = options.num_heads * options.out_edge_features;
  const auto to_edges = [width](std::int64_t in) {
    return detail::linear_layer(in, width, /*bias=*/false);
  };
  fc_node_src = register_module(
      "fc_node_src", detail::linear_to_heads(options, options.in_features, /*bias=*/false));
  fc_ni = register_module("fc_ni", to_edges(options.in_features));
  fc_nj = register_module("fc_nj", to_edges(in_dst));
  fc_fij = register_module("fc_fij", to_edges(options.in_edge_features));
  attn = register_parameter("attn", at::empty({1, options.num_heads, options.out_edge_features}));
  if (options.bias) bias = register_parameter("bias", at::empty({width}));
  reset_parameters();
}

void EGATConvImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format(
      "mezzo::nn::EGATConv(in_features={}, in_features_dst={}, in_edge_features={}, "
      "out_features={}, out_edge_features={}, num_heads={}, bias={})",
      options.in_features, options.in_features_dst, options.in_edge_features, options.out_features,
      options.out_edge_features, options.num_heads, options.bias);
}

void EGATConvImpl::reset_parameters() {
  detail::reset_weights({&fc_node_src, &fc_ni, &fc_fij, &fc_nj});
  torch::nn::init::xavier_normal_(attn, detail::kReluGain);
  if (bias.defined()) torch::nn::init::zeros_(bias);
}

EGATConvImpl::Result EGATConvImpl::forward(const Topology& topology, const NodeRows& h,
                                           const at::Tensor& edge_features,
                                           const at::Tensor& edge_weight) {
  auto [nodes, edges, attention] = forward_with_attention(topology, h, edge_features, edge_weight);
  return {nodes, edges};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> EGATConvImpl::forward_with_attention(
    const Topology& topology, const NodeRows& h, const at::Tensor& edge_features,
    const at::Tensor& edge_weight) {
  detail::check_node_rows(kEgatConvName, topology, h, options.in_features,
                          detail::width_of_destinations(kEgatConvName, options));
  detail::check_edge_features(kEgatConvName, topology, edge_features, h.src(),
                              {topology.num_edges(), options.in_edge_features});
  detail::check_in_degrees(kEgatConvName, topology, /*allow_zero=*/false);
  const at::ScalarType dtype = detail::scale_dtype(h.src(), fc_ni->weight);
  const auto factors = detail::edge_factors(kEgatConvName, topology, edge_weight, dtype);
  const std::int64_t heads = options.num_heads;

  const at::Tensor sent = mezzo::linear(h.src(), fc_ni->weight);
  const at::Tensor received =
      detail::linear_first_rows(h.dst(), topology.num_dst(), fc_nj->weight, bias);
  // In place, as no gradient reads a sum: each tensor is as large as the result.
  at::Tensor edges = mezzo::linear(edge_features, fc_fij->weight);
  edges.add_(gsddmm(topology, BinaryOp::kAdd, sent, received));
  at::leaky_relu_(edges, 0.01);
  const at::Tensor scores = mezzo::linear(edges, detail::weight_of_scores(attn));
  at::Tensor attention;
  {
    // Uses the accumulator type, as the other layers with attention do.
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    attention = edge_softmax(topology, scores.to(dtype)).unsqueeze(-1);
    if (factors) attention = attention * factors->view({-1, 1, 1});
  }
  const at::Tensor rows = mezzo::linear(h.src(), fc_node_src->weight)
                              .view({topology.num_src(), heads, options.out_features});
  const at::Tensor nodes = gspmm(topology, BinaryOp::kMul, ReduceOp::kSum, rows, attention);
  return {nodes, edges.view({topology.num_edges(), heads, options.out_edge_features}), attention};
}

EdgeGATConvImpl::EdgeGATConvImpl(EdgeGATConvOptions layer_options)
    : options(std::move(layer_options)) {
  reset();
}

void EdgeGATConvImpl::reset() {
  detail::check_attention_options(kEdgeGatConvName, options);
  detail::check_positive(kEdgeGatConvName, "edge_features", options.edge_features);
  const std::int64_t in_dst = detail::width_of_destinations(kEdgeGatConvName, options);
  const std::int64_t heads = options.num_heads, width = heads * options.out_features;
  detail::register_projections(*this, in_dst);
  const auto vector = [&] { return at::empty({1, heads, options.out_features}); };
  attn_l = register_parameter("attn_l", vector());
  attn_r = register_parameter("attn_r", vector());
  if (options.bias) bias = register_parameter("bias", at::empty({width}));
  const auto to_heads = [&](std::int64_t in) {
    return detail::linear_to_heads(options, in, /*bias=*/false);
  };
  if (options.residual) res_fc = register_module("res_fc", to_heads(in_dst));
  fc_edge = register_module("fc_edge", to_heads(options.edge_features));
  attn_edge = register_parameter("attn_edge", vector());
  reset_parameters();
}

void EdgeGATConvImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format(
      "mezzo::nn::EdgeGATConv(in_features={}, in_features_dst={}, edge_features={}, "
      "out_features={}, num_heads={}, feature_dropout={}, attention_dropout={}, "
      "negative_slope={}, residual={}, allow_zero_in_degree={}, bias={})",
      options.in_features, options.in_features_dst, options.edge_features, options.out_features,
      options.num_heads, options.feature_dropout, options.attention_dropout, options.negative_slope,
      options.residual, options.allow_zero_in_degree, options.bias);
}

void EdgeGATConvImpl::reset_parameters() {
  detail::reset_weights({&fc, &fc_src, &fc_dst, &fc_edge, &res_fc});
  for (at::Tensor* part : {&attn_l, &attn_r, &attn_edge}) {
    torch::nn::init::xavier_normal_(*part, detail::kReluGain);
  }
  if (bias.defined()) torch::nn::init::zeros_(bias);
}

at::Tensor EdgeGATConvImpl::forward(const Topology& topology, const NodeRows& h,
                                    const at::Tensor& edge_features) {
  return forward_with_attention(topology, h, edge_features).first;
}

std::pair<at::Tensor, at::Tensor> EdgeGATConvImpl::forward_with_attention(
    const Topology& topology, const NodeRows& features, const at::Tensor& edge_features) {
  detail::check_node_rows(kEdgeGatConvName, topology, features, options.in_features,
                          detail::width_of_destinations(kEdgeGatConvName, options));
  detail::check_edge_features(kEdgeGatConvName, topology, edge_features, features.src(),
                              {topology.num_edges(), options.edge_features});
  detail::check_in_degrees(kEdgeGatConvName, topology, options.allow_zero_in_degree);
  const std::int64_t heads = options.num_heads, width = options.out_features;
  const std::int64_t num_dst = topology.num_dst();
  const NodeRows h = detail::drop_features(features, options.feature_dropout, is_training());
  const at::Tensor rows = mezzo::linear(h.src(), detail::weight_of_sources(*this));
  const at::Tensor own = detail::rows_of_destinations(*this, h, rows, num_dst);
  const at::Tensor sent = mezzo::linear(rows, detail::weight_of_scores(attn_l));
  const at::Tensor received = mezzo::linear(own, detail::weight_of_scores(attn_r));
  const at::Tensor of_edges =
      mezzo::linear(edge_features, weight_of_projected_scores(attn_edge, fc_edge->weight));
  at::Tensor attention;
  {
    // Uses the accumulator type, as the other layers with attention do.
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const at::ScalarType dtype = detail::scale_dtype(rows);
    const at::Tensor logits = at::leaky_relu(
        gsddmm(topology, BinaryOp::kAdd, sent.to(dtype), received.to(dtype)) + of_edges.to(dtype),
        options.negative_slope);
    attention = mezzo::feature_dropout(edge_softmax(topology, logits), options.attention_dropout,
                                       is_training())
                    .unsqueeze(-1);
  }
  // The weighted sums of the edge features, [num_dst, heads, edge], and fc_edge of each head.
  const at::Tensor edge_sums =
      gspmm(topology, BinaryOp::kMul, ReduceOp::kSum, attention.to(edge_features.scalar_type()),
            edge_features.unsqueeze(1), Target::kEdge, Target::kEdge);
  std::vector<at::Tensor> of_heads;
  for (std::int64_t head = 0; head < heads; ++head) {
    of_heads.push_back(
        mezzo::linear(edge_sums.select(1, head), fc_edge->weight.narrow(0, head * width, width)));
  }
  at::Tensor out = gspmm(topology, BinaryOp::kMul, ReduceOp::kSum,
                         rows.view({topology.num_src(), heads, width}), attention) +
                   at::stack(of_heads, 1);
  if (options.residual) out = detail::add_residual(out, h, res_fc);
  if (bias.defined()) out = detail::add_parameter(out, bias.view({heads, width}));
  return {detail::activate(options.activation, out), attention};
}

}  // namespace mezzo::nn
