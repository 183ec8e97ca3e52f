#pragma once

#include <cstdint>

#include "mezzo/kernels/cuda/sparse/hubs.h"

namespace mezzo::kernels::cuda {

/// Part of an SpMM done by a launch: rows that are not long, chunks of long rows, or sums over the
/// chunks.
enum class SpmmPass : std::uint8_t { kRows, kPieces, kHubs };

/// The edges that one item of a launch reduces: a row, or the part of a long row in one chunk.
struct SpmmWork {
  std::int64_t row = -1;  ///< -1: nothing to do
  SlotRange range = {0, 0};
  std::int64_t partial = 0;  ///< for a chunk: index of the partial result
};

/// Number of items: one per row in a pass over rows, else two per chunk.
inline std::int64_t num_work_items(SpmmPass pass, std::int64_t num_rows, std::int64_t num_slots) {
  return pass == SpmmPass::kRows ? num_rows : 2 * num_pieces(num_slots);
}

__device__ inline SpmmWork spmm_work(SpmmPass pass, const Slots& slots, std::int64_t num_rows,
                                     std::int64_t num_slots, std::int64_t item) {
  if (pass == SpmmPass::kPieces) {
    if (item >= 2 * num_pieces(num_slots)) return {};
    const HubPart part = hub_part(slots, num_rows, num_slots, item / 2, static_cast<int>(item % 2));
    return {part.row, part.range, part.partial};
  }
  if (item >= num_rows) return {};
  const SlotRange range = slots_of(slots, item);
  if (is_hub(range, piece_length(num_slots))) return {};
  return {item, range, 0};
}

/// Maps edges to an operand's rows; selects the index array once.
struct RowPicker {
  const std::int32_t* narrow = nullptr;
  const std::int64_t* wide = nullptr;
  bool own_row = false;

  __device__ std::int64_t at(std::int64_t row, std::int64_t slot) const {
    if (narrow != nullptr) return narrow[slot];
    if (wide != nullptr) return wide[slot];
    return own_row ? row : slot;
  }

  /// Rows of the edges `begin` + positions[u], without a branch between the loads.
  template <int U>
  __device__ void at(std::int64_t row, std::int64_t begin, const int (&positions)[U],
                     std::int64_t (&rows)[U]) const {
    if (narrow != nullptr) {
      const std::int32_t* from = narrow + begin;
#pragma unroll
      for (int u = 0; u < U; ++u) rows[u] = from[positions[u]];
    } else if (wide != nullptr) {
      const std::int64_t* from = wide + begin;
#pragma unroll
      for (int u = 0; u < U; ++u) rows[u] = from[positions[u]];
    } else {
#pragma unroll
      for (int u = 0; u < U; ++u) rows[u] = own_row ? row : begin + positions[u];
    }
  }
};

/// Reads element `at[u]` of an operand for each u, without a branch between the loads.
template <class T, int U>
__device__ inline void numbers_at(const Operand& operand, const std::int64_t (&at)[U],
                                  typename T::Accum (&to)[U]) {
  if (operand.wide) {
#pragma unroll
    for (int u = 0; u < U; ++u) to[u] = static_cast<const typename T::Accum*>(operand.data)[at[u]];
  } else {
    typename T::Storage stored[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
      stored[u] = static_cast<const typename T::Storage*>(operand.data)[at[u]];
    }
#pragma unroll
    for (int u = 0; u < U; ++u) to[u] = widened(stored[u]);
  }
}

inline RowPicker row_picker(const Ids& ids) {
  if (ids.wide) return {nullptr, static_cast<const std::int64_t*>(ids.data), false};
  return {static_cast<const std::int32_t*>(ids.data), nullptr, false};
}

inline RowPicker row_picker(Access access, const Slots& slots) {
  if (access == Access::kRow) return {nullptr, nullptr, true};
  return row_picker(access == Access::kFirst ? slots.first : slots.second);
}

}  // namespace mezzo::kernels::cuda
