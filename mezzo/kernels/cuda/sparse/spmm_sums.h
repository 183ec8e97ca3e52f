#pragma once

#include <cstdint>

#include "mezzo/kernels/cuda/sparse/spmm_work.h"
#include "mezzo/kernels/spmm.h"

// Plain and weighted sums of rows, the most frequent case in training.

namespace mezzo::kernels::cuda {

struct RowSumTuning {
  static constexpr int kThreads = 64;  ///< few: a block's warps wait for its longest row
  static constexpr int kBlocks = 12;   ///< per multiprocessor: bounds the registers
  /// Bytes of every row that are summed before the next ones: with about 10^5 nodes such a slab of
  /// all rows stays in the L2 cache.
  static constexpr int kSlabBytes = 128;
  static constexpr int kUnroll = 4;  ///< edges that one lane reads at once
  /// Edges per lane group of a row; with fewer, lanes idle in rows of mean length.
  static constexpr int kEntriesPerWay = 4;
};

/// Operands (rows and weights) and lane mapping: `lanes` adjacent lanes read one pack each of an
/// edge's columns, `ways` such groups share the edges. If the rows of x are padded, the last pack
/// of a row reads the padding, which is not stored.
struct RowSums {
  SpmmArgs args;
  SpmmPass pass = SpmmPass::kRows;
  Operand x, weight;  ///< weight.data null: every weight is 1
  RowPicker x_rows, weight_rows, scale_rows;
  const std::int64_t *x_offset = nullptr, *weight_offset = nullptr;
  std::int64_t x_step = 1, weight_step = 0;
  std::int64_t num_entries = 0;
  std::int64_t num_items = 0;
  int lanes = 1, ways = 1;
  void* partials = nullptr;  ///< states (spmm_reduce.h) [num_partials, out_length]
};

/// Offsets of a lane's columns in the rows of x, of the weights and of the result.
struct ColumnPlace {
  std::int64_t x, weight, out;
};

__device__ inline ColumnPlace place_of(const RowSums& s, std::int64_t column) {
  const Layout& layout = s.args.layout;
  std::int64_t group = 0;
  if (layout.num_groups > 1) {
    group = static_cast<std::uint32_t>(column) / static_cast<std::uint32_t>(layout.inner);
  }
  const std::int64_t d = column - group * layout.inner;
  return {offset_of(s.x_offset, group, layout.inner, s.x_step) + d,
          offset_of(s.weight_offset, group, layout.inner, s.weight_step),
          offset_of(layout.out_offset, group, layout.inner, 1) + d};
}

/// Reads the weights of some edges.
template <class T, int U>
__device__ inline void read_factors(const RowSums& s, const SpmmWork& work,
                                    const int (&positions)[U], std::int64_t weight_at,
                                    typename T::Accum (&factors)[U]) {
  using A = typename T::Accum;
  std::int64_t at[U];
#pragma unroll
  for (int u = 0; u < U; ++u) factors[u] = A(1);
  if (s.weight.data != nullptr) {
    s.weight_rows.at(work.row, work.range.begin, positions, at);
#pragma unroll
    for (int u = 0; u < U; ++u) at[u] = at[u] * s.weight.length + weight_at;
    numbers_at<T>(s.weight, at, factors);
  }
  if (s.args.lhs_scale != nullptr) {
    s.scale_rows.at(work.row, work.range.begin, positions, at);
#pragma unroll
    for (int u = 0; u < U; ++u) factors[u] *= static_cast<const A*>(s.args.lhs_scale)[at[u]];
  }
}

/// Adds every `ways`-th edge from number `way` on to `sum`. Loads several edges before it uses the
/// first; past the end it adds zeros, because a branch there would move each load behind the sum of
/// the one before.
template <class T, int N, bool kWeighted>
__device__ inline void add_entries(const RowSums& s, const SpmmWork& work, const ColumnPlace& at,
                                   int way, typename T::Accum (&sum)[N]) {
  using A = typename T::Accum;
  constexpr int kUnroll = RowSumTuning::kUnroll;
  const auto* x = static_cast<const typename T::Storage*>(s.x.data) + at.x;
  const auto count = static_cast<int>(work.range.end - work.range.begin);
  for (int first = way; first < count; first += kUnroll * s.ways) {
    int positions[kUnroll];
    std::int64_t rows[kUnroll];
    Pack<T, N> packs[kUnroll];
    A factors[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) positions[u] = min(first + u * s.ways, count - 1);
    s.x_rows.at(work.row, work.range.begin, positions, rows);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      packs[u] = load_pack<T, N>(x + rows[u] * s.x.length, first + u * s.ways < count);
    }
    if constexpr (kWeighted) read_factors<T>(s, work, positions, at.weight, factors);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      A values[N];
      widen(packs[u], values);
      // Not 0 * weight, which is NaN if the weight is not finite.
      if (kWeighted && first + u * s.ways >= count) factors[u] = A(0);
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] += kWeighted ? factors[u] * values[i] : values[i];
    }
  }
}

/// Applies a row's mean and scale after the sum.
template <class A>
__device__ inline A finish_sum(const SpmmArgs& a, A sum, std::int64_t row, EntryRange range) {
  if (range.end == range.begin) return A(0);
  if (a.reduce == ReduceOp::kMean) sum /= static_cast<A>(range.end - range.begin);
  if (a.row_scale != nullptr) sum *= static_cast<const A*>(a.row_scale)[row];
  return sum;
}

/// The dtype of the accumulator.
template <class T>
using AccumDType = std::conditional_t<std::is_same_v<typename T::Accum, double>, Float64, Float32>;

/// As store_in_row, into a row of accumulators, with as few instructions as possible.
template <class T, int N>
__device__ inline void store_accum(const typename T::Accum (&from)[N], typename T::Accum* row,
                                   std::int64_t column, std::int64_t length) {
  using A = typename T::Accum;
  constexpr int kMost = 16 / static_cast<int>(sizeof(A));
  constexpr int kPart = N < kMost ? N : kMost;
  if (length % N != 0) return store_in_row<AccumDType<T>, N>(from, row, column, length);
#pragma unroll
  for (int i = 0; i < N; i += kPart) {
    A part[kPart];
#pragma unroll
    for (int k = 0; k < kPart; ++k) part[k] = from[i + k];
    store<AccumDType<T>, kPart>(part, row + column + i);
  }
}

template <class T, int N>
__device__ inline void store_sum(const RowSums& s, const SpmmWork& work, std::int64_t column,
                                 typename T::Accum (&sum)[N]) {
  using A = typename T::Accum;
  const SpmmArgs& a = s.args;
  const std::int64_t length = a.out_length;
  if (s.pass == SpmmPass::kChunks) {
    store_accum<T, N>(sum, static_cast<A*>(s.partials) + work.partial * length, column, length);
    return;
  }
#pragma unroll
  for (int i = 0; i < N; ++i) sum[i] = finish_sum(a, sum[i], work.row, work.range);
  const std::int64_t at = work.row * length;
  if (a.out_is_accum) {
    store_accum<T, N>(sum, static_cast<A*>(a.out) + at, column, length);
  } else {
    store_in_row<T, N>(sum, static_cast<typename T::Storage*>(a.out) + at, column, length);
  }
}

/// Work of one lane: its share of an item, and the columns from `column` on of every slab.
struct LaneShare {
  SpmmWork work;
  int way, column;
};

/// Each item has lanes * ways adjacent lanes, with N columns per lane.
template <int N>
__device__ inline LaneShare lane_share(const RowSums& s) {
  const int share = s.lanes * s.ways, lane = lane_of_warp() & (share - 1);
  const std::int64_t thread = std::int64_t{blockIdx.x} * RowSumTuning::kThreads + threadIdx.x;
  return {spmm_work(s.pass, s.args.entries, s.args.row_end, s.num_entries, shifted(thread, share)),
          shifted(lane, s.lanes), (lane & (s.lanes - 1)) * N};
}

template <class T, int N, bool kWeighted>
__global__ void __launch_bounds__(RowSumTuning::kThreads, RowSumTuning::kBlocks)
    sum_rows(RowSums s) {
  using A = typename T::Accum;
  const LaneShare lane = lane_share<N>(s);
  const std::int64_t columns = s.args.layout.num_groups * s.args.layout.inner;
  const std::int64_t slab = s.lanes * N;
  for (std::int64_t begin = blockIdx.y * slab; begin < columns; begin += gridDim.y * slab) {
    const std::int64_t column = begin + lane.column;
    const bool active = lane.work.row >= 0 && column < columns;
    A sum[N] = {};
    ColumnPlace at = {};
    if (active) {
      at = place_of(s, column);
      add_entries<T, N, kWeighted>(s, lane.work, at, lane.way, sum);
    }
    for (int step = s.lanes; step < s.lanes * s.ways; step *= 2) {
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] += __shfl_xor_sync(kAllLanes, sum[i], step);
    }
    if (active && lane.way == 0) store_sum<T, N>(s, lane.work, at.out, sum);
  }
}

}  // namespace mezzo::kernels::cuda
