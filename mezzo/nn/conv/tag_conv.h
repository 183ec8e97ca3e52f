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

/// Options of TAGConv.
struct TAGConvOptions {
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  std::int64_t k = 2;  ///< hops, at least 0
  bool bias = true;
  Activation activation = {};
};

/// Topology adaptive graph convolution (Du et al., 2017): lin of [h, P h, ..., P^k h] side by side,
/// where P = D^(-1/2) A D^(-1/2) with the in-degrees, of at least 1, on both sides; with edge
/// weights A holds them, and the degrees are their sums into a destination and out of a source.
/// With DGL's parameters: `lin.weight` [out, (k + 1) in] (Glorot normal with gain sqrt(2)),
/// `lin.bias` [out] (libtorch's default). Multiplies before the hops, by Horner's rule, when
/// out_features is the smaller.
class MEZZO_API TAGConvImpl : public torch::nn::Cloneable<TAGConvImpl> {
 public:
  /// Throws InvalidArgument unless both sizes are positive and k is at least 0.
  explicit TAGConvImpl(TAGConvOptions options);
  /// Creates the parameters; called by the constructor and clone().
  void reset() override;
  /// Reinitializes the parameters.
  void reset_parameters();
  /// Writes the name, sizes and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// topology: of one set of nodes. h: [N, in], strided or sparse CSR. edge_weight: floating,
  /// positive [E], which synchronises to read the signs, or undefined. Returns [N, out]. Throws
  /// InvalidArgument for other shapes.
  at::Tensor forward(const Topology& topology, const at::Tensor& h,
                     const at::Tensor& edge_weight = {});

  TAGConvOptions options;
  torch::nn::Linear lin{nullptr};
};
using TAGConv = InOutHolder<TAGConvImpl>;

}  // namespace mezzo::nn
