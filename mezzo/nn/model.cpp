#include "mezzo/nn/model.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <fmt/ranges.h>
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

constexpr auto kModelName = "Model";

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
  mezzo::detail::raise<InvalidArgument>("{}: expected kind to be one of {}", kModelName,
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
  detail::check_positive(kModelName, "in_features", options.in_features);
  detail::check_positive(kModelName, "hidden_features", options.hidden_features);
  detail::check_positive(kModelName, "out_features", options.out_features);
  detail::check_positive(kModelName, "num_layers", options.num_layers);
  detail::check_positive(kModelName, "num_heads", options.num_heads);
  detail::check_positive(kModelName, "num_output_heads", options.num_output_heads);
  detail::check_probability(kModelName, "dropout", options.dropout);
  detail::check_probability(kModelName, "attention_dropout", options.attention_dropout);
  MEZZO_CHECK(options.kind == ModelKind::kGat || options.attention_dropout == 0,
              "{}: expected attention_dropout 0 for a model without attention ({}), got {}",
              kModelName, name_of(ModelKinds{}, options.kind), options.attention_dropout);
}

/// A disabled autocast region inside an enabled one.
class Float32Region {
 public:
  explicit Float32Region(c10::DeviceType device)
      : device_(device), previous_(at::autocast::is_autocast_enabled(device)) {
    at::autocast::set_autocast_enabled(device_, false);
  }
  ~Float32Region() { at::autocast::set_autocast_enabled(device_, previous_); }
  Float32Region(const Float32Region&) = delete;
  Float32Region& operator=(const Float32Region&) = delete;

 private:
  c10::DeviceType device_;
  bool previous_;
};

/// part(x), computed in float32 where `keep_float32` says so.
template <class Part>
at::Tensor run(bool keep_float32, const at::Tensor& x, const Part& part) {
  if (!keep_float32 || !at::autocast::is_autocast_available(x.device().type())) return part(x);
  const Float32Region region(x.device().type());
  return part(at::isReducedFloatingType(x.scalar_type()) ? x.to(at::kFloat) : x);
}

}  // namespace

struct ModelImpl::Layer {
  std::string path;
  Convolution apply;
  std::function<at::Tensor(const at::Tensor&)> normalize;  // empty: none
  torch::nn::Linear projection{nullptr};                   // of the skip; empty: identity
  bool float32_apply = false, float32_normalize = false, float32_projection = false;
};

ModelImpl::ModelImpl(ModelOptions given) : options(std::move(given)) {
  check_options(options);
  if (!options.activation) options.activation = default_activation(options.kind);
  std::int64_t width = options.in_features;
  for (std::int64_t i = 0; i < count_layers(options); ++i) width = add_layer(i, width);
  check_keep_float32();
}

ModelImpl::~ModelImpl() = default;

std::int64_t ModelImpl::add_layer(std::int64_t index, std::int64_t in_features) {
  const bool last = index + 1 == count_layers(options);
  const std::string number = std::to_string(index);
  MadeLayer made = make_layer(options, {.in_features = in_features, .last = last});
  register_module("layer" + number, made.module);
  Layer layer;
  layer.path = "layer" + number;
  layer.apply = std::move(made.apply);
  layer.float32_apply = keeps_float32(layer.path);
  layer.float32_normalize = keeps_float32("norm" + number);
  layer.float32_projection = keeps_float32("skip" + number);
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

bool ModelImpl::keeps_float32(const std::string& path) const {
  return std::find(options.keep_float32.begin(), options.keep_float32.end(), path) !=
         options.keep_float32.end();
}

void ModelImpl::check_keep_float32() const {
  const std::vector<std::string> paths = named_children().keys();
  for (auto path = options.keep_float32.begin(); path != options.keep_float32.end(); ++path) {
    MEZZO_CHECK(std::find(paths.begin(), paths.end(), *path) != paths.end(),
                "{}: keep_float32: expected submodules out of {}, got '{}'", kModelName,
                fmt::join(paths, ", "), *path);
    MEZZO_CHECK(std::find(options.keep_float32.begin(), path, *path) == path,
                "{}: keep_float32: '{}' stands there twice", kModelName, *path);
  }
}

at::Tensor ModelImpl::run_layer(const Layer& layer, const Topology& topology,
                                const at::Tensor& before) {
  // So that recorders know whose the operations without parameters are.
  RECORD_USER_SCOPE(std::string_view(layer.path));
  at::Tensor h = run(layer.float32_apply, before, [&](const at::Tensor& x) {
    return layer.apply(topology, mezzo::feature_dropout(x, options.dropout, is_training()));
  });
  if (layer.normalize) h = run(layer.float32_normalize, h, layer.normalize);
  if (!options.skip) return h;
  if (layer.projection.is_empty()) {
    return h + detail::residual_rows(before, topology.num_dst(), h.scalar_type());
  }
  return h + run(layer.float32_projection, before, [&](const at::Tensor& x) {
           return detail::linear_first_rows(x, topology.num_dst(), layer.projection->weight,
                                            layer.projection->bias);
         });
}

at::Tensor ModelImpl::forward(const Topology& topology, const at::Tensor& x) {
  detail::check_input(kModelName, topology, x, options.in_features);
  const std::int64_t num_dst = topology.num_dst();
  MEZZO_CHECK(layers_.size() == 1 || topology.num_src() == num_dst,
              "{}: expected a topology of one set of nodes for {} layers, got {} sources and {} "
              "destinations",
              kModelName, layers_.size(), topology.num_src(), num_dst);
  detail::check_prefix(kModelName, topology);

  at::Tensor h = x;
  for (const Layer& layer : layers_) {
    h = run_layer(layer, topology, h);
    if (&layer != &layers_.back()) h = options.activation(h);
  }
  return h;
}

}  // namespace mezzo::nn
