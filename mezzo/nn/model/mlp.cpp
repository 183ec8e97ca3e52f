#include "mezzo/nn/model/mlp.h"

#include <ostream>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "mezzo/core/error.h"
#include "mezzo/nn/layer_support.h"
#include "mezzo/ops/ops.h"

namespace mezzo::nn {
namespace {

constexpr auto kMlpName = "MLP";

void check_options(const MLPOptions& options) {
  detail::check_in_and_out(kMlpName, options);
  detail::check_positive(kMlpName, "hidden_features", options.hidden_features);
  detail::check_positive(kMlpName, "num_layers", options.num_layers);
  detail::check_probability(kMlpName, "dropout", options.dropout);
}

}  // namespace

MLPImpl::MLPImpl(MLPOptions mlp_options) : options(std::move(mlp_options)) {
  reset();
}

void MLPImpl::reset() {
  check_options(options);
  layers_.clear();
  normalizations_.clear();
  if (!options.activation) options.activation = [](const at::Tensor& h) { return at::relu(h); };
  for (std::int64_t i = 0; i < options.num_layers; ++i) {
    const bool last = i + 1 == options.num_layers;
    const std::int64_t in = i == 0 ? options.in_features : options.hidden_features;
    const std::int64_t out = last ? options.out_features : options.hidden_features;
    torch::nn::Linear layer(in, out);
    register_module("layer" + std::to_string(i), layer);
    layers_.push_back(std::move(layer));
    if (last) continue;
    normalizations_.push_back(
        detail::add_normalization(*this, "norm" + std::to_string(i), options.normalization, out));
  }
}

void MLPImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format(
      "mezzo::nn::MLP(in_features={}, hidden_features={}, out_features={}, "
      "num_layers={}, dropout={}, normalization={})",
      options.in_features, options.hidden_features, options.out_features, options.num_layers,
      options.dropout, name_of(Normalizations{}, options.normalization));
}

at::Tensor MLPImpl::forward(const at::Tensor& x) {
  const bool is_matrix = x.defined() && x.dim() == 2;
  detail::check_rows(kMlpName, x, is_matrix ? x.size(0) : 0, options.in_features);
  at::Tensor h = x;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    h = mezzo::feature_dropout(h, options.dropout, is_training());
    h = detail::apply_linear(*layers_[i], h);
    if (i + 1 == layers_.size()) break;
    if (normalizations_[i]) h = normalizations_[i](h);
    h = options.activation(h);
  }
  return h;
}

}  // namespace mezzo::nn
