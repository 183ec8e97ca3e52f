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

/// Adds x times factor, as above, to sum [N, M], float32 of any strides.
void add_float32_product(const at::Tensor& sum, const at::Tensor& x, const at::Tensor& factor);

/// How many rows of `columns` numbers such a product is best given at a time, where they come from
/// elsewhere tile by tile: few enough for the caches, and so many that what each call prepares
/// does not show. Depends on the processor and `columns` alone.
std::int64_t float32_tile_rows(std::int64_t columns);

}  // namespace mezzo
