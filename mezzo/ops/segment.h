#pragma once

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/kernels/reduce_op.h"

namespace mezzo {

// Operators on segments of rows: the first lengths[0] rows are segment 0, the next lengths[1] are
// segment 1, and so on; a length may be 0. Dtypes, rounding, registration, gradients and errors are
// those of ops.h. The host reads lengths and ids, so on CUDA all of these and the gradient of
// gather_mm synchronize, except segment_mm with lengths on the CPU.

/// out[s] = reduce over the rows of segment s; 0 for an empty one. lengths: int64 [S] whose sum is
/// x.size(0); x: [N, ...]. Returns [S, ...] in the dtype of x. As in gspmm, NaN wins a max or min
/// and the lowest row wins a tie. Autocast casts x to the 16-bit type.
MEZZO_API at::Tensor segment_reduce(ReduceOp reduce, const at::Tensor& lengths,
                                    const at::Tensor& x);

/// Softmax over the rows of each segment, per trailing element. lengths: int64 [S] whose sum is
/// x.size(0); x: [N, ...]. Returns the shape and dtype of x. Autocast leaves x alone.
MEZZO_API at::Tensor segment_softmax(const at::Tensor& lengths, const at::Tensor& x);

/// The rows of segment i of a, times b[i]. a: [N, D1]; b: [R, D1, D2]; lengths: int64 [R] whose sum
/// is N, on the device of a or, as in DGL, on the CPU. Returns [N, D2]. Runs one dense product of
/// `linear` a segment. The gradient of the factor of an empty segment is 0. Autocast casts a and b
/// to the 16-bit type.
MEZZO_API at::Tensor segment_mm(const at::Tensor& a, const at::Tensor& b,
                                const at::Tensor& lengths);

/// Row i of a times b[idx[i]]. a: [N, D1]; b: [R, D1, D2]; idx: int64 [N] in [0, R). Returns
/// [N, D2]. Otherwise as segment_mm. Copies the rows of one factor at a time, and none if idx is
/// sorted.
MEZZO_API at::Tensor gather_mm(const at::Tensor& a, const at::Tensor& b, const at::Tensor& idx);

}  // namespace mezzo
