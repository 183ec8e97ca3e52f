#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/sampling/blocks/block_sampler.h"
#include "mezzo/sampling/workspace.h"

/// Layer-wise draws, which LayerSampler turns into node flows and LayerBlocks into blocks. Internal
/// to sampling; not exported.
namespace mezzo::detail {

/// A drawn layer and the edges from it to the layer above.
struct DrawnLayer {
  at::Tensor nodes;    ///< int64 [n], ascending ids of the graph
  at::Tensor offsets;  ///< int64 [nodes above + 1] of the edges into each
  at::Tensor sources;  ///< in the graph's id dtype [m], positions in `nodes`
  at::Tensor edges;    ///< int64 [m], ids of the graph
  at::Tensor weights;  ///< float32 [m]: draws / (size q), for sums over all neighbours
  at::Tensor degrees;  ///< int64 [nodes above]: all edges of each in the graph
};

/// Throws InvalidArgument with the prefix `operation` unless there are 1 to 255 sizes >= 1.
void check_layer_sizes(std::string_view operation, const std::vector<std::int64_t>& layer_sizes);

/// `size` draws below the nodes `above` (int32 or int64, in range); see LayerSampler. hop: in [0,
/// 255); the layers of a batch draw independently. Cost: the degrees of `above`.
DrawnLayer draw_layer(const NeighborSource& source, const at::Tensor& above, std::int64_t size,
                      const BatchKey& key, std::int64_t hop, Workspace& workspace);

}  // namespace mezzo::detail
