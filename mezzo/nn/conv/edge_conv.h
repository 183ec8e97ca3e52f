#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/layer.h"

namespace mezzo::nn {

/// Options of EdgeConv.
struct EdgeConvOptions {
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  bool batch_norm = false;            ///< of the messages, over all edges
  bool allow_zero_in_degree = false;  ///< otherwise such nodes are an error
};

/// Edge convolution (Wang et al., TOG'19), with DGL's semantics and parameters: the output of v is
/// the maximum, over its in-neighbours u, of theta(h_v - h_u) + phi(h_v), or 0 if it has none.
/// Linear layers `theta` and `phi`, [out, in] with bias, initialised as in libtorch; with
/// batch_norm also `bn`, [out].
///
/// theta is linear, so without batch_norm the layer computes one product for each node and side,
/// (theta + phi)(h_v) and theta(h_u), and the maximum of their difference in one fused kernel,
/// without an [E, F] tensor. Products and difference are float32 (float64), also for 16-bit rows
/// and under autocast, and rounded once. Batch normalization needs all messages, [E, out], and
/// saves them for the backward.
class MEZZO_API EdgeConvImpl : public torch::nn::Cloneable<EdgeConvImpl> {
 public:
  /// Throws InvalidArgument unless both sizes are positive.
  explicit EdgeConvImpl(EdgeConvOptions options);
  /// Creates the parameters; called by the constructor and clone().
  void reset() override;
  /// Writes the name, sizes and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// h: [num_src, in], strided or sparse CSR; the destinations are the first num_dst sources. Or a
  /// pair of [num_src, in] and [num_dst, in], for any topology. Returns [num_dst, out]. Throws
  /// InvalidArgument for other shapes, for destinations without in-edges unless
  /// allow_zero_in_degree, and for fewer than 2 edges while training with batch_norm.
  at::Tensor forward(const Topology& topology, const NodeRows& h);

  EdgeConvOptions options;
  torch::nn::Linear theta{nullptr}, phi{nullptr};

 private:
  /// The messages in float32 (float64): their maximum at each destination, or one an edge.
  at::Tensor reduced_messages(const Topology& topology, const NodeRows& h, bool largest) const;

  std::function<at::Tensor(const at::Tensor&)> normalize_;  // empty without batch_norm
};
using EdgeConv = InOutHolder<EdgeConvImpl>;

}  // namespace mezzo::nn
