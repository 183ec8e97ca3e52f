#pragma once

#include <cstdint>

#include "mezzo/kernels/operand.h"

// Helpers of the row loops. Everything here is `static`, always inlined or a template over a
// backend's vector type, so that each instruction set keeps its own copy (see scalar.cpp).

namespace mezzo::kernels {

[[maybe_unused]] static inline std::int64_t id_at(const Ids& ids, std::int64_t i) {
  if (ids.data == nullptr) return i;
  return ids.is_int64 ? static_cast<const std::int64_t*>(ids.data)[i]
                      : static_cast<const std::int32_t*>(ids.data)[i];
}

/// Calls f with the pointer to the ids, int32 or int64.
template <class F>
[[gnu::always_inline]] inline auto with_ids(const Ids& ids, F f) {
  return ids.is_int64 ? f(static_cast<const std::int64_t*>(ids.data))
                      : f(static_cast<const std::int32_t*>(ids.data));
}

[[maybe_unused]] static inline std::int64_t row_at(Access access, const Entries& entries,
                                                   std::int64_t row, std::int64_t entry) {
  switch (access) {
    case Access::kRow:
      return row;
    case Access::kFirst:
      return id_at(entries.first, entry);
    case Access::kSecond:
      return id_at(entries.second, entry);
  }
  return row;
}

/// Which row of an operand an entry reads; chooses the array of ids once per call.
struct RowPicker {
  const std::int32_t* int32_ids = nullptr;
  const std::int64_t* int64_ids = nullptr;
  bool own_row = false;  ///< every entry reads its own row

  [[gnu::always_inline]] std::int64_t at(std::int64_t row, std::int64_t entry) const {
    if (int32_ids != nullptr) return int32_ids[entry];
    if (int64_ids != nullptr) return int64_ids[entry];
    return own_row ? row : entry;
  }
  [[gnu::always_inline]] bool are_entries() const {
    return int32_ids == nullptr && int64_ids == nullptr && !own_row;
  }
};

/// A RowPicker of int32 ids, for loops that cannot afford its branches.
struct Int32Rows {
  const std::int32_t* ids;
  [[gnu::always_inline]] std::int64_t at(std::int64_t /*row*/, std::int64_t entry) const {
    return ids[entry];
  }
};

[[maybe_unused]] static inline RowPicker row_picker(const Ids& ids) {
  if (ids.is_int64) return {.int64_ids = static_cast<const std::int64_t*>(ids.data)};
  return {.int32_ids = static_cast<const std::int32_t*>(ids.data)};
}

[[maybe_unused]] static inline RowPicker row_picker(Access access, const Entries& entries) {
  if (access == Access::kRow) return {.own_row = true};
  return row_picker(access == Access::kFirst ? entries.first : entries.second);
}

/// How far ahead operand rows are prefetched. Measured for each vendor's processors
/// (docs/decisions/0015-prefetch-across-rows.md).
struct PrefetchPlan {
  std::int64_t bytes_in_flight;               ///< enough to hide the latency of memory
  std::int64_t fewest_entries, most_entries;  ///< bounds of the distance in entries
  std::int64_t bytes_of_row;                  ///< prefetched; hardware prefetches the rest
};

/// 8 cache lines. The minimum of PrefetchPlan::bytes_of_row, which prefetch_row() relies on.
inline constexpr std::int64_t kLeastBytesOfRow = 512;

/// The plan for this processor.
extern const PrefetchPlan kPrefetchPlan;

/// The prefetch distance in entries. It continues into the next rows, so short rows gain as well.
[[maybe_unused]] static inline std::int64_t prefetch_distance(std::int64_t row_bytes) {
  const PrefetchPlan& plan = kPrefetchPlan;
  const std::int64_t distance = plan.bytes_in_flight / (row_bytes + 1);
  return distance < plan.fewest_entries ? plan.fewest_entries
         : distance > plan.most_entries ? plan.most_entries
                                        : distance;
}

/// Always inlined, as are its callers: gcc drops calls of a function that only prefetches.
[[maybe_unused, gnu::always_inline]] static inline void prefetch(const void* from,
                                                                 std::int64_t bytes) {
  const auto* p = static_cast<const char*>(from);
  const std::int64_t most = kPrefetchPlan.bytes_of_row;
  const std::int64_t length = bytes < most ? bytes : most;
  for (std::int64_t i = 0; i < length; i += 64) __builtin_prefetch(p + i);
}

/// prefetch() for a constant size: no branch for the bytes that every plan fetches.
template <std::int64_t kBytes>
[[gnu::always_inline]] inline void prefetch_row(const void* from) {
  constexpr std::int64_t kSure = kBytes < kLeastBytesOfRow ? kBytes : kLeastBytesOfRow;
  const auto* p = static_cast<const char*>(from);
#pragma GCC unroll 16
  for (std::int64_t i = 0; i < kSure; i += 64) __builtin_prefetch(p + i);
  if constexpr (kBytes > kSure) {
    for (std::int64_t i = kSure; i < kBytes && i < kPrefetchPlan.bytes_of_row; i += 64) {
      __builtin_prefetch(p + i);
    }
  }
}

struct EntryRange {
  std::int64_t begin, end;
};

/// Entries that are summed separately before their sum is added to the row's: one float32 sum of a
/// million numbers of similar size is 1 % off.
constexpr std::int64_t kEntriesApart = 1024;

/// The entries from `begin` on that are summed together.
[[maybe_unused]] static inline EntryRange entries_apart(EntryRange row, std::int64_t begin) {
  return {begin, row.end - begin < kEntriesApart ? row.end : begin + kEntriesApart};
}

[[maybe_unused]] static inline EntryRange entries_of(const Entries& entries, std::int64_t row) {
  if (entries.indptr == nullptr) return {row, row + 1};
  return {entries.indptr[row], entries.indptr[row + 1]};
}

[[maybe_unused]] static inline std::int64_t offset_of(const std::int64_t* table, std::int64_t group,
                                                      std::int64_t inner, std::int64_t step) {
  return table != nullptr ? table[group] : group * inner * step;
}

/// One past the last entry of the rows [row_begin, row_end).
[[maybe_unused]] static inline std::int64_t last_entry(const Entries& entries,
                                                       std::int64_t row_end) {
  return entries.indptr == nullptr ? row_end : entries.indptr[row_end];
}

/// `count` >= 1 elements (at most V::width) from element `at` of an operand if step is 1, copies of
/// element `at` if step is 0.
template <class V, class T>
V load_operand(const Operand& operand, std::int64_t at, std::int64_t step, std::int64_t count) {
  if (operand.is_accum) {
    const auto* p = static_cast<const typename T::Accum*>(operand.data) + at;
    if (step == 0) return V::set(*p);
    return count >= V::width ? V::load_accum(p) : V::load_accum(p, count);
  }
  const auto* p = static_cast<const typename T::Storage*>(operand.data) + at;
  if (step == 0) return V::load_one(T{}, p);
  return count >= V::width ? V::load(T{}, p) : V::load(T{}, p, count);
}

/// How many of N vectors are loaded together.
template <int N>
inline constexpr int kTogether = N > 1 ? 2 : 1;

/// Loads kTogether<N> contiguous vectors. Two may come in the backend's own order: 16-bit numbers
/// are converted faster in pairs, even before odd elements.
template <class T, int N, class V>
[[gnu::always_inline]] inline void load_together(const typename T::Storage* p, V* v) {
  static_assert(N == 1 || N % 2 == 0);
  if constexpr (N == 1) {
    v[0] = V::load(T{}, p);
  } else if constexpr (requires { V::load_pair(T{}, p, v[0], v[1]); }) {
    V::load_pair(T{}, p, v[0], v[1]);
  } else {
    v[0] = V::load(T{}, p);
    v[1] = V::load(T{}, p + V::width);
  }
}

/// Restores the order of elements in vectors from load_together().
template <class T, int N, class V>
[[gnu::always_inline]] inline void put_in_order(V* v) {
  if constexpr (requires { V::put_in_order(T{}, v[0], v[1]); }) {
#pragma GCC unroll 16
    for (int k = 0; k + 1 < N; k += 2) V::put_in_order(T{}, v[k], v[k + 1]);
  }
}

template <class V, class T>
void store_result(V value, void* out, bool is_accum, std::int64_t at, std::int64_t count) {
  if (is_accum) {
    auto* p = static_cast<typename T::Accum*>(out) + at;
    count >= V::width ? value.store_accum(p) : value.store_accum(p, count);
  } else {
    auto* p = static_cast<typename T::Storage*>(out) + at;
    count >= V::width ? value.store(T{}, p) : value.store(T{}, p, count);
  }
}

/// Whether rows of `row_bytes` from `data` on, in chunks of `chunk_bytes`, consist of whole cache
/// lines, as non-temporal stores need.
[[maybe_unused]] static bool are_lines(const void* data, std::int64_t row_bytes,
                                       std::int64_t chunk_bytes) {
  constexpr std::int64_t kLine = 64;
  return reinterpret_cast<std::uintptr_t>(data) % kLine == 0 && row_bytes % kLine == 0 &&
         chunk_bytes % kLine == 0;
}

/// Prefetches `count` elements from element `at` of an operand (one if step is 0).
template <class V, class T>
[[gnu::always_inline]] inline void prefetch_operand(const Operand& operand, std::int64_t at,
                                                    std::int64_t step, std::int64_t count) {
  const std::int64_t size =
      operand.is_accum ? sizeof(typename T::Accum) : sizeof(typename T::Storage);
  prefetch(static_cast<const char*>(operand.data) + at * size, (step == 0 ? 1 : count) * size);
}

/// The sum over one run (layout.inner elements) of op(lhs, rhs).
template <class V, class T, class Op>
typename T::Accum dot_run(const Operand& lhs, const Operand& rhs, const Layout& layout,
                          std::int64_t l, std::int64_t r) {
  V sum = V::zero();
  for (std::int64_t d = 0; d < layout.inner; d += V::width) {
    const std::int64_t left = layout.inner - d;
    // Elements past the end load as 0, or as copies of a broadcast element. These may be inf, and
    // 0 * inf is NaN, so products past the end are masked.
    const V x = load_operand<V, T>(lhs, l + d * layout.lhs_step, layout.lhs_step, left);
    const V y = load_operand<V, T>(rhs, r + d * layout.rhs_step, layout.rhs_step, left);
    const V product = Op::apply(x, y);
    sum = sum + (left >= V::width ? product : V::keep(product, left));
  }
  return sum.sum();
}

}  // namespace mezzo::kernels
