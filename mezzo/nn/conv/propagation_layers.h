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

/// Layers that multiply rows by the normalised adjacency matrix, once or several times.
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
  struct Cache {
    Topology topology;
    at::Tensor h, edge_weight;
    std::int64_t h_version, edge_weight_version;
    at::Tensor rows;
  };
  at::Tensor cached_rows(const Topology& topology, const at::Tensor& h,
                         const at::Tensor& edge_weight);

  std::optional<Cache> cache_;
};
using SGConv = InOutHolder<SGConvImpl>;

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
