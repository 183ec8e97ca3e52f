#pragma once

#include <cstdint>
#include <iosfwd>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/layer.h"

namespace mezzo::nn {

/// Options of GCN2Conv.
struct GCN2ConvOptions {
  std::int64_t in_features = 0;          ///< of the result too
  std::int64_t layer = 0;                ///< which layer of the model this is, from 1
  double alpha = 0.1;                    ///< share of the initial rows, in [0, 1]
  double lambda = 1;                     ///< beta = log(lambda / layer + 1); more than -layer
  bool project_initial_features = true;  ///< the initial rows by weight1 too, not by a weight2
  bool bias = true;
  Activation activation = {};
  bool allow_zero_in_degree = false;  ///< otherwise such nodes are an error
};

/// Graph convolution with initial residual and identity mapping (GCNII: Chen et al., ICML'20). From
/// the share p = (1 - alpha) D^(-1/2) A D^(-1/2) h that comes from the neighbours and the share r =
/// alpha initial_h: (1 - beta) (p + r) + beta (p weight1 + r weight2) + bias, where weight2 is
/// weight1 unless project_initial_features is false. The degrees are the in-degrees, of at least 1,
/// on both sides; with edge weights A holds them, and the degrees are their sums into a destination
/// and out of a source. With DGL's parameters: `weight1` and, if it is another, `weight2`, [in, in]
/// (normal, of standard deviation 1), `bias` [in] (zeros).
class MEZZO_API GCN2ConvImpl : public torch::nn::Cloneable<GCN2ConvImpl> {
 public:
  /// Throws InvalidArgument unless in_features and layer are positive, alpha is in [0, 1] and
  /// lambda / layer finite and more than -1.
  explicit GCN2ConvImpl(GCN2ConvOptions options);
  /// Creates the parameters; called by the constructor and clone().
  void reset() override;
  /// Reinitializes the parameters.
  void reset_parameters();
  /// Writes the name, sizes and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// topology: of one set of nodes. h: [N, in], strided. initial_h: the same shape, what the
  /// model's first layer got, in any floating dtype. edge_weight: floating, positive [E],
  /// which synchronises to read the signs, or undefined. Returns [N, in]. Throws InvalidArgument
  /// for other shapes, dtypes and devices, and for nodes without in-edges unless they are allowed.
  at::Tensor forward(const Topology& topology, const at::Tensor& h, const at::Tensor& initial_h,
                     const at::Tensor& edge_weight = {});

  GCN2ConvOptions options;
  at::Tensor weight1, weight2, bias;  ///< undefined if the options disable it
};
using GCN2Conv = LayerHolder<GCN2ConvImpl, &GCN2ConvOptions::in_features>;

}  // namespace mezzo::nn
