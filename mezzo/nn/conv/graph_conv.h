#pragma once

#include <cstdint>
#include <iosfwd>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/layer.h"

namespace mezzo::nn {

/// The degrees that GraphConv divides by: kBoth 1/sqrt(d_out(u) d_in(v)), kRight 1/d_in(v), kLeft
/// 1/d_out(u), kNone 1. Degrees count as at least 1.
enum class DegreeNorm : std::uint8_t { kBoth, kRight, kLeft, kNone };

/// Options of GraphConv.
struct GraphConvOptions {
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  DegreeNorm norm = DegreeNorm::kBoth;
  bool weight = true;  ///< a parameter; if false, forward takes an optional one
  bool bias = true;
  Activation activation = {};
  bool allow_zero_in_degree = false;  ///< otherwise such nodes are an error
  /// Estimates the result on the whole graph if the topology is a sample with the degrees of its
  /// parent (BlockSampler::Options::parent_degrees): the norm takes those, and except under kNone
  /// the sum over the k_v sampled edges of v is scaled by d_v / k_v. Unbiased given k_v > 0 if all
  /// edges of v are equally likely to be drawn; exact if every edge is drawn. LABOR draws a random
  /// number of edges: the estimate is unbiased given k_v alone.
  bool parent_degrees = false;
};

/// Graph convolution (Kipf & Welling, ICLR'17), with DGL's parameters: `weight` [in, out] (Glorot
/// uniform), `bias` [out] (zeros); without options.weight `bias` alone. Multiplies before
/// aggregating when out_features is the smaller.
class MEZZO_API GraphConvImpl : public torch::nn::Cloneable<GraphConvImpl> {
 public:
  /// Throws InvalidArgument unless both sizes are positive.
  explicit GraphConvImpl(GraphConvOptions options);
  /// Creates the parameters; called by the constructor and clone().
  void reset() override;
  /// Reinitializes the parameters.
  void reset_parameters();
  /// Writes the name, sizes and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// h: [num_src, in], strided or sparse CSR: the rows of the sources (of a pair in DGL, the layer
  /// does not read those of the destinations). edge_weight: floating [E], multiplies the messages,
  /// or undefined. With parent_degrees, except under kNone, they are factors for the mean over the
  /// sampled edges, such as the weights of the graph's edges, if all edges of v are equally likely
  /// to be drawn, and the weights of a BlockLoader with layer_sizes; weights for sums, such as
  /// LABOR's 1 / probability, would correct for the draw twice. external_weight: floating [in,
  /// out], DGL's argument `weight`, if options.weight is false; undefined there: rows are not
  /// multiplied, and `in` must equal `out`. Returns [num_dst, out].
  /// Throws InvalidArgument for other shapes, dtypes and devices, and for destinations without
  /// in-edges unless they are allowed.
  at::Tensor forward(const Topology& topology, const at::Tensor& h,
                     const at::Tensor& edge_weight = {}, const at::Tensor& external_weight = {});

  GraphConvOptions options;
  at::Tensor weight, bias;  ///< undefined if the options disable it

 private:
  /// The parameter or external_weight, checked; undefined if neither exists.
  at::Tensor weight_or(const at::Tensor& external_weight, at::Device device) const;
};
using GraphConv = InOutHolder<GraphConvImpl>;

/// Options of EdgeWeightNorm.
struct EdgeWeightNormOptions {
  /// An edge (u, v) is divided by: kBoth sqrt(out(u) in(v)), kRight in(v), kLeft out(u), kNone 1;
  /// out and in are the sums of the weights out of a source and into a destination.
  DegreeNorm norm = DegreeNorm::kBoth;
  double eps = 0;  ///< added to the sums, at least 0
};

/// Edge weights divided by their sums at the ends of the edges (DGL's EdgeWeightNorm, as Kipf &
/// Welling, ICLR'17, normalise a weighted adjacency matrix): the edge_weight of a GraphConv with
/// DegreeNorm::kNone. Without parameters. kLeft is not DGL's.
class MEZZO_API EdgeWeightNormImpl : public torch::nn::Cloneable<EdgeWeightNormImpl> {
 public:
  /// Throws InvalidArgument unless eps is finite and at least 0.
  explicit EdgeWeightNormImpl(EdgeWeightNormOptions options = {});
  /// Checks the options; called by the constructor and clone().
  void reset() override;
  /// Writes the name, sizes and options in one line.
  void pretty_print(std::ostream& stream) const override;

  /// edge_weight: floating [E] or [E, 1], on the topology's device; positive for kBoth, not
  /// negative for kRight and kLeft. If a sum plus eps is 0, its weights stay 0. Returns [E] of the
  /// weights' dtype, computed in float64, also under autocast; differentiable. In a sample the sums
  /// are over the sampled edges. Throws InvalidArgument for other shapes, dtypes, devices and
  /// signs. Synchronises to read the signs; deterministic.
  at::Tensor forward(const Topology& topology, const at::Tensor& edge_weight);

  EdgeWeightNormOptions options;
};
using EdgeWeightNorm = LayerHolder<EdgeWeightNormImpl>;

}  // namespace mezzo::nn
