#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "mezzo/graph/topology.h"

namespace mezzo::cli {

/// Statistics of the edges of a graph.
struct EdgeStatistics {
  std::int64_t self_loops = 0;
  std::int64_t parallel_edges = 0;  ///< repeated edges between the same two nodes
  /// Whether every edge has its reverse, which a self loop is itself; true without edges.
  bool is_undirected = false;
  /// Edges between two different labelled nodes, and how many of them join equal labels.
  std::int64_t labelled = 0, between_equals = 0;
};

/// topology: of one set of nodes, on the CPU; it may build csc(). labels: int64 [N] on the CPU,
/// kNoLabel for nodes without a label; undefined: no node has a label. Reads the edges at most
/// three times in storage order. Allocates 8 bytes a node and, unless the sources of each row
/// ascend (as in a mapped dataset), a sorted copy of them.
EdgeStatistics edge_statistics(const Topology& topology, const at::Tensor& labels);

}  // namespace mezzo::cli
