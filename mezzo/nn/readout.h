#pragma once

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/graph.h"

namespace mezzo::nn {

// Readouts as functions, with DGL's semantics: rows of the graphs of a batch (graph.batch_size() =
// B; a graph that is no batch is one) from the rows of their nodes or edges, and back. x is
// floating and strided with one row a node, [N, ...], or one an edge, [E, ...], on the graph's
// device. A graph without rows gets 0, under max too. Sums and exponentials in float32 (float64 for
// float64), one rounding; the same bits for any number of threads. Differentiable once. The sizes
// of the graphs are moved to the device: on CUDA all of these synchronise. Errors: InvalidArgument
// that names the function, expected and given. The modules of mezzo/nn/pooling.h learn as well.
//
// weight: floating, one row a node (an edge): [N], or [N, ...] of at most the dimensions of x that
// broadcasts with it from the last dimension on; each row of x is multiplied by its own before it
// is reduced, without a copy of the products. A mean divides by the number of rows, not by the sum
// of the weights. Weights are read in float32 (float64 for float64) beside x. In an autocast region
// x is cast to the 16-bit type, as by gspmm. Undefined: no weights.

/// The sum over the nodes of each graph. Returns [B, ...] in the dtype of x.
MEZZO_API at::Tensor sum_nodes(const Graph& graph, const at::Tensor& x,
                               const at::Tensor& weight = {});
/// The mean over the nodes of each graph. Returns [B, ...].
MEZZO_API at::Tensor mean_nodes(const Graph& graph, const at::Tensor& x,
                                const at::Tensor& weight = {});
/// The maximum over the nodes of each graph, per feature; NaN wins, the gradient goes to the lowest
/// row of a tie. Returns [B, ...].
MEZZO_API at::Tensor max_nodes(const Graph& graph, const at::Tensor& x,
                               const at::Tensor& weight = {});

/// As sum_nodes, of the edges.
MEZZO_API at::Tensor sum_edges(const Graph& graph, const at::Tensor& x,
                               const at::Tensor& weight = {});
/// As mean_nodes, of the edges.
MEZZO_API at::Tensor mean_edges(const Graph& graph, const at::Tensor& x,
                                const at::Tensor& weight = {});
/// As max_nodes, of the edges.
MEZZO_API at::Tensor max_edges(const Graph& graph, const at::Tensor& x,
                               const at::Tensor& weight = {});

/// The softmax over the nodes of each graph, per trailing element. Returns the shape and dtype of
/// x; autocast leaves x as it comes.
MEZZO_API at::Tensor softmax_nodes(const Graph& graph, const at::Tensor& x);
/// The softmax over the edges of each graph, likewise.
MEZZO_API at::Tensor softmax_edges(const Graph& graph, const at::Tensor& x);

/// The row of its graph for every node. x: floating, strided [B, ...], on the graph's device.
/// Returns [N, ...] in the dtype of x; gradients add up in float32.
MEZZO_API at::Tensor broadcast_nodes(const Graph& graph, const at::Tensor& x);
/// The row of its graph for every edge: [E, ...].
MEZZO_API at::Tensor broadcast_edges(const Graph& graph, const at::Tensor& x);

}  // namespace mezzo::nn
