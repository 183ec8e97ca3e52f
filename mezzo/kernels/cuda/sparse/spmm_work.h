#pragma once

#include <cstdint>

#include "mezzo/kernels/cuda/sparse/hubs.h"

namespace mezzo::kernels::cuda {

/// Part of an SpMM done by a launch: rows that are not long, chunks of long rows, or sums over the
/// chunks.
enum class SpmmPass : std::uint8_t { kRows, kChunks, kHubs };

/// The edges that one item of a launch reduces: a row, or the part of a long row in one chunk.
struct SpmmWork {
  std::int64_t row = -1;  ///< -1: nothing to do
  EntryRange range = {0, 0};
  std::int64_t partial = 0;  ///< for a chunk: index of the partial result
};

/// Number of items: one per row in a pass over rows, else two per chunk.
inline std::int64_t num_work_items(SpmmPass pass, std::int64_t num_rows, std::int64_t num_entries) {
  return pass == SpmmPass::kRows ? num_rows : 2 * num_chunks(num_entries);
}

__device__ inline SpmmWork spmm_work(SpmmPass pass, const Entries& entries, std::int64_t num_rows,
                                     std::int64_t num_entries, std::int64_t item) {
  if (pass == SpmmPass::kChunks) {
    if (item >= 2 * num_chunks(num_entries)) return {};
    const HubPart part =
        hub_part(entries, num_rows, num_entries, item / 2, static_cast<int>(item % 2));
    return {part.row, part.range, part.partial};
  }
  if (item >= num_rows) return {};
  const EntryRange range = entries_of(entries, item);
  if (is_hub(range, chunk_length(num_entries))) return {};
  return {item, range, 0};
}

/// Maps edges to an operand's rows; selects the index array once.
struct RowPicker {
  const std::int32_t* int32_ids = nullptr;
  const std::int64_t* int64_ids = nullptr;
  bool own_row = false;

  __device__ std::int64_t at(std::int64_t row, std::int64_t entry) const {
    if (int32_ids != nullptr) return int32_ids[entry];
    if (int64_ids != nullptr) return int64_ids[entry];
    return own_row ? row : entry;
  }

  /// Rows of the edges `begin` + positions[u], without a branch between the loads.
  template <int U>
  __device__ void at(std::int64_t row, std::int64_t begin, const int (&positions)[U],
                     std::int64_t (&rows)[U]) const {
    if (int32_ids != nullptr) {
      const std::int32_t* from = int32_ids + begin;
#pragma unroll
      for (int u = 0; u < U; ++u) rows[u] = from[positions[u]];
    } else if (int64_ids != nullptr) {
      const std::int64_t* from = int64_ids + begin;
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
  if (operand.is_accum) {
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

__host__ __device__ inline RowPicker row_picker(const Ids& ids) {
  if (ids.is_int64) return {nullptr, static_cast<const std::int64_t*>(ids.data), false};
  return {static_cast<const std::int32_t*>(ids.data), nullptr, false};
}

inline RowPicker row_picker(Access access, const Entries& entries) {
  if (access == Access::kRow) return {nullptr, nullptr, true};
  return row_picker(access == Access::kFirst ? entries.first : entries.second);
}

}  // namespace mezzo::kernels::cuda
