#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/graph.h"

namespace mezzo {

/// One graph whose parts are `graphs`, one after another: node i of part k becomes node i plus the
/// nodes of the parts before, edges likewise, in their order. Columns are concatenated (a copy,
/// differentiable): the parts that have nodes (edges) must have the same node (edge) columns, of
/// equal dtype and trailing shape; if none has any, all must. A part that is a batch counts as its
/// own parts. Ids are int64 if those of a part are, or counts demand it. Throws InvalidArgument,
/// naming graph and column, for these and for an empty list or several devices. Synchronises on
/// CUDA. As DGL's batch.
MEZZO_API Graph batch(const std::vector<Graph>& graphs);

/// As above with these columns alone; {}: none. The parts may have others, in which they differ.
/// Throws InvalidArgument for a column that a part with nodes (edges) lacks. As DGL's batch with
/// ndata and edata, whose None is {} here.
MEZZO_API Graph batch(const std::vector<Graph>& graphs,
                      const std::vector<std::string>& node_columns,
                      const std::vector<std::string>& edge_columns);

/// The parts of a batch, in order; of any other graph a copy of it. The inverse of batch, where no
/// part was a batch itself. Columns are views of the batch's rows; ids are as wide as the batch's.
/// Reads the edges of the whole, and then of each part, once: synchronises on CUDA, for every part
/// anew.
MEZZO_API std::vector<Graph> unbatch(const Graph& graph);

/// The parts that have these numbers of nodes and edges, one after another. num_nodes, num_edges:
/// integer [number of parts], not negative, that sum to the graph's. Throws InvalidArgument for
/// other numbers, and for an edge that leaves its part. Synchronises likewise, and to read numbers
/// that are on CUDA.
MEZZO_API std::vector<Graph> unbatch(const Graph& graph, const at::Tensor& num_nodes,
                                     const at::Tensor& num_edges);

namespace detail {

/// The sizes of the parts of a batch, of equal length.
struct BatchCounts {
  std::vector<std::int64_t> num_nodes, num_edges;
};

/// Throws InvalidArgument, opening with `operation`, unless the numbers are sizes of the parts of
/// `graph`: see unbatch. Synchronises where the numbers are on CUDA. Not exported.
BatchCounts check_batch(std::string_view operation, const Graph& graph, const at::Tensor& num_nodes,
                        const at::Tensor& num_edges);

}  // namespace detail
}  // namespace mezzo
