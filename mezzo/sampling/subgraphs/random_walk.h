#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"

namespace mezzo {

/// How the steps of a random walk are drawn.
struct RandomWalkOptions {
  std::uint64_t seed = 0;  ///< of all draws
  /// float [num_edges], >= 0 and finite, by edge: an edge is taken with a probability in
  /// proportion, never where 0. Undefined: uniform.
  at::Tensor edge_weights = {};
  /// In [0, 1): before each step the walk returns to its start with this probability, which counts
  /// as the step (a random walk with restart).
  double restart_probability = 0;
  /// node2vec (Grover and Leskovec, KDD'16): with t the node before the last one, the weight of an
  /// edge to x is divided by p where x is t, kept where an edge runs from t to x, divided by q
  /// elsewhere. Each in [1e-9, 1e9]; 1 and 1: no memory. The first step and the one after a restart
  /// have none either.
  double p = 1;
  double q = 1;
};

/// The most steps of one walk, and of all walks of one call (the starts counted as steps).
inline constexpr std::int64_t kMostWalkLength = std::int64_t{1} << 31;
inline constexpr std::int64_t kMostWalkSteps = std::int64_t{1} << 40;

/// Walks, one a row; on the CPU.
struct RandomWalks {
  at::Tensor nodes;  ///< int64 [n, length + 1], the start first; -1 after a dead end
  at::Tensor edges;  ///< int64 [n, length], the edge of each step; -1 for a restart or none
};

/// Walks of `length` steps (in [0, kMostWalkLength], of all walks at most kMostWalkSteps) along the
/// edges from each of `starts` (integers [n], repeats allowed, in [0, num_nodes)). A walk ends at a
/// node without an edge (of a weight above 0) to leave by. topology: one set of nodes, on the CPU;
/// its reverse() makes walks against the edges. In parallel over the walks; walk i depends on
/// (seed, i, its start) alone. Takes O(log out-degree) a step with weights; p and q take O(E)
/// beforehand. Throws InvalidArgument that names argument, expected and given.
MEZZO_API RandomWalks random_walk(const Topology& topology, const at::Tensor& starts,
                                  std::int64_t length, const RandomWalkOptions& options = {});

}  // namespace mezzo
