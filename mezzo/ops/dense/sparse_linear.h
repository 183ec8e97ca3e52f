#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

namespace mezzo::detail {

/// linear() for a sparse CSR x: a gspmm over the bipartite graph from columns to rows, with the
/// values as edge weights. The graph is cached as long as the row pointers and columns of the
/// matrix live, so that its transpose is built once. Each call compares the cached graph with them,
/// because they may have been modified in place: O(stored values), and a synchronization on CUDA,
/// except during capture of a CUDA graph.
at::Tensor sparse_linear(const at::Tensor& x, const at::Tensor& weight,
                         const std::optional<at::Tensor>& bias);

}  // namespace mezzo::detail
