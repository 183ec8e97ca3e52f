#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/graph.h"
#include "mezzo/sampling/blocks/block.h"
#include "mezzo/sampling/blocks/block_sampler.h"
#include "mezzo/sampling/node_flow/node_flow.h"
#include "mezzo/sampling/workspace.h"

namespace mezzo {

/// Options of a ControlVariate.
struct ControlVariateOptions {
  /// Features of the layers that send messages, inputs first: one per block, each >= 1.
  std::vector<std::int64_t> widths;
  at::ScalarType dtype = at::kFloat;  ///< of the histories: float32, float64, bfloat16 or float16
  NeighborType neighbor_type = NeighborType::kIn;  ///< the sampler's
};

/// The control variate of VR-GCN (Chen, Zhu and Song, ICML'18): stores the last activations of
/// every node, layer by layer (its history), and estimates the mean over all of a node's neighbours
/// as the mean of their histories plus the mean of (activation - history) of the sampled ones.
/// Unbiased for uniformly sampled neighbours; exact if the histories equal the activations or if
/// every neighbour is sampled. Histories are on the CPU and start at 0; memory: num_nodes * (sum of
/// widths) numbers. Not thread-safe.
class MEZZO_API ControlVariate {
 public:
  /// graph: on the CPU, the parent of the flows. Throws InvalidArgument.
  ControlVariate(const Graph& graph, ControlVariateOptions options);

  /// The estimate for the nodes of layer block + 1: [layer_size(block + 1), F] in h's dtype, on its
  /// device; 0 for a node without neighbours. h: floating [layer_size(block), F], the activations
  /// of layer `block`, on the flow's device; its gradient is the sampled mean's. Differences have
  /// the larger of h's dtype and the histories', also under autocast; the mean of all histories is
  /// rounded once, to their dtype. Throws InvalidArgument for another shape and for a flow with
  /// added self loops (add them to the graph instead). Reads the histories of all neighbours:
  /// O(degrees * F) on the CPU, then a copy to the device.
  at::Tensor mean(const NodeFlow& flow, std::int64_t block, const at::Tensor& h);

  /// Writes h (floating [layer_size(layer), F], on any device), detached and rounded to the
  /// histories' dtype, to the history of the layer's nodes. In place.
  void update(const NodeFlow& flow, std::int64_t layer, const at::Tensor& h);

  /// For a block of a BlockLoader instead of a flow: what to add to the mean of its messages, which
  /// are activations of layer `layer`, for the estimate. The mean of the histories of all
  /// neighbours minus that of the drawn ones: [num_dst, F] float32 (float64 for such histories),
  /// without gradient; 0 up to rounding if the block has every edge. Each mean is rounded once, to
  /// the histories' dtype, also under autocast. block: on the CPU, drawn from the graph along
  /// neighbor_type. Cost as of mean(). Throws InvalidArgument for another layer and device.
  at::Tensor correction(const Block& block, std::int64_t layer);

  /// As the other update(), for the sources of a block. h: floating [num_src, F].
  void update(const Block& block, std::int64_t layer, const at::Tensor& h);

  /// [num_nodes, F] of options.dtype on the CPU, which update() writes to; layer in [-n, n) for n
  /// widths.
  at::Tensor history(std::int64_t layer) const;
  /// Copies values (floating [num_nodes, F], on any device) to a history. The input features as the
  /// history of layer 0 make its estimates exact.
  void set_history(std::int64_t layer, const at::Tensor& values);

 private:
  /// The mean of a history over all neighbours of these nodes, in its dtype.
  at::Tensor mean_of_all(const at::Tensor& history, const at::Tensor& nodes);

  NeighborSource source_;
  std::vector<at::Tensor> histories_;
  Workspace workspace_;
};

}  // namespace mezzo
