#include "mezzo/nn/model.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include "mezzo/core/error.h"
#include "mezzo/message_passing/ops.h"
#include "mezzo/nn/gat_conv.h"
#include "mezzo/nn/gin_conv.h"
#include "mezzo/nn/layer_support.h"
#include "mezzo/nn/mlp.h"
#include "mezzo/nn/sg_conv.h"

namespace mezzo::nn {
namespace {

constexpr auto kName = "Model";

using Convolution = std::function<at::Tensor(const Topology&, const at::Tensor&)>;

/// A layer that is not yet registered, and what applies it: [num_src, in] -> [num_dst, out].
struct MadeLayer {
  std::shared_ptr<torch::nn::Module> module;
  Convolution apply;
  std::int64_t out_features = 0;
};

/// Where in the stack a layer stands.
struct Place {
  std::int64_t in_features = 0;
  bool last = false;
};

MadeLayer make_gcn(const ModelOptions& options, Place place) {
  const std::int64_t out = place.last ? options.out_features : options.hidden_features;
  GraphConv layer(GraphConvOptions{.in_features = place.in_features,
                                   .out_features = out,
                                   .allow_zero_in_degree = options.allow_zero_in_degree});
  return {layer.ptr(), [layer](const auto& g, const auto& h) mutable { return layer(g, h); }, out};
}

MadeLayer make_sage(const ModelOptions& options, Place place) {
  const std::int64_t out = place.last ? options.out_features : options.hidden_features;
  SAGEConv layer(SAGEConvOptions{
      .in_features = place.in_features, .out_features = out, .aggregator = options.aggregator});
  return {layer.ptr(), [layer](const auto& g, const auto& h) mutable { return layer(g, h); }, out};
}

MadeLayer make_gat(const ModelOptions& options, Place place) {
  GATConv layer(
      GATConvOptions{.in_features = place.in_features,
                     .out_features = place.last ? options.out_features : options.hidden_features,
                     .num_heads = place.last ? options.num_output_heads : options.num_heads,
                     .attention_dropout = options.attention_dropout,
                     .allow_zero_in_degree = options.allow_zero_in_degree});
  if (place.last) {
    const auto average = [layer](const auto& g, const auto& h) mutable {
      const at::Tensor heads = layer(g, h);
      return heads.size(1) == 1 ? heads.squeeze(1) : heads.mean(1);
    };
    return {layer.ptr(), average, options.out_features};
  }
  return {layer.ptr(),
          [layer](const auto& g, const auto& h) mutable { return layer(g, h).flatten(1); },
          options.hidden_features * options.num_heads};
}

MadeLayer make_gin(const ModelOptions& options, Place place) {
  const std::int64_t out = place.last ? options.out_features : options.hidden_features;
  const MLP update(MLPOptions{.in_features = place.in_features,
                              .hidden_features = options.hidden_features,
                              .out_features = out,
                              .dropout = 0});
  GINConv layer(GINConvOptions{}, torch::nn::AnyModule(update));
  return {layer.ptr(), [layer](const auto& g, const auto& h) mutable { return layer(g, h); }, out};
}

MadeLayer make_sgc(const ModelOptions& options, Place place) {
  SGConv layer(SGConvOptions{.in_features = place.in_features,
                             .out_features = options.out_features,
                             .k = options.num_layers,
                             .allow_zero_in_degree = options.allow_zero_in_degree});
  return {layer.ptr(), [layer](const auto& g, const auto& h) mutable { return layer(g, h); },
          options.out_features};
}

MadeLayer make_linear(const ModelOptions& options, Place place) {
  const std::int64_t out = place.last ? options.out_features : options.hidden_features;
  const torch::nn::Linear layer(place.in_features, out);
  const auto apply = [layer](const Topology& g, const at::Tensor& h) {
    return detail::linear_first_rows(h, g.num_dst(), layer->weight, layer->bias);
  };
  return {layer.ptr(), apply, out};
}

MadeLayer make_layer(const ModelOptions& options, Place place) {
  switch (options.kind) {
    case ModelKind::kGcn:
      return make_gcn(options, place);
    case ModelKind::kSage:
      return make_sage(options, place);
    case ModelKind::kGat:
      return make_gat(options, place);
    case ModelKind::kGin:
      return make_gin(options, place);
    case ModelKind::kSgc:
      return make_sgc(options, place);
    case ModelKind::kMlp:
      return make_linear(options, place);
  }
  mezzo::detail::raise<InvalidArgument>("{}: expected kind to be one of {}", kName,
                                        names(ModelKinds{}));
}

std::int64_t count_layers(const ModelOptions& options) {
  return options.kind == ModelKind::kSgc ? 1 : options.num_layers;
}

Activation default_activation(ModelKind kind) {
  if (kind == ModelKind::kGat) return [](const at::Tensor& h) { return at::elu(h); };
  return [](const at::Tensor& h) { return at::relu(h); };
}

void check_options(const ModelOptions& options) {
  detail::check_positive(kName, "in_features", options.in_features);
  detail::check_positive(kName, "hidden_features", options.hidden_features);
  detail::check_positive(kName, "out_features", options.out_features);
  detail::check_positive(kName, "num_layers", options.num_layers);
  detail::check_positive(kName, "num_heads", options.num_heads);
  detail::check_positive(kName, "num_output_heads", options.num_output_heads);
  detail::check_probability(kName, "dropout", options.dropout);
  detail::check_probability(kName, "attention_dropout", options.attention_dropout);
  MEZZO_CHECK(options.kind == ModelKind::kGat || options.attention_dropout == 0,
              "{}: expected attention_dropout 0 for a model without attention ({}), got {}", kName,
              name_of(ModelKinds{}, options.kind), options.attention_dropout);
}

}  // namespace

struct ModelImpl::Layer {
  Convolution apply;
  std::function<at::Tensor(const at::Tensor&)> normalize;  // empty: none
  torch::nn::Linear projection{nullptr};                   // of the skip; empty: identity
};

ModelImpl::ModelImpl(ModelOptions given) : options(std::move(given)) {
  check_options(options);
  if (!options.activation) options.activation = default_activation(options.kind);
  std::int64_t width = options.in_features;
  for (std::int64_t i = 0; i < count_layers(options); ++i) width = add_layer(i, width);
}

ModelImpl::~ModelImpl() = default;

std::int64_t ModelImpl::add_layer(std::int64_t index, std::int64_t in_features) {
  const bool last = index + 1 == count_layers(options);
  const std::string number = std::to_string(index);
  MadeLayer made = make_layer(options, {.in_features = in_features, .last = last});
  register_module("layer" + number, made.module);
  Layer layer;
  layer.apply = std::move(made.apply);
  if (!last) {
    layer.normalize =
        detail::add_normalization(*this, "norm" + number, options.normalization, made.out_features);
  }
  if (options.skip && in_features != made.out_features) {
    layer.projection =
        register_module("skip" + number, torch::nn::Linear(in_features, made.out_features));
  }
  layers_.push_back(std::move(layer));
  return made.out_features;
}

at::Tensor ModelImpl::forward(const Topology& topology, const at::Tensor& x) {
  detail::check_input(kName, topology, x, options.in_features);
  const std::int64_t num_dst = topology.num_dst();
  MEZZO_CHECK(layers_.size() == 1 || topology.num_src() == num_dst,
              "{}: expected a topology of one set of nodes for {} layers, got {} sources and {} "
              "destinations",
              kName, layers_.size(), topology.num_src(), num_dst);
  detail::check_prefix(kName, topology);

  at::Tensor h = x;
  for (const Layer& layer : layers_) {
    const bool last = &layer == &layers_.back();
    const at::Tensor before = h;
    h = layer.apply(topology, mezzo::feature_dropout(before, options.dropout, is_training()));
    if (layer.normalize) h = layer.normalize(h);
    if (options.skip) {
      h = h + (layer.projection.is_empty()
                   ? detail::residual_rows(before, num_dst, h.scalar_type())
                   : detail::linear_first_rows(before, num_dst, layer.projection->weight,
                                               layer.projection->bias));
    }
    if (!last) h = options.activation(h);
  }
  return h;
}

}  // namespace mezzo::nn
