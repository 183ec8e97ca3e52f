#pragma once

#include <iosfwd>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/conv/graph_conv.h"
#include "mezzo/nn/layer_holder.h"

namespace mezzo::nn {

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
