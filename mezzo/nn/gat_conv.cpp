#include "mezzo/nn/gat_conv.h"

#include <cmath>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <torch/nn/init.h>

#include "mezzo/message_passing/ops.h"
#include "mezzo/nn/layer_support.h"
#include "mezzo/nn/propagation.h"

namespace mezzo::nn {
namespace {

constexpr auto kGatConvName = "GATConv";

}  // namespace

GATConvImpl::GATConvImpl(GATConvOptions given) : options(std::move(given)) {
  detail::check_attention_options(kGatConvName, options);
  const std::int64_t heads = options.num_heads, width = heads * options.out_features;
  const auto product = torch::nn::LinearOptions(options.in_features, width).bias(false);
  fc = register_module("fc", torch::nn::Linear(product));
  attn_l = register_parameter("attn_l", at::empty({1, heads, options.out_features}));
  attn_r = register_parameter("attn_r", at::empty({1, heads, options.out_features}));
  if (options.residual && options.in_features != width) {
    res_fc = register_module("res_fc", torch::nn::Linear(product));
  }
  if (options.bias) bias = register_parameter("bias", at::empty({width}));
  reset_parameters();
}

void GATConvImpl::reset_parameters() {
  const double gain = std::sqrt(2.0);  // for relu
  torch::nn::init::xavier_normal_(fc->weight, gain);
  torch::nn::init::xavier_normal_(attn_l, gain);
  torch::nn::init::xavier_normal_(attn_r, gain);
  if (!res_fc.is_empty()) torch::nn::init::xavier_normal_(res_fc->weight, gain);
  if (options.bias) torch::nn::init::zeros_(bias);
}

at::Tensor GATConvImpl::score_weight() const {
  const at::Tensor own_head = at::eye(options.num_heads, attn_l.options()).unsqueeze(-1);
  return at::cat({(own_head * attn_l).flatten(1), (own_head * attn_r).flatten(1)});
}

at::Tensor GATConvImpl::forward(const Topology& topology, const at::Tensor& features,
                                const at::Tensor& edge_weight) {
  detail::check_input(kGatConvName, topology, features, options.in_features);
  detail::check_prefix(kGatConvName, topology);
  detail::check_in_degrees(kGatConvName, topology, options.allow_zero_in_degree);
  const std::optional<at::Tensor> factors =
      detail::edge_factors(kGatConvName, topology, edge_weight, detail::scale_dtype(features));
  const std::int64_t heads = options.num_heads, width = options.out_features;
  const std::int64_t num_dst = topology.num_dst();

  const at::Tensor h = mezzo::feature_dropout(features, options.feature_dropout, is_training());
  const at::Tensor rows = mezzo::linear(h, fc->weight);
  // One matrix product for all scores: z * attn_l elementwise would widen 16-bit rows to the
  // parameter's float32.
  const at::Tensor scores = mezzo::linear(rows, score_weight());
  at::Tensor out = gat_attention(topology, rows.reshape({topology.num_src(), heads, width}),
                                 scores.narrow(1, 0, heads),
                                 detail::first_rows(scores, num_dst).narrow(1, heads, heads),
                                 {.negative_slope = options.negative_slope,
                                  .dropout = options.attention_dropout,
                                  .training = is_training(),
                                  .edge_weight = factors.value_or(at::Tensor())});
  if (options.residual) {
    const at::Tensor own = res_fc.is_empty()
                               ? detail::residual_rows(h, num_dst, out.scalar_type())
                               : detail::linear_first_rows(h, num_dst, res_fc->weight);
    out = out + own.reshape({num_dst, heads, width});
  }
  if (options.bias) out = detail::add_parameter(out, bias.view({heads, width}));
  return detail::activate(options.activation, out);
}

}  // namespace mezzo::nn
