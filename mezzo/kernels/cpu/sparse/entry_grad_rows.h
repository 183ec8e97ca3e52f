#pragma once

#include <cstdint>

#include "mezzo/kernels/cpu/access.h"
#include "mezzo/kernels/message_grad.h"

namespace mezzo::kernels {

/// Which operands the derivative reads.
template <class Op, bool kOfLhs>
constexpr Derivative kReads = kOfLhs ? Op::lhs_derivative : Op::rhs_derivative;

/// The gradients of an operand of edges, if the rows of operands, gradient and result have the same
/// elements and nothing is scaled or selected.
struct EntryGrad {
  RowPicker lhs = {}, rhs = {}, grad = {}, out = {};
  std::int64_t length = 0;  ///< of a row
  std::int64_t last = 0;    ///< end of the entries that may be prefetched
  bool streams = false;
};

/// Prefetches the row of `length` numbers that `entry` reads, unless all entries of `row` read it.
template <class Number>
[[gnu::always_inline]] inline void fetch_picked(const Number* rows, const RowPicker& picker,
                                                std::int64_t row, std::int64_t entry,
                                                std::int64_t length) {
  if (picker.own_row) return;
  prefetch(rows + picker.at(row, entry) * length,
           length * static_cast<std::int64_t>(sizeof(Number)));
}

template <class V, class T, class Op, bool kOfLhs>
void entry_grad_rows(const MessageGradArgs& a, const EntryGrad& s) {
  using Storage = typename T::Storage;
  constexpr Derivative kRead = kReads<Op, kOfLhs>;
  const std::int64_t ahead =
      prefetch_distance(s.length * static_cast<std::int64_t>(sizeof(Storage)));
  const auto* const lhs = static_cast<const Storage*>(a.lhs.data);
  const auto* const rhs = static_cast<const Storage*>(a.rhs.data);
  const auto* const grad = static_cast<const Storage*>(a.grad.data);
  for (std::int64_t row = a.row_begin; row < a.row_end; ++row) {
    const EntryRange range = entries_of(a.entries, row);
    for (std::int64_t entry = range.begin; entry < range.end; ++entry) {
      if (entry + ahead < s.last) {
        fetch_picked(grad, s.grad, row, entry + ahead, s.length);
        if constexpr (kRead.reads_lhs) fetch_picked(lhs, s.lhs, row, entry + ahead, s.length);
        if constexpr (kRead.reads_rhs) fetch_picked(rhs, s.rhs, row, entry + ahead, s.length);
      }
      const Storage* g = grad + s.grad.at(row, entry) * s.length;
      const Storage *x = nullptr, *y = nullptr;
      if constexpr (kRead.reads_lhs) x = lhs + s.lhs.at(row, entry) * s.length;
      if constexpr (kRead.reads_rhs) y = rhs + s.rhs.at(row, entry) * s.length;
      auto* out = static_cast<Storage*>(a.out) + s.out.at(row, entry) * s.length;
      const auto part = [&](std::int64_t f, auto... count) {
        const V upstream = V::load(T{}, g + f, count...);
        V left = V::zero(), right = V::zero();
        if constexpr (kRead.reads_lhs) left = V::load(T{}, x + f, count...);
        if constexpr (kRead.reads_rhs) right = V::load(T{}, y + f, count...);
        return kOfLhs ? Op::grad_lhs(upstream, left, right) : Op::grad_rhs(upstream, left, right);
      };
      std::int64_t f = 0;
      if (s.streams) {
        for (; f < s.length; f += V::width) part(f).stream(T{}, out + f);
      } else {
        for (; s.length - f >= V::width; f += V::width) part(f).store(T{}, out + f);
        const std::int64_t count = s.length - f;
        if (count > 0) part(f, count).store(T{}, out + f, count);
      }
    }
  }
  if (s.streams) V::end_streams();
}

/// Whether the arguments are such gradients; if so, fills `s`.
template <class V, class T>
bool as_entry_grad(const MessageGradArgs& a, EntryGrad& s) {
  const Layout& layout = a.layout;
  const std::int64_t length = layout.inner;
  const Operand& own = a.of_lhs ? a.lhs : a.rhs;
  const bool as_stored = a.arg == nullptr && a.product == nullptr && a.grad_scale == nullptr &&
                         a.other_scale == nullptr && !a.out_is_accum && !a.grad.is_accum;
  const auto is_whole = [&](const Operand& operand, std::int64_t step, const std::int64_t* offset) {
    return operand.data == nullptr || (!operand.is_accum && step == 1 && operand.length == length &&
                                       offset_of(offset, 0, 0, 1) == 0);
  };
  if (!a.per_entry || !as_stored || layout.num_groups != 1 || own.length != length ||
      !is_whole(a.lhs, layout.lhs_step, layout.lhs_offset) ||
      !is_whole(a.rhs, layout.rhs_step, layout.rhs_offset) ||
      !is_whole(a.grad, layout.out_step, layout.out_offset)) {
    return false;
  }
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(typename T::Storage));
  s = {.lhs = row_picker(a.lhs.access, a.entries),
       .rhs = row_picker(a.rhs.access, a.entries),
       .grad = row_picker(a.grad.access, a.entries),
       .out = row_picker(a.entries.second),
       .length = length,
       .last = last_entry(a.entries, a.row_end),
       .streams = a.out_streams && are_lines(a.out, length * kBytes, V::width * kBytes)};
  return true;
}

}  // namespace mezzo::kernels
