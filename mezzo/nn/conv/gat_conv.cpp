#include "mezzo/nn/conv/gat_conv.h"

#include <cmath>
#include <optional>
#include <ostream>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/format.h>
#include <torch/nn/init.h>

#include "mezzo/nn/conv/propagation.h"
#include "mezzo/nn/layer_support.h"
#include "mezzo/ops/ops.h"

namespace mezzo::nn {
namespace {

constexpr auto kGatConvName = "GATConv";

}  // namespace

GATConvImpl::GATConvImpl(GATConvOptions layer_options) : options(std::move(layer_options)) {
  reset();
}

void GATConvImpl::reset() {
  detail::check_attention_options(kGatConvName, options);
  const std::int64_t heads = options.num_heads, width = heads * options.out_features;
  const std::int64_t in = options.in_features, in_dst = destination_width();
  const auto product = [width](std::int64_t from) {
    return torch::nn::Linear(torch::nn::LinearOptions(from, width).bias(false));
  };
  if (options.in_features_dst == 0) {
    fc = register_module("fc", product(in));
  } else {
    fc_src = register_module("fc_src", product(in));
    fc_dst = register_module("fc_dst", product(in_dst));
  }
  attn_l = register_parameter("attn_l", at::empty({1, heads, options.out_features}));
  attn_r = register_parameter("attn_r", at::empty({1, heads, options.out_features}));
  if (options.residual && in_dst != width) {
    const auto projection = torch::nn::LinearOptions(in_dst, width).bias(options.bias);
    res_fc = register_module("res_fc", torch::nn::Linear(projection));
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

std::int64_t GATConvImpl::destination_width() const {
  return detail::width_of_destinations(kGatConvName, options.in_features, options.in_features_dst);
}

void GATConvImpl::reset_parameters() {
  const double gain = std::sqrt(2.0);  // for relu
  for (torch::nn::Linear* part : {&fc, &fc_src, &fc_dst}) {
    if (!part->is_empty()) torch::nn::init::xavier_normal_((*part)->weight, gain);
  }
  torch::nn::init::xavier_normal_(attn_l, gain);
  torch::nn::init::xavier_normal_(attn_r, gain);
  if (!res_fc.is_empty()) torch::nn::init::xavier_normal_(res_fc->weight, gain);
  if (options.bias) torch::nn::init::zeros_(res_fc.is_empty() ? bias : res_fc->bias);
}

at::Tensor GATConvImpl::score_weight() const {
  const at::Tensor own_head = at::eye(options.num_heads, attn_l.options()).unsqueeze(-1);
  return at::cat({(own_head * attn_l).flatten(1), (own_head * attn_r).flatten(1)});
}

GATConvImpl::Projected GATConvImpl::project(const Topology& topology, const NodeRows& features,
                                            const at::Tensor& edge_weight) {
  detail::check_node_rows(kGatConvName, topology, features, options.in_features,
                          destination_width());
  detail::check_in_degrees(kGatConvName, topology, options.allow_zero_in_degree);
  const std::int64_t heads = options.num_heads, num_dst = topology.num_dst();
  const at::Tensor& projection = fc.is_empty() ? fc_src->weight : fc->weight;
  std::optional<at::Tensor> factors = detail::edge_factors(
      kGatConvName, topology, edge_weight, detail::scale_dtype(features.src(), projection));
  const NodeRows h = detail::drop_features(features, options.feature_dropout, is_training());
  const at::Tensor rows = mezzo::linear(h.src(), projection);
  // Matrix products for the scores, a single one if possible: an elementwise z * attn_l would
  // convert 16-bit rows to float32.
  const at::Tensor weight = score_weight();
  at::Tensor score_src, score_dst;
  if (h.is_pair() || fc.is_empty()) {
    const at::Tensor received =
        detail::linear_first_rows(h.dst(), num_dst, fc.is_empty() ? fc_dst->weight : fc->weight);
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
  const at::ScalarType wide = detail::scale_dtype(projected.rows);
  const at::Tensor logits = at::leaky_relu(
      gsddmm(topology, BinaryOp::kAdd, projected.score_src.to(wide), projected.score_dst.to(wide)),
      options.negative_slope);
  const at::Tensor attention = mezzo::feature_dropout(edge_softmax(topology, logits),
                                                      options.attention_dropout, is_training());
  if (!projected.edge_weight) return attention;
  return attention * projected.edge_weight->unsqueeze(-1);
}

at::Tensor GATConvImpl::finish(const Topology& topology, const NodeRows& h, at::Tensor out) const {
  const std::int64_t num_dst = topology.num_dst();
  const std::int64_t heads = options.num_heads, width = options.out_features;
  if (options.residual) {
    const at::Tensor own =
        res_fc.is_empty()
            ? detail::residual_rows(h.dst(), num_dst, out.scalar_type())
            : detail::linear_first_rows(h.dst(), num_dst, res_fc->weight, res_fc->bias);
    out = out + own.reshape({num_dst, heads, width});
  }
  if (bias.defined()) out = detail::add_parameter(out, bias.view({heads, width}));
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
  return finish(topology, projected.h, out);
}

std::pair<at::Tensor, at::Tensor> GATConvImpl::forward_with_attention(
    const Topology& topology, const NodeRows& h, const at::Tensor& edge_weight) {
  const Projected projected = project(topology, h, edge_weight);
  const at::Tensor attention = attention_of(topology, projected).unsqueeze(-1);
  const at::Tensor out = gspmm(topology, BinaryOp::kMul, ReduceOp::kSum, projected.rows, attention);
  return {finish(topology, projected.h, out), attention};
}

}  // namespace mezzo::nn
