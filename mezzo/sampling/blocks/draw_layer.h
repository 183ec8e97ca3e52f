#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/sampling/batch_key.h"
#include "mezzo/sampling/blocks/block_sampler.h"
#include "mezzo/sampling/workspace.h"

/// Layer-wise draws, of which LayerSampler makes node flows and LayerBlocks blocks. Internal to
/// sampling; not exported.
namespace mezzo::detail {

/// A layer that was drawn, and the edges from it to the layer above.
struct DrawnLayer {
  at::Tensor nodes;    ///< int64 [n], ascending ids of the graph
  at::Tensor offsets;  ///< int64 [nodes above + 1]: where the edges into each begin
  at::Tensor sources;  ///< of the graph's id dtype [m], places in `nodes`
  at::Tensor edges;    ///< int64 [m], ids of the graph
  at::Tensor weights;  ///< float32 [m]: draws / (size q), for sums over all neighbours
  at::Tensor degrees;  ///< int64 [nodes above]: all edges of each, drawn or not
};

/// Throws InvalidArgument, opening with `operation`, unless there are 1 to 255 sizes of at least 1.
void check_layer_sizes(std::string_view operation, const std::vector<std::int64_t>& layer_sizes);

/// `size` draws below the nodes `above` (int32 or int64, in range), as LayerSampler says. hop:
/// separates the draws of the layers of a batch. Cost: the degrees of `above`.
DrawnLayer draw_layer(const NeighborSource& source, const at::Tensor& above, std::int64_t size,
                      const BatchKey& key, std::int64_t hop, Workspace& workspace);

}  // namespace mezzo::detail
