#pragma once

#include <cstdint>
#include <vector>

namespace mezzo::bench::gpu {

/// Compressed rows: row r has the entries [indptr[r], indptr[r + 1]).
struct Rows {
  std::vector<std::int64_t> indptr;
  std::vector<std::int32_t> ids;  ///< the node at the other end of each entry
};

/// A graph by destinations and by sources.
struct HostGraph {
  std::int64_t num_nodes = 0, num_edges = 0;
  Rows csc, csr;  ///< rows are destinations, sources
};

/// How the nodes of a graph are numbered.
enum class NodeOrder : std::uint8_t { kRandom, kByDegree };  ///< by degree: most in-edges first

/// An R-MAT graph (a, b, c = 0.57, 0.19, 0.19); the same for the same arguments. Uses all cores.
HostGraph rmat_graph(std::int64_t num_nodes, std::int64_t num_edges, NodeOrder order);

}  // namespace mezzo::bench::gpu
