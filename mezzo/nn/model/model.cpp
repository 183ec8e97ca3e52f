#include "mezzo/nn/model/model.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/linear.h>

#include "mezzo/core/error.h"
#include "mezzo/nn/layer_support.h"
#include "mezzo/nn/model/model_layers.h"
#include "mezzo/ops/ops.h"

namespace mezzo::nn {
namespace {

using detail::kModelName;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

std::int64_t count_layers(const ModelOptions& options) {
  return options.kind == ModelKind::kSgc ? 1 : options.num_layers;
}

/// at::elu that saves its result for the backward, as the next layer does; libtorch's saves its
/// argument: one more tensor of hidden rows for each layer.
struct Elu : Function<Elu> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& h) {
    at::AutoDispatchBelowADInplaceOrView below;
    const at::Tensor result = at::elu(h);
    ctx->save_for_backward({result});
    return result;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {at::elu_backward(grads[0], /*alpha=*/1, /*scale=*/1, /*input_scale=*/1,
                             /*is_result=*/true, ctx->get_saved_variables()[0])};
  }
};

Activation default_activation(ModelKind kind) {
  if (kind == ModelKind::kGat) return [](const at::Tensor& h) { return Elu::apply(h); };
  return [](const at::Tensor& h) { return at::relu(h); };
}

void check_options(const ModelOptions& options) {
  detail::check_in_and_out(kModelName, options);
  detail::check_positive(kModelName, "hidden_features", options.hidden_features);
  detail::check_positive(kModelName, "num_layers", options.num_layers);
  detail::check_positive(kModelName, "num_heads", options.num_heads);
  detail::check_positive(kModelName, "num_output_heads", options.num_output_heads);
  detail::check_probability(kModelName, "dropout", options.dropout);
  detail::check_probability(kModelName, "attention_dropout", options.attention_dropout);
  MEZZO_CHECK(options.kind == ModelKind::kGat || options.attention_dropout == 0,
              "{}: expected attention_dropout 0 for a model without attention ({}), got {}",
              kModelName, to_string(options.kind), options.attention_dropout);
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

/// part(x), computed in float32 if `keep_float32`.
template <class Part>
at::Tensor run(bool keep_float32, const at::Tensor& x, const Part& part) {
  if (!keep_float32 || !at::autocast::is_autocast_available(x.device().type())) return part(x);
  const Float32Region region(x.device().type());
  return part(at::isReducedFloatingType(x.scalar_type()) ? x.to(at::kFloat) : x);
}

}  // namespace

struct ModelImpl::Layer {
  std::string path;
  std::int64_t in_features = 0;
  detail::Convolution apply;
  std::function<at::Tensor(const at::Tensor&)> of_received;  // see LayerModule
  std::function<at::Tensor(const at::Tensor&)> normalize;    // empty: none
  torch::nn::Linear projection{nullptr};                     // of the skip; empty: identity
  bool float32_apply = false, float32_normalize = false, float32_projection = false;
  std::vector<std::pair<std::string, std::shared_ptr<torch::nn::Module>>> float32_parts;

  void check_float32_parts() const;
};

/// 16-bit weights with float32 input would fail in an operation inside the layer.
void ModelImpl::Layer::check_float32_parts() const {
  for (const auto& [name, part] : float32_parts) {
    for (const at::Tensor& parameter : part->parameters()) {
      MEZZO_CHECK(!at::isReducedFloatingType(parameter.scalar_type()),
                  "{}: keep_float32: expected float32 parameters of {}, got {}; call its "
                  "to(torch::kFloat) after that of the model, or leave it out of keep_float32",
                  kModelName, name, c10::toString(parameter.scalar_type()));
    }
  }
}

ModelImpl::ModelImpl(ModelOptions model_options) : options(std::move(model_options)) {
  reset();
}

ModelImpl::ModelImpl(OwnModule own)
    : options{.kind = own.kind, .num_layers = own.num_layers},
      head_(own.head),
      own_(std::move(own)) {
  own_.check();
  register_module("own", own_.module);
}

void ModelImpl::reset() {
  MEZZO_CHECK(!is_own(options.kind),
              "{}: expected kind to be one of {}, got a module of your own, which cannot be cloned",
              kModelName, mezzo::detail::names(ModelKinds{}));
  check_options(options);
  layers_.clear();
  if (!options.activation) options.activation = default_activation(options.kind);
  std::int64_t width = options.in_features;
  for (std::int64_t i = 0; i < count_layers(options); ++i) width = add_layer(i, width);
  head_ = nullptr;
  if (options.target != TaskTarget::kNode) {
    const bool of_edges = options.target == TaskTarget::kEdge;
    head_ = register_module("head", Head(width, options.out_features,
                                         {.hidden_features = options.hidden_features,
                                          .target = options.target,
                                          .edge_features = of_edges ? options.edge_features : 0,
                                          .readout = options.readout,
                                          .decoder = options.decoder,
                                          .edge_types = options.edge_types,
                                          .dropout = options.dropout}));
  }
  check_keep_float32();
}

void ModelImpl::pretty_print(std::ostream& stream) const {
  if (is_own(options.kind)) {
    stream << fmt::format("mezzo::nn::Model(num_layers={})", num_layers());
    return;
  }
  stream << fmt::format(
      "mezzo::nn::Model(kind={}, in_features={}, hidden_features={}, "
      "out_features={}, num_layers={}, dropout={}, normalization={}, skip={}, "
      "keep_float32=[{}])",
      to_string(options.kind), options.in_features, options.hidden_features, options.out_features,
      options.num_layers, options.dropout, name_of(Normalizations{}, options.normalization),
      options.skip, fmt::join(options.keep_float32, ", "));
}

ModelImpl::ModelImpl(const ModelImpl&) = default;
ModelImpl& ModelImpl::operator=(const ModelImpl&) = default;
ModelImpl::~ModelImpl() = default;

std::int64_t ModelImpl::add_layer(std::int64_t index, std::int64_t in_features) {
  const bool last = index + 1 == count_layers(options) && options.target == TaskTarget::kNode;
  const std::string number = std::to_string(index);
  detail::LayerModule layer_module =
      detail::make_layer(options, {.in_features = in_features, .last = last});
  const std::int64_t out_features = layer_module.out_features;
  register_module("layer" + number, layer_module.module);
  Layer layer;
  layer.path = "layer" + number;
  layer.in_features = in_features;
  layer.apply = std::move(layer_module.apply);
  layer.of_received = std::move(layer_module.of_received);
  layer.float32_apply = keeps_float32(layer.path);
  layer.float32_normalize = keeps_float32("norm" + number);
  layer.float32_projection = keeps_float32("skip" + number);
  if (!is_linear(index)) {
    layer.normalize = detail::add_normalization(*this, "norm" + number, options.normalization,
                                                out_features, options.batch_normalization);
  }
  if (options.skip && in_features != out_features) {
    layer.projection =
        register_module("skip" + number, torch::nn::Linear(in_features, out_features));
  }
  const auto parts = named_children();
  for (const std::string& name : {layer.path, "norm" + number, "skip" + number}) {
    if (keeps_float32(name) && parts.contains(name)) {
      layer.float32_parts.emplace_back(name, parts[name]);
    }
  }
  layers_.push_back(std::move(layer));
  return out_features;
}

bool ModelImpl::is_linear(std::int64_t index) const {
  const bool scored_by_mlp = options.decoder == Decoder::kMlp;
  return index + 1 == count_layers(options) &&
         (options.target == TaskTarget::kNode || !scored_by_mlp);
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
                "{}: keep_float32: expected each submodule once, got '{}' twice", kModelName,
                *path);
  }
}

at::Tensor ModelImpl::run_layer(const Layer& layer, const Topology& topology,
                                const NodeRows& before, const at::Tensor& edge_rows,
                                const at::Tensor& received_offset) {
  // Lets profilers attribute operations without parameters to this layer.
  RECORD_USER_SCOPE(std::string_view(layer.path));
  at::Tensor h = run(layer.float32_apply, before.src(), [&](const at::Tensor& src) {
    const NodeRows x =
        before.is_pair() ? NodeRows(src, before.dst().to(src.scalar_type())) : NodeRows(src);
    const at::Tensor out =
        layer.apply(topology, detail::drop_features(x, options.dropout, is_training()), edge_rows);
    return received_offset.defined() ? out + layer.of_received(received_offset) : out;
  });
  if (layer.normalize) h = run(layer.float32_normalize, h, layer.normalize);
  if (!options.skip) return h;
  if (layer.projection.is_empty()) {
    return h + detail::residual_rows(before.dst(), topology.num_dst(), h.scalar_type());
  }
  return h + run(layer.float32_projection, before.dst(), [&](const at::Tensor& x) {
           return detail::linear_first_rows(x, topology.num_dst(), layer.projection->weight,
                                            layer.projection->bias);
         });
}

void ModelImpl::check_received_offset(const Layer& layer, const Topology& topology,
                                      const at::Tensor& offset) const {
  MEZZO_CHECK(layer.of_received,
              "{}: expected no received_offset, which only gcn and sage with the aggregator mean "
              "take, got one for {}",
              kModelName, to_string(options.kind));
  MEZZO_CHECK(at::isFloatingType(offset.scalar_type()) && offset.dim() == 2 &&
                  offset.size(0) == topology.num_dst() && offset.size(1) == layer.in_features &&
                  offset.device() == topology.device(),
              "{}: expected received_offset floating [{}, {}] on {}, got {}", kModelName,
              topology.num_dst(), layer.in_features, topology.device().str(),
              detail::describe(offset));
}

void ModelImpl::check_edge_rows(const Topology& topology, const at::Tensor& edge_rows) const {
  const bool own = is_own(options.kind);
  if (!edge_rows.defined() && (own || !takes_edge_features(options.kind))) return;
  if (takes_edge_features(options.kind)) {
    MEZZO_CHECK(
        edge_rows.defined() && edge_rows.dim() == 2 && edge_rows.size(0) == topology.num_edges() &&
            (own || edge_rows.size(1) == options.edge_features),
        "{}: expected features of the edges [{}, {}], got {}", kModelName, topology.num_edges(),
        own ? "..." : std::to_string(options.edge_features), detail::describe(edge_rows));
  } else {
    MEZZO_CHECK(takes_edge_weights(options.kind),
                "{}: expected no edge weights, which the layers of {} do not take, got some",
                kModelName, to_string(options.kind));
  }
}

std::int64_t ModelImpl::num_layers() const {
  return is_own(options.kind) ? options.num_layers : static_cast<std::int64_t>(layers_.size());
}

at::Tensor ModelImpl::forward_layer(std::int64_t index, const Topology& topology, const NodeRows& x,
                                    const at::Tensor& edge_rows,
                                    const at::Tensor& received_offset) {
  MEZZO_CHECK(index >= 0 && index < num_layers(), "{}: expected a layer in [0, {}), got {}",
              kModelName, num_layers(), index);
  check_edge_rows(topology, edge_rows);
  if (is_own(options.kind)) {
    MEZZO_CHECK(
        !received_offset.defined(),
        "{}: expected no received_offset, which a module of your own does not take, got one",
        kModelName);
    return own_.run_layer(index, topology, x, edge_rows, options.out_features);
  }
  const Layer& layer = layers_[static_cast<std::size_t>(index)];
  detail::check_node_rows(kModelName, topology, x, layer.in_features, layer.in_features);
  if (received_offset.defined()) check_received_offset(layer, topology, received_offset);
  layer.check_float32_parts();
  const at::Tensor h = run_layer(layer, topology, x, edge_rows, received_offset);
  return is_linear(index) ? h : options.activation(h);
}

void ModelImpl::check_blocks(const Blocks& blocks) const {
  MEZZO_CHECK(
      options.kind != ModelKind::kSgc || options.num_layers == 1,
      "{}: expected the whole graph for sgc of {} hops, which need one set of nodes, got {} "
      "blocks",
      kModelName, options.num_layers, blocks.size());
  MEZZO_CHECK(static_cast<std::int64_t>(blocks.size()) == num_layers(),
              "{}: expected {} blocks, one for each layer, got {}", kModelName, num_layers(),
              blocks.size());
  for (std::size_t i = 1; i < blocks.size(); ++i) {
    const Block &before = blocks[i - 1], &block = blocks[i];
    MEZZO_CHECK(block.num_src() == before.num_dst(),
                "{}: expected the {} destinations of block {} to be the sources of block {}, got "
                "{} sources",
                kModelName, before.num_dst(), i - 1, i, block.num_src());
    MEZZO_CHECK(block.device() == before.device(),
                "{}: expected all blocks on {}, as block {}, got block {} on {}", kModelName,
                before.device().str(), i - 1, i, block.device().str());
  }
}

at::Tensor ModelImpl::forward(ModelInput input, const at::Tensor& x) {
  const HeadTargets* const targets = input.targets();
  return forward_head(forward_layers(std::move(input), x), targets);
}

at::Tensor ModelImpl::forward_head(const at::Tensor& h, const HeadTargets* targets) {
  if (own_.forward && !has_head()) {
    return targets != nullptr && targets->edge_ids.defined() ? h.index_select(0, targets->edge_ids)
                                                             : h;
  }
  MEZZO_CHECK(has_head() == (targets != nullptr),
              "{}: expected targets for a model of edges or graphs only, got {}", kModelName,
              targets == nullptr ? "none" : "some");
  if (!has_head()) return h;
  if (own_.forward_head) return own_.run_head(h, *targets, options.out_features);
  return run(keeps_float32("head"), h,
             [&](const at::Tensor& rows) { return head_->forward(rows, *targets); });
}

at::Tensor ModelImpl::forward_layers(ModelInput input, const at::Tensor& x) {
  if (own_.forward) {
    if (input.topology() != nullptr) check_edge_rows(*input.topology(), input.edge_rows());
    return own_.run_graph(input, x, options.out_features);
  }
  const Blocks* blocks = input.blocks();
  if (blocks != nullptr) {
    check_blocks(*blocks);
    MEZZO_CHECK(input.edge_column().empty() || options.kind != ModelKind::kSage ||
                    options.aggregator == Aggregator::kMean,
                "{}: expected aggregator mean for edge weights of blocks, which are factors for a "
                "mean, got {}",
                kModelName, name_of(Aggregators{}, options.aggregator));
  } else {
    const Topology& topology = *input.topology();
    if (!is_own(options.kind)) detail::check_input(kModelName, topology, x, options.in_features);
    MEZZO_CHECK(num_layers() == 1 || topology.num_src() == topology.num_dst(),
                "{}: expected a topology of one set of nodes for {} layers, got {} sources and {} "
                "destinations",
                kModelName, num_layers(), topology.num_src(), topology.num_dst());
  }
  at::Tensor h = x;
  for (std::int64_t i = 0; i < num_layers(); ++i) {
    const auto index = static_cast<std::size_t>(i);
    if (blocks == nullptr) {
      h = forward_layer(i, *input.topology(), h, input.edge_rows());
      continue;
    }
    const Block& block = (*blocks)[index];
    const std::string& column = input.edge_column();
    h = forward_layer(i, block.topology(), h,
                      column.empty() ? at::Tensor() : block.edata().at(column));
  }
  return h;
}

}  // namespace mezzo::nn
