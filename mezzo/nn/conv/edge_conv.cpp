#include "mezzo/nn/conv/edge_conv.h"

#include <optional>
#include <ostream>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/format.h>

#include "mezzo/core/error.h"
#include "mezzo/nn/layer_support.h"
#include "mezzo/nn/normalization.h"
#include "mezzo/ops/ops.h"

namespace mezzo::nn {
namespace {

constexpr auto kEdgeConvName = "EdgeConv";

/// The dtype of the product of h and the weight: h's dtype, or the mixed precision region's.
at::ScalarType result_dtype(const at::Tensor& h, const at::Tensor& weight) {
  const at::DeviceType device = h.device().type();
  const bool lowers = at::autocast::is_autocast_enabled(device);
  MEZZO_CHECK(lowers || detail::is_sparse(h) || h.scalar_type() == weight.scalar_type(),
              "{}: expected h of the weights' dtype, {}, got {}", kEdgeConvName,
              c10::toString(weight.scalar_type()), c10::toString(h.scalar_type()));
  const at::ScalarType dtype = detail::is_sparse(h) ? weight.scalar_type() : h.scalar_type();
  return lowers && dtype != at::kDouble ? at::autocast::get_autocast_dtype(device) : dtype;
}

}  // namespace

EdgeConvImpl::EdgeConvImpl(EdgeConvOptions layer_options) : options(std::move(layer_options)) {
  reset();
}

void EdgeConvImpl::reset() {
  const std::int64_t in = options.in_features, out = options.out_features;
  detail::check_in_and_out(kEdgeConvName, options);
  theta = register_module("theta", torch::nn::Linear(in, out));
  phi = register_module("phi", torch::nn::Linear(in, out));
  if (options.batch_norm) {
    normalize_ = detail::add_normalization(*this, "bn", Normalization::kBatch, out);
  }
}

void EdgeConvImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format(
      "mezzo::nn::EdgeConv(in_features={}, out_features={}, batch_norm={}, "
      "allow_zero_in_degree={})",
      options.in_features, options.out_features, options.batch_norm, options.allow_zero_in_degree);
}

at::Tensor EdgeConvImpl::forward(const Topology& topology, const NodeRows& h) {
  detail::check_node_rows(kEdgeConvName, topology, h, options.in_features, options.in_features);
  detail::check_in_degrees(kEdgeConvName, topology, options.allow_zero_in_degree);
  MEZZO_CHECK(!options.batch_norm || !is_training() || topology.num_edges() >= 2,
              "{}: expected at least 2 edges while training with batch_norm, got {}", kEdgeConvName,
              topology.num_edges());

  const at::ScalarType result = result_dtype(h.src(), theta->weight);
  if (!options.batch_norm) return reduced_messages(topology, h, /*largest=*/true).to(result);
  const at::Tensor messages = reduced_messages(topology, h, /*largest=*/false).to(result);
  return gspmm(topology, BinaryOp::kCopyRhs, ReduceOp::kMax, std::nullopt, normalize_(messages));
}

at::Tensor EdgeConvImpl::reduced_messages(const Topology& topology, const NodeRows& h,
                                          bool largest) const {
  // theta(h_v - h_u) + phi(h_v) = (theta + phi)(h_v) - theta(h_u), the bias of theta with v's part.
  // The halves may be large beside their difference: 16 bits would lose it.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const at::ScalarType dtype = detail::scale_dtype(h.src(), theta->weight);
  const auto in_dtype = [dtype](const at::Tensor& rows) {
    return detail::is_sparse(rows) ? rows : rows.to(dtype);
  };
  const at::Tensor src = in_dtype(h.src()), dst = h.is_pair() ? in_dtype(h.dst()) : src;
  const at::Tensor sent_weight = theta->weight.to(dtype);
  const at::Tensor sent = mezzo::linear(src, sent_weight);
  const at::Tensor own =
      detail::linear_first_rows(dst, topology.num_dst(), sent_weight + phi->weight.to(dtype),
                                theta->bias.to(dtype) + phi->bias.to(dtype));
  return largest ? gspmm(topology, BinaryOp::kSub, ReduceOp::kMax, own, sent, Target::kDst,
                         Target::kSrc)
                 : gsddmm(topology, BinaryOp::kSub, own, sent, Target::kDst, Target::kSrc);
}

}  // namespace mezzo::nn
