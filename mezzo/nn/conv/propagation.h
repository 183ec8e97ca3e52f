#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "mezzo/graph/topology.h"
#include "mezzo/nn/conv/graph_conv.h"
#include "mezzo/ops/ops.h"

/// Code shared by the layers that propagate rows without a transformation. Internal to nn; not
/// exported. All checks throw InvalidArgument with the name of the layer.
namespace mezzo::nn::detail {

/// Checks that `hops` is at least 0.
void check_hops(std::string_view layer, std::int64_t hops);

/// The allowed signs of edge weights.
enum class WeightSigns : std::uint8_t { kPositive, kNotNegative };

/// Checks the signs of `weight`; NaN and infinities pass. Synchronises.
void check_weight_signs(std::string_view layer, const at::Tensor& weight, WeightSigns signs);

/// weight, float64 [num_edges] (which autocast leaves alone), by the sums that EdgeWeightNorm
/// divides by; a sum plus eps of 0 counts as 1.
at::Tensor normalised(const Topology& topology, const at::Tensor& weight, DegreeNorm norm,
                      double eps = 0);

/// The degrees that divide the rows of the sources in Propagation.
enum class SourceDegree : std::uint8_t { kIn, kOut };

/// Multiplication by D^(-1/2) A D^(-1/2) on one set of nodes, in one pass. Unweighted: the degrees
/// of the destinations are in-degrees, of at least 1. Weighted: A holds the edge weights, and the
/// degrees are the sums of those into each destination and out of each source (DGL's
/// EdgeWeightNorm); differentiable in the weights.
class Propagation {
 public:
  /// dtype: scale_dtype() of the rows to multiply. edge_weight: undefined, or floating, positive
  /// [num_edges]; checking the signs synchronises.
  Propagation(std::string_view layer, const Topology& topology, at::ScalarType dtype,
              const at::Tensor& edge_weight, SourceDegree source_degree = SourceDegree::kIn);

  /// factor * D^(-1/2) A D^(-1/2).
  Propagation times(double factor) const;
  /// The same with a tensor: floating [] or, without edge weights, [N], one factor for each row of
  /// the result.
  Propagation times(const at::Tensor& factor) const;

  /// Drops each edge with this probability and divides the others by 1 - probability; returns a
  /// copy of itself unless training. Draws from libtorch's generator.
  Propagation with_edge_dropout(double probability, bool training) const;

  /// x: [N, ...], strided. Returns the same shape.
  at::Tensor operator()(const at::Tensor& x) const;

 private:
  Topology topology_;
  at::ScalarType dtype_;  // of the factors
  std::optional<at::Tensor> weight_, src_scale_, dst_scale_;
};

/// Applies the propagation `hops` times.
at::Tensor propagate(const Propagation& propagation, at::Tensor x, std::int64_t hops);

}  // namespace mezzo::nn::detail
