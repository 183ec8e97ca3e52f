#pragma once

#include <cstdint>

#include "mezzo/kernels/cpu/access.h"
#include "mezzo/kernels/message_grad.h"

namespace mezzo::kernels {

/// The gradient of copied rows under max and min: sums the gradients of the selected elements.
struct ChosenGrad {
  RowPicker grad = {}, edge = {};
  const std::int64_t *own_offset = nullptr, *grad_offset = nullptr;
  std::int64_t length = 0;  ///< of a row of the operand
  std::int64_t last = 0;    ///< end of the entries that may be prefetched
};

/// `count` elements of one row of the result: N vectors, with kPartial one incomplete vector.
template <class V, class T, int N, bool kPartial>
void chosen_grad_block(const MessageGradArgs& a, const ChosenGrad& s, std::int64_t row,
                       EntryRange range, std::int64_t grad_at, std::int64_t at,
                       std::int64_t count) {
  using Storage = typename T::Storage;
  constexpr auto kBytes = static_cast<std::int64_t>(N * V::width * sizeof(Storage));
  constexpr auto kIdBytes = static_cast<std::int64_t>(N * V::width * sizeof(std::int32_t));
  const std::int64_t ahead = prefetch_distance(kBytes + kIdBytes);
  const auto* grad = static_cast<const Storage*>(a.grad.data) + grad_at;
  const auto* arg = static_cast<const std::int32_t*>(a.arg) + grad_at;
  V total[N];
#pragma GCC unroll 16
  for (int k = 0; k < N; ++k) total[k] = V::zero();
  for (std::int64_t begin = range.begin; begin < range.end; begin += kEntriesApart) {
    const EntryRange apart = entries_apart(range, begin);
    V sum[N];
#pragma GCC unroll 16
    for (int k = 0; k < N; ++k) sum[k] = V::zero();
    for (std::int64_t entry = apart.begin; entry < apart.end; ++entry) {
      if (entry + ahead < s.last) {
        const std::int64_t coming = s.grad.at(row, entry + ahead) * a.grad.length;
        prefetch(grad + coming, kBytes);
        prefetch(arg + coming, kIdBytes);
      }
      const std::int64_t from = s.grad.at(row, entry) * a.grad.length;
      const auto edge = static_cast<std::int32_t>(s.edge.at(row, entry));
#pragma GCC unroll 16
      for (int k = 0; k < N; ++k) {
        const std::int64_t f = from + k * V::width;
        if constexpr (kPartial) {
          sum[k] = sum[k] + V::keep_equal(V::load(T{}, grad + f, count), arg + f, edge, count);
        } else {
          sum[k] = sum[k] + V::keep_equal(V::load(T{}, grad + f), arg + f, edge);
        }
      }
    }
#pragma GCC unroll 16
    for (int k = 0; k < N; ++k) total[k] = total[k] + sum[k];
  }
#pragma GCC unroll 16
  for (int k = 0; k < N; ++k) {
    store_result<V, T>(total[k], a.out, a.out_is_accum, at + k * V::width,
                       kPartial ? count : V::width);
  }
}

template <class V, class T>
void chosen_grad_rows(const MessageGradArgs& a, const ChosenGrad& s) {
  const std::int64_t inner = a.layout.inner;
  for (std::int64_t row = a.row_begin; row < a.row_end; ++row) {
    const EntryRange range = entries_of(a.entries, row);
    for (std::int64_t g = 0; g < a.layout.num_groups; ++g) {
      const std::int64_t grad_at = offset_of(s.grad_offset, g, inner, 1);
      const std::int64_t at = row * s.length + offset_of(s.own_offset, g, inner, 1);
      std::int64_t f = 0;
      const auto run = [&]<int N>() {
        for (; inner - f >= N * V::width; f += N * V::width) {
          chosen_grad_block<V, T, N, false>(a, s, row, range, grad_at + f, at + f, N * V::width);
        }
      };
      // A vector takes two registers: total and sum.
      if constexpr (V::max_blocks >= 16) run.template operator()<8>();
      run.template operator()<4>();
      run.template operator()<2>();
      run.template operator()<1>();
      if (f < inner) {
        chosen_grad_block<V, T, 1, true>(a, s, row, range, grad_at + f, at + f, inner - f);
      }
    }
  }
}

/// Whether the arguments are such a gradient; if so, fills `s`.
[[maybe_unused]] static bool as_chosen_grad(const MessageGradArgs& a, ChosenGrad& s) {
  const bool copies = a.of_lhs ? a.op == BinaryOp::kCopyLhs : a.op == BinaryOp::kCopyRhs;
  const bool chosen = a.arg != nullptr && !a.arg_is_int64 && a.product == nullptr;
  const bool scaled = a.grad_scale != nullptr || a.other_scale != nullptr;
  const Operand& own = a.of_lhs ? a.lhs : a.rhs;
  const Layout& layout = a.layout;
  const std::int64_t own_step = a.of_lhs ? layout.lhs_step : layout.rhs_step;
  // Every element of the operand belongs to one group, so none is written twice.
  const bool alone = own_step == 1 && own.length == layout.num_groups * layout.inner;
  if (!copies || !chosen || scaled || a.per_entry || a.grad.is_accum || !alone ||
      layout.out_step != 1) {
    return false;
  }
  s = {.grad = row_picker(a.grad.access, a.entries),
       .edge = row_picker(a.edge, a.entries),
       .own_offset = a.of_lhs ? layout.lhs_offset : layout.rhs_offset,
       .grad_offset = layout.out_offset,
       .length = own.length,
       .last = last_entry(a.entries, a.row_end)};
  return true;
}

}  // namespace mezzo::kernels
