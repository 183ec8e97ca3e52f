#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

namespace mezzo {

/// linear() for a sparse CSR x: the matrix is read as a bipartite graph from columns to rows whose
/// edge weights are the values, so the product is u_mul_e + sum of the weight's columns. The graph
/// is remembered while the matrix's row pointers live, so that its transpose is built once; making
/// it synchronises on CUDA.
at::Tensor sparse_linear(const at::Tensor& x, const at::Tensor& weight,
                         const std::optional<at::Tensor>& bias);

}  // namespace mezzo
