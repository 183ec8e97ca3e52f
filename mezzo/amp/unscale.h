#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace mezzo::amp {

/// The stored numbers of a gradient, sharing its memory: itself, or the values of a sparse one
/// (COO, coalesced or not, and the compressed layouts). Does not synchronise.
at::Tensor stored_values(const at::Tensor& gradient);

/// Multiplies the gradients of `parameters` by `inverse_scale` (float32, 0-dim), in place, each
/// once even if a parameter is listed twice. Parameters without a gradient are passed over. Returns
/// one float32 0-dim tensor per device that held a gradient: 0 if all its gradients were finite, 1
/// otherwise. Does not synchronise. Throws InvalidArgument for gradients other than float32,
/// float64 and bfloat16 before any is changed: float16 ones would underflow here, which a float32
/// parameter avoids.
std::vector<at::Tensor> unscale_gradients(const std::vector<at::Tensor>& parameters,
                                          const at::Tensor& inverse_scale);

}  // namespace mezzo::amp
