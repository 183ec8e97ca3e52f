#pragma once

#include <cstdint>

#include "mezzo/kernels/cuda/sparse/spmm_sums.h"
#include "mezzo/kernels/cuda/sparse/spmm_work.h"
#include "mezzo/kernels/spmm.h"

// Any operation, reducer and layout, with one lane per element of the result.

namespace mezzo::kernels::cuda {

struct ReduceTuning {
  static constexpr int kThreads = 256;
  static constexpr int kBlocks = 3;  ///< per multiprocessor: bounds the registers
};

// Running state of a lane, by kind of reducer; also the partial result of a long row. `merge` adds
// the state of later edges.

template <class A>
struct AddingState {
  A value = A(0);

  __device__ void add(const SpmmArgs& /*a*/, A message, std::int64_t /*entry*/) {
    value += message;
  }
  __device__ void merge(const SpmmArgs& /*a*/, const AddingState& later) { value += later.value; }
};

template <class A>
struct SelectingState {
  A value = A(0);
  std::int64_t entry = -1;  ///< edge of the selected message; -1: none yet

  __device__ void add(const SpmmArgs& a, A message, std::int64_t from) {
    const bool better =
        a.reduce == ReduceOp::kMax ? Max::better(message, value) : Min::better(message, value);
    const bool wins = (better || message != message) && !(value != value);
    if (entry >= 0 && !wins) return;
    value = message;
    entry = from;
  }
  __device__ void merge(const SpmmArgs& a, const SelectingState& later) {
    if (later.entry >= 0) add(a, later.value, later.entry);
  }
};

template <class A>
struct MultiplyingState {
  A value = A(1);
  A product = A(1);        ///< product of the nonzero messages
  std::int64_t zeros = 0;  ///< number of zero messages

  __device__ void add(const SpmmArgs& /*a*/, A message, std::int64_t /*entry*/) {
    value *= message;
    if (message == A(0)) {
      ++zeros;
    } else {
      product *= message;
    }
  }
  __device__ void merge(const SpmmArgs& /*a*/, const MultiplyingState& later) {
    value *= later.value;
    product *= later.product;
    zeros += later.zeros;
  }
};

/// Calls f.operator()<State>() with the state type of the reducer.
template <class A, class F>
void visit_state(ReduceOp reduce, F&& f) {
  detail::visit(ReduceOps{}, reduce, [&]<class Reduce>() {
    if constexpr (Reduce::selects) {
      f.template operator()<SelectingState<A>>();
    } else if constexpr (Reduce::multiplies) {
      f.template operator()<MultiplyingState<A>>();
    } else {
      f.template operator()<AddingState<A>>();
    }
  });
}

/// Arguments of one launch.
struct Reductions {
  SpmmArgs args;
  SpmmPass pass = SpmmPass::kRows;
  bool uses_lhs = true, uses_rhs = true;
  RowPicker lhs_rows, rhs_rows;
  std::int64_t num_entries = 0;
  void* partials = nullptr;  ///< states [num_partials, out_length]
};

/// Number of elements in a row of the result.
__host__ __device__ constexpr std::int64_t num_elements(const Layout& layout) {
  return layout.out_step == 0 ? layout.num_groups : layout.num_groups * layout.inner;
}

template <class T>
struct MessageReader {
  using A = typename T::Accum;
  const Reductions& r;
  std::int64_t lhs_at, rhs_at, out_at;  ///< element offsets in rows of the operands and result

  __device__ MessageReader(const Reductions& reductions, std::int64_t element) : r(reductions) {
    const Layout& l = r.args.layout;
    const std::int64_t run = l.out_step == 0 ? 1 : l.inner;
    std::int64_t group = element;
    if (run > 1) group = static_cast<std::uint32_t>(element) / static_cast<std::uint32_t>(run);
    const std::int64_t d = element - group * run;
    lhs_at = offset_of(l.lhs_offset, group, l.inner, l.lhs_step) + d * l.lhs_step;
    rhs_at = offset_of(l.rhs_offset, group, l.inner, l.rhs_step) + d * l.rhs_step;
    out_at = offset_of(l.out_offset, group, l.inner, l.out_step) + d * l.out_step;
  }

  __device__ A message(std::int64_t row, std::int64_t entry) const {
    const SpmmArgs& a = r.args;
    const std::int64_t lhs_row = r.uses_lhs ? r.lhs_rows.at(row, entry) : 0;
    const std::int64_t rhs_row = r.uses_rhs ? r.rhs_rows.at(row, entry) : 0;
    const std::int64_t x_at = lhs_row * a.lhs.length + lhs_at;
    const std::int64_t y_at = rhs_row * a.rhs.length + rhs_at;
    A result = A(0);
    if (a.op == BinaryOp::kDot) {
      for (std::int64_t d = 0; d < a.layout.inner; ++d) {
        result += number_at<T>(a.lhs.data, a.lhs.is_accum, x_at + d * a.layout.lhs_step) *
                  number_at<T>(a.rhs.data, a.rhs.is_accum, y_at + d * a.layout.rhs_step);
      }
    } else {
      const A x = r.uses_lhs ? number_at<T>(a.lhs.data, a.lhs.is_accum, x_at) : A(0);
      const A y = r.uses_rhs ? number_at<T>(a.rhs.data, a.rhs.is_accum, y_at) : A(0);
      result = message_of(a.op, x, y);
    }
    if (a.lhs_scale != nullptr) result *= static_cast<const A*>(a.lhs_scale)[lhs_row];
    return result;
  }
};

__device__ inline void store_id(const SpmmArgs& a, std::int64_t at, std::int64_t id) {
  if (a.arg_is_int64) {
    static_cast<std::int64_t*>(a.arg)[at] = id;
  } else {
    static_cast<std::int32_t*>(a.arg)[at] = static_cast<std::int32_t>(id);
  }
}

template <class A>
__device__ inline void store_chosen(const SpmmArgs& /*a*/, std::int64_t /*at*/,
                                    const AddingState<A>& /*state*/) {}

template <class A>
__device__ inline void store_chosen(const SpmmArgs& a, std::int64_t at,
                                    const SelectingState<A>& state) {
  store_id(a, at, state.entry < 0 ? -1 : id_at(a.entries.second, state.entry));
}

template <class A>
__device__ inline void store_chosen(const SpmmArgs& a, std::int64_t at,
                                    const MultiplyingState<A>& state) {
  static_cast<A*>(a.product)[at] = state.product;
  store_id(a, at, min(state.zeros, std::int64_t{2}));
}

template <class T, class State>
__device__ inline void store_reduction(const SpmmArgs& a, std::int64_t row, EntryRange range,
                                       std::int64_t column, const State& state) {
  const std::int64_t at = row * a.out_length + column;
  store_number<T>(finish_sum(a, state.value, row, range), a.out, a.out_is_accum, at);
  if (a.arg != nullptr) store_chosen(a, at, state);
}

/// Threads along x process the elements of a row; along y rows, chunks or long rows.
template <class T, class State>
__global__ void __launch_bounds__(ReduceTuning::kThreads, ReduceTuning::kBlocks)
    reduce_rows(Reductions r) {
  const SpmmArgs& a = r.args;
  auto* partials = static_cast<State*>(r.partials);
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const std::int64_t elements = num_elements(a.layout);
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.y) * blockDim.x;
  std::int64_t element = static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
  if (r.pass == SpmmPass::kHubs) {
    if (item >= num_chunks(r.num_entries)) return;
    const Hub hub = hub_beginning_in(a.entries, a.row_end, r.num_entries, item);
    if (hub.row < 0) return;
    for (; element < elements; element += stride) {
      const MessageReader<T> reader(r, element);
      State state;
      for (std::int64_t p = hub.first_chunk; p <= hub.last_chunk; ++p) {
        state.merge(a, partials[hub_partial(hub, p) * a.out_length + reader.out_at]);
      }
      store_reduction<T>(a, hub.row, hub.range, reader.out_at, state);
    }
    return;
  }
  const SpmmWork work = spmm_work(r.pass, a.entries, a.row_end, r.num_entries, item);
  if (work.row < 0) return;
  for (; element < elements; element += stride) {
    const MessageReader<T> reader(r, element);
    State state;
#pragma unroll 4
    for (std::int64_t entry = work.range.begin; entry < work.range.end; ++entry) {
      state.add(a, reader.message(work.row, entry), entry);
    }
    if (r.pass == SpmmPass::kChunks) {
      partials[work.partial * a.out_length + reader.out_at] = state;
    } else {
      store_reduction<T>(a, work.row, work.range, reader.out_at, state);
    }
  }
}

}  // namespace mezzo::kernels::cuda
