#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"

namespace mezzo::detail {

/// Looks up edges by their ends: the out-edges of every source, sorted by destination, then by
/// edge. Immutable, thread-safe. Holds two int64 per edge.
class MEZZO_API EdgeLookup {
 public:
  /// topology: on the CPU. O(E) time.
  explicit EdgeLookup(const Topology& topology);

  /// Whether there is an edge from src to dst. O(log out-degree). Ids are not checked.
  bool contains(std::int64_t src, std::int64_t dst) const;
  /// The edges from src to dst, ascending.
  std::span<const std::int64_t> edges(std::int64_t src, std::int64_t dst) const;
  /// The destinations of src's edges, ascending, repeated for parallel edges.
  std::span<const std::int64_t> destinations(std::int64_t src) const;

 private:
  std::vector<std::int64_t> row_begin_, destinations_, edges_;
};

}  // namespace mezzo::detail
