#pragma once

#include <cstdint>

#include "mezzo/kernels/cpu/access.h"
#include "mezzo/kernels/spmm.h"

namespace mezzo {

/// Slots ahead of the current one whose operand rows are fetched into the cache: far enough to
/// cover a DRAM latency (about 100 ns) at some 10 ns a slot, near enough to stay in L1.
inline constexpr std::int64_t kPrefetchDistance = 12;

/// A weighted sum of operand rows: which operand carries the rows, which (if any) one weight a
/// group.
struct RowSum {
  Operand x, weight;
  const std::int64_t* x_offset;
  const std::int64_t* weight_offset;
};

template <class V, class T>
typename T::Accum weight_at(const Operand& weight, std::int64_t at) {
  if (weight.wide) return static_cast<const typename T::Accum*>(weight.data)[at];
  return V::load_one(T{}, static_cast<const typename T::Storage*>(weight.data) + at).first();
}

/// `count` elements (N vectors, the last one perhaps in part) of one row of the result: the
/// accumulators stay in registers while the row's slots pass by. Only unrolled loops over them let
/// the compiler keep them there.
template <class V, class T, int N, bool kWeighted, bool kPartial>
void sum_block(const SpmmArgs& a, const RowSum& s, std::int64_t row, SlotRange range,
               std::int64_t x_at, std::int64_t weight_at_offset, std::int64_t out_at,
               std::int64_t count) {
  using Accum = typename T::Accum;
  using Storage = typename T::Storage;
  constexpr std::int64_t kLine = 64 / sizeof(Storage);
  const auto* x = static_cast<const Storage*>(s.x.data) + x_at;
  const auto* scale = static_cast<const Accum*>(a.lhs_scale);
  V acc[N];
#pragma GCC unroll 16
  for (int k = 0; k < N; ++k) acc[k] = V::zero();
  for (std::int64_t slot = range.begin; slot < range.end; ++slot) {
    if (slot + kPrefetchDistance < range.end) {
      const auto* next =
          x + row_at(s.x.access, a.slots, row, slot + kPrefetchDistance) * s.x.length;
      for (std::int64_t i = 0; i < N * V::width; i += kLine) __builtin_prefetch(next + i);
    }
    const std::int64_t from = row_at(s.x.access, a.slots, row, slot);
    const Storage* p = x + from * s.x.length;
    if constexpr (kWeighted) {
      Accum factor = 1;
      if (s.weight.data != nullptr) {
        const std::int64_t w = row_at(s.weight.access, a.slots, row, slot);
        factor = weight_at<V, T>(s.weight, w * s.weight.length + weight_at_offset);
      }
      if (scale != nullptr) factor *= scale[from];
      const V f = V::set(factor);
#pragma GCC unroll 16
      for (int k = 0; k < N; ++k) {
        const V v = kPartial ? V::load(T{}, p, count) : V::load(T{}, p + k * V::width);
        acc[k] = V::fma(f, v, acc[k]);
      }
    } else {
#pragma GCC unroll 16
      for (int k = 0; k < N; ++k) {
        const V v = kPartial ? V::load(T{}, p, count) : V::load(T{}, p + k * V::width);
        acc[k] = acc[k] + v;
      }
    }
  }
  auto* out = static_cast<Storage*>(a.out) + out_at;
  const auto* row_scale = static_cast<const Accum*>(a.row_scale);
#pragma GCC unroll 16
  for (int k = 0; k < N; ++k) {
    V v = acc[k];
    if (a.reduce == ReduceOp::kMean && range.end > range.begin) {
      v = v / V::set(static_cast<Accum>(range.end - range.begin));
    }
    if (row_scale != nullptr) v = v * V::set(row_scale[row]);
    if constexpr (kPartial) {
      v.store(T{}, out, count);
    } else {
      v.store(T{}, out + k * V::width);
    }
  }
}

template <class V, class T, bool kWeighted>
void sum_row(const SpmmArgs& a, const RowSum& s, std::int64_t row) {
  const SlotRange range = slots_of(a.slots, row);
  const std::int64_t inner = a.layout.inner;
  for (std::int64_t g = 0; g < a.layout.num_groups; ++g) {
    const std::int64_t x_at = offset_of(s.x_offset, g, inner, 1);
    const std::int64_t w_at = s.weight_offset != nullptr ? s.weight_offset[g] : 0;
    const std::int64_t out_at = row * a.out_length + offset_of(a.layout.out_offset, g, inner, 1);
    std::int64_t f = 0;
    const auto run = [&]<int N>() {
      for (; inner - f >= N * V::width; f += N * V::width) {
        sum_block<V, T, N, kWeighted, false>(a, s, row, range, x_at + f, w_at, out_at + f, 0);
      }
    };
    if constexpr (V::max_blocks >= 16) run.template operator()<16>();
    run.template operator()<8>();
    run.template operator()<4>();
    run.template operator()<2>();
    run.template operator()<1>();
    if (f < inner) {
      sum_block<V, T, 1, kWeighted, true>(a, s, row, range, x_at + f, w_at, out_at + f, inner - f);
    }
  }
}

/// Whether the arguments are a plain or weighted sum of whole rows; if so, fills `s`.
[[maybe_unused]] static inline bool as_row_sum(const SpmmArgs& a, RowSum& s) {
  if (a.reduce != ReduceOp::kSum && a.reduce != ReduceOp::kMean) return false;
  if (a.layout.out_step != 1) return false;
  const bool lhs_rows = a.layout.lhs_step == 1 && !a.lhs.wide;
  const bool rhs_rows = a.layout.rhs_step == 1 && !a.rhs.wide;
  if (a.op == BinaryOp::kCopyLhs && lhs_rows) {
    s = {a.lhs, {}, a.layout.lhs_offset, nullptr};
    return true;
  }
  if (a.op == BinaryOp::kCopyRhs && rhs_rows) {
    s = {a.rhs, {}, a.layout.rhs_offset, nullptr};
    return true;
  }
  if (a.op != BinaryOp::kMul) return false;
  if (lhs_rows && a.layout.rhs_step == 0) {
    s = {a.lhs, a.rhs, a.layout.lhs_offset, a.layout.rhs_offset};
    return true;
  }
  if (rhs_rows && a.layout.lhs_step == 0) {
    s = {a.rhs, a.lhs, a.layout.rhs_offset, a.layout.lhs_offset};
    return true;
  }
  return false;
}

[[maybe_unused]] static inline void store_arg(const SpmmArgs& a, std::int64_t at,
                                              std::int64_t edge) {
  if (a.arg_wide) {
    static_cast<std::int64_t*>(a.arg)[at] = edge;
  } else {
    static_cast<std::int32_t*>(a.arg)[at] = static_cast<std::int32_t>(edge);
  }
}

template <class V>
void store_chosen(const SpmmArgs& a, V chosen, SlotRange range, std::int64_t at,
                  std::int64_t left) {
  if (a.arg == nullptr) return;
  std::int64_t positions[V::width];
  chosen.store_bits(positions);
  for (std::int64_t i = 0; i < V::width && i < left; ++i) {
    store_arg(a, at + i,
              range.end == range.begin ? -1 : id_at(a.slots.second, range.begin + positions[i]));
  }
}

/// `count` elements (N vectors) of one group of one row, for any op and reducer. The chosen slot of
/// max and min travels as the bits of a lane: it is only moved, never computed with.
template <class V, class T, class Op, class Reduce, int N>
void reduce_block(const SpmmArgs& a, std::int64_t row, SlotRange range, std::int64_t lhs_at,
                  std::int64_t rhs_at, std::int64_t out_at, std::int64_t count) {
  V acc[N], chosen[N];
#pragma GCC unroll 16
  for (int k = 0; k < N; ++k) acc[k] = chosen[k] = V::zero();
  for (std::int64_t slot = range.begin; slot < range.end; ++slot) {
    std::int64_t l = 0, r = 0;
    if constexpr (Op::uses_lhs) {
      l = row_at(a.lhs.access, a.slots, row, slot) * a.lhs.length + lhs_at;
    }
    if constexpr (Op::uses_rhs) {
      r = row_at(a.rhs.access, a.slots, row, slot) * a.rhs.length + rhs_at;
    }
    [[maybe_unused]] const V position = V::set_bits(slot - range.begin);
#pragma GCC unroll 16
    for (int k = 0; k < N; ++k) {
      const std::int64_t skip = k * V::width;
      const std::int64_t left = count - skip;
      V x = V::zero(), y = V::zero();
      if constexpr (Op::uses_lhs) {
        const std::int64_t step = a.layout.lhs_step;
        x = load_operand<V, T>(a.lhs, l + skip * step, step, left);
      }
      if constexpr (Op::uses_rhs) {
        const std::int64_t step = a.layout.rhs_step;
        y = load_operand<V, T>(a.rhs, r + skip * step, step, left);
      }
      const V message = Op::apply(x, y);
      if constexpr (Reduce::selects) {
        if (slot == range.begin) {
          acc[k] = message;
          chosen[k] = position;
        } else {
          const auto take = (Reduce::better(message, acc[k]) | is_nan(message)) & not_nan(acc[k]);
          acc[k] = select(take, message, acc[k]);
          chosen[k] = select(take, position, chosen[k]);
        }
      } else {
        acc[k] = acc[k] + message;
      }
    }
  }
  const std::int64_t degree = range.end - range.begin;
#pragma GCC unroll 16
  for (int k = 0; k < N; ++k) {
    const std::int64_t at = out_at + k * V::width;
    const std::int64_t left = count - k * V::width;
    V v = acc[k];
    if constexpr (Reduce::divides) {
      if (degree > 0) v = v / V::set(static_cast<typename T::Accum>(degree));
    }
    store_result<V, T>(v, a.out, false, at, left);
    if constexpr (Reduce::selects) store_chosen(a, chosen[k], range, at, left);
  }
}

/// One group of one row where each message is the sum of a run (dot): the run is the inner loop.
template <class V, class T, class Op, class Reduce>
void reduce_run(const SpmmArgs& a, std::int64_t row, SlotRange range, std::int64_t lhs_at,
                std::int64_t rhs_at, std::int64_t out_at) {
  using Accum = typename T::Accum;
  Accum acc = 0;
  std::int64_t chosen = range.begin;
  for (std::int64_t slot = range.begin; slot < range.end; ++slot) {
    const std::int64_t l = row_at(a.lhs.access, a.slots, row, slot) * a.lhs.length + lhs_at;
    const std::int64_t r = row_at(a.rhs.access, a.slots, row, slot) * a.rhs.length + rhs_at;
    const Accum message = dot_run<V, T, Op>(a.lhs, a.rhs, a.layout, l, r);
    if constexpr (Reduce::selects) {
      const bool nan = message != message, held = acc != acc;
      if (slot == range.begin || ((Reduce::better(message, acc) || nan) && !held)) {
        acc = message;
        chosen = slot;
      }
    } else {
      acc += message;
    }
  }
  const bool empty = range.end == range.begin;
  if constexpr (Reduce::divides) {
    if (!empty) acc /= static_cast<Accum>(range.end - range.begin);
  }
  V::set(acc).store(T{}, static_cast<typename T::Storage*>(a.out) + out_at, 1);
  if constexpr (Reduce::selects) {
    if (a.arg != nullptr) store_arg(a, out_at, empty ? -1 : id_at(a.slots.second, chosen));
  }
}

template <class V, class T, class Op, class Reduce>
void reduce_rows(const SpmmArgs& a) {
  const Layout& layout = a.layout;
  for (std::int64_t row = a.row_begin; row < a.row_end; ++row) {
    const SlotRange range = slots_of(a.slots, row);
    for (std::int64_t g = 0; g < layout.num_groups; ++g) {
      const std::int64_t l = offset_of(layout.lhs_offset, g, layout.inner, layout.lhs_step);
      const std::int64_t r = offset_of(layout.rhs_offset, g, layout.inner, layout.rhs_step);
      const std::int64_t o =
          row * a.out_length + offset_of(layout.out_offset, g, layout.inner, layout.out_step);
      if constexpr (Op::kind == BinaryOp::kDot) {
        reduce_run<V, T, Op, Reduce>(a, row, range, l, r, o);
      } else {
        std::int64_t f = 0;
        for (; layout.inner - f >= 4 * V::width; f += 4 * V::width) {
          reduce_block<V, T, Op, Reduce, 4>(a, row, range, l + f * layout.lhs_step,
                                            r + f * layout.rhs_step, o + f, 4 * V::width);
        }
        for (; f < layout.inner; f += V::width) {
          reduce_block<V, T, Op, Reduce, 1>(a, row, range, l + f * layout.lhs_step,
                                            r + f * layout.rhs_step, o + f, layout.inner - f);
        }
      }
    }
  }
}

template <class V, class T>
void spmm_rows(const SpmmArgs& a) {
  RowSum s{};
  if (as_row_sum(a, s)) {
    const bool weighted = s.weight.data != nullptr || a.lhs_scale != nullptr;
    for (std::int64_t row = a.row_begin; row < a.row_end; ++row) {
      weighted ? sum_row<V, T, true>(a, s, row) : sum_row<V, T, false>(a, s, row);
    }
    return;
  }
  visit(BinaryOps{}, a.op, [&]<class Op>() {
    visit(ReduceOps{}, a.reduce, [&]<class Reduce>() { reduce_rows<V, T, Op, Reduce>(a); });
  });
}

}  // namespace mezzo
