#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace torch::optim {
class Optimizer;
}

namespace mezzo::amp {

/// The parameters of all groups, in order.
std::vector<at::Tensor> parameters_of(const torch::optim::Optimizer& optimizer);

/// The stored values of a tensor, sharing its memory: the tensor itself, or the values of a sparse
/// one (COO, coalesced or not, or compressed). Does not synchronise.
at::Tensor stored_values(const at::Tensor& tensor);

/// Multiplies the gradients of `parameters` by `inverse_scale` (float32, 0-dim), in place, each
/// once even if a parameter is listed twice. Skips parameters without a gradient. Returns float32,
/// 0-dim, on the device of `inverse_scale`: 0 if all gradients were finite, 1 otherwise; undefined
/// if there were no gradients. Does not synchronise. Throws InvalidArgument, before any change, for
/// gradients other than float32, float64 and bfloat16: float16 gradients would underflow.
at::Tensor unscale_gradients(const std::vector<at::Tensor>& parameters,
                             const at::Tensor& inverse_scale);

/// Returns the result of unscale_gradients, on `device`, without changing the gradients. Also
/// accepts float16; sparse float16 gradients are coalesced, since finite entries may add up to inf,
/// and only that synchronises.
at::Tensor check_gradients(const std::vector<at::Tensor>& parameters, at::Device device);

}  // namespace mezzo::amp
