#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/graph.h"

namespace mezzo {

/// A graph of `num_edges` distinct directed edges drawn uniformly without replacement (self loops
/// allowed), on the CPU; equal for equal seeds, on every machine. Throws InvalidArgument if
/// num_edges > num_nodes^2. As DGL's rand_graph.
MEZZO_API Graph rand_graph(std::int64_t num_nodes, std::int64_t num_edges, std::uint64_t seed = 0);

/// `num_edges` edges of an R-MAT graph with 2^scale nodes (Chakrabarti et al., SDM'04), quadrant
/// probabilities 0.57, 0.19, 0.19, 0.05; parallel edges and loops are kept. Equal for equal seeds.
MEZZO_API Graph rmat_graph(int scale, std::int64_t num_edges, std::uint64_t seed = 0);

/// One self loop more per node, whether or not it has one, after the old edges, which keep their
/// ids (DGL's add_self_loop). Node columns are shared; edge columns get rows of zeros.
MEZZO_API Graph add_self_loop(const Graph& graph);
/// Without any self loop; edge columns follow.
MEZZO_API Graph remove_self_loop(const Graph& graph);
/// The simple graph with every edge in both directions, sorted by (source, destination), parallel
/// edges merged; node columns are shared, edge columns dropped (DGL's to_bidirected).
MEZZO_API Graph to_bidirected(const Graph& graph);
/// Every edge turned round, ids kept; both frames are shared by columns.
MEZZO_API Graph reverse(const Graph& graph);
/// The nodes `nodes` (int64 [n], distinct) and all edges among them, relabelled in the given order.
/// Columns are gathered; the parent's ids stand in ndata()["_ID"] and edata()["_ID"].
MEZZO_API Graph subgraph(const Graph& graph, const at::Tensor& nodes);

}  // namespace mezzo
