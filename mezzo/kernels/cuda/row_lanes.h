#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "mezzo/kernels/cuda/device.h"

// Mapping of rows to a warp's lanes, in powers of 2. Chosen on the host from sizes alone, which
// therefore determine the order of sums.

namespace mezzo::kernels::cuda {

/// Number of lanes that share a row's edges, at most `most` (a power of 2): about one per
/// `entries_per_lane` edges of a row of mean length.
inline int lanes_for_entries(const Entries& entries, std::int64_t num_rows,
                             std::int64_t num_entries, std::int64_t entries_per_lane, int most) {
  if (entries.indptr == nullptr || num_rows == 0) return 1;
  const std::int64_t lanes_for_mean = num_entries / num_rows / entries_per_lane;
  const auto lanes = static_cast<std::uint64_t>(std::clamp<std::int64_t>(lanes_for_mean, 1, most));
  return static_cast<int>(std::bit_floor(lanes));
}

/// Reduces in a fixed order over those of each `width` adjacent lanes that are equal modulo `apart`
/// (both powers of 2); all get the result. All lanes of the warp must call it.
template <class A, class Join>
__device__ inline A join_lanes(A x, int apart, int width, Join join) {
  for (int step = apart; step < width; step *= 2) {
    x = join(x, __shfl_xor_sync(kAllLanes, x, step));
  }
  return x;
}

/// The same for a sum.
template <class A>
__device__ inline A sum_lanes(A x, int apart, int width) {
  return join_lanes(x, apart, width, [](A a, A b) { return a + b; });
}

/// Sums each parts[j] over groups of `lanes` adjacent lanes (a power of 2), in the order of
/// group_sum() but with fewer shuffles: after each exchange a lane keeps half of the numbers. Lane
/// l of a group gets number l + i * lanes in parts[i]. All lanes of the warp must call it.
template <class A>
__device__ inline void sum_parts(A (&parts)[kEntriesAhead], int lanes) {
  static_assert(kEntriesAhead == 4);
  const int lane = lane_of_warp() & (lanes - 1);
  const auto half = [lane](A low, A high, int step) {
    const bool upper = (lane & step) != 0;
    return (upper ? high : low) + __shfl_xor_sync(kAllLanes, upper ? low : high, step);
  };
  if (lanes == 1) return;
  if (lanes == 2) {
    parts[0] = half(parts[0], parts[1], 1);
    parts[1] = half(parts[2], parts[3], 1);
    return;
  }
  A sum = half(half(parts[0], parts[2], lanes / 2), half(parts[1], parts[3], lanes / 2), lanes / 4);
  if (lanes > 16) sum += __shfl_xor_sync(kAllLanes, sum, 4);
  if (lanes > 8) sum += __shfl_xor_sync(kAllLanes, sum, 2);
  if (lanes > 4) sum += __shfl_xor_sync(kAllLanes, sum, 1);
  // Number j is in the lanes from j * lanes / 4 on.
  parts[0] = __shfl_sync(kAllLanes, sum, lane_of_warp() - lane + lane % 4 * (lanes / 4));
}

}  // namespace mezzo::kernels::cuda
