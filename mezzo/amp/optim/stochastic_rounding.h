#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

namespace mezzo::amp {

/// Which random numbers a rounding draws: equal keys give equal numbers.
struct RoundingKey {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;       ///< of a training, below 2^40
  std::uint64_t parameter = 0;  ///< its number in the optimizer, below 2^24
};

/// Writes `values` (float32) to `rounded` (bfloat16, the same shape and device), each to one of its
/// two bfloat16 neighbours, the nearer the likelier: P(up) is the distance from the lower one over
/// the gap, exactly, with 16 random bits. Below bfloat16's largest number the mean of the result
/// thus is the value, so that updates smaller than the gap are kept on average. Representable
/// values, infinities and NaN stay what they are; between bfloat16's and float32's largest number
/// the upper neighbour is infinity.
///
/// The bits are Philox's of (seed, step, parameter, row-major place of the element): the same on
/// every device, for any number of threads and any strides. In place, seen by autograd's version
/// counter. On the CPU one pass without allocation where both are contiguous; elsewhere about 120
/// elementwise operations on int64 tensors of half the elements. Does not synchronise. Throws
/// InvalidArgument for other dtypes, shapes that differ, a key out of range and inside a step that
/// is being captured.
MEZZO_API void round_stochastically(const at::Tensor& values, const at::Tensor& rounded,
                                    const RoundingKey& key);

/// The same by the operations that every device has, the CPU too.
MEZZO_API void round_stochastically_by_operations(const at::Tensor& values,
                                                  const at::Tensor& rounded,
                                                  const RoundingKey& key);

}  // namespace mezzo::amp
