#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "mezzo/kernels/cuda/device.h"

// How row kernels deal out a warp's lanes, all by powers of 2; chosen on the host from sizes alone,
// so that a sum's order depends on nothing else.

namespace mezzo::kernels::cuda {

/// Lanes that take a row's slots in turns, at most `most` (a power of 2): about one for every
/// `slots_per_lane` slots of an average row.
inline int lanes_for_slots(const Slots& slots, std::int64_t num_rows, std::int64_t num_slots,
                           std::int64_t slots_per_lane, int most) {
  if (slots.indptr == nullptr || num_rows == 0) return 1;
  const std::int64_t wanted = num_slots / num_rows / slots_per_lane;
  const auto lanes = static_cast<std::uint64_t>(std::clamp<std::int64_t>(wanted, 1, most));
  return static_cast<int>(std::bit_floor(lanes));
}

/// A fixed-order reduction over the lanes of each `width` neighbouring ones that are equal modulo
/// `apart`, in all of them; both are powers of 2. Every lane of the warp takes part.
template <class A, class Join>
__device__ inline A join_lanes(A x, int apart, int width, Join join) {
  for (int step = apart; step < width; step *= 2) {
    x = join(x, __shfl_xor_sync(kAllLanes, x, step));
  }
  return x;
}

/// Likewise the sum.
template <class A>
__device__ inline A sum_lanes(A x, int apart, int width) {
  return join_lanes(x, apart, width, [](A a, A b) { return a + b; });
}

}  // namespace mezzo::kernels::cuda
