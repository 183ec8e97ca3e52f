#include "mezzo/nn/model/model_layers.h"

#include <memory>
#include <utility>

#include <ATen/ATen.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>

#include "mezzo/core/error.h"
#include "mezzo/nn/conv/aggregation_layers.h"
#include "mezzo/nn/conv/attention_layers.h"
#include "mezzo/nn/conv/graph_conv.h"
#include "mezzo/nn/conv/propagation_layers.h"
#include "mezzo/nn/layer_support.h"
#include "mezzo/nn/model/mlp.h"
#include "mezzo/ops/ops.h"

namespace mezzo::nn {
namespace {

using detail::LayerModule;
using detail::Place;

LayerModule make_gcn(const ModelOptions& options, Place place) {
  const std::int64_t out = place.last ? options.out_features : options.hidden_features;
  GraphConv layer(place.in_features, out,
                  {.allow_zero_in_degree = options.allow_zero_in_degree, .parent_degrees = true});
  return {
      layer.ptr(),
      [layer](const auto& g, const auto& h, const auto& w) mutable { return layer(g, h.src(), w); },
      out, [layer](const at::Tensor& sum) { return mezzo::linear(sum, layer->weight.t()); }};
}

LayerModule make_sage(const ModelOptions& options, Place place) {
  const std::int64_t out = place.last ? options.out_features : options.hidden_features;
  SAGEConv layer(place.in_features, out, {.aggregator = options.aggregator});
  LayerModule result{
      layer.ptr(),
      [layer](const auto& g, const auto& h, const auto& w) mutable { return layer(g, h, w); }, out};
  if (options.aggregator == Aggregator::kMean) {
    result.of_received = [layer](const at::Tensor& mean) {
      return mezzo::linear(mean, layer->fc_neigh->weight);
    };
  }
  return result;
}

LayerModule make_gat(const ModelOptions& options, Place place) {
  GATConv layer(place.in_features, place.last ? options.out_features : options.hidden_features,
                {.num_heads = place.last ? options.num_output_heads : options.num_heads,
                 .attention_dropout = options.attention_dropout,
                 .allow_zero_in_degree = options.allow_zero_in_degree});
  if (place.last) {
    const auto average = [layer](const auto& g, const auto& h, const auto&) mutable {
      const at::Tensor heads = layer(g, h);
      return heads.size(1) == 1 ? heads.squeeze(1) : heads.mean(1);
    };
    return {layer.ptr(), average, options.out_features};
  }
  return {
      layer.ptr(),
      [layer](const auto& g, const auto& h, const auto&) mutable { return layer(g, h).flatten(1); },
      options.hidden_features * options.num_heads};
}

LayerModule make_gin(const ModelOptions& options, Place place) {
  const std::int64_t out = place.last ? options.out_features : options.hidden_features;
  const MLP update(place.in_features, out,
                   {.hidden_features = options.hidden_features, .dropout = 0});
  GINConv layer(GINConvOptions{}, update);
  return {layer.ptr(),
          [layer](const auto& g, const auto& h, const auto&) mutable { return layer(g, h); }, out};
}

/// GINEConv of features of edges that `edge` makes as wide as the rows of nodes.
class GineLayer : public torch::nn::Cloneable<GineLayer> {
 public:
  GineLayer(std::int64_t edge_features, MLPOptions update)
      : edge_features_(edge_features), update_(std::move(update)) {
    reset();
  }
  void reset() override {
    edge = register_module("edge", torch::nn::Linear(edge_features_, update_.in_features));
    conv = register_module("conv", GINEConv(GINEConvOptions{}, MLP(update_)));
  }

  torch::nn::Linear edge{nullptr};
  GINEConv conv{nullptr};

 private:
  std::int64_t edge_features_;
  MLPOptions update_;
};

LayerModule make_gine(const ModelOptions& options, Place place) {
  detail::check_positive(detail::kModelName, "edge_features", options.edge_features);
  const std::int64_t out = place.last ? options.out_features : options.hidden_features;
  const auto layer = std::make_shared<GineLayer>(
      options.edge_features, MLPOptions{.in_features = place.in_features,
                                        .hidden_features = options.hidden_features,
                                        .out_features = out,
                                        .dropout = 0});
  const auto apply = [layer](const auto& g, const auto& h, const auto& e) {
    return layer->conv(g, h, detail::apply_linear(*layer->edge, e));
  };
  return {layer, apply, out};
}

LayerModule make_sgc(const ModelOptions& options, Place place) {
  const std::int64_t out = place.last ? options.out_features : options.hidden_features;
  SGConv layer(place.in_features, out,
               {.k = options.num_layers, .allow_zero_in_degree = options.allow_zero_in_degree});
  return {layer.ptr(),
          [layer](const auto& g, const auto& h, const auto&) mutable { return layer(g, h.src()); },
          out};
}

LayerModule make_linear(const ModelOptions& options, Place place) {
  const std::int64_t out = place.last ? options.out_features : options.hidden_features;
  const torch::nn::Linear layer(place.in_features, out);
  const auto apply = [layer](const Topology& g, const NodeRows& h, const at::Tensor&) {
    return detail::linear_first_rows(h.dst(), g.num_dst(), layer->weight, layer->bias);
  };
  return {layer.ptr(), apply, out};
}

}  // namespace

LayerModule detail::make_layer(const ModelOptions& options, Place place) {
  switch (options.kind) {
    case ModelKind::kGcn:
      return make_gcn(options, place);
    case ModelKind::kSage:
      return make_sage(options, place);
    case ModelKind::kGat:
      return make_gat(options, place);
    case ModelKind::kGin:
      return make_gin(options, place);
    case ModelKind::kGine:
      return make_gine(options, place);
    case ModelKind::kSgc:
      return make_sgc(options, place);
    case ModelKind::kMlp:
      return make_linear(options, place);
    case ModelKind::kOwn:
    case ModelKind::kOwnEdges:
    case ModelKind::kOwnGraph:
      break;
  }
  mezzo::detail::raise<InvalidArgument>("{}: expected kind to be one of {}", detail::kModelName,
                                        mezzo::detail::names(ModelKinds{}));
}

}  // namespace mezzo::nn
