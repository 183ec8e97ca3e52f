#pragma once

#include <optional>
#include <tuple>

#include <ATen/core/Tensor.h>

#include "mezzo/ops/schema.h"

// The gradients of sums of rows weighted by edge and head; internal to message_passing.

namespace mezzo {

/// out[v, h, :] = grad_scale[v] * sum over e = (u, v) of weight[e, h] * x_scale[u] * x[u, h, :].
/// The trailing dimensions of x are `heads` runs of equal length; scales are of the accumulator's
/// type.
struct WeightedSum {
  at::Tensor x;
  std::optional<at::Tensor> weight;  ///< [E, ...] of `heads` elements; read for x's gradient only
  std::int64_t heads = 1;
  std::optional<at::Tensor> grad_scale, x_scale;
};

/// The number of heads where a product of x [N, ...] and weight [E, ...] is such a sum's message:
/// nothing of x is repeated, and each weight goes with one run of its elements; else nullopt.
std::optional<std::int64_t> weighted_heads(c10::IntArrayRef x, c10::IntArrayRef weight);

/// <dst[v, h, :], src[u, h, :]> of every edge (u, v) and head: [E, heads] of their dtype. Both
/// contiguous, on the graph's device, of one dtype and one trailing shape, of `heads` runs of equal
/// length.
template <class Device>
at::Tensor dots_by_edge(const Topology& topology, const at::Tensor& src, const at::Tensor& dst,
                        std::int64_t heads);

namespace op {

/// The gradients of x (undefined unless wanted) and of the weight [E, heads] in `weight_dtype`,
/// both in one pass.
std::tuple<at::Tensor, at::Tensor> weighted_grad(const TopologyPtr& topology,
                                                 const WeightedSum& sum, const at::Tensor& grad,
                                                 bool x_wanted, at::ScalarType weight_dtype);

}  // namespace op
}  // namespace mezzo
