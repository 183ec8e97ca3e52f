#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/core/type_list.h"
#include "mezzo/graph/graph.h"
#include "mezzo/kernels/reduce_op.h"

namespace mezzo {

/// Draws `num_edges` distinct directed edges uniformly (self loops allowed), on the CPU; the same
/// graph for the same seed on every machine. Throws InvalidArgument if num_edges > num_nodes^2. As
/// DGL's rand_graph.
MEZZO_API Graph rand_graph(std::int64_t num_nodes, std::int64_t num_edges, std::uint64_t seed = 0);

/// Draws `num_edges` edges of an R-MAT graph with 2^scale nodes (Chakrabarti et al., SDM'04),
/// quadrant probabilities 0.57, 0.19, 0.19, 0.05; keeps parallel edges and self loops. On the CPU;
/// the same graph for the same seed on every machine. Throws InvalidArgument for a scale outside
/// [0, 40] and for num_edges < 0.
MEZZO_API Graph rmat_graph(int scale, std::int64_t num_edges, std::uint64_t seed = 0);

// On CUDA every transform except reverse synchronises, to check or count ids.

/// Adds a self loop to every node, even if it has one. Old edges keep their ids; loops follow
/// (DGL's add_self_loop). Node columns are shared; edge columns of the new edges are set to `fill`
/// (DGL's fill_data). Throws InvalidArgument if a column's dtype cannot represent `fill`.
MEZZO_API Graph add_self_loop(const Graph& graph, double fill = 1);
/// As above, but sets each loop's edge columns to the reduction over the old edges into its node,
/// by gspmm (0 if it has no in-edges); differentiable. Edge columns: float32, float64, bfloat16 or
/// float16, else InvalidArgument. (DGL's fill_data 'mean', 'sum', 'max', 'min'.)
MEZZO_API Graph add_self_loop(const Graph& graph, ReduceOp fill);
/// Removes all self loops and their rows of the edge columns. A batch stays a batch, as in DGL.
MEZZO_API Graph remove_self_loop(const Graph& graph);
/// Returns the simple graph with every edge in both directions, sorted by (source, destination),
/// parallel edges merged. Node columns are shared, edge columns dropped (DGL's to_bidirected).
MEZZO_API Graph to_bidirected(const Graph& graph);
/// Merges parallel edges and sorts edges by (source, destination); edata()["count"] (int64) holds
/// the multiplicities. Node columns are shared, edge columns dropped. O(N + E). As DGL's to_simple.
MEZZO_API Graph to_simple(const Graph& graph);
/// Reverses every edge, keeping ids. Columns of both frames are shared.
MEZZO_API Graph reverse(const Graph& graph);
/// Returns the line graph. Its nodes are the edges of `graph`; it has an edge from e to f != e if f
/// starts at the destination of e. Edges are sorted by (e, f). Without backtracking, f must not end
/// at the source of e. No columns: `line.ndata().update(graph.edata().columns())` copies the edge
/// columns (DGL's shared = True). Time and memory are linear in the sum of in-degree times
/// out-degree. As DGL's line_graph.
MEZZO_API Graph line_graph(const Graph& graph, bool backtracking = true);

// Subgraphs. Ids are integers [n], or a mask (bool): bool [N] of nodes, bool [E] of edges. Columns
// are gathered immediately, differentiably. edata()["_ID"] and, if nodes are relabelled,
// ndata()["_ID"] (int64) hold the parent's ids; they replace a parent column "_ID".

/// Returns `nodes` (distinct), relabelled in their order, and all edges among them in the parent's
/// order. As DGL's node_subgraph.
MEZZO_API Graph subgraph(const Graph& graph, const at::Tensor& nodes);
/// Returns `edges`, in their order, and their endpoints; repeated edges repeat. Nodes are
/// relabelled by first appearance among the sources, then the destinations (on the host). Without
/// relabelling, keeps every node and shares node columns.
MEZZO_API Graph edge_subgraph(const Graph& graph, const at::Tensor& edges,
                              bool relabel_nodes = true);
/// Returns all nodes, with shared columns, and the edges into `nodes` (distinct), node by node.
MEZZO_API Graph in_subgraph(const Graph& graph, const at::Tensor& nodes);
/// Returns all nodes, with shared columns, and the edges out of `nodes` (distinct), node by node.
MEZZO_API Graph out_subgraph(const Graph& graph, const at::Tensor& nodes);

/// The result of khop_in_subgraph.
struct HopSubgraph {
  Graph graph;
  at::Tensor seeds;  ///< int64 [n]: ids of the requested nodes in `graph`
};
/// Returns the subgraph() of the nodes, ascending, that reach one of `nodes` (distinct) in at most
/// k edges, including `nodes`. Throws InvalidArgument if k < 0. O(N) per hop plus the edges read.
/// As DGL's khop_in_subgraph.
MEZZO_API HopSubgraph khop_in_subgraph(const Graph& graph, const at::Tensor& nodes, std::int64_t k);

/// How reorder numbers the nodes.
enum class NodeOrder : std::uint8_t {
  kKeep,                 ///< as they are; only the edges are sorted
  kDegree,               ///< most edges (in and out) first, ties in the old order
  kReverseCuthillMcKee,  ///< breadth first from nodes of few edges, neighbours of few edges first,
                         ///< then reversed: connected nodes get near numbers (George, 1971)
};

struct KeepOrder {
  static constexpr NodeOrder kind = NodeOrder::kKeep;
  static constexpr std::string_view name = "keep";
};
struct DegreeOrder {
  static constexpr NodeOrder kind = NodeOrder::kDegree;
  static constexpr std::string_view name = "degree";
};
struct ReverseCuthillMcKeeOrder {
  static constexpr NodeOrder kind = NodeOrder::kReverseCuthillMcKee;
  static constexpr std::string_view name = "rcmk";
};
using NodeOrders = TypeList<KeepOrder, DegreeOrder, ReverseCuthillMcKeeOrder>;

/// The same graph stored for locality: nodes renumbered, edges sorted by (destination, source), so
/// that kernels read edge columns sequentially and nearby node rows together. Columns are gathered,
/// differentiably. ndata()["_ID"] and edata()["_ID"] (int64) hold the old ids: x_old.index_copy(0,
/// ndata()["_ID"], x_new) restores the order. Computes the order on the host in O(N + E log E);
/// synchronises on CUDA. Similar to DGL's reorder_graph. Throws InvalidArgument for more than
/// 3,037,000,499 nodes.
MEZZO_API Graph reorder(const Graph& graph, NodeOrder order);

/// As above with a custom order: node i of the result is old node nodes[i]. nodes: a permutation,
/// integer [N]; else InvalidArgument. Synchronises on CUDA.
MEZZO_API Graph reorder(const Graph& graph, const at::Tensor& nodes);

/// Relative tolerance of laplacian_lambda_max: the largest gain allowed from doubling the steps.
inline constexpr double kLambdaMaxTolerance = 1e-6;

/// The largest eigenvalue, in [0, 2], of the symmetric normalised Laplacian I - D^(-1/2) A
/// D^(-1/2), for each part of a batch: float64 [batch_size] on the CPU. D are the in-degrees,
/// clamped to at least 1; parallel edges and self loops count in A. Pass the result to ChebConv as
/// it is, or for a batch as `.repeat_interleave(graph.batch_num_nodes())`. Runs the Lanczos method
/// on the host: one pass over the edges per step, four numbers per node in memory, the same result
/// for any number of threads. Stops when doubling the steps adds less than kLambdaMaxTolerance,
/// relative to the result. If the largest eigenvalues are close together, as in large cycles and
/// grids, the result is too small by about the tolerance. Throws InvalidArgument if the numbers of
/// an edge's copies and of its reverse edges differ (see to_bidirected), and for edges between
/// parts and parts without nodes. Synchronises on CUDA. As DGL's laplacian_lambda_max.
MEZZO_API at::Tensor laplacian_lambda_max(const Graph& graph);

/// Joins `graphs` into one graph. Node i of part k becomes node i plus the number of nodes in
/// earlier parts; edges are renumbered the same way. Columns are concatenated (a copy,
/// differentiable): the parts that have nodes (edges) must have the same node (edge) columns, of
/// equal dtype and trailing shape; if no part has any, all must. A part that is itself a batch
/// contributes its own parts. Ids are int64 if a part has int64 ids or the counts need them. Throws
/// InvalidArgument, naming graph and column, if columns differ, the list is empty or devices
/// differ. Synchronises on CUDA. As DGL's batch.
MEZZO_API Graph batch(const std::vector<Graph>& graphs);

/// As above, but joins only the named columns ({}: none). Other columns may differ. Throws
/// InvalidArgument for a column that a part with nodes (edges) lacks. As DGL's batch with ndata and
/// edata, whose None is {} here.
MEZZO_API Graph batch(const std::vector<Graph>& graphs,
                      const std::vector<std::string>& node_columns,
                      const std::vector<std::string>& edge_columns);

/// Splits a batch into its parts, in order; any other graph yields a copy of itself. The inverse of
/// batch if no part was itself a batch. Columns are views of the batch's rows; ids keep the batch's
/// dtype. Reads all edges once, then each part's once: on CUDA, synchronises once per part.
MEZZO_API std::vector<Graph> unbatch(const Graph& graph);

/// Splits a graph into consecutive parts with the specified node and edge counts. num_nodes,
/// num_edges: integer [number of parts], not negative, that sum to the graph's. Throws
/// InvalidArgument for other counts and for edges between parts. Synchronises as above, and to read
/// counts on CUDA.
MEZZO_API std::vector<Graph> unbatch(const Graph& graph, const at::Tensor& num_nodes,
                                     const at::Tensor& num_edges);

namespace detail {

/// The sizes of the parts of a batch, of equal length.
struct BatchCounts {
  std::vector<std::int64_t> num_nodes, num_edges;
};

/// Returns the counts. Throws InvalidArgument that starts with `operation` unless they are an
/// integer vector, not negative, that sums to `expected`; what: that number with its unit. Not
/// exported.
std::vector<std::int64_t> check_counts(std::string_view operation, std::string_view name,
                                       const at::Tensor& counts, std::string_view what,
                                       std::int64_t expected);

/// Throws InvalidArgument that starts with `operation` unless the counts are valid part sizes of
/// `graph` (see unbatch). Synchronises if the counts are on CUDA. Not exported.
BatchCounts check_batch(std::string_view operation, const Graph& graph, const at::Tensor& num_nodes,
                        const at::Tensor& num_edges);

}  // namespace detail

}  // namespace mezzo
