#include "mezzo/nn/conv/gin_conv.h"

#include <cmath>
#include <optional>
#include <ostream>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/nn/init.h>

#include "mezzo/core/error.h"
#include "mezzo/nn/conv/propagation.h"
#include "mezzo/nn/layer_support.h"
#include "mezzo/ops/ops.h"

namespace mezzo::nn {
namespace {

constexpr auto kGinConvName = "GINConv";

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
