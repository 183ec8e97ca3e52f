#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"

namespace mezzo {

/// Options of metis_partition.
struct PartitionOptions {
  std::uint64_t seed = 0;      ///< equal seeds, equal parts
  bool balance_edges = false;  ///< balance the edge ends of the parts instead of their nodes
  double imbalance = 1.03;     ///< > 1: target for the largest part over the mean
};

/// The part in [0, num_parts) of each node, int64 [num_nodes] on the CPU: parts of about equal size
/// with few edges between them, by METIS's multilevel k-way method (Karypis and Kumar, 1998) on the
/// graph without directions, loops and parallel edges. No part is empty. topology: one set of
/// nodes, on the CPU. Throws InvalidArgument unless 1 <= num_parts <= num_nodes (0 nodes: 1), and
/// for 2^31 or more edges, counted in both directions (METIS's limit). Time and memory: O(E);
/// concurrent calls run one after another.
MEZZO_API at::Tensor metis_partition(const Topology& topology, std::int64_t num_parts,
                                     PartitionOptions options = {});

/// The number of edges between different parts; parallel edges and both directions count. parts:
/// integers [num_nodes], on the topology's device. Throws InvalidArgument for another shape.
MEZZO_API std::int64_t edge_cut(const Topology& topology, const at::Tensor& parts);

}  // namespace mezzo
