#pragma once

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/graph.h"

namespace mezzo {

/// Relative tolerance of laplacian_lambda_max: the largest gain allowed from doubling the steps.
inline constexpr double kLambdaMaxTolerance = 1e-6;

/// The largest eigenvalue, in [0, 2], of the symmetric normalised Laplacian I - D^(-1/2) A
/// D^(-1/2), for each part of a batch: float64 [batch_size] on the CPU. D are the in-degrees,
/// clamped to at least 1; parallel edges and self loops count in A. Pass the result to ChebConv as
/// it is, or for a batch as `.repeat_interleave(graph.batch_num_nodes())`. Runs the Lanczos method
/// on the host: one pass over the edges per step, four numbers per node in memory, the same result
/// for any number of threads. Stops when doubling the steps adds less than kLambdaMaxTolerance,
/// relative to the result. If the largest eigenvalues are close together, as in large cycles and
/// grids, the result is too small by about the tolerance. Throws InvalidArgument unless every edge
/// has equally many reverse edges (see to_bidirected), and for edges between parts and parts
/// without nodes. Synchronises on CUDA. As DGL's laplacian_lambda_max.
MEZZO_API at::Tensor laplacian_lambda_max(const Graph& graph);

}  // namespace mezzo
