#pragma once

#include <cstdint>
#include <iosfwd>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/layer.h"

namespace mezzo::nn {

/// Options of APPNPConv.
struct APPNPConvOptions {
  std::int64_t k = 10;   ///< steps, at least 0
  double alpha = 0.1;    ///< share of the first rows in each step, in [0, 1]
  double edge_drop = 0;  ///< of the edges, resampled in each step, in [0, 1); while training
};

/// Propagation by personalised PageRank (Gasteiger et al., ICLR'19; the defaults are the paper's):
/// from z = h, k times z = (1 - alpha) D_in^(-1/2) A D_out^(-1/2) z + alpha h, with degrees of at
/// least 1; with edge weights A holds them, and the degrees are their sums into a destination and
/// out of a source. No parameters.
class MEZZO_API APPNPConvImpl : public torch::nn::Cloneable<APPNPConvImpl> {
 public:
  /// Throws InvalidArgument unless k is at least 0, alpha in [0, 1] and edge_drop in [0, 1).
  explicit APPNPConvImpl(APPNPConvOptions options = {});
  /// Checks the options; called by the constructor and clone().
  void reset() override;
  /// Does nothing: the layer has no parameters.
  void reset_parameters() {}
  /// Writes the name, sizes and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// topology: of one set of nodes. h: [N, ...], strided. edge_weight: floating, positive [E],
  /// which synchronises to read the signs, or undefined. Returns the shape of h. Throws
  /// InvalidArgument for other shapes. Dropout draws from libtorch's generator.
  at::Tensor forward(const Topology& topology, const at::Tensor& h,
                     const at::Tensor& edge_weight = {});

  APPNPConvOptions options;
};
using APPNPConv = LayerHolder<APPNPConvImpl>;

}  // namespace mezzo::nn
