#pragma once

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/graph.h"

namespace mezzo::nn {

// Readout functions, with DGL's semantics: reduce the rows of the nodes or edges to one row for
// each graph of a batch (B = graph.batch_size(), 1 for a single graph), or broadcast them back. x:
// floating, strided, [N, ...] for nodes or [E, ...] for edges, on the graph's device. A graph
// without rows gets 0, for max too. Sums and exponentials are float32 (float64 for float64) and
// rounded once; the same bits for any number of threads. Differentiable once. Copies the sizes of
// the graphs to the device: synchronises on CUDA. Errors: InvalidArgument. mezzo/nn/pooling.h has
// the modules, some with parameters.
//
// weight: floating [N] or [N, ...] ([E] or [E, ...] for edges); it broadcasts with x from the last
// dimension on. Multiplies each row of x before the reduction, without a copy of the products. A
// mean divides by the number of rows, not by the sum of the weights. Weights are read in float32
// (float64 for float64 x). Autocast casts x to the 16-bit type, as gspmm does. Undefined: no
// weights.

/// The sum over the nodes of each graph. Returns [B, ...] in the dtype of x.
MEZZO_API at::Tensor sum_nodes(const Graph& graph, const at::Tensor& x,
                               const at::Tensor& weight = {});
/// The mean over the nodes of each graph. Returns [B, ...].
MEZZO_API at::Tensor mean_nodes(const Graph& graph, const at::Tensor& x,
                                const at::Tensor& weight = {});
/// The maximum over the nodes of each graph, per feature. Propagates NaN; the gradient of a tie
/// goes to the lowest row. Returns [B, ...].
MEZZO_API at::Tensor max_nodes(const Graph& graph, const at::Tensor& x,
                               const at::Tensor& weight = {});

/// The same as sum_nodes, for edges.
MEZZO_API at::Tensor sum_edges(const Graph& graph, const at::Tensor& x,
                               const at::Tensor& weight = {});
/// The same as mean_nodes, for edges.
MEZZO_API at::Tensor mean_edges(const Graph& graph, const at::Tensor& x,
                                const at::Tensor& weight = {});
/// The same as max_nodes, for edges.
MEZZO_API at::Tensor max_edges(const Graph& graph, const at::Tensor& x,
                               const at::Tensor& weight = {});

/// The softmax over the nodes of each graph, per trailing element. Returns the shape and dtype of
/// x; autocast does not cast x.
MEZZO_API at::Tensor softmax_nodes(const Graph& graph, const at::Tensor& x);
/// The same as softmax_nodes, for edges.
MEZZO_API at::Tensor softmax_edges(const Graph& graph, const at::Tensor& x);

/// Copies the row of each graph to its nodes. x: floating, strided [B, ...], on the graph's device.
/// Returns [N, ...] in the dtype of x; gradients are summed in float32.
MEZZO_API at::Tensor broadcast_nodes(const Graph& graph, const at::Tensor& x);
/// The same for edges: returns [E, ...].
MEZZO_API at::Tensor broadcast_edges(const Graph& graph, const at::Tensor& x);

}  // namespace mezzo::nn
