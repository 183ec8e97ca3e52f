#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/graph/topology.h"
#include "mezzo/sampling/blocks/block_sampler.h"

namespace mezzo {

/// A BlockSampler that draws by LABOR (NeighborDraw::kLabor).
class LaborSampler : public BlockSampler {
 public:
  /// How the neighbours of every hop are drawn.
  struct Options {
    std::vector<std::int64_t> fanouts;  ///< input layer first, each >= 0 or kAllNeighbors
    bool layer_dependency = false;      ///< see DrawOptions
    at::Tensor edge_weights = {};       ///< see NeighborSource
    bool parent_degrees = false;        ///< see BlockSampler
  };

  /// topology: see NeighborSource. Throws InvalidArgument for options that contradict each other.
  LaborSampler(const Topology& topology, Options options)
      : BlockSampler(topology, {.fanouts = std::move(options.fanouts),
                                .draw = NeighborDraw::kLabor,
                                .layer_dependency = options.layer_dependency,
                                .edge_weights = std::move(options.edge_weights),
                                .parent_degrees = options.parent_degrees}) {}
};

}  // namespace mezzo
