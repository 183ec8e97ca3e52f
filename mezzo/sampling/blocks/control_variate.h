#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/graph.h"
#include "mezzo/sampling/blocks/block_sampler.h"
#include "mezzo/sampling/node_flow/node_flow.h"
#include "mezzo/sampling/workspace.h"

namespace mezzo {

/// What a ControlVariate remembers.
struct ControlVariateOptions {
  /// Numbers of features of the layers that send messages, inputs first: one a block, each >= 1.
  std::vector<std::int64_t> widths;
  at::ScalarType dtype = at::kFloat;  ///< of the histories: float32, float64, bfloat16 or float16
  NeighborType neighbor_type = NeighborType::kIn;  ///< as the sampler's
};

/// The control variate of VR-GCN (Chen, Zhu and Song, ICML'18): remembers the last activations of
/// every node, layer by layer, and estimates the mean over all of a node's neighbours as the mean
/// of the histories of all plus the mean of (activation - history) of the sampled. Unbiased for
/// neighbours that are sampled uniformly; exact for any fan-out where the histories are the
/// activations, and for any history where every neighbour is sampled. Histories are on the CPU, 0
/// at first; memory: num_nodes * (sum of widths) numbers. Not for use from several threads.
class MEZZO_API ControlVariate {
 public:
  /// graph: structure on the CPU, the parent of the flows. Throws InvalidArgument.
  ControlVariate(const Graph& graph, ControlVariateOptions options);

  /// The estimate for the nodes of layer block + 1: [layer_size(block + 1), F] in h's dtype, on its
  /// device; 0 for a node without neighbours. h: floating [layer_size(block), F], the activations
  /// of layer `block`, on the flow's device; gradients flow to it as through the sampled mean.
  /// Differences are taken in the wider of h's dtype and the histories', also under autocast; the
  /// mean of all histories is rounded to their dtype, once. Throws
  /// InvalidArgument for another shape and for a flow with added self loops, which the parent's
  /// neighbours lack (add the loops to the graph instead). Reads the histories of all neighbours:
  /// O(their degrees * F) on the CPU, then a copy to the device.
  at::Tensor mean(const NodeFlow& flow, std::int64_t block, const at::Tensor& h);

  /// Writes h (floating [layer_size(layer), F], on any device), without its gradient and rounded to
  /// the histories' dtype, to the history of layer `layer`'s nodes. In place.
  void update(const NodeFlow& flow, std::int64_t layer, const at::Tensor& h);

  /// [num_nodes, F] of options.dtype on the CPU; layer in [-n, n) for n widths. Shared: update()
  /// writes to it.
  at::Tensor history(std::int64_t layer) const;
  /// Replaces a whole history: floating [num_nodes, F] on any device, copied; the features at layer
  /// 0 make that layer's estimates exact.
  void set_history(std::int64_t layer, const at::Tensor& values);

 private:
  NeighborSource source_;
  std::vector<at::Tensor> histories_;
  Workspace workspace_;
};

}  // namespace mezzo
