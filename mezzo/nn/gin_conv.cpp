#include "mezzo/nn/gin_conv.h"

#include <cmath>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <torch/nn/init.h>

#include "mezzo/core/error.h"
#include "mezzo/message_passing/ops.h"
#include "mezzo/nn/layer_support.h"
#include "mezzo/nn/propagation.h"

namespace mezzo::nn {
namespace {

constexpr auto kGinConvName = "GINConv";

ReduceOp reduction(Aggregator aggregator) {
  if (aggregator == Aggregator::kMean) return ReduceOp::kMean;
  return aggregator == Aggregator::kMax ? ReduceOp::kMax : ReduceOp::kSum;
}

}  // namespace

GINConvImpl::GINConvImpl(GINConvOptions given, torch::nn::AnyModule update)
    : options(std::move(given)), apply_func(std::move(update)) {
  MEZZO_CHECK(!name_of(GinAggregators{}, options.aggregator).empty(),
              "{}: expected aggregator to be one of {}, got {}", kGinConvName,
              names(GinAggregators{}), name_of(Aggregators{}, options.aggregator));
  MEZZO_CHECK(std::isfinite(options.initial_eps), "{}: expected a finite initial_eps, got {}",
              kGinConvName, options.initial_eps);
  const at::Tensor values = at::empty({1}, at::kFloat);
  eps = options.learn_eps ? register_parameter("eps", values) : register_buffer("eps", values);
  if (!apply_func.is_empty()) register_module("apply_func", apply_func.ptr());
  reset_parameters();
}

void GINConvImpl::reset_parameters() {
  torch::nn::init::constant_(eps, options.initial_eps);
}

at::Tensor GINConvImpl::forward(const Topology& topology, const at::Tensor& h,
                                const at::Tensor& edge_weight) {
  detail::check_node_rows(kGinConvName, topology, h);
  detail::check_prefix(kGinConvName, topology);
  const at::ScalarType scale = detail::scale_dtype(h);
  const std::optional<at::Tensor> factors =
      detail::edge_factors(kGinConvName, topology, edge_weight, scale);
  const at::Tensor rows = detail::is_sparse(h) ? h.to_dense() : h;
  const at::Tensor received = gspmm(topology, factors ? BinaryOp::kMul : BinaryOp::kCopyLhs,
                                    reduction(options.aggregator), rows, factors);
  const at::Tensor own = detail::residual_rows(rows, topology.num_dst(), received.scalar_type());
  // A number without dimensions is neither rounded to the rows' dtype nor widens them.
  const at::Tensor factor = 1 + eps.squeeze(0).to(scale);
  // The gradient of eps is a sum over all rows: of wide ones, for it overflows 16 bits.
  const at::Tensor scaled =
      options.learn_eps ? (own.to(scale) * factor).to(own.scalar_type()) : own * factor;
  at::Tensor out = scaled + received;
  if (!apply_func.is_empty()) out = apply_func.forward(out);
  return detail::activate(options.activation, out);
}

}  // namespace mezzo::nn
