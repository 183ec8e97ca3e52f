#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/layer.h"

namespace mezzo::nn {

/// Options of SGConv.
struct SGConvOptions {
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  std::int64_t k = 1;   ///< hops, at least 0
  bool cached = false;  ///< compute the hops once: for one graph with fixed features
  bool bias = true;
  Activation norm = {};               ///< of the rows after the hops, before fc
  bool allow_zero_in_degree = false;  ///< otherwise such nodes are an error
};

/// Simplified graph convolution (Wu et al., ICML'19): fc(norm((D^(-1/2) A D^(-1/2))^k h)), with the
/// in-degrees, of at least 1, on both sides; with edge weights A holds them, and the degrees are
/// their sums into a destination and out of a source. With DGL's parameters: `fc.weight` [out, in]
/// (Glorot uniform), `fc.bias` [out] (zeros). Multiplies before the hops when out_features is the
/// smaller, unless cached or norm is set.
class MEZZO_API SGConvImpl : public torch::nn::Cloneable<SGConvImpl> {
 public:
  /// Throws InvalidArgument unless both sizes are positive and k is at least 0.
  explicit SGConvImpl(SGConvOptions options);
  /// Creates the parameters; called by the constructor and clone().
  void reset() override;
  /// Reinitializes the parameters.
  void reset_parameters();
  /// Writes the name, sizes and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// topology: of one set of nodes. h: [N, in], strided or sparse CSR (cached and norm make a dense
  /// copy). edge_weight: undefined, or floating, positive [E]; checking the signs synchronises.
  /// Returns [N, out]. Throws InvalidArgument for other shapes, and for nodes without in-edges
  /// unless allow_zero_in_degree. cached: the first call saves the rows after the hops, [N, in],
  /// and refers to its arguments; later calls must pass the same topology and tensors, unchanged
  /// and without gradients, or throw InvalidArgument. If autocast changes the dtype, the rows are
  /// computed again.
  at::Tensor forward(const Topology& topology, const at::Tensor& h,
                     const at::Tensor& edge_weight = {});
  /// Clears the cache, so that the next call may pass another graph or other rows.
  void clear_cache();

  SGConvOptions options;
  torch::nn::Linear fc{nullptr};

 private:
  /// The cached rows after the hops, and the arguments of that call.
  struct Kept {
    Topology topology;
    at::Tensor h, edge_weight;
    std::int64_t h_version, edge_weight_version;
    at::Tensor rows;
  };
  at::Tensor kept_rows(const Topology& topology, const at::Tensor& h,
                       const at::Tensor& edge_weight);

  std::optional<Kept> kept_;
};
using SGConv = InOutHolder<SGConvImpl>;

}  // namespace mezzo::nn
