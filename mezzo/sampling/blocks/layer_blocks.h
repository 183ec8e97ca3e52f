#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/graph/topology.h"
#include "mezzo/sampling/blocks/block.h"
#include "mezzo/sampling/blocks/block_sampler.h"
#include "mezzo/sampling/loader_support.h"
#include "mezzo/sampling/workspace.h"

namespace mezzo::detail {

/// Draws the blocks of a batch layer by layer, as LayerSampler draws node flows, for models whose
/// layers read the rows of their own nodes: a block's sources are its destinations, then the other
/// drawn nodes, ascending; its edges come from drawn nodes. So the input layer has at most the
/// seeds plus the sum of the sizes. Immutable, thread-safe. Internal to sampling; not exported.
class LayerBlocks {
 public:
  /// topology: of one set of nodes, on the CPU. layer_sizes: draws of each layer, inputs first, 1
  /// to 255 of at least 1. parent_degrees: see BlockSampler. Throws InvalidArgument.
  LayerBlocks(const Topology& topology, std::vector<std::int64_t> layer_sizes, bool parent_degrees);

  /// seeds: distinct int64 on the CPU, in range, not checked. Input layer first. Every block has
  /// the column "edge_weights" (float32): if the block has k_v of the d_v edges into v, draws of u
  /// / (size q(u)) times k_v / d_v. So the mean of weight * x[u] over the block's edges is an
  /// unbiased estimate of the mean over all of v's neighbours (0 for a v without an edge in the
  /// block). GraphConv takes them unchanged if both have parent_degrees. Depends only on
  /// (seeds, key). Allocates the blocks; cost: the degrees of their destinations.
  Blocks sample(const at::Tensor& seeds, const BatchKey& key, Workspace& workspace) const;

 private:
  NeighborSource source_;
  std::vector<std::int64_t> layer_sizes_;
  ParentDegrees degrees_;  ///< undefined without parent_degrees
};

}  // namespace mezzo::detail
