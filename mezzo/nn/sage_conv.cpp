#include "mezzo/nn/sage_conv.h"

#include <cmath>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <torch/nn/init.h>

#include "mezzo/core/error.h"
#include "mezzo/message_passing/ops.h"
#include "mezzo/nn/layer_support.h"

namespace mezzo::nn {
namespace {

constexpr auto kSageConvName = "SAGEConv";

/// An edge from each destination's own source row, and no others.
Topology own_rows(const Topology& topology) {
  const auto ids = at::TensorOptions().dtype(at::kLong).device(topology.device());
  const std::int64_t num_dst = topology.num_dst();
  return Topology::from_csc(at::arange(num_dst + 1, ids), at::arange(num_dst, ids),
                            topology.num_src());
}

/// (sum of x_u + x_v) / (in-degree + 1). Both parts are divided in the accumulator, so that neither
/// a hub's sum nor a degree meets the 16-bit type.
at::Tensor mean_with_own_row(const Topology& topology, const at::Tensor& x) {
  const at::Tensor share = (topology.in_degrees() + 1).to(detail::scale_dtype(x)).reciprocal();
  return scaled_sum(topology, x, std::nullopt, std::nullopt, share) +
         scaled_sum(own_rows(topology), x, std::nullopt, std::nullopt, share);
}

at::Tensor aggregate(const Topology& topology, Aggregator aggregator, const at::Tensor& x) {
  if (aggregator == Aggregator::kGcn) return mean_with_own_row(topology, x);
  const ReduceOp reduce = aggregator == Aggregator::kPool ? ReduceOp::kMax : ReduceOp::kMean;
  return gspmm(topology, BinaryOp::kCopyLhs, reduce, x, std::nullopt);
}

}  // namespace

SAGEConvImpl::SAGEConvImpl(SAGEConvOptions given) : options(std::move(given)) {
  const std::int64_t in = options.in_features, out = options.out_features;
  detail::check_positive(kSageConvName, "in_features", in);
  detail::check_positive(kSageConvName, "out_features", out);
  detail::check_probability(kSageConvName, "feature_dropout", options.feature_dropout);
  MEZZO_CHECK(!name_of(SageAggregators{}, options.aggregator).empty(),
              "{}: expected aggregator to be one of {}, got {}", kSageConvName,
              names(SageAggregators{}), name_of(Aggregators{}, options.aggregator));
  if (options.aggregator == Aggregator::kPool) {
    fc_pool = register_module("fc_pool", torch::nn::Linear(in, in));
  }
  if (options.aggregator != Aggregator::kGcn) {
    const auto own = torch::nn::LinearOptions(in, out).bias(options.bias);
    fc_self = register_module("fc_self", torch::nn::Linear(own));
  } else if (options.bias) {
    bias = register_parameter("bias", at::empty({out}));
  }
  const auto received = torch::nn::LinearOptions(in, out).bias(false);
  fc_neigh = register_module("fc_neigh", torch::nn::Linear(received));
  reset_parameters();
}

void SAGEConvImpl::reset_parameters() {
  const double gain = std::sqrt(2.0);  // for relu
  for (torch::nn::Linear* part : {&fc_pool, &fc_self, &fc_neigh}) {
    if (part->is_empty()) continue;
    (*part)->reset_parameters();
    torch::nn::init::xavier_uniform_((*part)->weight, gain);
  }
  if (bias.defined()) torch::nn::init::zeros_(bias);
}

at::Tensor SAGEConvImpl::neighbours(const Topology& topology, const at::Tensor& h) const {
  const at::Tensor& weight = fc_neigh->weight;
  if (options.aggregator == Aggregator::kPool) {
    const at::Tensor messages = at::relu(mezzo::linear(h, fc_pool->weight, fc_pool->bias));
    return mezzo::linear(aggregate(topology, options.aggregator, messages), weight);
  }
  if (options.in_features > options.out_features || detail::is_sparse(h)) {
    return aggregate(topology, options.aggregator, mezzo::linear(h, weight));
  }
  return mezzo::linear(aggregate(topology, options.aggregator, h), weight);
}

at::Tensor SAGEConvImpl::forward(const Topology& topology, const at::Tensor& features) {
  detail::check_input(kSageConvName, topology, features, options.in_features);
  detail::check_prefix(kSageConvName, topology);
  const at::Tensor h = mezzo::feature_dropout(features, options.feature_dropout, is_training());
  at::Tensor out = neighbours(topology, h);
  if (options.aggregator == Aggregator::kGcn) {
    out = detail::add_parameter(out, bias);
  } else {
    out = out + detail::linear_first_rows(h, topology.num_dst(), fc_self->weight, fc_self->bias);
  }
  return detail::activate(options.activation, out);
}

}  // namespace mezzo::nn
