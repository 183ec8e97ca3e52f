#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"

namespace mezzo::detail {

/// Answers quickly whether two nodes are joined: the out-edges of every source, sorted by
/// destination and then by edge. Immutable, for several threads at once. Holds a destination and an
/// edge id for each edge, in int64.
class MEZZO_API EdgeLookup {
 public:
  /// topology: on the CPU. O(E) time.
  explicit EdgeLookup(const Topology& topology);

  /// Whether an edge runs from src to dst. O(log out-degree). Ids are not checked.
  bool contains(std::int64_t src, std::int64_t dst) const;
  /// The edges from src to dst, ascending.
  std::span<const std::int64_t> edges(std::int64_t src, std::int64_t dst) const;
  /// Where the edges of src go, ascending, parallel edges repeated.
  std::span<const std::int64_t> destinations(std::int64_t src) const;

 private:
  std::vector<std::int64_t> row_begin_, destinations_, edges_;
};

}  // namespace mezzo::detail
