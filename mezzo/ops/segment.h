#pragma once

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/kernels/reduce_op.h"

namespace mezzo {

// Operations on rows that lie in segments: the first lengths[0] rows are segment 0, the next
// lengths[1] segment 1, and so on; a length may be 0. float32, float64, bfloat16, float16; sums in
// float32 (float64 for float64), one rounding at the store. Registered with libtorch under their
// own names, as in ops.h: differentiable once. Lengths and ids are read on the host: on CUDA all of
// these synchronise, and so does the gradient of gather_mm; segment_mm does not where its lengths
// are on the CPU. Errors: InvalidArgument naming argument, expected, given.

/// out[s] = reduce over the rows of segment s, 0 for an empty one under every reducer. lengths:
/// int64 [S], adding up to x.size(0); x: [N, ...]. Returns [S, ...] in the dtype of x. The rules of
/// gspmm hold: NaN wins a max or min, the lowest row wins a tie; the same bits for any number of
/// threads. Autocast casts x to the 16-bit type.
MEZZO_API at::Tensor segment_reduce(ReduceOp reduce, const at::Tensor& lengths,
                                    const at::Tensor& x);

/// Softmax over the rows of each segment, per trailing element. lengths: int64 [S], adding up to
/// x.size(0); x: [N, ...]. Returns the shape and dtype of x; autocast leaves x as it comes.
MEZZO_API at::Tensor segment_softmax(const at::Tensor& lengths, const at::Tensor& x);

/// Row r of segment i times b[i]. a: [N, D1]; b: [R, D1, D2]; lengths: int64 [R], adding up to N,
/// on the device of a or, as DGL wants them, on the CPU, which spares CUDA the wait for them.
/// Returns [N, D2]. One dense product a segment, those of `linear`: 16-bit rows accumulate in
/// float32. The gradient of the factor of an empty segment is 0. Autocast casts a and b to the
/// 16-bit type.
MEZZO_API at::Tensor segment_mm(const at::Tensor& a, const at::Tensor& b,
                                const at::Tensor& lengths);

/// Row i of a times b[idx[i]]. a: [N, D1]; b: [R, D1, D2]; idx: int64 [N], in [0, R). Returns
/// [N, D2]. As segment_mm of the rows in the order of their factors; copies no more rows at a time
/// than one factor has, and none where idx is sorted.
MEZZO_API at::Tensor gather_mm(const at::Tensor& a, const at::Tensor& b, const at::Tensor& idx);

}  // namespace mezzo
