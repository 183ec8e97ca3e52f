#include "mezzo/nn/conv/attention_layers.h"

#include <cmath>
#include <optional>
#include <ostream>
#include <string_view>
#include <utility>

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

constexpr auto kGatConvName = "GATConv";
constexpr auto kGatv2ConvName = "GATv2Conv";
constexpr auto kDotGatConvName = "DotGatConv";

}  // namespace

GATConvImpl::GATConvImpl(GATConvOptions layer_options) : options(std::move(layer_options)) {
  reset();
}

void GATConvImpl::reset() {
  detail::check_attention_options(kGatConvName, options);
  const std::int64_t heads = options.num_heads, width = heads * options.out_features;
  const std::int64_t in_dst = detail::width_of_destinations(kGatConvName, options);
  detail::register_projections(*this, in_dst);
  attn_l = register_parameter("attn_l", at::empty({1, heads, options.out_features}));
  attn_r = register_parameter("attn_r", at::empty({1, heads, options.out_features}));
  if (options.residual && in_dst != width) {
    res_fc = register_module("res_fc", detail::linear_to_heads(options, in_dst, options.bias));
  }
  if (options.bias && res_fc.is_empty()) bias = register_parameter("bias", at::empty({width}));
  reset_parameters();
}

void GATConvImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format(
      "mezzo::nn::GATConv(in_features={}, in_features_dst={}, out_features={}, "
      "num_heads={}, feature_dropout={}, attention_dropout={}, negative_slope={}, "
      "residual={}, bias={}, allow_zero_in_degree={})",
      options.in_features, options.in_features_dst, options.out_features, options.num_heads,
      options.feature_dropout, options.attention_dropout, options.negative_slope, options.residual,
      options.bias, options.allow_zero_in_degree);
}

void GATConvImpl::reset_parameters() {
  detail::reset_weights({&fc, &fc_src, &fc_dst});
  torch::nn::init::xavier_normal_(attn_l, detail::kReluGain);
  torch::nn::init::xavier_normal_(attn_r, detail::kReluGain);
  detail::reset_weights({&res_fc});
  if (options.bias) torch::nn::init::zeros_(res_fc.is_empty() ? bias : res_fc->bias);
}

at::Tensor GATConvImpl::score_weight() const {
  return at::cat({detail::weight_of_scores(attn_l), detail::weight_of_scores(attn_r)});
}

GATConvImpl::Projected GATConvImpl::project(const Topology& topology, const NodeRows& features,
                                            const at::Tensor& edge_weight) {
  detail::check_node_rows(kGatConvName, topology, features, options.in_features,
                          detail::width_of_destinations(kGatConvName, options));
  detail::check_in_degrees(kGatConvName, topology, options.allow_zero_in_degree);
  const std::int64_t heads = options.num_heads, num_dst = topology.num_dst();
  std::optional<at::Tensor> factors =
      detail::edge_factors(kGatConvName, topology, edge_weight,
                           detail::scale_dtype(features.src(), detail::weight_of_sources(*this)));
  const NodeRows h = detail::drop_features(features, options.feature_dropout, is_training());
  const at::Tensor rows = mezzo::linear(h.src(), detail::weight_of_sources(*this));
  // Matrix products for the scores, a single one if possible: an elementwise z * attn_l would
  // convert 16-bit rows to float32.
  const at::Tensor weight = score_weight();
  at::Tensor score_src, score_dst;
  if (h.is_pair() || fc.is_empty()) {
    const at::Tensor received =
        detail::linear_first_rows(h.dst(), num_dst, detail::weight_of_destinations(*this));
    score_src = mezzo::linear(rows, weight.narrow(0, 0, heads));
    score_dst = mezzo::linear(received, weight.narrow(0, heads, heads));
  } else {
    const at::Tensor scores = mezzo::linear(rows, weight);
    score_src = scores.narrow(1, 0, heads);
    score_dst = detail::first_rows(scores, num_dst).narrow(1, heads, heads);
  }
  return {.h = h,
          .rows = rows.reshape({topology.num_src(), heads, options.out_features}),
          .score_src = score_src,
          .score_dst = score_dst,
          .edge_weight = std::move(factors)};
}

at::Tensor GATConvImpl::attention_of(const Topology& topology, const Projected& projected) const {
  // Uses the accumulator type throughout, as gat_attention does.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const at::ScalarType dtype = detail::scale_dtype(projected.rows);
  const at::Tensor logits =
      at::leaky_relu(gsddmm(topology, BinaryOp::kAdd, projected.score_src.to(dtype),
                            projected.score_dst.to(dtype)),
                     options.negative_slope);
  const at::Tensor attention = mezzo::feature_dropout(edge_softmax(topology, logits),
                                                      options.attention_dropout, is_training());
  if (!projected.edge_weight) return attention;
  return attention * projected.edge_weight->unsqueeze(-1);
}

at::Tensor GATConvImpl::finish(const NodeRows& h, at::Tensor out) const {
  if (options.residual) out = detail::add_residual(out, h, res_fc);
  if (bias.defined()) {
    out = detail::add_parameter(out, bias.view({options.num_heads, options.out_features}));
  }
  return detail::activate(options.activation, out);
}

at::Tensor GATConvImpl::forward(const Topology& topology, const NodeRows& h,
                                const at::Tensor& edge_weight) {
  const Projected projected = project(topology, h, edge_weight);
  const at::Tensor out =
      gat_attention(topology, projected.rows, projected.score_src, projected.score_dst,
                    {.negative_slope = options.negative_slope,
                     .dropout = options.attention_dropout,
                     .training = is_training(),
                     .edge_weight = projected.edge_weight.value_or(at::Tensor())});
  return finish(projected.h, out);
}

std::pair<at::Tensor, at::Tensor> GATConvImpl::forward_with_attention(
    const Topology& topology, const NodeRows& h, const at::Tensor& edge_weight) {
  const Projected projected = project(topology, h, edge_weight);
  const at::Tensor attention = attention_of(topology, projected).unsqueeze(-1);
  const at::Tensor out = gspmm(topology, BinaryOp::kMul, ReduceOp::kSum, projected.rows, attention);
  return {finish(projected.h, out), attention};
}

GATv2ConvImpl::GATv2ConvImpl(GATv2ConvOptions layer_options) : options(std::move(layer_options)) {
  reset();
}

void GATv2ConvImpl::reset() {
  detail::check_attention_options(kGatv2ConvName, options);
  const std::int64_t heads = options.num_heads, width = heads * options.out_features;
  const std::int64_t in_dst = detail::width_of_destinations(kGatv2ConvName, options);
  MEZZO_CHECK(!options.share_weights || in_dst == options.in_features,
              "{}: expected equal in_features and in_features_dst for share_weights, got {} and {}",
              kGatv2ConvName, options.in_features, in_dst);
  const auto projection = [&](std::int64_t in_features) {
    return detail::linear_to_heads(options, in_features, options.bias);
  };
  fc_src = register_module("fc_src", projection(options.in_features));
  // Registered once: otherwise parameters() lists it twice and an optimizer updates it twice.
  fc_dst = options.share_weights ? fc_src : register_module("fc_dst", projection(in_dst));
  attn = register_parameter("attn", at::empty({1, heads, options.out_features}));
  if (options.residual && in_dst != width) res_fc = register_module("res_fc", projection(in_dst));
  reset_parameters();
}

void GATv2ConvImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format(
      "mezzo::nn::GATv2Conv(in_features={}, in_features_dst={}, out_features={}, "
      "num_heads={}, feature_dropout={}, attention_dropout={}, negative_slope={}, "
      "residual={}, bias={}, share_weights={}, allow_zero_in_degree={})",
      options.in_features, options.in_features_dst, options.out_features, options.num_heads,
      options.feature_dropout, options.attention_dropout, options.negative_slope, options.residual,
      options.bias, options.share_weights, options.allow_zero_in_degree);
}

void GATv2ConvImpl::reset_parameters() {
  const auto reset = [&](torch::nn::Linear& part) {
    torch::nn::init::xavier_normal_(part->weight, detail::kReluGain);
    if (options.bias) torch::nn::init::zeros_(part->bias);
  };
  reset(fc_src);
  if (!options.share_weights) reset(fc_dst);
  torch::nn::init::xavier_normal_(attn, detail::kReluGain);
  if (!res_fc.is_empty()) reset(res_fc);
}

at::Tensor GATv2ConvImpl::received(const NodeRows& h, const at::Tensor& sent,
                                   std::int64_t num_dst) const {
  if (options.share_weights && !h.is_pair()) return detail::first_rows(sent, num_dst);
  return detail::linear_first_rows(h.dst(), num_dst, fc_dst->weight, fc_dst->bias)
      .reshape({num_dst, options.num_heads, options.out_features});
}

at::Tensor GATv2ConvImpl::forward(const Topology& topology, const NodeRows& h) {
  return forward_with_attention(topology, h).first;
}

std::pair<at::Tensor, at::Tensor> GATv2ConvImpl::forward_with_attention(const Topology& topology,
                                                                        const NodeRows& features) {
  detail::check_node_rows(kGatv2ConvName, topology, features, options.in_features,
                          detail::width_of_destinations(kGatv2ConvName, options));
  detail::check_in_degrees(kGatv2ConvName, topology, options.allow_zero_in_degree);
  const std::int64_t heads = options.num_heads, width = options.out_features;
  const std::int64_t num_dst = topology.num_dst();

  const NodeRows h = detail::drop_features(features, options.feature_dropout, is_training());
  const at::Tensor sent =
      detail::apply_linear(*fc_src, h.src()).reshape({topology.num_src(), heads, width});
  const at::Tensor logits =
      gatv2_scores(topology, sent, received(h, sent, num_dst), attn, options.negative_slope);
  const at::Tensor attention = [&] {
    // Dropout is an operation of the region's type; the attention stays float32, as in evaluation.
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    return mezzo::feature_dropout(edge_softmax(topology, logits), options.attention_dropout,
                                  is_training())
        .unsqueeze(-1);
  }();
  at::Tensor out = gspmm(topology, BinaryOp::kMul, ReduceOp::kSum, sent, attention);
  if (options.residual) out = detail::add_residual(out, h, res_fc);
  return {detail::activate(options.activation, out), attention};
}

DotGatConvImpl::DotGatConvImpl(DotGatConvOptions layer_options) : options(layer_options) {
  reset();
}

void DotGatConvImpl::reset() {
  detail::check_attention_sizes(kDotGatConvName, options);
  detail::register_projections(*this, detail::width_of_destinations(kDotGatConvName, options));
}

void DotGatConvImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format(
      "mezzo::nn::DotGatConv(in_features={}, in_features_dst={}, out_features={}, "
      "num_heads={}, allow_zero_in_degree={})",
      options.in_features, options.in_features_dst, options.out_features, options.num_heads,
      options.allow_zero_in_degree);
}

void DotGatConvImpl::reset_parameters() {
  for (torch::nn::Linear* part : {&fc, &fc_src, &fc_dst}) {
    if (!part->is_empty()) (*part)->reset_parameters();
  }
}

at::Tensor DotGatConvImpl::forward(const Topology& topology, const NodeRows& h) {
  return forward_with_attention(topology, h).first;
}

std::pair<at::Tensor, at::Tensor> DotGatConvImpl::forward_with_attention(const Topology& topology,
                                                                         const NodeRows& h) {
  detail::check_node_rows(kDotGatConvName, topology, h, options.in_features,
                          detail::width_of_destinations(kDotGatConvName, options));
  detail::check_in_degrees(kDotGatConvName, topology, options.allow_zero_in_degree);
  const std::int64_t heads = options.num_heads, width = options.out_features;
  const std::int64_t num_dst = topology.num_dst();
  const at::Tensor rows = mezzo::linear(h.src(), detail::weight_of_sources(*this))
                              .reshape({topology.num_src(), heads, width});
  const at::Tensor own = detail::rows_of_destinations(*this, h, rows, num_dst);
  // Divides the rows, not their products, which may overflow float16.
  const at::Tensor received =
      own.reshape({num_dst, heads, width}) / std::sqrt(static_cast<double>(width));
  const at::Tensor attention =
      edge_softmax(topology, gsddmm(topology, BinaryOp::kDot, rows, received));
  return {gspmm(topology, BinaryOp::kMul, ReduceOp::kSum, rows, attention), attention};
}

}  // namespace mezzo::nn
