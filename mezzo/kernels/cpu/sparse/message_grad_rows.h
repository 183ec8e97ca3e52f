#pragma once

#include <cstdint>

#include "mezzo/kernels/cpu/access.h"
#include "mezzo/kernels/cpu/sparse/chosen_grad_rows.h"
#include "mezzo/kernels/cpu/sparse/entry_grad_rows.h"
#include "mezzo/kernels/message_grad.h"

namespace mezzo::kernels {

[[maybe_unused]] static inline std::int64_t arg_at(const MessageGradArgs& a, std::int64_t at) {
  return a.arg_is_int64 ? static_cast<const std::int64_t*>(a.arg)[at]
                        : static_cast<const std::int32_t*>(a.arg)[at];
}

/// `grad` where the recorded edge is this entry's, 0 elsewhere.
template <class V>
V only_chosen(const MessageGradArgs& a, V grad, std::int64_t at, std::int64_t step,
              std::int64_t edge, std::int64_t count) {
  if (step == 1 && !a.arg_is_int64) {
    const auto* ids = static_cast<const std::int32_t*>(a.arg) + at;
    const auto id = static_cast<std::int32_t>(edge);
    return count >= V::width ? V::keep_equal(grad, ids, id) : V::keep_equal(grad, ids, id, count);
  }
  typename V::Scalar factor[V::width];
  for (std::int64_t i = 0; i < V::width && i < count; ++i) {
    factor[i] = arg_at(a, at + i * step) == edge ? 1 : 0;
  }
  for (std::int64_t i = count; i < V::width; ++i) factor[i] = 0;
  // A select, not a product: 0 * inf would be NaN.
  return select(V::zero() < V::load_accum(factor), grad, V::zero());
}

/// The product of the row's other messages, for each element of `message`.
template <class V>
V product_of_others(const MessageGradArgs& a, V message, std::int64_t at, std::int64_t step,
                    std::int64_t count) {
  using Accum = typename V::Scalar;
  Accum own[V::width], others[V::width];
  message.store_accum(own);
  for (std::int64_t i = 0; i < V::width; ++i) {
    others[i] = 0;
    if (i >= count) continue;
    const Accum product = static_cast<const Accum*>(a.product)[at + i * step];
    const std::int64_t zeros = arg_at(a, at + i * step);
    if (own[i] == 0) {
      if (zeros == 1) others[i] = product;
    } else if (zeros == 0) {
      others[i] = product / own[i];
    }
  }
  return V::load_accum(others);
}

/// The messages of the elements from `f` on of the group whose operands begin at `l` and `r`. Not
/// for dot.
template <class V, class T, class Op>
V message_at(const MessageGradArgs& a, std::int64_t l, std::int64_t r, std::int64_t f) {
  const Layout& layout = a.layout;
  const std::int64_t left = layout.inner - f;
  V x = V::zero(), y = V::zero();
  if constexpr (Op::uses_lhs) {
    x = load_operand<V, T>(a.lhs, l + f * layout.lhs_step, layout.lhs_step, left);
  }
  if constexpr (Op::uses_rhs) {
    y = load_operand<V, T>(a.rhs, r + f * layout.rhs_step, layout.rhs_step, left);
  }
  return Op::apply(x, y);
}

/// The scale of an entry's gradient; 1 if there are no scales.
template <class Accum>
Accum entry_scale(const MessageGradArgs& a, std::int64_t grad_row, std::int64_t other_row) {
  Accum scale = 1;
  if (a.grad_scale != nullptr) scale *= static_cast<const Accum*>(a.grad_scale)[grad_row];
  if (a.other_scale != nullptr) scale *= static_cast<const Accum*>(a.other_scale)[other_row];
  return scale;
}

/// Adds the first `left` elements, at most a vector, to the numbers at `own`.
template <class V>
void add_lanes(V part, typename V::Scalar* own, std::int64_t left) {
  if (left >= V::width) {
    (V::load_accum(own) + part).store_accum(own);
  } else {
    (V::load_accum(own, left) + part).store_accum(own, left);
  }
}

/// The dot product, in all elements, if the reducer is prod; else 0.
template <class V, class T, class Op>
V dot_message(const MessageGradArgs& a, std::int64_t l_at, std::int64_t r_at) {
  if constexpr (Op::kind == BinaryOp::kDot) {
    if (a.product != nullptr) return V::set(dot_run<V, T, Op>(a.lhs, a.rhs, a.layout, l_at, r_at));
  }
  return V::zero();
}

/// The pickers of the rows of operands and gradient in one call.
struct GradRows {
  [[gnu::always_inline]] explicit GradRows(const MessageGradArgs& a)
      : lhs(row_picker(a.lhs.access, a.entries)),
        rhs(row_picker(a.rhs.access, a.entries)),
        grad(row_picker(a.grad.access, a.entries)),
        last(last_entry(a.entries, a.row_end)) {}
  RowPicker lhs, rhs, grad;
  std::int64_t last;  ///< end of the entries that may be prefetched
};

template <class V, class T>
std::int64_t look_ahead_distance(const MessageGradArgs& a) {
  std::int64_t length = a.grad.length;
  if (a.lhs.length > length) length = a.lhs.length;
  if (a.rhs.length > length) length = a.rhs.length;
  return prefetch_distance(length * static_cast<std::int64_t>(sizeof(typename T::Storage)));
}

/// Prefetches the rows that `entry` reads; with the reducer prod, of both operands.
template <class V, class T, class Op, bool kOfLhs>
[[gnu::always_inline]] inline void look_ahead(const MessageGradArgs& a, const GradRows& rows,
                                              std::int64_t row, std::int64_t entry) {
  if (entry >= rows.last) return;
  const bool both = a.product != nullptr;
  if (!rows.grad.own_row) {
    prefetch_operand<V, T>(a.grad, rows.grad.at(row, entry) * a.grad.length, 1, a.grad.length);
  }
  if ((kReads<Op, kOfLhs>.reads_lhs || both) && !rows.lhs.own_row) {
    prefetch_operand<V, T>(a.lhs, rows.lhs.at(row, entry) * a.lhs.length, 1, a.lhs.length);
  }
  if ((kReads<Op, kOfLhs>.reads_rhs || both) && !rows.rhs.own_row) {
    prefetch_operand<V, T>(a.rhs, rows.rhs.at(row, entry) * a.rhs.length, 1, a.rhs.length);
  }
}

/// Adds the gradient of one entry to the row's accumulators `acc` [operand length].
template <class V, class T, class Op, bool kOfLhs>
void add_entry(const MessageGradArgs& a, const GradRows& rows, std::int64_t row, std::int64_t entry,
               typename T::Accum* acc) {
  using Accum = typename T::Accum;
  const Layout& layout = a.layout;
  const std::int64_t l_row = Op::uses_lhs ? rows.lhs.at(row, entry) : 0;
  const std::int64_t r_row = Op::uses_rhs ? rows.rhs.at(row, entry) : 0;
  const std::int64_t g_row = rows.grad.at(row, entry);
  const std::int64_t edge = a.arg != nullptr ? row_at(a.edge, a.entries, row, entry) : 0;
  const auto scale = entry_scale<Accum>(a, g_row, kOfLhs ? r_row : l_row);
  const bool scaled = a.grad_scale != nullptr || a.other_scale != nullptr;
  const std::int64_t own_step = kOfLhs ? layout.lhs_step : layout.rhs_step;
  for (std::int64_t g = 0; g < layout.num_groups; ++g) {
    const std::int64_t l = offset_of(layout.lhs_offset, g, layout.inner, layout.lhs_step);
    const std::int64_t r = offset_of(layout.rhs_offset, g, layout.inner, layout.rhs_step);
    const std::int64_t o = offset_of(layout.out_offset, g, layout.inner, layout.out_step);
    const std::int64_t l_at = l_row * a.lhs.length + l, r_at = r_row * a.rhs.length + r;
    Accum* own = acc + (kOfLhs ? l : r);
    V total = V::zero(), message = dot_message<V, T, Op>(a, l_at, r_at);
    for (std::int64_t f = 0; f < layout.inner; f += V::width) {
      const std::int64_t left = layout.inner - f;
      const std::int64_t g_at = g_row * a.grad.length + o + f * layout.out_step;
      V grad = load_operand<V, T>(a.grad, g_at, layout.out_step, left);
      if (scaled) grad = grad * V::set(scale);
      V x = V::zero(), y = V::zero();
      if (a.product != nullptr) {
        if constexpr (Op::kind != BinaryOp::kDot) message = message_at<V, T, Op>(a, l_at, r_at, f);
        grad = grad * product_of_others(a, message, g_at, layout.out_step, left);
      }
      if constexpr (kReads<Op, kOfLhs>.reads_lhs) {
        x = load_operand<V, T>(a.lhs, l_at + f * layout.lhs_step, layout.lhs_step, left);
      }
      if constexpr (kReads<Op, kOfLhs>.reads_rhs) {
        y = load_operand<V, T>(a.rhs, r_at + f * layout.rhs_step, layout.rhs_step, left);
      }
      V part = kOfLhs ? Op::grad_lhs(grad, x, y) : Op::grad_rhs(grad, x, y);
      if (a.arg != nullptr && a.product == nullptr) {
        part = only_chosen(a, part, g_at, layout.out_step, edge, left);
      }
      if (own_step == 0) {
        total = total + (left >= V::width ? part : V::keep(part, left));
      } else {
        add_lanes(part, own + f, left);
      }
    }
    if (own_step == 0) *own += total.sum();
  }
}

template <class V, class T>
void clear(typename T::Accum* acc, std::int64_t length) {
  for (std::int64_t i = 0; i < length; ++i) acc[i] = 0;
}

template <class V, class T>
void add_rows(const typename T::Accum* row, typename T::Accum* to, std::int64_t length) {
  for (std::int64_t f = 0; f < length; f += V::width) {
    const std::int64_t left = length - f;
    add_lanes(left >= V::width ? V::load_accum(row + f) : V::load_accum(row + f, left), to + f,
              left);
  }
}

template <class V, class T>
void store_row(const MessageGradArgs& a, const typename T::Accum* acc, std::int64_t to,
               std::int64_t length) {
  for (std::int64_t f = 0; f < length; f += V::width) {
    const std::int64_t left = length - f;
    const V v = left >= V::width ? V::load_accum(acc + f) : V::load_accum(acc + f, left);
    store_result<V, T>(v, a.out, a.out_is_accum, to * length + f, left);
  }
}

template <class V, class T, class Op, bool kOfLhs>
void message_grad_range(const MessageGradArgs& a) {
  const GradRows rows(a);
  const std::int64_t ahead = look_ahead_distance<V, T>(a);
  const std::int64_t length = kOfLhs ? a.lhs.length : a.rhs.length;
  auto* total = static_cast<typename T::Accum*>(a.scratch);
  for (std::int64_t row = a.row_begin; row < a.row_end; ++row) {
    const EntryRange range = entries_of(a.entries, row);
    if (a.per_entry) {
      for (std::int64_t entry = range.begin; entry < range.end; ++entry) {
        look_ahead<V, T, Op, kOfLhs>(a, rows, row, entry + ahead);
        clear<V, T>(total, length);
        add_entry<V, T, Op, kOfLhs>(a, rows, row, entry, total);
        store_row<V, T>(a, total, id_at(a.entries.second, entry), length);
      }
      continue;
    }
    clear<V, T>(total, length);
    for (std::int64_t begin = range.begin; begin < range.end; begin += kEntriesApart) {
      // The first part is summed in place: most rows have no other.
      auto* part = begin == range.begin ? total : total + length;
      const EntryRange apart = entries_apart(range, begin);
      if (part != total) clear<V, T>(part, length);
      for (std::int64_t entry = apart.begin; entry < apart.end; ++entry) {
        look_ahead<V, T, Op, kOfLhs>(a, rows, row, entry + ahead);
        add_entry<V, T, Op, kOfLhs>(a, rows, row, entry, part);
      }
      if (part != total) add_rows<V, T>(part, total, length);
    }
    store_row<V, T>(a, total, row, length);
  }
}

template <class V, class T>
void compute(const MessageGradArgs& a) {
  ChosenGrad chosen{};
  if (as_chosen_grad(a, chosen)) {
    chosen_grad_rows<V, T>(a, chosen);
    return;
  }
  EntryGrad alone{};
  const bool is_alone = as_entry_grad<V, T>(a, alone);
  detail::visit(BinaryOps{}, a.op, [&]<class Op>() {
    if constexpr (Op::kind != BinaryOp::kDot) {
      if (is_alone) {
        return a.of_lhs ? entry_grad_rows<V, T, Op, true>(a, alone)
                        : entry_grad_rows<V, T, Op, false>(a, alone);
      }
    }
    a.of_lhs ? message_grad_range<V, T, Op, true>(a) : message_grad_range<V, T, Op, false>(a);
  });
}

}  // namespace mezzo::kernels
