#pragma once

#include <ATen/core/Tensor.h>

/// Internal.
namespace mezzo::data {

/// Rows `ids` (integers [n], in range) of a sparse CSR matrix on the same device, in that order:
/// sparse CSR with the matrix's dtypes. Reads only the row pointers of these rows.
/// Allocates; synchronises on CUDA.
at::Tensor csr_rows(const at::Tensor& matrix, const at::Tensor& ids);

}  // namespace mezzo::data
