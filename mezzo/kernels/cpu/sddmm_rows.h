#pragma once

#include <cstdint>

#include "mezzo/kernels/cpu/access.h"
#include "mezzo/kernels/sddmm.h"

namespace mezzo {

template <class V, class T, class Op>
void sddmm_slot(const SddmmArgs& a, std::int64_t row, std::int64_t slot) {
  const Layout& layout = a.layout;
  std::int64_t l = 0, r = 0;
  if constexpr (Op::uses_lhs) l = row_at(a.lhs.access, a.slots, row, slot) * a.lhs.length;
  if constexpr (Op::uses_rhs) r = row_at(a.rhs.access, a.slots, row, slot) * a.rhs.length;
  const std::int64_t o = id_at(a.slots.second, slot) * a.out_length;
  for (std::int64_t g = 0; g < layout.num_groups; ++g) {
    const std::int64_t lg = l + offset_of(layout.lhs_offset, g, layout.inner, layout.lhs_step);
    const std::int64_t rg = r + offset_of(layout.rhs_offset, g, layout.inner, layout.rhs_step);
    const std::int64_t og = o + offset_of(layout.out_offset, g, layout.inner, layout.out_step);
    if constexpr (Op::kind == BinaryOp::kDot) {
      const V sum = V::set(dot_run<V, T, Op>(a.lhs, a.rhs, layout, lg, rg));
      store_result<V, T>(sum, a.out, a.out_wide, og, 1);
    } else {
      for (std::int64_t f = 0; f < layout.inner; f += V::width) {
        const std::int64_t left = layout.inner - f;
        V x = V::zero(), y = V::zero();
        if constexpr (Op::uses_lhs) {
          x = load_operand<V, T>(a.lhs, lg + f * layout.lhs_step, layout.lhs_step, left);
        }
        if constexpr (Op::uses_rhs) {
          y = load_operand<V, T>(a.rhs, rg + f * layout.rhs_step, layout.rhs_step, left);
        }
        store_result<V, T>(Op::apply(x, y), a.out, a.out_wide, og + f, left);
      }
    }
  }
}

template <class V, class T>
void sddmm_rows(const SddmmArgs& a) {
  visit(BinaryOps{}, a.op, [&]<class Op>() {
    for (std::int64_t row = a.row_begin; row < a.row_end; ++row) {
      const SlotRange range = slots_of(a.slots, row);
      for (std::int64_t slot = range.begin; slot < range.end; ++slot) {
        sddmm_slot<V, T, Op>(a, row, slot);
      }
    }
  });
}

}  // namespace mezzo
