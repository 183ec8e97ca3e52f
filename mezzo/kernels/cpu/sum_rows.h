#pragma once

#include <cstdint>

#include "mezzo/kernels/cpu/access.h"
#include "mezzo/kernels/spmm.h"

namespace mezzo {

/// A weighted sum of operand rows, the case that training spends its time in: which operand carries
/// the rows, and which one the weights.
template <class Accum>
struct RowSum {
  Operand x = {}, weight = {};  ///< weight.data null: every weight is 1
  RowPicker x_rows = {}, weight_rows = {};
  const std::int64_t *x_offset = nullptr, *weight_offset = nullptr;
  const Accum* scale = nullptr;  ///< by row of x, or null
  std::int64_t last = 0;         ///< slot, of the whole call: how far to look ahead
};

/// How many weights a block of columns has: none, one a slot, or one for each of its vectors.
enum class Weights : std::uint8_t { kNone, kOne, kPerVector };

template <class V, class T>
typename T::Accum weight_at(const Operand& weight, std::int64_t at) {
  if (weight.wide) return static_cast<const typename T::Accum*>(weight.data)[at];
  return V::load_one(T{}, static_cast<const typename T::Storage*>(weight.data) + at).first();
}

/// What a slot's row, or a vector of it, is multiplied by: entry `entry` of the slot's weights, the
/// scale of its row of x, or both. Any ids, any dtype.
template <class V, class T>
struct AnyFactors {
  using Accum = typename T::Accum;
  const RowSum<Accum>& s;
  Accum at(std::int64_t row, std::int64_t slot, std::int64_t from, std::int64_t entry) const {
    Accum factor = 1;
    if (s.weight.data != nullptr) {
      const std::int64_t w = s.weight_rows.at(row, slot) * s.weight.length + entry;
      factor = weight_at<V, T>(s.weight, w);
    }
    return s.scale != nullptr ? factor * s.scale[from] : factor;
  }
  [[gnu::always_inline]] void prefetch(std::int64_t row, std::int64_t slot) const {
    if (s.weight.data == nullptr) return;
    const std::int64_t size = s.weight.wide ? sizeof(Accum) : sizeof(typename T::Storage);
    __builtin_prefetch(static_cast<const char*>(s.weight.data) +
                       s.weight_rows.at(row, slot) * s.weight.length * size);
  }
};

/// Likewise: weights of x's dtype at int32 ids, without a scale. Loops over rows of few features
/// have no cycle to spare for the branches of AnyFactors, which weights by slot (edges sorted by
/// row) and float32 weights beside 16-bit rows still take.
template <class V, class T>
struct NarrowWeights {
  const typename T::Storage* weight;
  const std::int32_t* ids;
  std::int64_t length;
  typename T::Accum at(std::int64_t /*row*/, std::int64_t slot, std::int64_t /*from*/,
                       std::int64_t entry) const {
    return V::load_one(T{}, weight + ids[slot] * length + entry).first();
  }
  [[gnu::always_inline]] void prefetch(std::int64_t /*row*/, std::int64_t slot) const {
    __builtin_prefetch(weight + ids[slot] * length);
  }
};

/// Likewise: a scale by row of x, without weights.
template <class V>
struct RowScales {
  using Accum = typename V::Scalar;
  const Accum* scale;
  Accum at(std::int64_t /*row*/, std::int64_t /*slot*/, std::int64_t from,
           std::int64_t /*entry*/) const {
    return scale[from];
  }
  void prefetch(std::int64_t /*row*/, std::int64_t /*slot*/) const {}
};

/// Where a block of columns stands: in x's rows, in the weights' (one entry a vector, or one), and
/// in the result.
template <Weights kWeights>
struct ColumnBlock {
  std::int64_t x_at = 0;
  std::int64_t weight_at[kWeights == Weights::kPerVector ? 16 : 1] = {};
  std::int64_t out_at = 0;
  std::int64_t count = 0;  ///< of a partial block
};

template <class V, class T, int N, Weights kWeights>
void store_block(const SpmmArgs& a, const V (&acc)[N], std::int64_t row, std::int64_t degree,
                 const ColumnBlock<kWeights>& c, bool partial) {
  const auto* row_scale = static_cast<const typename T::Accum*>(a.row_scale);
#pragma GCC unroll 16
  for (int k = 0; k < N; ++k) {
    V v = acc[k];
    if (a.reduce == ReduceOp::kMean && degree > 0) {
      v = v / V::set(static_cast<typename T::Accum>(degree));
    }
    if (row_scale != nullptr && degree > 0) v = v * V::set(row_scale[row]);
    const std::int64_t at = c.out_at + k * V::width;
    if (a.out_streams && !partial) {
      v.stream(T{}, static_cast<typename T::Storage*>(a.out) + at);
    } else {
      store_result<V, T>(v, a.out, a.out_wide, at, partial ? c.count : V::width);
    }
  }
}

/// N vectors of one row of the result (kPartial: one, of c.count elements): the accumulators stay
/// in registers while the row's slots pass by. Only unrolled loops over them let the compiler keep
/// them there.
template <class V, class T, int N, Weights kWeights, bool kPartial, class Rows, class Factors>
void sum_block(const SpmmArgs& a, const RowSum<typename T::Accum>& s, Rows rows, Factors factors,
               std::int64_t row, SlotRange range, const ColumnBlock<kWeights>& c) {
  using Storage = typename T::Storage;
  constexpr auto kBytes = static_cast<std::int64_t>(N * V::width * sizeof(Storage));
  const std::int64_t ahead = prefetch_distance(kBytes), fetch_end = s.last - ahead;
  const std::int64_t length = s.x.length;
  const auto* x = static_cast<const Storage*>(s.x.data) + c.x_at;
  V acc[N];
#pragma GCC unroll 16
  for (int k = 0; k < N; ++k) acc[k] = V::zero();
  for (std::int64_t slot = range.begin; slot < range.end; ++slot) {
    if (slot < fetch_end) {
      prefetch_row<kBytes>(x + rows.at(row, slot + ahead) * length);
      if constexpr (kWeights != Weights::kNone) factors.prefetch(row, slot + ahead);
    }
    const std::int64_t from = rows.at(row, slot);
    const Storage* p = x + from * length;
    // Vectors with weights of their own have to stay in order.
    constexpr int kStep = kWeights == Weights::kPerVector ? 1 : kTogether<N>;
    V v[kStep], weight = V::zero();
    if constexpr (kWeights == Weights::kOne) {
      weight = V::set(factors.at(row, slot, from, c.weight_at[0]));
    }
#pragma GCC unroll 16
    for (int k = 0; k < N; ++k) {
      if constexpr (kPartial) {
        v[0] = V::load(T{}, p, c.count);
      } else if (k % kStep == 0) {
        load_together<T, kStep>(p + k * V::width, v);
      }
      if constexpr (kWeights == Weights::kPerVector) {
        weight = V::set(factors.at(row, slot, from, c.weight_at[k]));
      }
      if constexpr (kWeights == Weights::kNone) {
        acc[k] = acc[k] + v[k % kStep];
      } else {
        acc[k] = V::fma(weight, v[k % kStep], acc[k]);
      }
    }
  }
  if constexpr (kWeights != Weights::kPerVector) put_in_order<T, N>(acc);
  store_block<V, T, N, kWeights>(a, acc, row, range.end - range.begin, c, kPartial);
}

/// The columns of one row in blocks, the widest first. `columns` of them belong together: those of
/// one group, or of all groups if every vector has its own weight.
template <class V, class T, Weights kWeights, class Rows, class Factors>
void sum_columns(const SpmmArgs& a, const RowSum<typename T::Accum>& s, const Rows& rows,
                 const Factors& factors, std::int64_t row, const ColumnBlock<kWeights>& at,
                 std::int64_t columns) {
  const SlotRange range = slots_of(a.slots, row);
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
  if (s.x_rows.narrow == nullptr) {
    return sum_rows<V, T, kWeights>(a, s, s.x_rows, AnyFactors<V, T>{s});
  }
  const NarrowRows rows{s.x_rows.narrow};
  if constexpr (kWeights != Weights::kNone) {
    const bool narrow = s.weight_rows.narrow != nullptr && !s.weight.wide;
    if (s.weight.data != nullptr && s.scale == nullptr && narrow) {
      const auto* weight = static_cast<const typename T::Storage*>(s.weight.data);
      const NarrowWeights<V, T> weights{weight, s.weight_rows.narrow, s.weight.length};
      return sum_rows<V, T, kWeights>(a, s, rows, weights);
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
  const bool lhs_rows = layout.lhs_step == 1 && !a.lhs.wide;
  const bool rhs_rows = layout.rhs_step == 1 && !a.rhs.wide;
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
  s.x_rows = row_picker(s.x.access, a.slots);
  s.weight_rows = row_picker(s.weight.access, a.slots);
  s.scale = static_cast<const Accum*>(a.lhs_scale);
  s.last = last_slot(a.slots, a.row_end);
  return true;
}

/// Whether every group's columns in the result are whole cache lines.
template <class T>
[[maybe_unused]] static bool fills_lines(const SpmmArgs& a) {
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(typename T::Storage));
  if (a.out_wide || !are_lines(a.out, a.out_length * kBytes, a.layout.inner * kBytes)) return false;
  for (std::int64_t g = 0; g < a.layout.num_groups; ++g) {
    const std::int64_t at = offset_of(a.layout.out_offset, g, a.layout.inner, 1);
    if (!are_lines(nullptr, 0, at * kBytes)) return false;
  }
  return true;
}

/// Whether the groups' columns follow one another in x and in the result, so that one pass over the
/// slots can take several groups, each vector with its group's weight.
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

}  // namespace mezzo
