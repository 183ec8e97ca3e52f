#include "mezzo/nn/edge_conv.h"

#include <optional>
#include <utility>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/message_passing/ops.h"
#include "mezzo/nn/layer_support.h"
#include "mezzo/nn/normalization.h"

namespace mezzo::nn {
namespace {

constexpr auto kEdgeConvName = "EdgeConv";

}  // namespace

EdgeConvImpl::EdgeConvImpl(EdgeConvOptions given) : options(std::move(given)) {
  const std::int64_t in = options.in_features, out = options.out_features;
  detail::check_positive(kEdgeConvName, "in_features", in);
  detail::check_positive(kEdgeConvName, "out_features", out);
  theta = register_module("theta", torch::nn::Linear(in, out));
  phi = register_module("phi", torch::nn::Linear(in, out));
  if (options.batch_norm) {
    normalize_ = detail::add_normalization(*this, "bn", Normalization::kBatch, out);
  }
}

at::Tensor EdgeConvImpl::forward(const Topology& topology, const at::Tensor& h) {
  detail::check_input(kEdgeConvName, topology, h, options.in_features);
  detail::check_prefix(kEdgeConvName, topology);
  detail::check_in_degrees(kEdgeConvName, topology, options.allow_zero_in_degree);
  MEZZO_CHECK(!options.batch_norm || !is_training() || topology.num_edges() >= 2,
              "{}: expected at least 2 edges while training with batch_norm, got {}", kEdgeConvName,
              topology.num_edges());

  // theta(h_v - h_u) + phi(h_v) = (theta + phi)(h_v) - theta(h_u), the bias of theta with v's part.
  const at::Tensor sent = mezzo::linear(h, theta->weight);
  const at::Tensor own = detail::linear_first_rows(
      h, topology.num_dst(), theta->weight + phi->weight, theta->bias + phi->bias);
  if (!options.batch_norm) {
    return gspmm(topology, BinaryOp::kSub, ReduceOp::kMax, own, sent, Target::kDst, Target::kSrc);
  }
  const at::Tensor messages =
      gsddmm(topology, BinaryOp::kSub, own, sent, Target::kDst, Target::kSrc);
  return gspmm(topology, BinaryOp::kCopyRhs, ReduceOp::kMax, std::nullopt, normalize_(messages));
}

}  // namespace mezzo::nn
