#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include "mezzo/core/error.h"
#include "mezzo/nn/layer.h"
#include "mezzo/nn/layer_support.h"

/// Code shared by the layers with attention: options, projections to heads and residuals. Internal
/// to nn; not exported.
namespace mezzo::nn::detail {

/// Checks the sizes of any of these layers.
template <class Options>
void check_attention_sizes(std::string_view layer, const Options& options) {
  check_in_and_out(layer, options);
  check_positive(layer, "num_heads", options.num_heads);
}

/// Checks the options of a layer with dropout and a slope.
template <class Options>
void check_attention_options(std::string_view layer, const Options& options) {
  check_attention_sizes(layer, options);
  check_probability(layer, "feature_dropout", options.feature_dropout);
  check_probability(layer, "attention_dropout", options.attention_dropout);
  MEZZO_CHECK(std::isfinite(options.negative_slope), "{}: expected a finite negative_slope, got {}",
              layer, options.negative_slope);
}

/// A linear layer from rows of this width to all heads.
template <class Options>
torch::nn::Linear linear_to_heads(const Options& options, std::int64_t in_features, bool bias) {
  return linear_layer(in_features, options.num_heads * options.out_features, bias);
}

/// Creates `fc`, or with in_features_dst `fc_src` and `fc_dst`.
template <class Layer>
void register_projections(Layer& layer, std::int64_t in_features_dst) {
  const auto& options = layer.options;
  const auto projection = [&](std::int64_t in_features) {
    return linear_to_heads(options, in_features, /*bias=*/false);
  };
  if (options.in_features_dst == 0) {
    layer.fc = layer.register_module("fc", projection(options.in_features));
  } else {
    layer.fc_src = layer.register_module("fc_src", projection(options.in_features));
    layer.fc_dst = layer.register_module("fc_dst", projection(in_features_dst));
  }
}

/// The weight for the rows of the sources.
template <class Layer>
const at::Tensor& weight_of_sources(const Layer& layer) {
  return layer.fc.is_empty() ? layer.fc_src->weight : layer.fc->weight;
}

/// The weight for the rows of the destinations.
template <class Layer>
const at::Tensor& weight_of_destinations(const Layer& layer) {
  return layer.fc.is_empty() ? layer.fc_dst->weight : layer.fc->weight;
}

/// The projected rows of the destinations, [num_dst, heads * width]. rows: the projected rows of
/// the sources, from which they are taken if both are the same.
template <class Layer>
at::Tensor rows_of_destinations(const Layer& layer, const NodeRows& h, const at::Tensor& rows,
                                std::int64_t num_dst) {
  return h.is_pair() || layer.fc.is_empty()
             ? linear_first_rows(h.dst(), num_dst, weight_of_destinations(layer))
             : first_rows(rows, num_dst);
}

/// attn [1, heads, width] as a weight [heads, heads * width] that multiplies each head's columns:
/// a product reads 16-bit rows as they are, and an elementwise one would make another tensor.
inline at::Tensor weight_of_scores(const at::Tensor& attn) {
  return (at::eye(attn.size(1), attn.options()).unsqueeze(-1) * attn).flatten(1);
}

/// Adds the rows of the destinations, projected unless `projection` is empty. out: [num_dst, heads,
/// width].
inline at::Tensor add_residual(const at::Tensor& out, const NodeRows& h,
                               const torch::nn::Linear& projection) {
  const std::int64_t num_dst = out.size(0);
  const at::Tensor rows =
      projection.is_empty()
          ? residual_rows(h.dst(), num_dst, out.scalar_type())
          : linear_first_rows(h.dst(), num_dst, projection->weight, projection->bias);
  return out + rows.reshape(out.sizes());
}

}  // namespace mezzo::nn::detail
