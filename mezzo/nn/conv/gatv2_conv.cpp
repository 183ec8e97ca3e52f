#include "mezzo/nn/conv/gatv2_conv.h"

#include <cmath>
#include <ostream>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/format.h>
#include <torch/nn/init.h>

#include "mezzo/core/error.h"
#include "mezzo/nn/layer_support.h"
#include "mezzo/ops/ops.h"

namespace mezzo::nn {
namespace {

constexpr auto kGatv2ConvName = "GATv2Conv";

}  // namespace

GATv2ConvImpl::GATv2ConvImpl(GATv2ConvOptions layer_options) : options(std::move(layer_options)) {
  reset();
}

void GATv2ConvImpl::reset() {
  detail::check_attention_options(kGatv2ConvName, options);
  const std::int64_t heads = options.num_heads, width = heads * options.out_features;
  const std::int64_t in_dst = destination_width();
  MEZZO_CHECK(!options.share_weights || in_dst == options.in_features,
              "{}: expected one width of rows for share_weights, got in_features {} and "
              "in_features_dst {}",
              kGatv2ConvName, options.in_features, in_dst);
  const auto product = [&](std::int64_t from) {
    return torch::nn::Linear(torch::nn::LinearOptions(from, width).bias(options.bias));
  };
  fc_src = register_module("fc_src", product(options.in_features));
  // Registered once: otherwise parameters() lists it twice and an optimizer updates it twice.
  fc_dst = options.share_weights ? fc_src : register_module("fc_dst", product(in_dst));
  attn = register_parameter("attn", at::empty({1, heads, options.out_features}));
  if (options.residual && in_dst != width) res_fc = register_module("res_fc", product(in_dst));
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

std::int64_t GATv2ConvImpl::destination_width() const {
  return detail::width_of_destinations(kGatv2ConvName, options.in_features,
                                       options.in_features_dst);
}

void GATv2ConvImpl::reset_parameters() {
  const double gain = std::sqrt(2.0);  // for relu
  const auto reset = [&](torch::nn::Linear& part) {
    torch::nn::init::xavier_normal_(part->weight, gain);
    if (options.bias) torch::nn::init::zeros_(part->bias);
  };
  reset(fc_src);
  if (!options.share_weights) reset(fc_dst);
  torch::nn::init::xavier_normal_(attn, gain);
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
                          destination_width());
  detail::check_in_degrees(kGatv2ConvName, topology, options.allow_zero_in_degree);
  const std::int64_t heads = options.num_heads, width = options.out_features;
  const std::int64_t num_dst = topology.num_dst();

  const NodeRows h = detail::drop_features(features, options.feature_dropout, is_training());
  const at::Tensor sent = mezzo::linear(h.src(), fc_src->weight, fc_src->bias)
                              .reshape({topology.num_src(), heads, width});
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
  if (options.residual) {
    const at::Tensor own =
        res_fc.is_empty()
            ? detail::residual_rows(h.dst(), num_dst, out.scalar_type())
            : detail::linear_first_rows(h.dst(), num_dst, res_fc->weight, res_fc->bias);
    out = out + own.reshape({num_dst, heads, width});
  }
  return {detail::activate(options.activation, out), attention};
}

}  // namespace mezzo::nn
