#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

namespace mezzo::detail {

/// x [N, K] times factor [K, M], plus bias [M] if given: float32 tensors of the CPU with any
/// strides. Returns a contiguous [N, M]. Runs libtorch's product, or oneDNN's on a processor whose
/// vectors MKL would use by half. The choice depends on the processor and the sizes, never on a
/// measurement, so every process gets the same bits. MEZZO_FLOAT32_LINEAR=libtorch or onednn forces
/// one; throws InvalidArgument for another value, or for onednn if libtorch lacks it.
at::Tensor float32_product(const at::Tensor& x, const at::Tensor& factor,
                           const std::optional<at::Tensor>& bias);

}  // namespace mezzo::detail
