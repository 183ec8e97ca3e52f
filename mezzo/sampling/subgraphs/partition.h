#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"

namespace mezzo {

/// How metis_partition cuts a graph.
struct PartitionOptions {
  std::uint64_t seed = 0;      ///< equal seeds, equal parts
  bool balance_edges = false;  ///< parts of about equally many edge ends instead of nodes
  double imbalance = 1.03;     ///< > 1: the largest part that is aimed at, over the mean
};

/// The part in [0, num_parts) of each node, int64 [num_nodes] on the CPU: parts of about equal size
/// between which few edges run, by METIS's multilevel k-way method (Karypis and Kumar, 1998) on the
/// graph read without directions, loops and parallel edges. No part is empty. topology: one set of
/// nodes, on the CPU. Throws InvalidArgument unless 1 <= num_parts <= num_nodes (0 nodes: 1), and
/// for a graph whose edges, both directions counted, are 2^31 or more, METIS's limit here. Takes
/// time and memory in proportion to the edges; calls from several threads wait for each other.
MEZZO_API at::Tensor metis_partition(const Topology& topology, std::int64_t num_parts,
                                     PartitionOptions options = {});

/// How many edges join nodes of different parts; parallel edges and both directions count. parts:
/// integers [num_nodes], on the topology's device. Throws InvalidArgument for another shape.
MEZZO_API std::int64_t edge_cut(const Topology& topology, const at::Tensor& parts);

}  // namespace mezzo
