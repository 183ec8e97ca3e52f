#pragma once

#include <cstdint>
#include <iosfwd>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/layer.h"

namespace mezzo::nn {

/// Options of ChebConv.
struct ChebConvOptions {
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  std::int64_t k = 0;                                                    ///< terms, at least 1
  Activation activation = [](const at::Tensor& h) { return h.relu(); };  ///< {}: none
  bool bias = true;
};

/// Chebyshev spectral convolution (Defferrard et al., NeurIPS'16): linear of [T_0 h, ..., T_(k-1)
/// h] side by side, where T_0 h = h, T_1 h = L h, T_i h = 2 L T_(i-1) h - T_(i-2) h. With r = 2 /
/// lambda_max, L = (r - 1) I - r D^(-1/2) A D^(-1/2), the scaled Laplacian, with the in-degrees, of
/// at least 1, on both sides. With DGL's parameters: `linear.weight` [out, k in], `linear.bias`
/// [out] (libtorch's defaults). Multiplies before the terms, by Clenshaw's rule, when out_features
/// is the smaller.
class MEZZO_API ChebConvImpl : public torch::nn::Cloneable<ChebConvImpl> {
 public:
  /// Throws InvalidArgument unless the sizes and k are positive.
  explicit ChebConvImpl(ChebConvOptions options);
  /// Creates the parameters; called by the constructor and clone().
  void reset() override;
  /// Reinitializes the parameters.
  void reset_parameters();
  /// Writes the name, sizes and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// topology: of one set of nodes. h: [N, in], strided or sparse CSR. lambda_max: the largest
  /// eigenvalue of the normalised Laplacian, floating [] or [1], or [N] with the value of each
  /// node's graph (for a batch: repeat_interleave by the numbers of nodes); undefined: 2, its upper
  /// bound. No gradient flows to it; checking its sign synchronises. Returns [N, out]. Throws
  /// InvalidArgument for other shapes, and unless lambda_max is positive.
  at::Tensor forward(const Topology& topology, const at::Tensor& h,
                     const at::Tensor& lambda_max = {});

  ChebConvOptions options;
  torch::nn::Linear linear{nullptr};
};
using ChebConv = InOutHolder<ChebConvImpl>;

}  // namespace mezzo::nn
