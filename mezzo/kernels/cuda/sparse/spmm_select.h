#pragma once

#include <cstdint>

#include "mezzo/kernels/cuda/sparse/spmm_reduce.h"
#include "mezzo/kernels/cuda/sparse/spmm_sums.h"

// Elementwise maximum or minimum of whole rows: as sum_rows, with another state per lane.

namespace mezzo::kernels::cuda {

/// The selected message of one element, with the position of its edge in the row.
template <class A>
struct Best {
  A value = A(0);
  int position = -1;  ///< -1: none yet
};

template <class A>
__device__ inline bool wins(bool largest, A candidate, A best) {
  const bool better = largest ? Max::better(candidate, best) : Min::better(candidate, best);
  return better || (candidate != candidate && !(best != best));
}

template <class T, int N>
__device__ inline void choose_entries(const RowSums& s, const SpmmWork& work, const ColumnPlace& at,
                                      int way, Best<typename T::Accum> (&best)[N]) {
  constexpr int kUnroll = RowSumTuning::kUnroll;
  const bool largest = s.args.reduce == ReduceOp::kMax;
  const auto* x = static_cast<const typename T::Storage*>(s.x.data) + at.x;
  const auto count = static_cast<int>(work.range.end - work.range.begin);
  for (int first = way; first < count; first += kUnroll * s.ways) {
    int positions[kUnroll];
    std::int64_t rows[kUnroll];
    Pack<T, N> packs[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) positions[u] = min(first + u * s.ways, count - 1);
    s.x_rows.at(work.row, work.range.begin, positions, rows);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      packs[u] = load_pack<T, N>(x + rows[u] * s.x.length);
    }
    // An edge that is read again past the end of the row does not win over itself.
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      typename T::Accum values[N];
      widen(packs[u], values);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (best[i].position >= 0 && !wins(largest, values[i], best[i].value)) continue;
        best[i] = {values[i], positions[u]};
      }
    }
  }
}

/// Exchanges the selections of lanes `step` apart and keeps the better one in both; on ties the
/// first edge.
template <class A>
__device__ inline void choose_from_lane(bool largest, int step, Best<A>& best) {
  const Best<A> other = {__shfl_xor_sync(kAllLanes, best.value, step),
                         __shfl_xor_sync(kAllLanes, best.position, step)};
  if (other.position < 0) return;
  const bool first = other.position < best.position && !wins(largest, best.value, other.value);
  if (best.position < 0 || first || wins(largest, other.value, best.value)) best = other;
}

template <class T>
__device__ inline void store_best(const RowSums& s, const SpmmWork& work, std::int64_t column,
                                  const Best<typename T::Accum>& best) {
  using State = SelectingState<typename T::Accum>;
  State state;
  state.value = best.value;
  state.entry = best.position < 0 ? -1 : work.range.begin + best.position;
  if (s.pass == SpmmPass::kChunks) {
    static_cast<State*>(s.partials)[work.partial * s.args.out_length + column] = state;
  } else {
    store_reduction<T>(s.args, work.row, work.range, column, state);
  }
}

template <class T, int N>
__global__ void __launch_bounds__(RowSumTuning::kThreads, RowSumTuning::kBlocks)
    select_rows(RowSums s) {
  const LaneShare lane = lane_share<N>(s);
  const bool largest = s.args.reduce == ReduceOp::kMax;
  const std::int64_t columns = s.args.layout.num_groups * s.args.layout.inner;
  const std::int64_t slab = s.lanes * N;
  for (std::int64_t begin = blockIdx.y * slab; begin < columns; begin += gridDim.y * slab) {
    const std::int64_t column = begin + lane.column;
    const bool active = lane.work.row >= 0 && column < columns;
    Best<typename T::Accum> best[N];
    ColumnPlace at = {};
    if (active) {
      at = place_of(s, column);
      choose_entries<T, N>(s, lane.work, at, lane.way, best);
    }
    for (int step = s.lanes; step < s.lanes * s.ways; step *= 2) {
#pragma unroll
      for (int i = 0; i < N; ++i) choose_from_lane(largest, step, best[i]);
    }
    if (!active || lane.way != 0) continue;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (column + i < columns) store_best<T>(s, lane.work, at.out + i, best[i]);
    }
  }
}

}  // namespace mezzo::kernels::cuda
