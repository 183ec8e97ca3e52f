#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/graph.h"

namespace mezzo {

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

/// Throws InvalidArgument that starts with `operation` unless the counts are valid part sizes of
/// `graph` (see unbatch). Synchronises if the counts are on CUDA. Not exported.
BatchCounts check_batch(std::string_view operation, const Graph& graph, const at::Tensor& num_nodes,
                        const at::Tensor& num_edges);

}  // namespace detail
}  // namespace mezzo
