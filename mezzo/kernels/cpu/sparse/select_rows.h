#pragma once

#include <cstdint>

#include "mezzo/kernels/cpu/sparse/reduce_rows.h"
#include "mezzo/kernels/spmm.h"

namespace mezzo::kernels {

/// The maximum or minimum of operand rows; recorded edges are int32.
struct RowChoice {
  Operand x = {};
  RowPicker rows = {};
  const std::int64_t* offset = nullptr;
  std::int64_t last = 0;  ///< end of the entries that may be prefetched
};

/// Always inlined: else the compiler keeps the vectors in memory during the loop over entries.
template <class V, class T, int N, bool kEdges>
[[gnu::always_inline]] inline void store_choice(const SpmmArgs& a, const V (&value)[N],
                                                const V (&edge)[N], std::int64_t at,
                                                std::int64_t count) {
#pragma GCC unroll 16
  for (int k = 0; k < N; ++k) {
    const std::int64_t to = at + k * V::width;
    const std::int64_t left = count - k * V::width < V::width ? count - k * V::width : V::width;
    store_result<V, T>(value[k], a.out, a.out_is_accum, to, left);
    if constexpr (kEdges) {
      std::int64_t ids[V::width];
      edge[k].store_bits(ids);
      auto* arg = static_cast<std::int32_t*>(a.arg) + to;
      for (std::int64_t i = 0; i < left; ++i) arg[i] = static_cast<std::int32_t>(ids[i]);
    }
  }
}

/// `count` elements of one row of the result from `at` on: N vectors, with kPartial one incomplete
/// vector. The edges of the selected entries are kept as bits of vectors of V.
template <class V, class T, class Reduce, int N, bool kPartial, bool kEdges>
void select_block(const SpmmArgs& a, const RowChoice& s, std::int64_t row, EntryRange range,
                  std::int64_t x_at, std::int64_t at, std::int64_t count) {
  using Storage = typename T::Storage;
  constexpr auto kBytes = static_cast<std::int64_t>(N * V::width * sizeof(Storage));
  const std::int64_t ahead = prefetch_distance(kBytes);
  const auto* x = static_cast<const Storage*>(s.x.data) + x_at;
  constexpr int kStep = kTogether<N>;
  V value[N], edge[N], v[kStep];
  const auto load = [&](const Storage* p, int k) {
    if constexpr (kPartial) {
      v[0] = V::load(T{}, p, count);
    } else if (k % kStep == 0) {
      load_together<T, kStep>(p + k * V::width, v);
    }
    return v[k % kStep];
  };
#pragma GCC unroll 16
  for (int k = 0; k < N; ++k) {
    value[k] = V::zero();
    edge[k] = V::set_bits(-1);
  }
  if (range.begin < range.end) {
    if (range.begin + ahead < s.last) {
      prefetch(x + s.rows.at(row, range.begin + ahead) * s.x.length, kBytes);
    }
    const Storage* p = x + s.rows.at(row, range.begin) * s.x.length;
    const V own = V::set_bits(id_at(a.entries.second, range.begin));
#pragma GCC unroll 16
    for (int k = 0; k < N; ++k) {
      value[k] = load(p, k);
      edge[k] = own;
    }
  }
  for (std::int64_t entry = range.begin + 1; entry < range.end; ++entry) {
    if (entry + ahead < s.last) {
      prefetch(x + s.rows.at(row, entry + ahead) * s.x.length, kBytes);
    }
    const Storage* p = x + s.rows.at(row, entry) * s.x.length;
    V own = V::zero();
    if constexpr (kEdges) own = V::set_bits(id_at(a.entries.second, entry));
#pragma GCC unroll 16
    for (int k = 0; k < N; ++k) {
      const V message = load(p, k);
      const auto take = takes<Reduce>(message, value[k]);
      value[k] = select(take, message, value[k]);
      if constexpr (kEdges) edge[k] = select(take, own, edge[k]);
    }
  }
  put_in_order<T, N>(value);
  if constexpr (kEdges) put_in_order<T, N>(edge);
  store_choice<V, T, N, kEdges>(a, value, edge, at, count);
}

template <class V, class T, class Reduce, bool kEdges>
void select_columns(const SpmmArgs& a, const RowChoice& s, std::int64_t row, std::int64_t x_at,
                    std::int64_t at) {
  const EntryRange range = entries_of(a.entries, row);
  const std::int64_t columns = a.layout.inner;
  std::int64_t f = 0;
  const auto run = [&]<int N>() {
    for (; columns - f >= N * V::width; f += N * V::width) {
      select_block<V, T, Reduce, N, false, kEdges>(a, s, row, range, x_at + f, at + f,
                                                   N * V::width);
    }
  };
  // A vector takes two registers: value and edge.
  if constexpr (V::max_blocks >= 16) run.template operator()<8>();
  run.template operator()<4>();
  run.template operator()<2>();
  run.template operator()<1>();
  if (f < columns) {
    select_block<V, T, Reduce, 1, true, kEdges>(a, s, row, range, x_at + f, at + f, columns - f);
  }
}

template <class V, class T, class Reduce>
void select_rows(const SpmmArgs& a, const RowChoice& s) {
  const std::int64_t inner = a.layout.inner;
  for (std::int64_t row = a.row_begin; row < a.row_end; ++row) {
    for (std::int64_t g = 0; g < a.layout.num_groups; ++g) {
      const std::int64_t x_at = offset_of(s.offset, g, inner, 1);
      const std::int64_t at =
          row * a.out_length + offset_of(a.layout.out_offset, g, inner, a.layout.out_step);
      a.arg != nullptr ? select_columns<V, T, Reduce, true>(a, s, row, x_at, at)
                       : select_columns<V, T, Reduce, false>(a, s, row, x_at, at);
    }
  }
}

/// Whether the arguments are the max or min of whole rows; if so, fills `s`.
[[maybe_unused]] static bool as_row_choice(const SpmmArgs& a, RowChoice& s) {
  const bool selects = a.reduce == ReduceOp::kMax || a.reduce == ReduceOp::kMin;
  if (!selects || a.arg_is_int64 || a.layout.out_step != 1) return false;
  if (a.op == BinaryOp::kCopyLhs && a.layout.lhs_step == 1 && !a.lhs.is_accum) {
    s.x = a.lhs;
    s.offset = a.layout.lhs_offset;
  } else if (a.op == BinaryOp::kCopyRhs && a.layout.rhs_step == 1 && !a.rhs.is_accum) {
    s.x = a.rhs;
    s.offset = a.layout.rhs_offset;
  } else {
    return false;
  }
  s.rows = row_picker(s.x.access, a.entries);
  s.last = last_entry(a.entries, a.row_end);
  return true;
}

}  // namespace mezzo::kernels
