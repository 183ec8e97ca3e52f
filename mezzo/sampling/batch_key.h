#pragma once

#include <cstdint>

namespace mezzo {

/// What the random numbers of a mini-batch depend on, and nothing else: not the number of workers,
/// nor what was drawn before.
struct BatchKey {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;  ///< from 0
  std::int64_t batch = 0;  ///< from 0
};

/// Epochs and batches whose draws are distinct.
inline constexpr std::int64_t kMostEpochs = std::int64_t{1} << 20;
inline constexpr std::int64_t kMostBatches = std::int64_t{1} << 32;

/// For what numbers of a batch are drawn; draws of different purposes or steps are independent.
enum class DrawPurpose : std::uint8_t {
  kShuffle,    ///< the order of the seeds in an epoch
  kNeighbors,  ///< the edges of a hop
  kLayers,     ///< the nodes of a layer
  kWalks,      ///< steps of random walks
  kNegatives,  ///< ends of edges that are not there
  kSubgraph    ///< nodes, edges or roots of a subgraph
};

/// The stream of philox() for draws of `purpose` in step `step` (a hop, a layer; below 2^8) of a
/// batch: distinct for epochs below kMostEpochs and batches below kMostBatches, or batches below
/// 2^40 where every step is 0.
constexpr std::uint64_t draw_stream(const BatchKey& key, DrawPurpose purpose, std::int64_t step) {
  return (static_cast<std::uint64_t>(key.epoch) << 44) ^
         (static_cast<std::uint64_t>(purpose) << 40) ^ (static_cast<std::uint64_t>(step) << 32) ^
         static_cast<std::uint64_t>(key.batch);
}

}  // namespace mezzo
