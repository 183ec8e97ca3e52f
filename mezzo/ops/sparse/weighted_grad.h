#pragma once

#include <optional>
#include <tuple>

#include <ATen/core/Tensor.h>

#include "mezzo/ops/schema.h"

namespace mezzo::detail {

/// A sum of rows weighted by edge and head:
/// out[v, h, :] = grad_scale[v] * sum over e = (u, v) of weight[e, h] * x_scale[u] * x[u, h, :].
/// The trailing dimensions of x are `heads` runs of equal length. Scales have the accumulator's
/// type.
struct WeightedSum {
  at::Tensor x;
  std::optional<at::Tensor> weight;  ///< [E, ...] of `heads` elements; read for x's gradient only
  std::int64_t heads = 1;
  std::optional<at::Tensor> grad_scale, x_scale;
};

/// The number of heads if the product of x [N, ...] and weight [E, ...] is the message of such a
/// sum: x is not broadcast and each weight multiplies one run of its elements; else nullopt.
std::optional<std::int64_t> weighted_heads(c10::IntArrayRef x, c10::IntArrayRef weight);

/// <dst[v, h, :], src[u, h, :]> for every edge (u, v) and head: [E, heads] in their dtype. Both are
/// contiguous, on the graph's device, of one dtype and one trailing shape with `heads` runs of
/// equal length.
template <class Device>
at::Tensor edge_dots(const Topology& topology, const at::Tensor& src, const at::Tensor& dst,
                     std::int64_t heads);

/// The gradients of x (undefined unless needed) and of the weight [E, heads] in `weight_dtype`, in
/// one pass.
std::tuple<at::Tensor, at::Tensor> weighted_grad(const TopologyArgument& topology,
                                                 const WeightedSum& sum, const at::Tensor& grad,
                                                 bool x_needs_grad, at::ScalarType weight_dtype);

}  // namespace mezzo::detail
