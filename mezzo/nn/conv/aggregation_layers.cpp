#include "mezzo/nn/conv/aggregation_layers.h"

#include <cmath>
#include <optional>
#include <ostream>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/nn/init.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/frame.h"
#include "mezzo/graph/functions.h"
#include "mezzo/message_passing/fn.h"
#include "mezzo/message_passing/update_all.h"
#include "mezzo/nn/conv/conv_support.h"
#include "mezzo/nn/layer_support.h"
#include "mezzo/nn/recurrent.h"
#include "mezzo/ops/ops.h"

namespace mezzo::nn {
namespace {

constexpr auto kSageConvName = "SAGEConv";
constexpr auto kGinConvName = "GINConv";
constexpr auto kGineConvName = "GINEConv";

/// One edge to each destination from its own row among `num_rows` sources.
Topology own_rows(const Topology& topology, std::int64_t num_rows) {
  const auto ids = at::TensorOptions().dtype(at::kLong).device(topology.device());
  const std::int64_t num_dst = topology.num_dst();
  return Topology::from_csc(at::arange(num_dst + 1, ids), at::arange(num_dst, ids), num_rows);
}

/// (sum of w_e x_u + x_v) / (in-degree + 1). Both parts are divided in the accumulator, so that
/// neither a hub's sum nor a degree meets the 16-bit type.
at::Tensor mean_with_own_row(const Topology& topology, const NodeRows& x,
                             const std::optional<at::Tensor>& edge_weight) {
  const at::Tensor share =
      (topology.in_degrees() + 1).to(detail::scale_dtype(x.src())).reciprocal();
  return scaled_sum(topology, x.src(), edge_weight, std::nullopt, share) +
         scaled_sum(own_rows(topology, x.dst().size(0)), x.dst(), std::nullopt, std::nullopt,
                    share);
}

/// Only kGcn uses the rows of the destinations.
at::Tensor aggregate(const Topology& topology, Aggregator aggregator, const NodeRows& x,
                     const std::optional<at::Tensor>& edge_weight) {
  if (aggregator == Aggregator::kGcn) return mean_with_own_row(topology, x, edge_weight);
  const ReduceOp reduce = aggregator == Aggregator::kPool ? ReduceOp::kMax : ReduceOp::kMean;
  return gspmm(topology, edge_weight ? BinaryOp::kMul : BinaryOp::kCopyLhs, reduce, x.src(),
               edge_weight);
}

/// The last state of the LSTM that reads the messages into each destination, 0 without any.
at::Tensor read_messages(const torch::nn::LSTM& lstm, const Topology& topology, const at::Tensor& x,
                         const std::optional<at::Tensor>& edge_weight) {
  const at::Device device = topology.device();
  Frame src("source", topology.num_src(), device), edge("edge", topology.num_edges(), device);
  Frame dst("destination", topology.num_dst(), device);
  src["h"] = x;
  if (edge_weight) edge["w"] = *edge_weight;
  const detail::LstmWeights weights = detail::lstm_weights(lstm).front();
  const auto read = [&](const NodeBatch& nodes) -> Columns {
    // Uses unbind: the gradient of select is as large as the whole mailbox, at every step.
    const std::vector<at::Tensor> steps = nodes.mailbox("m").unbind(1);
    detail::LstmState state = detail::lstm_start(lstm, nodes.batch_size(), steps.front());
    for (const at::Tensor& step : steps) state = detail::lstm_step(weights, step, state);
    return {{"neigh", state.hidden}};
  };
  update_all(topology, src, edge, dst,
             edge_weight ? fn::u_mul_e("h", "w", "m") : fn::copy_u("h", "m"), read);
  if (dst.contains("neigh")) return dst.at("neigh");
  return at::zeros({topology.num_dst(), x.size(1)}, x.options());  // no edges
}

}  // namespace

SAGEConvImpl::SAGEConvImpl(SAGEConvOptions layer_options) : options(std::move(layer_options)) {
  reset();
}

void SAGEConvImpl::reset() {
  const std::int64_t in = options.in_features, out = options.out_features;
  const std::int64_t in_dst = detail::width_of_destinations(kSageConvName, options);
  detail::check_in_and_out(kSageConvName, options);
  detail::check_probability(kSageConvName, "feature_dropout", options.feature_dropout);
  MEZZO_CHECK(!name_of(SageAggregators{}, options.aggregator).empty(),
              "{}: expected aggregator to be one of {}, got {}", kSageConvName,
              mezzo::detail::names(SageAggregators{}), name_of(Aggregators{}, options.aggregator));
  MEZZO_CHECK(
      options.aggregator != Aggregator::kGcn || in_dst == in,
      "{}: expected equal in_features and in_features_dst for aggregator gcn, got {} and {}",
      kSageConvName, in, in_dst);
  if (options.aggregator == Aggregator::kPool) {
    fc_pool = register_module("fc_pool", torch::nn::Linear(in, in));
  }
  if (options.aggregator == Aggregator::kLstm) {
    lstm = register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(in, in)));
  }
  fc_neigh = register_module("fc_neigh", detail::linear_layer(in, out, /*bias=*/false));
  if (options.aggregator != Aggregator::kGcn) {
    fc_self = register_module("fc_self", detail::linear_layer(in_dst, out, options.bias));
  } else if (options.bias) {
    bias = register_parameter("bias", at::empty({out}));
  }
  reset_parameters();
}

void SAGEConvImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format(
      "mezzo::nn::SAGEConv(in_features={}, in_features_dst={}, out_features={}, "
      "aggregator={}, feature_dropout={}, bias={})",
      options.in_features, options.in_features_dst, options.out_features,
      name_of(Aggregators{}, options.aggregator), options.feature_dropout, options.bias);
}

void SAGEConvImpl::reset_parameters() {
  for (torch::nn::Linear* part : {&fc_pool, &fc_self, &fc_neigh}) {
    if (part->is_empty()) continue;
    (*part)->reset_parameters();
    torch::nn::init::xavier_uniform_((*part)->weight, detail::kReluGain);
  }
  if (!lstm.is_empty()) lstm->reset_parameters();
  if (bias.defined()) torch::nn::init::zeros_(bias);
}

at::Tensor SAGEConvImpl::neighbours(const Topology& topology, const NodeRows& h,
                                    const std::optional<at::Tensor>& edge_weight) const {
  const at::Tensor& weight = fc_neigh->weight;
  const Aggregator aggregator = options.aggregator;
  if (aggregator == Aggregator::kLstm) {
    const at::Tensor rows = detail::is_sparse(h.src()) ? h.src().to_dense() : h.src();
    return mezzo::linear(read_messages(lstm, topology, rows, edge_weight), weight);
  }
  if (aggregator == Aggregator::kPool) {
    const at::Tensor messages = at::relu(detail::apply_linear(*fc_pool, h.src()));
    return mezzo::linear(aggregate(topology, aggregator, messages, edge_weight), weight);
  }
  const bool takes_both = h.is_pair() && aggregator == Aggregator::kGcn;
  if (options.in_features > options.out_features || detail::is_sparse(h.src()) ||
      (takes_both && detail::is_sparse(h.dst()))) {
    const at::Tensor sent = mezzo::linear(h.src(), weight);
    const NodeRows rows =
        takes_both ? NodeRows(sent, mezzo::linear(h.dst(), weight)) : NodeRows(sent);
    return aggregate(topology, aggregator, rows, edge_weight);
  }
  return mezzo::linear(aggregate(topology, aggregator, h, edge_weight), weight);
}

at::Tensor SAGEConvImpl::forward(const Topology& topology, const NodeRows& features,
                                 const at::Tensor& edge_weight) {
  detail::check_node_rows(kSageConvName, topology, features, options.in_features,
                          detail::width_of_destinations(kSageConvName, options));
  // An LSTM reads the rows as they are; before other sums sparse rows are multiplied.
  const at::ScalarType dtype = options.aggregator == Aggregator::kLstm
                                   ? detail::scale_dtype(features.src())
                                   : detail::scale_dtype(features.src(), fc_neigh->weight);
  const std::optional<at::Tensor> factors =
      detail::edge_factors(kSageConvName, topology, edge_weight, dtype);
  const NodeRows h = detail::drop_features(features, options.feature_dropout, is_training());
  at::Tensor out = neighbours(topology, h, factors);
  if (options.aggregator == Aggregator::kGcn) {
    out = detail::add_parameter(out, bias);
  } else {
    out = out +
          detail::linear_first_rows(h.dst(), topology.num_dst(), fc_self->weight, fc_self->bias);
  }
  return detail::activate(options.activation, out);
}

namespace {

/// One tensor: the destinations are the first rows. A pair: checks that both have the same trailing
/// sizes and dtype.
void check_sides(std::string_view layer, const Topology& topology, const NodeRows& h) {
  detail::check_node_rows(layer, topology, h.src());
  if (!h.is_pair()) {
    detail::check_prefix(layer, topology);
    return;
  }
  std::vector<std::int64_t> shape = h.src().sizes().vec();
  shape[0] = topology.num_dst();
  detail::check_destinations(layer, topology, h, shape);
}

/// Creates eps, a parameter or a buffer, and gives the layer a copy of its apply_func.
template <class Layer>
void reset_isomorphism_layer(Layer& layer, std::string_view name) {
  MEZZO_CHECK(std::isfinite(layer.options.initial_eps), "{}: expected a finite initial_eps, got {}",
              name, layer.options.initial_eps);
  const at::Tensor values = at::empty({1}, at::kFloat);
  layer.eps = layer.options.learn_eps ? layer.register_parameter("eps", values)
                                      : layer.register_buffer("eps", values);
  layer.apply_func = layer.apply_func.clone();
  layer.apply_func.register_in(layer, "apply_func");
  layer.reset_parameters();
}

/// apply_func of (1 + eps) h_v + received.
template <class Layer>
at::Tensor with_own_rows(Layer& layer, const at::Tensor& h_dst, const at::Tensor& received) {
  const at::ScalarType scale = detail::scale_dtype(h_dst);
  const at::Tensor own = detail::residual_rows(h_dst, received.size(0), received.scalar_type());
  // A zero-dimensional tensor is not rounded to the dtype of the rows and does not change it.
  const at::Tensor factor = 1 + layer.eps.squeeze(0).to(scale);
  // The gradient of eps is a sum over all rows. It overflows 16 bits, so the rows are float32.
  const at::Tensor scaled =
      layer.options.learn_eps ? (own.to(scale) * factor).to(own.scalar_type()) : own * factor;
  const at::Tensor out = scaled + received;
  return layer.apply_func.is_empty() ? out : layer.apply_func.forward(out);
}

}  // namespace

GINConvImpl::GINConvImpl(GINConvOptions layer_options, TensorModule update)
    : options(std::move(layer_options)) {
  reset();
  apply_func = std::move(update);  // the caller's own module
  apply_func.register_in(*this, "apply_func");
}

void GINConvImpl::reset() {
  MEZZO_CHECK(!name_of(GinAggregators{}, options.aggregator).empty(),
              "{}: expected aggregator to be one of {}, got {}", kGinConvName,
              mezzo::detail::names(GinAggregators{}), name_of(Aggregators{}, options.aggregator));
  reset_isomorphism_layer(*this, kGinConvName);
}

void GINConvImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format("mezzo::nn::GINConv(aggregator={}, initial_eps={}, learn_eps={})",
                        name_of(Aggregators{}, options.aggregator), options.initial_eps,
                        options.learn_eps);
}

void GINConvImpl::reset_parameters() {
  torch::nn::init::constant_(eps, options.initial_eps);
}

at::Tensor GINConvImpl::forward(const Topology& topology, const NodeRows& h,
                                const at::Tensor& edge_weight) {
  check_sides(kGinConvName, topology, h);
  const std::optional<at::Tensor> factors =
      detail::edge_factors(kGinConvName, topology, edge_weight, detail::scale_dtype(h.src()));
  const at::Tensor rows = detail::is_sparse(h.src()) ? h.src().to_dense() : h.src();
  const at::Tensor received = gspmm(topology, factors ? BinaryOp::kMul : BinaryOp::kCopyLhs,
                                    detail::reduction(options.aggregator), rows, factors);
  const at::Tensor out = with_own_rows(*this, h.is_pair() ? h.dst() : rows, received);
  return detail::activate(options.activation, out);
}

GINEConvImpl::GINEConvImpl(GINEConvOptions layer_options, TensorModule update)
    : options(layer_options) {
  reset();
  apply_func = std::move(update);  // the caller's own module
  apply_func.register_in(*this, "apply_func");
}

void GINEConvImpl::reset() {
  reset_isomorphism_layer(*this, kGineConvName);
}

void GINEConvImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format("mezzo::nn::GINEConv(initial_eps={}, learn_eps={})", options.initial_eps,
                        options.learn_eps);
}

void GINEConvImpl::reset_parameters() {
  torch::nn::init::constant_(eps, options.initial_eps);
}

at::Tensor GINEConvImpl::forward(const Topology& topology, const NodeRows& h,
                                 const at::Tensor& edge_features) {
  check_sides(kGineConvName, topology, h);
  std::vector<std::int64_t> shape = h.src().sizes().vec();
  shape[0] = topology.num_edges();
  detail::check_edge_features(kGineConvName, topology, edge_features, h.src(), shape);
  const at::Tensor rows = detail::is_sparse(h.src()) ? h.src().to_dense() : h.src();
  const at::Tensor received =
      gspmm(topology, BinaryOp::kAddRelu, ReduceOp::kSum, rows, edge_features);
  return with_own_rows(*this, h.is_pair() ? h.dst() : rows, received);
}

}  // namespace mezzo::nn
