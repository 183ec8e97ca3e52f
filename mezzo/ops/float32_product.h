#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

namespace mezzo {

/// x [N, K] times factor [K, M], plus bias [M] where there is one: float32 tensors of the CPU with
/// any strides, the product a new contiguous [N, M]. It is libtorch's own product, or oneDNN's on a
/// processor whose vectors libtorch's leaves half unused: which, depends on the processor and the
/// sizes alone, never on a measurement, so that a process repeats the bits of another.
/// MEZZO_FLOAT32_LINEAR=libtorch or onednn makes the choice; throws InvalidArgument for another
/// value, and for onednn where libtorch has none.
at::Tensor float32_product(const at::Tensor& x, const at::Tensor& factor,
                           const std::optional<at::Tensor>& bias);

}  // namespace mezzo
