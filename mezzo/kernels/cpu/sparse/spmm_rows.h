#pragma once

#include "mezzo/kernels/cpu/sparse/reduce_rows.h"
#include "mezzo/kernels/cpu/sparse/select_rows.h"
#include "mezzo/kernels/cpu/sparse/sum_rows.h"

namespace mezzo::kernels {

template <class V, class T>
void compute(const SpmmArgs& a) {
  RowSum<typename T::Accum> s{};
  if (as_row_sum(a, s)) {
    const bool weighted = s.weight.data != nullptr || s.scale != nullptr;
    SpmmArgs sums = a;
    sums.out_streams = a.out_streams && fills_lines<T>(a);
    if (!weighted) {
      sum_rows<V, T, Weights::kNone>(sums, s);
    } else if (groups_are_contiguous<V>(a, s)) {
      sum_rows<V, T, Weights::kPerVector>(sums, s);
    } else {
      sum_rows<V, T, Weights::kOne>(sums, s);
    }
    if (sums.out_streams) V::end_streams();
    return;
  }
  RowChoice choice{};
  if (as_row_choice(a, choice)) {
    a.reduce == ReduceOp::kMax ? select_rows<V, T, Max>(a, choice)
                               : select_rows<V, T, Min>(a, choice);
    return;
  }
  detail::visit(BinaryOps{}, a.op, [&]<class Op>() {
    detail::visit(ReduceOps{}, a.reduce, [&]<class Reduce>() { reduce_rows<V, T, Op, Reduce>(a); });
  });
}

}  // namespace mezzo::kernels
