#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

namespace mezzo {

/// linear() for a sparse CSR x: the matrix is read as a bipartite graph from columns to rows whose
/// edge weights are the values, so the product is u_mul_e + sum of the weight's columns. The graph
/// is remembered while the matrix's row pointers and columns live, so that its transpose is built
/// once. Each call compares it with them, which may have been written over: O(stored values), and
/// on CUDA a synchronisation, but while a CUDA graph is captured.
at::Tensor sparse_linear(const at::Tensor& x, const at::Tensor& weight,
                         const std::optional<at::Tensor>& bias);

}  // namespace mezzo
