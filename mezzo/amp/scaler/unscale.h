#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace mezzo::amp {

/// The stored numbers of a tensor, sharing its memory: itself, or the values of a sparse one (COO,
/// coalesced or not, and the compressed layouts). Does not synchronise.
at::Tensor stored_values(const at::Tensor& tensor);

/// Multiplies the gradients of `parameters` by `inverse_scale` (float32, 0-dim), in place, each
/// once even if a parameter is listed twice. Parameters without a gradient are passed over.
/// Returns float32, 0-dim, beside `inverse_scale`: 0 if all gradients were finite, 1 otherwise;
/// undefined where there was none. Does not synchronise. Throws InvalidArgument for gradients other
/// than float32, float64 and bfloat16 before any is changed: float16 ones would underflow here,
/// which a float32 parameter avoids.
at::Tensor unscale_gradients(const std::vector<at::Tensor>& parameters,
                             const at::Tensor& inverse_scale);

/// What unscale_gradients returns, on `device`, for gradients that it leaves as they are. Takes
/// float16 as well; a sparse float16 gradient is coalesced, since entries that are finite may add
/// up to inf, and only that synchronises.
at::Tensor check_gradients(const std::vector<at::Tensor>& parameters, at::Device device);

}  // namespace mezzo::amp
