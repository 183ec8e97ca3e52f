#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "mezzo/graph/points/point_set.h"

/// Internal: the search of neighbours.
namespace mezzo::detail {

/// What is a neighbour in one graph.
struct NeighborQuery {
  std::int64_t count = std::numeric_limits<std::int64_t>::max();  ///< the nearest
  double squared_radius = std::numeric_limits<double>::infinity();
  bool self_loops = false;
};

/// The neighbours of some points.
struct NeighborRows {
  std::vector<std::int32_t> points;     ///< ids
  std::vector<std::int64_t> lengths;    ///< the number of neighbours of each
  std::vector<std::int32_t> neighbors;  ///< one point after another
};

/// Finds the neighbours of every point, by distance, then id. queries: one a graph. Each point is
/// in one of the results, whose order does not depend on the number of threads.
std::vector<NeighborRows> find_neighbors(const PointSet& set,
                                         const std::vector<NeighborQuery>& queries);

}  // namespace mezzo::detail
