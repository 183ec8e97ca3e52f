#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"

namespace mezzo {

/// Options of random_walk.
struct RandomWalkOptions {
  std::uint64_t seed = 0;  ///< of all draws
  /// float [num_edges], >= 0 and finite: probabilities of edges in proportion. Undefined: uniform.
  at::Tensor edge_weights = {};
  /// In [0, 1): the probability that a step returns to the start instead (random walk with
  /// restart).
  double restart_probability = 0;
  /// node2vec (Grover and Leskovec, KDD'16): if the walk came from t, the weight of an edge to x is
  /// divided by p if x is t, unchanged if there is an edge from t to x, else divided by q. Each in
  /// [1e-9, 1e9]. No effect on the first step and the one after a restart.
  double p = 1;
  double q = 1;
};

/// The most steps of one walk, and of all walks of one call (starts count as steps).
inline constexpr std::int64_t kMostWalkLength = std::int64_t{1} << 31;
inline constexpr std::int64_t kMostWalkSteps = std::int64_t{1} << 40;

/// Walks, one per row; on the CPU.
struct RandomWalks {
  at::Tensor nodes;  ///< int64 [n, length + 1], the start first; -1 after a dead end
  at::Tensor edges;  ///< int64 [n, length], the edge of each step; -1 for a restart or no step
};

/// Walks of `length` steps (in [0, kMostWalkLength], at most kMostWalkSteps in all) along the edges
/// from each of `starts` (integers [n], repeats allowed, in [0, num_nodes)). A walk ends at a node
/// without out-edges of positive weight. topology: one set of nodes, on the CPU; pass its reverse()
/// to walk against the edges. Parallel over the walks; walk i depends only on (seed, i, its
/// start). O(log out-degree) per step with weights; p and q cost O(E) once. Throws InvalidArgument.
MEZZO_API RandomWalks random_walk(const Topology& topology, const at::Tensor& starts,
                                  std::int64_t length, const RandomWalkOptions& options = {});

}  // namespace mezzo
