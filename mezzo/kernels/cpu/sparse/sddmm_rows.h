#pragma once

#include <cstdint>

#include "mezzo/kernels/cpu/access.h"
#include "mezzo/kernels/sddmm.h"

namespace mezzo::kernels {

/// The pickers of the rows of operands and result in one call.
struct SddmmRows {
  [[gnu::always_inline]] explicit SddmmRows(const SddmmArgs& a)
      : lhs(row_picker(a.lhs.access, a.entries)),
        rhs(row_picker(a.rhs.access, a.entries)),
        out(row_picker(a.out_ids)),
        last(last_entry(a.entries, a.row_end)) {}
  RowPicker lhs, rhs, out;
  std::int64_t last;  ///< end of the entries that may be prefetched
};

/// Prefetches the rows of `entry`.
template <class V, class T, class Op>
[[gnu::always_inline]] inline void look_ahead(const SddmmArgs& a, const SddmmRows& rows,
                                              std::int64_t row, std::int64_t entry) {
  if (entry >= rows.last) return;
  if constexpr (Op::uses_lhs) {
    if (!rows.lhs.own_row) {
      prefetch_operand<V, T>(a.lhs, rows.lhs.at(row, entry) * a.lhs.length, 1, a.lhs.length);
    }
  }
  if constexpr (Op::uses_rhs) {
    if (!rows.rhs.own_row) {
      prefetch_operand<V, T>(a.rhs, rows.rhs.at(row, entry) * a.rhs.length, 1, a.rhs.length);
    }
  }
  const std::int64_t size =
      a.out_is_accum ? sizeof(typename T::Accum) : sizeof(typename T::Storage);
  __builtin_prefetch(static_cast<char*>(a.out) + rows.out.at(row, entry) * a.out_length * size, 1);
}

template <class V, class T, class Op>
std::int64_t look_ahead_distance(const SddmmArgs& a) {
  std::int64_t length = 1;
  if constexpr (Op::uses_lhs) length += a.lhs.length;
  if constexpr (Op::uses_rhs) length = length > a.rhs.length ? length : a.rhs.length;
  return prefetch_distance(length * static_cast<std::int64_t>(sizeof(typename T::Storage)));
}

template <class V, class T, class Op>
void sddmm_entry(const SddmmArgs& a, const SddmmRows& rows, std::int64_t row, std::int64_t entry) {
  const Layout& layout = a.layout;
  std::int64_t l = 0, r = 0;
  if constexpr (Op::uses_lhs) l = rows.lhs.at(row, entry) * a.lhs.length;
  if constexpr (Op::uses_rhs) r = rows.rhs.at(row, entry) * a.rhs.length;
  const std::int64_t o = rows.out.at(row, entry) * a.out_length;
  for (std::int64_t g = 0; g < layout.num_groups; ++g) {
    const std::int64_t lg = l + offset_of(layout.lhs_offset, g, layout.inner, layout.lhs_step);
    const std::int64_t rg = r + offset_of(layout.rhs_offset, g, layout.inner, layout.rhs_step);
    const std::int64_t og = o + offset_of(layout.out_offset, g, layout.inner, layout.out_step);
    for (std::int64_t f = 0; f < layout.inner; f += V::width) {
      const std::int64_t left = layout.inner - f;
      V x = V::zero(), y = V::zero();
      if constexpr (Op::uses_lhs) {
        x = load_operand<V, T>(a.lhs, lg + f * layout.lhs_step, layout.lhs_step, left);
      }
      if constexpr (Op::uses_rhs) {
        y = load_operand<V, T>(a.rhs, rg + f * layout.rhs_step, layout.rhs_step, left);
      }
      store_result<V, T>(Op::apply(x, y), a.out, a.out_is_accum, og + f, left);
    }
  }
}

/// The products of one run, summed to one vector.
template <class V, class T>
V dot_vector(const SddmmArgs& a, std::int64_t l, std::int64_t r) {
  const std::int64_t inner = a.layout.inner;
  V sum = V::zero();
  std::int64_t d = 0;
  if (!a.lhs.is_accum && !a.rhs.is_accum) {
    const auto* x = static_cast<const typename T::Storage*>(a.lhs.data) + l;
    const auto* y = static_cast<const typename T::Storage*>(a.rhs.data) + r;
    for (; inner - d >= 2 * V::width; d += 2 * V::width) {
      V left[2], right[2];
      load_together<T, 2>(x + d, left);
      load_together<T, 2>(y + d, right);
      sum = V::fma(left[1], right[1], V::fma(left[0], right[0], sum));
    }
    for (; inner - d >= V::width; d += V::width) {
      sum = V::fma(V::load(T{}, x + d), V::load(T{}, y + d), sum);
    }
  }
  for (; d < inner; d += V::width) {
    sum = V::fma(load_operand<V, T>(a.lhs, l + d, 1, inner - d),
                 load_operand<V, T>(a.rhs, r + d, 1, inner - d), sum);
  }
  return sum;
}

/// The entries whose dot products are summed together: one per element of a vector.
template <class V>
struct DotBatch {
  std::int64_t lhs[V::width], rhs[V::width], out[V::width];
  std::int64_t size = 0;
};

/// Sums the vectors of `width` entries together by transposition, at the cost of summing one.
template <class V, class T>
void dot_batch(const SddmmArgs& a, const DotBatch<V>& batch) {
  using Accum = typename T::Accum;
  const Layout& layout = a.layout;
  for (std::int64_t g = 0; g < layout.num_groups; ++g) {
    const std::int64_t l = offset_of(layout.lhs_offset, g, layout.inner, 1);
    const std::int64_t r = offset_of(layout.rhs_offset, g, layout.inner, 1);
    const std::int64_t o = offset_of(layout.out_offset, g, layout.inner, 0);
    alignas(64) Accum vectors[V::width * V::width];
    for (std::int64_t i = 0; i < batch.size; ++i) {
      dot_vector<V, T>(a, batch.lhs[i] + l, batch.rhs[i] + r).store_accum(vectors + i * V::width);
    }
    for (std::int64_t i = batch.size; i < V::width; ++i) {
      V::zero().store_accum(vectors + i * V::width);
    }
    const V dots = V::sums(vectors);
    if (a.out_is_accum) {
      alignas(64) Accum numbers[V::width];
      dots.store_accum(numbers);
      for (std::int64_t i = 0; i < batch.size; ++i) {
        static_cast<Accum*>(a.out)[batch.out[i] + o] = numbers[i];
      }
    } else {
      alignas(64) typename T::Storage numbers[V::width];
      dots.store(T{}, numbers);
      for (std::int64_t i = 0; i < batch.size; ++i) {
        static_cast<typename T::Storage*>(a.out)[batch.out[i] + o] = numbers[i];
      }
    }
  }
}

template <class V, class T>
void dot_rows(const SddmmArgs& a) {
  const SddmmRows rows(a);
  const std::int64_t ahead = look_ahead_distance<V, T, Dot>(a);
  DotBatch<V> batch;
  for (std::int64_t row = a.row_begin; row < a.row_end; ++row) {
    const EntryRange range = entries_of(a.entries, row);
    for (std::int64_t entry = range.begin; entry < range.end; ++entry) {
      look_ahead<V, T, Dot>(a, rows, row, entry + ahead);
      batch.lhs[batch.size] = rows.lhs.at(row, entry) * a.lhs.length;
      batch.rhs[batch.size] = rows.rhs.at(row, entry) * a.rhs.length;
      batch.out[batch.size] = rows.out.at(row, entry) * a.out_length;
      if (++batch.size < V::width) continue;
      dot_batch<V, T>(a, batch);
      batch.size = 0;
    }
  }
  if (batch.size > 0) dot_batch<V, T>(a, batch);
}

template <class V, class T>
void compute(const SddmmArgs& a) {
  detail::visit(BinaryOps{}, a.op, [&]<class Op>() {
    if constexpr (Op::kind == BinaryOp::kDot) {
      dot_rows<V, T>(a);
    } else {
      const SddmmRows rows(a);
      const std::int64_t ahead = look_ahead_distance<V, T, Op>(a);
      for (std::int64_t row = a.row_begin; row < a.row_end; ++row) {
        const EntryRange range = entries_of(a.entries, row);
        for (std::int64_t entry = range.begin; entry < range.end; ++entry) {
          look_ahead<V, T, Op>(a, rows, row, entry + ahead);
          sddmm_entry<V, T, Op>(a, rows, row, entry);
        }
      }
    }
  });
}

}  // namespace mezzo::kernels
