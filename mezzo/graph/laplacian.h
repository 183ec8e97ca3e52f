#pragma once

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/graph.h"

namespace mezzo {

/// What twice the steps may still add to a result of laplacian_lambda_max, relative to it.
inline constexpr double kLambdaMaxTolerance = 1e-6;

/// The largest eigenvalue, in [0, 2], of the symmetric normalised Laplacian
/// I - D^(-1/2) A D^(-1/2), where D are the in-degrees, of at least 1, and parallel edges and loops
/// count in A: of each part of a batch, float64 [batch_size] on the CPU. ChebConv takes that of one
/// graph as it is, and of a batch `.repeat_interleave(graph.batch_num_nodes())`. By the method of
/// Lanczos, on the host: one pass over the edges a step, four numbers a node in memory, the same
/// result for any number of threads. It ends when twice as many steps add less than
/// kLambdaMaxTolerance of the result, which then has, as a rule, all its digits; of graphs whose
/// largest eigenvalues lie close together, as large cycles and grids, it is below the true one by
/// about the tolerance. Throws InvalidArgument unless every edge has its reverse, as often as it
/// stands itself (to_bidirected makes such graphs), for an edge that leaves its part and for a part
/// without nodes. Synchronises on CUDA. As DGL's laplacian_lambda_max.
MEZZO_API at::Tensor laplacian_lambda_max(const Graph& graph);

}  // namespace mezzo
