#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/graph/topology.h"
#include "mezzo/sampling/batch_key.h"
#include "mezzo/sampling/blocks/block.h"
#include "mezzo/sampling/blocks/block_sampler.h"
#include "mezzo/sampling/workspace.h"

namespace mezzo::detail {

/// Draws the blocks of a batch layer by layer, as LayerSampler draws node flows, for models whose
/// layers read the rows of their own nodes: the sources of a block are its destinations, then the
/// drawn nodes that are not among them, ascending; only edges from drawn nodes are in the block. So
/// the first layer has at most the seeds and the sum of the sizes. Immutable, for several threads
/// at once. Internal to sampling; not exported.
class LayerBlocks {
 public:
  /// topology: of one set of nodes, on the CPU. layer_sizes: draws of each layer, inputs first, 1
  /// to 255 of at least 1. parent_degrees: see BlockSampler. Throws InvalidArgument.
  LayerBlocks(const Topology& topology, std::vector<std::int64_t> layer_sizes, bool parent_degrees);

  /// seeds: distinct int64 on the CPU, in range, not checked. Input layer first. Every block has
  /// the column "edge_weights" (float32): with k_v of the d_v edges into v here, draws of u / (size
  /// q(u)) times k_v / d_v, so that the mean over the edges here of weight * x[u] is an unbiased
  /// estimate of the mean over all of v's neighbours (a v without an edge here counts as 0).
  /// GraphConv takes them as they are if both have parent_degrees. Of (seeds, key) alone. Allocates
  /// the blocks; cost: the degrees of their destinations.
  Blocks sample(const at::Tensor& seeds, const BatchKey& key, Workspace& workspace) const;

 private:
  NeighborSource source_;
  std::vector<std::int64_t> layer_sizes_;
  at::Tensor in_degrees_, out_degrees_;  ///< int32 or int64 [num_nodes], or undefined
};

}  // namespace mezzo::detail
