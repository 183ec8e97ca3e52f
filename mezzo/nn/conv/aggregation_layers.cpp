#include "mezzo/nn/conv/aggregation_layers.h"

#include <cmath>
#include <optional>
#include <ostream>
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
#include "mezzo/nn/conv/propagation.h"
#include "mezzo/nn/conv/recurrent.h"
#include "mezzo/nn/layer_support.h"
#include "mezzo/ops/ops.h"

namespace mezzo::nn {
namespace {

constexpr auto kSageConvName = "SAGEConv";
constexpr auto kGinConvName = "GINConv";

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
  detail::check_positive(kSageConvName, "in_features", in);
  detail::check_positive(kSageConvName, "out_features", out);
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
  const auto received = torch::nn::LinearOptions(in, out).bias(false);
  fc_neigh = register_module("fc_neigh", torch::nn::Linear(received));
  if (options.aggregator != Aggregator::kGcn) {
    const auto own = torch::nn::LinearOptions(in_dst, out).bias(options.bias);
    fc_self = register_module("fc_self", torch::nn::Linear(own));
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
  const double gain = std::sqrt(2.0);  // for relu
  for (torch::nn::Linear* part : {&fc_pool, &fc_self, &fc_neigh}) {
    if (part->is_empty()) continue;
    (*part)->reset_parameters();
    torch::nn::init::xavier_uniform_((*part)->weight, gain);
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
    const at::Tensor messages = at::relu(mezzo::linear(h.src(), fc_pool->weight, fc_pool->bias));
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

ReduceOp reduction(Aggregator aggregator) {
  if (aggregator == Aggregator::kMean) return ReduceOp::kMean;
  return aggregator == Aggregator::kMax ? ReduceOp::kMax : ReduceOp::kSum;
}

/// One tensor: the destinations are the first rows. A pair: checks that both have the same trailing
/// sizes and dtype.
void check_sides(const Topology& topology, const NodeRows& h) {
  detail::check_node_rows(kGinConvName, topology, h.src());
  if (!h.is_pair()) {
    detail::check_prefix(kGinConvName, topology);
    return;
  }
  std::vector<std::int64_t> shape = h.src().sizes().vec();
  shape[0] = topology.num_dst();
  detail::check_destinations(kGinConvName, topology, h, shape);
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
  MEZZO_CHECK(std::isfinite(options.initial_eps), "{}: expected a finite initial_eps, got {}",
              kGinConvName, options.initial_eps);
  const at::Tensor values = at::empty({1}, at::kFloat);
  eps = options.learn_eps ? register_parameter("eps", values) : register_buffer("eps", values);
  apply_func = apply_func.clone();
  apply_func.register_in(*this, "apply_func");
  reset_parameters();
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
  check_sides(topology, h);
  const at::ScalarType scale = detail::scale_dtype(h.src());
  const std::optional<at::Tensor> factors =
      detail::edge_factors(kGinConvName, topology, edge_weight, scale);
  const at::Tensor rows = detail::is_sparse(h.src()) ? h.src().to_dense() : h.src();
  const at::Tensor received = gspmm(topology, factors ? BinaryOp::kMul : BinaryOp::kCopyLhs,
                                    reduction(options.aggregator), rows, factors);
  const at::Tensor own = detail::residual_rows(h.is_pair() ? h.dst() : rows, topology.num_dst(),
                                               received.scalar_type());
  // A zero-dimensional tensor is not rounded to the dtype of the rows and does not change it.
  const at::Tensor factor = 1 + eps.squeeze(0).to(scale);
  // The gradient of eps is a sum over all rows. It overflows 16 bits, so the rows are float32.
  const at::Tensor scaled =
      options.learn_eps ? (own.to(scale) * factor).to(own.scalar_type()) : own * factor;
  at::Tensor out = scaled + received;
  if (!apply_func.is_empty()) out = apply_func.forward(out);
  return detail::activate(options.activation, out);
}

}  // namespace mezzo::nn
