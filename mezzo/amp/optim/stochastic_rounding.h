#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

namespace mezzo::amp {

/// Key of the random numbers: equal keys draw equal numbers.
struct RoundingKey {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;       ///< training step, below 2^40
  std::uint64_t parameter = 0;  ///< index in the optimizer, below 2^24
};

/// Rounds `values` (float32) to `rounded` (bfloat16, same shape and device), each to one of its two
/// bfloat16 neighbours at random: P(up) is exactly the distance from the lower neighbour over the
/// gap, with 16 random bits. Up to bfloat16's largest number the expected result is the value, so
/// small updates survive on average. Representable values, infinities and NaN do not change; above
/// bfloat16's largest number the upper neighbour is infinity.
///
/// The bits are Philox of (seed, step, parameter, row-major index of the element): the same on
/// every device, for any number of threads and any strides. Writes in place and bumps autograd's
/// version counter. On the CPU one pass without allocation if both are contiguous; otherwise about
/// 120 elementwise operations on int64 tensors of half the elements. Does not synchronise. Throws
/// InvalidArgument for other dtypes, different shapes, a key out of range and during capture of a
/// step.
MEZZO_API void round_stochastically(const at::Tensor& values, const at::Tensor& rounded,
                                    const RoundingKey& key);

/// Same, by libtorch operations that exist on every device, including the CPU.
MEZZO_API void round_stochastically_by_operations(const at::Tensor& values,
                                                  const at::Tensor& rounded,
                                                  const RoundingKey& key);

}  // namespace mezzo::amp
