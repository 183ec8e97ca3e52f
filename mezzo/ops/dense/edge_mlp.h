#pragma once

#include <tuple>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/ops/op.h"

namespace mezzo::detail {

/// The inputs of edge_mlp, all of one dtype, except that the norm may have the accumulator's. The
/// MLP of an edge from u to v has the first layer relu(weight edge + src[u] + dst[v]), where src
/// and dst are the nodes' parts of its product, the further layers relu(hidden_weight[i] h +
/// hidden_bias[i]) and the output norm(out_weight h + out_bias).
struct EdgeMlpInputs {
  TopologyArgument topology;
  at::Tensor src, dst;                        ///< [num_src, hidden], [num_dst, hidden]
  at::Tensor edge, weight;                    ///< [E, features], [hidden, features]
  OptionalTensor hidden_weight, hidden_bias;  ///< [layers, hidden, hidden], [layers, hidden]
  at::Tensor out_weight, out_bias;            ///< [features, hidden], [features]
  at::Tensor norm_weight, norm_bias;          ///< [features]

  static constexpr auto fields() {
    using A = EdgeMlpInputs;
    return std::tuple(Field{"topology", &A::topology}, Field{"src", &A::src}, Field{"dst", &A::dst},
                      Field{"edge", &A::edge}, Field{"weight", &A::weight},
                      Field{"hidden_weight", &A::hidden_weight},
                      Field{"hidden_bias", &A::hidden_bias}, Field{"out_weight", &A::out_weight},
                      Field{"out_bias", &A::out_bias}, Field{"norm_weight", &A::norm_weight},
                      Field{"norm_bias", &A::norm_bias});
  }

  /// Throws InvalidArgument for other shapes, dtypes or devices.
  void check_inputs() const;
};

/// Of layer normalization; libtorch's default.
inline constexpr double kEdgeMlpEps = 1e-5;

/// edge + MLP [E, features], and its sum over the in-edges of each destination [num_dst, features].
using EdgeMlpResult = std::tuple<at::Tensor, at::Tensor>;
/// In the order of the tensors of EdgeMlpInputs; undefined for those that are absent.
using EdgeMlpGradients = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor,
                                    at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

/// The gradients of the loss with respect to the results; undefined means 0.
struct EdgeMlpUpstream {
  OptionalTensor edge, sum;
};

/// On the CPU: blocks of edges that stay in the cache, in the order of edge ids. Sums of weight
/// gradients are split by block number, and sums of nodes are added in the order of edge ids, so
/// the bits do not depend on threads. Beside the results, allocates a few blocks a thread and 32
/// sums of each weight's gradient.
EdgeMlpResult blocked_edge_mlp(const EdgeMlpInputs& in);
/// Recomputes the forward of each block. needs_edge: whether to compute the gradient of `edge`.
EdgeMlpGradients blocked_edge_mlp_grad(const EdgeMlpInputs& in, const EdgeMlpUpstream& upstream,
                                       bool needs_edge);

/// The same from operators on [E, ...] tensors, on any device; the gradients by autograd.
MEZZO_API EdgeMlpResult composed_edge_mlp(const EdgeMlpInputs& in);
MEZZO_API EdgeMlpGradients composed_edge_mlp_grad(const EdgeMlpInputs& in,
                                                  const EdgeMlpUpstream& upstream, bool needs_edge);

/// An MLP on edges with a residual and layer normalization, and the sum of its results at the
/// destinations, without an [E, ...] tensor beside them: the backward keeps the inputs and computes
/// the rest again. On CUDA composed of other operators. Differentiable once. In a region of
/// autocast the norm's parameters keep their dtype.
MEZZO_API EdgeMlpResult edge_mlp(const EdgeMlpInputs& in);

}  // namespace mezzo::detail
