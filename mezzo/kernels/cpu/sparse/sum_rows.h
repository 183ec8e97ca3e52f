#pragma once

#include <cstdint>
#include <type_traits>

#include "mezzo/kernels/cpu/access.h"
#include "mezzo/kernels/cpu/sparse/sum_factors.h"
#include "mezzo/kernels/spmm.h"

namespace mezzo::kernels {

/// The offsets of a block of columns in rows of x, in rows of weights (one, or one per vector), and
/// in the result.
template <Weights kWeights>
struct ColumnBlock {
  std::int64_t x_at = 0;
  std::int64_t weight_at[kWeights == Weights::kPerVector ? 16 : 1] = {};
  std::int64_t out_at = 0;
  std::int64_t count = 0;  ///< of a partial block
};

/// Divides a row's sum by the degree for a mean and applies the row's scale. Empty rows stay 0.
template <class V, class T, int N>
[[gnu::always_inline]] inline void finish_sums(const SpmmArgs& a, std::int64_t row,
                                               std::int64_t degree, V (&acc)[N]) {
  if (degree == 0) return;
  if (a.reduce == ReduceOp::kMean) {
    const V divisor = V::set(static_cast<typename T::Accum>(degree));
#pragma GCC unroll 16
    for (int k = 0; k < N; ++k) acc[k] = acc[k] / divisor;
  }
  if (a.row_scale != nullptr) {
    const V scale = V::set(static_cast<const typename T::Accum*>(a.row_scale)[row]);
#pragma GCC unroll 16
    for (int k = 0; k < N; ++k) acc[k] = acc[k] * scale;
  }
}

/// Stores whole vectors of the result.
template <class V, class T, int N>
[[gnu::always_inline]] inline void store_whole(const V (&acc)[N], typename T::Storage* out,
                                               bool streams) {
  if (streams) {
#pragma GCC unroll 16
    for (int k = 0; k < N; ++k) acc[k].stream(T{}, out + k * V::width);
  } else {
#pragma GCC unroll 16
    for (int k = 0; k < N; ++k) acc[k].store(T{}, out + k * V::width);
  }
}

/// Adds one entry to the block of columns `c` of its row, and prefetches a later entry. x: row 0 at
/// the first column of the block.
template <class V, class T, int N, Weights kWeights, bool kPartial, class Rows, class Factors>
[[gnu::always_inline]] inline void add_entry(const typename T::Storage* x, std::int64_t length,
                                             const Rows& rows, const Factors& factors,
                                             std::int64_t row, std::int64_t entry,
                                             std::int64_t fetch_end, std::int64_t ahead,
                                             const ColumnBlock<kWeights>& c, V (&acc)[N]) {
  constexpr auto kBytes = static_cast<std::int64_t>(N * V::width * sizeof(typename T::Storage));
  if (entry < fetch_end) {
    prefetch_row<kBytes>(x + rows.at(row, entry + ahead) * length);
    if constexpr (kWeights != Weights::kNone) factors.prefetch(row, entry + ahead);
  }
  const std::int64_t from = rows.at(row, entry);
  const typename T::Storage* p = x + from * length;
  // Vectors with different weights must be in order.
  constexpr int kStep = kWeights == Weights::kPerVector ? 1 : kTogether<N>;
  V v[kStep], weight = V::zero();
  if constexpr (kWeights == Weights::kOne) {
    weight = V::set(factors.at(row, entry, from, c.weight_at[0]));
  }
#pragma GCC unroll 16
  for (int k = 0; k < N; ++k) {
    if constexpr (kPartial) {
      v[0] = V::load(T{}, p, c.count);
    } else if (k % kStep == 0) {
      load_together<T, kStep>(p + k * V::width, v);
    }
    if constexpr (kWeights == Weights::kPerVector) {
      weight = V::set(factors.at(row, entry, from, c.weight_at[k]));
    }
    if constexpr (kWeights == Weights::kNone) {
      acc[k] = acc[k] + v[k % kStep];
    } else {
      acc[k] = V::fma(weight, v[k % kStep], acc[k]);
    }
  }
}

/// N vectors of one row of the result, with kPartial one of c.count elements. Unrolled loops let
/// the compiler keep the accumulators in registers over the entries of the row.
template <class V, class T, int N, Weights kWeights, bool kPartial, class Rows, class Factors>
void sum_block(const SpmmArgs& a, const RowSum<typename T::Accum>& s, Rows rows, Factors factors,
               std::int64_t row, EntryRange range, const ColumnBlock<kWeights>& c) {
  using Storage = typename T::Storage;
  const std::int64_t ahead = prefetch_distance(N * V::width * sizeof(Storage));
  const std::int64_t fetch_end = s.last - ahead, length = s.x.length;
  const auto* x = static_cast<const Storage*>(s.x.data) + c.x_at;
  V acc[N];
#pragma GCC unroll 16
  for (int k = 0; k < N; ++k) acc[k] = V::zero();
  for (std::int64_t entry = range.begin; entry < range.end; ++entry) {
    add_entry<V, T, N, kWeights, kPartial>(x, length, rows, factors, row, entry, fetch_end, ahead,
                                           c, acc);
  }
  if constexpr (kWeights != Weights::kPerVector) put_in_order<T, N>(acc);
  finish_sums<V, T, N>(a, row, range.end - range.begin, acc);
  if (!kPartial && !a.out_is_accum) {
    store_whole<V, T, N>(acc, static_cast<Storage*>(a.out) + c.out_at, a.out_streams);
    return;
  }
#pragma GCC unroll 16
  for (int k = 0; k < N; ++k) {
    store_result<V, T>(acc[k], a.out, a.out_is_accum, c.out_at + k * V::width,
                       kPartial ? c.count : V::width);
  }
}

/// Rows of exactly N vectors. For short rows, work per row costs more than entries: here it is
/// small and in registers.
template <class V, class T, int N, Weights kWeights, class Rows, class Factors>
[[gnu::noinline]] void sum_whole_rows(const SpmmArgs& a, const RowSum<typename T::Accum>& s,
                                      Rows rows, Factors factors) {
  using Storage = typename T::Storage;
  const std::int64_t ahead = prefetch_distance(N * V::width * sizeof(Storage));
  const std::int64_t fetch_end = s.last - ahead, length = s.x.length;
  const auto* const x = static_cast<const Storage*>(s.x.data);
  ColumnBlock<kWeights> c;
  c.weight_at[0] = s.weight_offset != nullptr ? s.weight_offset[0] : 0;
  const bool is_plain = a.reduce == ReduceOp::kSum && a.row_scale == nullptr;
  const bool streams = a.out_streams;
  auto* out = static_cast<Storage*>(a.out) + a.row_begin * a.out_length;
  std::int64_t entry = a.entries.indptr[a.row_begin];
  for (std::int64_t row = a.row_begin; row < a.row_end; ++row, out += a.out_length) {
    const std::int64_t begin = entry, end = a.entries.indptr[row + 1];
    V acc[N];
#pragma GCC unroll 16
    for (int k = 0; k < N; ++k) acc[k] = V::zero();
    for (; entry < end; ++entry) {
      add_entry<V, T, N, kWeights, false>(x, length, rows, factors, row, entry, fetch_end, ahead, c,
                                          acc);
    }
    put_in_order<T, N>(acc);
    if (!is_plain) finish_sums<V, T, N>(a, row, end - begin, acc);
    store_whole<V, T, N>(acc, out, streams);
  }
}

/// Calls sum_whole_rows() and returns true if that computes the whole result.
template <class V, class T, Weights kWeights, class Rows, class Factors>
bool sum_as_whole_rows(const SpmmArgs& a, const RowSum<typename T::Accum>& s, const Rows& rows,
                       const Factors& factors) {
  const bool starts =
      offset_of(s.x_offset, 0, 0, 1) == 0 && offset_of(a.layout.out_offset, 0, 0, 1) == 0;
  if (a.layout.num_groups != 1 || !starts || a.out_is_accum || a.entries.indptr == nullptr)
    return false;
  const auto run = [&]<int N>() {
    if (a.layout.inner != N * V::width) return false;
    sum_whole_rows<V, T, N, kWeights>(a, s, rows, factors);
    return true;
  };
  if constexpr (V::max_blocks >= 16) {
    if (run.template operator()<16>()) return true;
  }
  return run.template operator()<8>() || run.template operator()<4>() ||
         run.template operator()<2>();
}

/// `columns` columns of one row in blocks, largest first: columns of one group, or of all groups if
/// every vector has its own weight.
template <class V, class T, Weights kWeights, class Rows, class Factors>
void sum_columns(const SpmmArgs& a, const RowSum<typename T::Accum>& s, const Rows& rows,
                 const Factors& factors, std::int64_t row, const ColumnBlock<kWeights>& at,
                 std::int64_t columns) {
  const EntryRange range = entries_of(a.entries, row);
  std::int64_t f = 0;
  const auto place = [&](int vectors) {
    ColumnBlock<kWeights> c = at;
    c.x_at += f;
    c.out_at += f;
    if constexpr (kWeights == Weights::kPerVector) {
      for (int k = 0; k < vectors; ++k) {
        c.weight_at[k] = s.weight_offset[(f + k * V::width) / a.layout.inner];
      }
    }
    return c;
  };
  const auto run = [&]<int N>() {
    for (; columns - f >= N * V::width; f += N * V::width) {
      sum_block<V, T, N, kWeights, false>(a, s, rows, factors, row, range, place(N));
    }
  };
  if constexpr (V::max_blocks >= 16) run.template operator()<16>();
  run.template operator()<8>();
  run.template operator()<4>();
  run.template operator()<2>();
  run.template operator()<1>();
  if constexpr (kWeights != Weights::kPerVector) {
    if (f < columns) {
      ColumnBlock<kWeights> c = place(1);
      c.count = columns - f;
      sum_block<V, T, 1, kWeights, true>(a, s, rows, factors, row, range, c);
    }
  }
}

template <class V, class T, Weights kWeights, class Rows, class Factors>
void sum_rows(const SpmmArgs& a, const RowSum<typename T::Accum>& s, const Rows& rows,
              const Factors& factors) {
  // With the branches of AnyFactors, short loops gain nothing.
  constexpr bool kShort = kWeights == Weights::kNone || !std::is_same_v<Factors, AnyFactors<V, T>>;
  if constexpr (kWeights != Weights::kPerVector && std::is_same_v<Rows, Int32Rows> && kShort) {
    if (sum_as_whole_rows<V, T, kWeights>(a, s, rows, factors)) return;
  }
  const std::int64_t inner = a.layout.inner;
  for (std::int64_t row = a.row_begin; row < a.row_end; ++row) {
    if constexpr (kWeights == Weights::kPerVector) {
      ColumnBlock<kWeights> c;
      c.out_at = row * a.out_length;
      sum_columns<V, T, kWeights>(a, s, rows, factors, row, c, a.layout.num_groups * inner);
      continue;
    }
    for (std::int64_t g = 0; g < a.layout.num_groups; ++g) {
      ColumnBlock<kWeights> c;
      c.x_at = offset_of(s.x_offset, g, inner, 1);
      c.weight_at[0] = s.weight_offset != nullptr ? s.weight_offset[g] : 0;
      c.out_at = row * a.out_length + offset_of(a.layout.out_offset, g, inner, 1);
      sum_columns<V, T, kWeights>(a, s, rows, factors, row, c, inner);
    }
  }
}

template <class V, class T, Weights kWeights>
void sum_rows(const SpmmArgs& a, const RowSum<typename T::Accum>& s) {
  if (s.x_rows.int32_ids == nullptr) {
    return sum_rows<V, T, kWeights>(a, s, s.x_rows, AnyFactors<V, T>{s});
  }
  const Int32Rows rows{s.x_rows.int32_ids};
  if constexpr (kWeights != Weights::kNone) {
    const auto sum_entries = [&]<class Number>(const Number* weight) {
      const EntryWeights<V, T, Number> weights{weight, s.weight.length};
      sum_rows<V, T, kWeights>(a, s, rows, weights);
    };
    if (s.weight.data != nullptr && s.scale == nullptr) {
      const auto* weight = static_cast<const typename T::Storage*>(s.weight.data);
      if (s.weight_rows.are_entries()) {
        return s.weight.is_accum ? sum_entries(static_cast<const typename T::Accum*>(s.weight.data))
                                 : sum_entries(weight);
      }
      if (s.weight_rows.int32_ids != nullptr && !s.weight.is_accum) {
        const Int32Weights<V, T> weights{weight, s.weight_rows.int32_ids, s.weight.length};
        return sum_rows<V, T, kWeights>(a, s, rows, weights);
      }
    }
  }
  if constexpr (kWeights == Weights::kOne) {
    if (s.weight.data == nullptr) {
      return sum_rows<V, T, kWeights>(a, s, rows, RowScales<V>{s.scale});
    }
  }
  sum_rows<V, T, kWeights>(a, s, rows, AnyFactors<V, T>{s});
}

/// Whether the arguments are a plain or weighted sum of whole rows; if so, fills `s`.
template <class Accum>
[[maybe_unused]] static bool as_row_sum(const SpmmArgs& a, RowSum<Accum>& s) {
  if (a.reduce != ReduceOp::kSum && a.reduce != ReduceOp::kMean) return false;
  const Layout& layout = a.layout;
  if (layout.out_step != 1) return false;
  const bool lhs_rows = layout.lhs_step == 1 && !a.lhs.is_accum;
  const bool rhs_rows = layout.rhs_step == 1 && !a.rhs.is_accum;
  if (a.op == BinaryOp::kCopyLhs && lhs_rows) {
    s.x = a.lhs;
    s.x_offset = layout.lhs_offset;
  } else if (a.op == BinaryOp::kCopyRhs && rhs_rows) {
    s.x = a.rhs;
    s.x_offset = layout.rhs_offset;
  } else if (a.op == BinaryOp::kMul && lhs_rows && layout.rhs_step == 0) {
    s.x = a.lhs, s.weight = a.rhs;
    s.x_offset = layout.lhs_offset, s.weight_offset = layout.rhs_offset;
  } else if (a.op == BinaryOp::kMul && rhs_rows && layout.lhs_step == 0) {
    s.x = a.rhs, s.weight = a.lhs;
    s.x_offset = layout.rhs_offset, s.weight_offset = layout.lhs_offset;
  } else {
    return false;
  }
  s.x_rows = row_picker(s.x.access, a.entries);
  s.weight_rows = row_picker(s.weight.access, a.entries);
  s.scale = static_cast<const Accum*>(a.lhs_scale);
  s.last = last_entry(a.entries, a.row_end);
  return true;
}

/// Whether the columns of every group of the result are whole cache lines.
template <class T>
[[maybe_unused]] static bool fills_lines(const SpmmArgs& a) {
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(typename T::Storage));
  if (a.out_is_accum || !are_lines(a.out, a.out_length * kBytes, a.layout.inner * kBytes))
    return false;
  for (std::int64_t g = 0; g < a.layout.num_groups; ++g) {
    const std::int64_t at = offset_of(a.layout.out_offset, g, a.layout.inner, 1);
    if (!are_lines(nullptr, 0, at * kBytes)) return false;
  }
  return true;
}

/// Whether the columns of the groups are contiguous in x and in the result, so that one pass over
/// the entries can compute several groups, each vector with the weight of its group.
template <class V, class Accum>
bool groups_are_contiguous(const SpmmArgs& a, const RowSum<Accum>& s) {
  const std::int64_t inner = a.layout.inner;
  if (a.layout.num_groups == 1 || s.weight_offset == nullptr || s.scale != nullptr) return false;
  if (inner % V::width != 0) return false;
  for (std::int64_t g = 0; g < a.layout.num_groups; ++g) {
    if (offset_of(s.x_offset, g, inner, 1) != g * inner) return false;
    if (offset_of(a.layout.out_offset, g, inner, 1) != g * inner) return false;
  }
  return true;
}

}  // namespace mezzo::kernels
