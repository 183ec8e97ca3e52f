#pragma once

#include <cstdint>

#include "mezzo/kernels/cpu/access.h"
#include "mezzo/kernels/spmm.h"

namespace mezzo::kernels {

/// The pickers of the operands' rows in one call.
struct MessageRows {
  [[gnu::always_inline]] explicit MessageRows(const SpmmArgs& a)
      : lhs(row_picker(a.lhs.access, a.entries)),
        rhs(row_picker(a.rhs.access, a.entries)),
        last(last_entry(a.entries, a.row_end)) {}
  RowPicker lhs, rhs;
  std::int64_t last;  ///< end of the entries that may be prefetched
};

[[maybe_unused]] static inline void store_id(const SpmmArgs& a, std::int64_t at, std::int64_t id) {
  if (a.arg_is_int64) {
    static_cast<std::int64_t*>(a.arg)[at] = id;
  } else {
    static_cast<std::int32_t*>(a.arg)[at] = static_cast<std::int32_t>(id);
  }
}

template <class V>
void store_chosen(const SpmmArgs& a, V chosen, EntryRange range, std::int64_t at,
                  std::int64_t left) {
  if (a.arg == nullptr) return;
  std::int64_t positions[V::width];
  chosen.store_bits(positions);
  for (std::int64_t i = 0; i < V::width && i < left; ++i) {
    store_id(a, at + i,
             range.end == range.begin ? -1 : id_at(a.entries.second, range.begin + positions[i]));
  }
}

/// Whether a message replaces the best one so far: NaN wins; of equal messages the first wins.
template <class Reduce, class V>
auto takes(V message, V best) {
  if constexpr (Reduce::kind == ReduceOp::kMax) {
    return above(message, best);
  } else {
    return below(message, best);
  }
}

/// Stores what the gradient of prod needs: the product of the nonzero messages and the number of
/// zero messages.
template <class V>
void store_factors(const SpmmArgs& a, V product, V zeros, std::int64_t at, std::int64_t left) {
  if (a.arg == nullptr) return;
  typename V::Scalar products[V::width], counts[V::width];
  product.store_accum(products);
  zeros.store_accum(counts);
  for (std::int64_t i = 0; i < V::width && i < left; ++i) {
    static_cast<typename V::Scalar*>(a.product)[at + i] = products[i];
    store_id(a, at + i, counts[i] > 1 ? 2 : static_cast<std::int64_t>(counts[i]));
  }
}

/// The state of N vectors of messages under one reducer.
template <class V, class Reduce, int N>
struct Reduction {
  V value[N];
  V chosen[N];   ///< max, min: position of the entry, as bits; prod: number of zero messages
  V product[N];  ///< prod: product of the nonzero messages

  void clear() {
#pragma GCC unroll 16
    for (int k = 0; k < N; ++k) {
      value[k] = Reduce::multiplies ? V::set(1) : V::zero();
      chosen[k] = V::zero();
      product[k] = V::set(1);
    }
  }

  void add(int k, V message, V position, bool first) {
    if constexpr (Reduce::selects) {
      if (first) {
        value[k] = message;
        chosen[k] = position;
        return;
      }
      const auto take = takes<Reduce>(message, value[k]);
      value[k] = select(take, message, value[k]);
      chosen[k] = select(take, position, chosen[k]);
    } else if constexpr (Reduce::multiplies) {
      const auto other = (message < V::zero()) | (V::zero() < message) | is_nan(message);
      value[k] = value[k] * message;
      product[k] = product[k] * select(other, message, V::set(1));
      chosen[k] = chosen[k] + select(other, V::zero(), V::set(1));
    } else {
      value[k] = value[k] + message;
    }
  }
};

/// Always inlined: else the compiler keeps the vectors in memory during the loop over entries.
template <class V, class T, class Reduce, int N>
[[gnu::always_inline]] inline void store_reduction(const SpmmArgs& a,
                                                   const Reduction<V, Reduce, N>& r,
                                                   EntryRange range, std::int64_t out_at,
                                                   std::int64_t count) {
  const std::int64_t degree = range.end - range.begin;
#pragma GCC unroll 16
  for (int k = 0; k < N; ++k) {
    const std::int64_t at = out_at + k * V::width;
    const std::int64_t left = count - k * V::width;
    V v = degree > 0 ? r.value[k] : V::zero();
    if constexpr (Reduce::divides) {
      if (degree > 0) v = v / V::set(static_cast<typename T::Accum>(degree));
    }
    store_result<V, T>(v, a.out, a.out_is_accum, at, left);
    if constexpr (Reduce::selects) store_chosen(a, r.chosen[k], range, at, left);
    if constexpr (Reduce::multiplies) store_factors(a, r.product[k], r.chosen[k], at, left);
  }
}

/// `count` elements (N vectors) of one group of one row, for any op and reducer.
template <class V, class T, class Op, class Reduce, int N>
void reduce_block(const SpmmArgs& a, const MessageRows& rows, std::int64_t row, EntryRange range,
                  std::int64_t lhs_at, std::int64_t rhs_at, std::int64_t out_at,
                  std::int64_t count) {
  const std::int64_t lhs_step = a.layout.lhs_step, rhs_step = a.layout.rhs_step;
  const std::int64_t ahead = prefetch_distance(N * V::width * sizeof(typename T::Storage));
  Reduction<V, Reduce, N> reduction;
  reduction.clear();
  for (std::int64_t entry = range.begin; entry < range.end; ++entry) {
    std::int64_t l = 0, r = 0;
    const bool look = entry + ahead < rows.last;
    if constexpr (Op::uses_lhs) {
      l = rows.lhs.at(row, entry) * a.lhs.length + lhs_at;
      if (look) {
        prefetch_operand<V, T>(a.lhs, rows.lhs.at(row, entry + ahead) * a.lhs.length + lhs_at,
                               lhs_step, count);
      }
    }
    if constexpr (Op::uses_rhs) {
      r = rows.rhs.at(row, entry) * a.rhs.length + rhs_at;
      if (look) {
        prefetch_operand<V, T>(a.rhs, rows.rhs.at(row, entry + ahead) * a.rhs.length + rhs_at,
                               rhs_step, count);
      }
    }
    [[maybe_unused]] const V position = V::set_bits(entry - range.begin);
#pragma GCC unroll 16
    for (int k = 0; k < N; ++k) {
      const std::int64_t skip = k * V::width;
      V x = V::zero(), y = V::zero();
      if constexpr (Op::uses_lhs) {
        x = load_operand<V, T>(a.lhs, l + skip * lhs_step, lhs_step, count - skip);
      }
      if constexpr (Op::uses_rhs) {
        y = load_operand<V, T>(a.rhs, r + skip * rhs_step, rhs_step, count - skip);
      }
      reduction.add(k, Op::apply(x, y), position, entry == range.begin);
    }
  }
  store_reduction<V, T>(a, reduction, range, out_at, count);
}

/// One group of one row if each message is the sum of a run (dot): the run is the inner loop, and
/// all elements of a vector are the same message.
template <class V, class T, class Op, class Reduce>
void reduce_run(const SpmmArgs& a, const MessageRows& rows, std::int64_t row, EntryRange range,
                std::int64_t lhs_at, std::int64_t rhs_at, std::int64_t out_at) {
  Reduction<V, Reduce, 1> reduction;
  reduction.clear();
  for (std::int64_t entry = range.begin; entry < range.end; ++entry) {
    const std::int64_t l = rows.lhs.at(row, entry) * a.lhs.length + lhs_at;
    const std::int64_t r = rows.rhs.at(row, entry) * a.rhs.length + rhs_at;
    reduction.add(0, V::set(dot_run<V, T, Op>(a.lhs, a.rhs, a.layout, l, r)),
                  V::set_bits(entry - range.begin), entry == range.begin);
  }
  store_reduction<V, T>(a, reduction, range, out_at, 1);
}

template <class V, class T, class Op, class Reduce>
void reduce_rows(const SpmmArgs& a) {
  const Layout& layout = a.layout;
  const MessageRows rows(a);
  for (std::int64_t row = a.row_begin; row < a.row_end; ++row) {
    const EntryRange range = entries_of(a.entries, row);
    for (std::int64_t g = 0; g < layout.num_groups; ++g) {
      const std::int64_t l = offset_of(layout.lhs_offset, g, layout.inner, layout.lhs_step);
      const std::int64_t r = offset_of(layout.rhs_offset, g, layout.inner, layout.rhs_step);
      const std::int64_t o =
          row * a.out_length + offset_of(layout.out_offset, g, layout.inner, layout.out_step);
      if constexpr (Op::kind == BinaryOp::kDot) {
        reduce_run<V, T, Op, Reduce>(a, rows, row, range, l, r, o);
      } else {
        std::int64_t f = 0;
        const auto run = [&]<int N>() {
          for (; layout.inner - f >= N * V::width; f += N * V::width) {
            reduce_block<V, T, Op, Reduce, N>(a, rows, row, range, l + f * layout.lhs_step,
                                              r + f * layout.rhs_step, o + f, N * V::width);
          }
        };
        if constexpr (!Reduce::multiplies) run.template operator()<4>();
        run.template operator()<2>();
        for (; f < layout.inner; f += V::width) {
          reduce_block<V, T, Op, Reduce, 1>(a, rows, row, range, l + f * layout.lhs_step,
                                            r + f * layout.rhs_step, o + f, layout.inner - f);
        }
      }
    }
  }
}

}  // namespace mezzo::kernels
