#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/graph.h"
#include "mezzo/kernels/reduce_op.h"

namespace mezzo {

/// A graph of `num_edges` distinct directed edges drawn uniformly without replacement (self loops
/// allowed), on the CPU; equal for equal seeds, on every machine. Throws InvalidArgument if
/// num_edges > num_nodes^2. As DGL's rand_graph.
MEZZO_API Graph rand_graph(std::int64_t num_nodes, std::int64_t num_edges, std::uint64_t seed = 0);

/// `num_edges` edges of an R-MAT graph with 2^scale nodes (Chakrabarti et al., SDM'04), quadrant
/// probabilities 0.57, 0.19, 0.19, 0.05; parallel edges and loops are kept. On the CPU; equal for
/// equal seeds, on every machine. Throws InvalidArgument for a scale outside [0, 40] and for
/// num_edges < 0.
MEZZO_API Graph rmat_graph(int scale, std::int64_t num_edges, std::uint64_t seed = 0);

// On CUDA every transform but reverse synchronises: ids are checked, or picked by their number.

/// One self loop more per node, whether or not it has one, after the old edges, which keep their
/// ids (DGL's add_self_loop). Node columns are shared; `fill` stands in every edge column of the
/// new edges (DGL's fill_data), each of which has to be able to hold it, else
/// InvalidArgument.
MEZZO_API Graph add_self_loop(const Graph& graph, double fill = 1);
/// As above, but a loop has in every edge column what the columns of the old edges into its node
/// reduce to, by gspmm: 0 where there are none; gradients flow back. Edge columns: float32,
/// float64, bfloat16 or float16, else InvalidArgument. (DGL's fill_data 'mean', 'sum', 'max',
/// 'min'.)
MEZZO_API Graph add_self_loop(const Graph& graph, ReduceOp fill);
/// Without any self loop; edge columns follow, and a batch remains one of its parts, as in DGL.
MEZZO_API Graph remove_self_loop(const Graph& graph);
/// The simple graph with every edge in both directions, sorted by (source, destination), parallel
/// edges merged; node columns are shared, edge columns dropped (DGL's to_bidirected).
MEZZO_API Graph to_bidirected(const Graph& graph);
/// Parallel edges merged, edges sorted by (source, destination); how many were merged stands in
/// edata()["count"] (int64). Node columns are shared, edge columns dropped. O(N + E). As DGL's
/// to_simple.
MEZZO_API Graph to_simple(const Graph& graph);
/// Every edge turned round, ids kept; both frames are shared by columns.
MEZZO_API Graph reverse(const Graph& graph);
/// The line graph: its nodes are the edges of `graph`, with an edge from e to f, another edge,
/// where f leaves the node that e runs into; edges sorted by (e, f). Without backtracking not where
/// f runs back to the source of e. No columns: `line.ndata().update(graph.edata().columns())` takes
/// those of the edges over (DGL's shared = True). Time and memory go with the pairs of an edge into
/// and an edge out of each node. As DGL's line_graph.
MEZZO_API Graph line_graph(const Graph& graph, bool backtracking = true);

// Subgraphs. Ids are integers [n], or a mask (bool): bool [N] of nodes, bool [E] of edges. Columns
// are gathered at once; gradients flow back. The parent's ids stand in edata()["_ID"] and, where
// nodes are relabelled, in ndata()["_ID"] (int64), also where the parent has a column "_ID".

/// The nodes `nodes` (distinct) and all edges among them, relabelled in the given order; edges in
/// the parent's order. As DGL's node_subgraph.
MEZZO_API Graph subgraph(const Graph& graph, const at::Tensor& nodes);
/// The edges `edges` in the given order and their ends; an edge named twice stands twice. Nodes are
/// relabelled in the order in which they appear among the sources, then among the destinations
/// (found on the host); without relabelling every node is kept and node columns are shared.
MEZZO_API Graph edge_subgraph(const Graph& graph, const at::Tensor& edges,
                              bool relabel_nodes = true);
/// All nodes, their columns shared, and the edges into `nodes` (distinct), node by node.
MEZZO_API Graph in_subgraph(const Graph& graph, const at::Tensor& nodes);
/// All nodes, their columns shared, and the edges out of `nodes` (distinct), node by node.
MEZZO_API Graph out_subgraph(const Graph& graph, const at::Tensor& nodes);

/// What khop_in_subgraph makes.
struct HopSubgraph {
  Graph graph;
  at::Tensor seeds;  ///< int64 [n]: what the nodes that were asked for are called in `graph`
};
/// The nodes from which at most k edges lead to one of `nodes` (distinct), these among them, in
/// ascending order, and all edges among them: subgraph() of these nodes. k: at least 0, else
/// InvalidArgument. O(N) a hop, beside the edges that it reads. As DGL's khop_in_subgraph.
MEZZO_API HopSubgraph khop_in_subgraph(const Graph& graph, const at::Tensor& nodes, std::int64_t k);

}  // namespace mezzo
