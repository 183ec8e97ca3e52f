#pragma once

#include <cstdint>
#include <type_traits>

#include "mezzo/core/type_list.h"
#include "mezzo/kernels/cuda/device.h"
#include "mezzo/kernels/message_grad.h"

// The sums of one lane in message_grad.cu. The operation is selected at run time, the same in all
// threads: the kernel is memory-bound.

namespace mezzo::kernels::cuda {

/// The dtype of T's accumulators.
template <class T>
struct Accumulators {
  using Dtype = std::conditional_t<std::is_same_v<typename T::Accum, double>, Float64, Float32>;
};

/// What the gradient reads besides grad.
struct GradReads {
  bool lhs = false, rhs = false;          ///< elements of the operands
  bool lhs_row = false, rhs_row = false;  ///< rows of the operands, for elements or scales
};

inline GradReads grad_reads(const MessageGradArgs& a) {
  const bool messages = a.product != nullptr, lhs = uses_lhs(a.op), rhs = uses_rhs(a.op);
  const Derivative of_op = derivative(a.op, a.of_lhs);
  GradReads reads;
  reads.lhs = (messages && lhs) || of_op.reads_lhs;
  reads.rhs = (messages && rhs) || of_op.reads_rhs;
  reads.lhs_row = lhs && (reads.lhs || (a.other_scale != nullptr && !a.of_lhs));
  reads.rhs_row = rhs && (reads.rhs || (a.other_scale != nullptr && a.of_lhs));
  return reads;
}

/// Lanes of one unit of elements: `run_lanes` share the elements of a message's run, and
/// `entry_lanes` of them the edges.
struct UnitShare {
  int run_lanes = 1, entry_lanes = 1;
};

/// Gradient of one operand of the operation, by the chain rule.
template <class A>
__device__ A carried(BinaryOp op, bool of_lhs, A grad, A x, A y) {
  A part = 0;
  detail::visit(BinaryOps{}, op, [&]<class Op>() {
    const Number<A> g{grad}, a{x}, b{y};
    part = of_lhs ? Op::grad_lhs(g, a, b).value : Op::grad_rhs(g, a, b).value;
  });
  return part;
}

/// Product of the other messages of a row. `product`: of all nonzero messages; `zeros`: the number
/// of zeros.
template <class A>
__device__ A product_of_others(A message, A product, std::int64_t zeros) {
  if (message == A(0)) return zeros == 1 ? product : A(0);
  return zeros == 0 ? product / message : A(0);
}

/// Gradient of N adjacent elements of a target; with kProduct, of a product of messages. N > 1 only
/// if nothing is broadcast over groups and the elements are adjacent in grad, too.
template <class T, int N, bool kProduct>
class GradLane {
 public:
  using Accum = typename T::Accum;
  Accum value[N] = {};

  __device__ GradLane(const MessageGradArgs& a, const GradReads& reads, const UnitShare& share,
                      int lane)
      : a_(a),
        reads_(reads),
        share_(share),
        run_lane_(lane & (share.run_lanes - 1)),
        entry_lane_(lane / share.run_lanes) {}

  /// Adds this lane's edges to the elements from `element` on, over every group of the layout that
  /// broadcasts to them.
  __device__ void add(std::int64_t row, EntryRange range, std::int64_t element) {
    const Layout& layout = a_.layout;
    const std::int64_t step = a_.of_lhs ? layout.lhs_step : layout.rhs_step;
    const std::int64_t* table = a_.of_lhs ? layout.lhs_offset : layout.rhs_offset;
    // Without a table and with step 1, an element belongs to one group, which needs no search.
    const bool alone = table == nullptr && step == 1;
    std::int64_t group = alone && layout.num_groups > 1 ? element / layout.inner : 0;
    const std::int64_t past = alone ? min(group + 1, layout.num_groups) : layout.num_groups;
    for (; group < past; ++group) {
      const std::int64_t place = element - offset_of(table, group, layout.inner, step);
      if (place < 0 || place >= (step == 0 ? 1 : layout.inner)) continue;
      add_group(row, range, group, step == 0 ? run_lane_ : place,
                step == 0 ? layout.inner : place + 1);
    }
  }

 private:
  struct Rows {
    std::int64_t lhs = 0, rhs = 0, grad = 0, edge = 0;
  };
  /// Offsets of an edge's group.
  struct Starts {
    std::int64_t lhs, rhs, grad;
  };

  /// Adds elements [begin, end) of the group's run.
  __device__ void add_group(std::int64_t row, EntryRange range, std::int64_t group,
                            std::int64_t begin, std::int64_t end) {
    const Layout& layout = a_.layout;
    const std::int64_t l = offset_of(layout.lhs_offset, group, layout.inner, layout.lhs_step);
    const std::int64_t r = offset_of(layout.rhs_offset, group, layout.inner, layout.rhs_step);
    const std::int64_t o = offset_of(layout.out_offset, group, layout.inner, layout.out_step);
    for (std::int64_t entry = range.begin + entry_lane_; entry < range.end;
         entry += share_.entry_lanes) {
      const Rows rows = rows_of(row, entry);
      const Starts starts{rows.lhs * a_.lhs.length + l, rows.rhs * a_.rhs.length + r,
                          rows.grad * a_.grad.length + o};
      for (std::int64_t d = begin; d < end; d += share_.run_lanes) add_element(rows, starts, d);
    }
  }

  __device__ Rows rows_of(std::int64_t row, std::int64_t entry) const {
    Rows rows;
    if (reads_.lhs_row) rows.lhs = row_at(a_.lhs.access, a_.entries, row, entry);
    if (reads_.rhs_row) rows.rhs = row_at(a_.rhs.access, a_.entries, row, entry);
    rows.grad = row_at(a_.grad.access, a_.entries, row, entry);
    if (a_.arg != nullptr) rows.edge = row_at(a_.edge, a_.entries, row, entry);
    return rows;
  }

  __device__ Accum scale_of(const Rows& rows) const {
    const auto* of_grad = static_cast<const Accum*>(a_.grad_scale);
    const auto* of_other = static_cast<const Accum*>(a_.other_scale);
    Accum scale = 1;
    if (of_grad != nullptr) scale *= of_grad[rows.grad];
    if (of_other != nullptr) scale *= of_other[a_.of_lhs ? rows.rhs : rows.lhs];
    return scale;
  }

  __device__ void add_element(const Rows& rows, const Starts& starts, std::int64_t d) {
    const Layout& layout = a_.layout;
    const std::int64_t at = starts.grad + d * layout.out_step;
    const bool selects = !kProduct && a_.arg != nullptr;
    bool counts[N], any = !selects;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      counts[i] = !selects || arg_at(at + i) == rows.edge;
      any = any || counts[i];
    }
    if (!any) return;
    Accum grad[N], x[N] = {}, y[N] = {};
    read(a_.grad, at, layout.out_step, grad);
    if (reads_.lhs) read(a_.lhs, starts.lhs + d * layout.lhs_step, layout.lhs_step, x);
    if (reads_.rhs) read(a_.rhs, starts.rhs + d * layout.rhs_step, layout.rhs_step, y);
    const bool scaled = a_.grad_scale != nullptr || a_.other_scale != nullptr;
    const Accum scale = scaled ? scale_of(rows) : Accum(1);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (scaled) grad[i] *= scale;
      if constexpr (kProduct) {
        const Accum message = a_.op == BinaryOp::kDot ? dot(starts) : message_of(a_.op, x[i], y[i]);
        grad[i] *= product_of_others(message, static_cast<const Accum*>(a_.product)[at + i],
                                     arg_at(at + i));
      }
      const Accum part = carried(a_.op, a_.of_lhs, grad[i], x[i], y[i]);
      if (counts[i]) value[i] += part;
    }
  }

  /// The dot product, one message for all its elements.
  __device__ Accum dot(const Starts& starts) const {
    const Layout& layout = a_.layout;
    Accum sum = 0;
    for (std::int64_t d = 0; d < layout.inner; ++d) {
      sum += number_at<T>(a_.lhs.data, a_.lhs.is_accum, starts.lhs + d * layout.lhs_step) *
             number_at<T>(a_.rhs.data, a_.rhs.is_accum, starts.rhs + d * layout.rhs_step);
    }
    return sum;
  }

  __device__ std::int64_t arg_at(std::int64_t at) const {
    return a_.arg_is_int64 ? static_cast<const std::int64_t*>(a_.arg)[at]
                           : static_cast<const std::int32_t*>(a_.arg)[at];
  }

  /// Reads N elements from `at` on; N copies of one if `step` is 0.
  __device__ static void read(const Operand& operand, std::int64_t at, std::int64_t step,
                              Accum (&to)[N]) {
    if (N == 1 || step == 0) {
      const Accum one = number_at<T>(operand.data, operand.is_accum, at);
#pragma unroll
      for (int i = 0; i < N; ++i) to[i] = one;
    } else if (operand.is_accum) {
      load<typename Accumulators<T>::Dtype, N>(static_cast<const Accum*>(operand.data) + at, to);
    } else {
      load<T, N>(static_cast<const typename T::Storage*>(operand.data) + at, to);
    }
  }

  const MessageGradArgs& a_;
  const GradReads& reads_;
  const UnitShare& share_;
  const int run_lane_, entry_lane_;
};

}  // namespace mezzo::kernels::cuda
