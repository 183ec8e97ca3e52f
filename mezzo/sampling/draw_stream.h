#pragma once

#include <cstdint>

#include "mezzo/sampling/workspace.h"

namespace mezzo::detail {

/// What random numbers of a batch are for; draws of different purposes or steps are independent.
enum class DrawPurpose : std::uint8_t {
  kShuffle,    ///< the order of the seeds in an epoch
  kNeighbors,  ///< the edges of a hop
  kLayers,     ///< the nodes of a layer
  kWalks,      ///< steps of random walks
  kNegatives,  ///< ends of negative edges
  kSubgraph    ///< nodes, edges or roots of a subgraph
};

/// The stream of philox() for draws of `purpose` in step `step` (a hop, a layer; below 2^8) of a
/// batch: distinct for epochs below kMostEpochs and batches below kMostBatches, or batches below
/// 2^40 if every step is 0.
constexpr std::uint64_t draw_stream(const BatchKey& key, DrawPurpose purpose, std::int64_t step) {
  return (static_cast<std::uint64_t>(key.epoch) << 44) ^
         (static_cast<std::uint64_t>(purpose) << 40) ^ (static_cast<std::uint64_t>(step) << 32) ^
         static_cast<std::uint64_t>(key.batch);
}

}  // namespace mezzo::detail
