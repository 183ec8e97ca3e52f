#include <algorithm>
#include <cstdint>

#include "mezzo/core/type_list.h"
#include "mezzo/kernels/cuda/kernels.h"
#include "mezzo/kernels/cuda/sparse/spmm_reduce.h"
#include "mezzo/kernels/cuda/sparse/spmm_select.h"
#include "mezzo/kernels/cuda/sparse/spmm_sums.h"

namespace mezzo::kernels::cuda {

namespace {

std::int64_t entries_of_call(const SpmmArgs& args, std::int64_t num_entries) {
  return args.entries.indptr != nullptr ? num_entries : args.row_end;
}

/// Whether the arguments are a plain or weighted sum, maximum or minimum of whole rows; if so,
/// fills `s`. Steps are ignored in runs of one element.
bool as_row_sums(const SpmmArgs& a, RowSums& s) {
  const ReduceTraits reduce = traits_of(a.reduce);
  if (reduce.multiplies) return false;
  if (reduce.selects && (a.op == BinaryOp::kMul || a.lhs_scale != nullptr)) return false;
  const Layout& layout = a.layout;
  if (a.op == BinaryOp::kDot || (layout.out_step != 1 && layout.inner != 1)) return false;
  const bool one = layout.inner == 1;
  const bool lhs_rows = (layout.lhs_step == 1 || one) && !a.lhs.is_accum;
  const bool rhs_rows = (layout.rhs_step == 1 || one) && !a.rhs.is_accum;
  const bool x_is_lhs = lhs_rows && (a.op == BinaryOp::kCopyLhs ||
                                     (a.op == BinaryOp::kMul && (layout.rhs_step == 0 || one)));
  const bool x_is_rhs = rhs_rows && (a.op == BinaryOp::kCopyRhs ||
                                     (a.op == BinaryOp::kMul && (layout.lhs_step == 0 || one)));
  if (!x_is_lhs && !x_is_rhs) return false;
  s.x = x_is_lhs ? a.lhs : a.rhs;
  s.x_offset = x_is_lhs ? layout.lhs_offset : layout.rhs_offset;
  s.x_step = x_is_lhs ? layout.lhs_step : layout.rhs_step;
  if (a.op == BinaryOp::kMul) {
    s.weight = x_is_lhs ? a.rhs : a.lhs;
    s.weight_offset = x_is_lhs ? layout.rhs_offset : layout.lhs_offset;
    s.weight_step = x_is_lhs ? layout.rhs_step : layout.lhs_step;
  }
  s.args = a;
  s.x_rows = row_picker(s.x.access, a.entries);
  s.weight_rows = row_picker(s.weight.access, a.entries);
  s.scale_rows = row_picker(a.lhs.access, a.entries);
  return true;
}

/// Elements that one lane may read and write at once. Groups begin at multiples of `inner` in the
/// rows of x and of the result: elements are not repeated within a group. One group may end within
/// a pack if the rows of x are padded.
template <class T>
int pack_width(const RowSums& s) {
  const SpmmArgs& a = s.args;
  constexpr std::int64_t kSize = sizeof(typename T::Storage);
  const std::int64_t out_size =
      a.out_is_accum ? sizeof(typename T::Accum) : sizeof(typename T::Storage);
  int width = static_cast<int>(16 / kSize);
  const auto fits = [&](std::int64_t n) {
    if (s.x.length % n != 0 || !is_aligned(s.x.data, n * kSize)) return false;
    if (a.layout.inner % n != 0) return a.layout.num_groups == 1;
    return a.out_length % n == 0 && is_aligned(a.out, std::min<std::int64_t>(n * out_size, 16));
  };
  while (width > 1 && !fits(width)) width /= 2;
  return width;
}

/// Splits the lanes of a warp between columns and edges, and launches.
template <class T, int N>
void launch_sums(RowSums s, void (*kernel)(RowSums), void* stream) {
  using Tuning = RowSumTuning;
  constexpr int kSlab = Tuning::kSlabBytes / static_cast<int>(N * sizeof(typename T::Storage));
  const std::int64_t packs = ceil_div(s.args.layout.num_groups * s.args.layout.inner, N);
  s.lanes = power_of_2(packs, std::min(kSlab, kWarpLanes));
  const std::int64_t entries = s.pass == SpmmPass::kRows
                                   ? ceil_div(s.num_entries, std::max<std::int64_t>(s.num_items, 1))
                                   : chunk_length(s.num_entries);
  s.ways = power_of_2(ceil_div(entries, Tuning::kEntriesPerWay), kWarpLanes / s.lanes);
  const std::int64_t items_per_block = Tuning::kThreads / (s.lanes * s.ways);
  const Grid grid = {ceil_div(s.num_items, items_per_block),
                     std::min(ceil_div(packs, s.lanes), kMostBlocksAlongY)};
  launch("spmm", kernel, grid, Tuning::kThreads, stream, s);
}

template <class T, int N>
void launch_sums(const RowSums& s, int width, void* stream) {
  if constexpr (N > 1) {
    if (width < N) return launch_sums<T, N / 2>(s, width, stream);
  }
  if (traits_of(s.args.reduce).selects) {
    launch_sums<T, N>(s, select_rows<T, N>, stream);
  } else if (s.weight.data != nullptr || s.args.lhs_scale != nullptr) {
    launch_sums<T, N>(s, sum_rows<T, N, true>, stream);
  } else {
    launch_sums<T, N>(s, sum_rows<T, N, false>, stream);
  }
}

template <class T>
void launch_sums(RowSums s, SpmmPass pass, void* stream) {
  s.pass = pass;
  s.num_items = num_work_items(pass, s.args.row_end, s.num_entries);
  constexpr int kWidest = 16 / static_cast<int>(sizeof(typename T::Storage));
  launch_sums<T, kWidest>(s, pack_width<T>(s), stream);
}

template <class T, class State>
void launch_reduction(Reductions r, SpmmPass pass, void* stream) {
  r.pass = pass;
  const std::int64_t items = pass == SpmmPass::kHubs
                                 ? num_chunks(r.num_entries)
                                 : num_work_items(pass, r.args.row_end, r.num_entries);
  const std::int64_t elements = num_elements(r.args.layout);
  const int along_x = power_of_2(elements, ReduceTuning::kThreads);
  const int along_y = ReduceTuning::kThreads / along_x;
  const Grid grid = {ceil_div(items, along_y),
                     std::min(ceil_div(elements, along_x), kMostBlocksAlongY)};
  launch("spmm", reduce_rows<T, State>, grid,
         dim3(static_cast<unsigned>(along_x), static_cast<unsigned>(along_y)), stream, r);
}

template <class T>
void launch_spmm(const SpmmArgs& args, const CudaLaunch& context) {
  const std::int64_t num_entries = entries_of_call(args, context.num_entries);
  const bool hubs = may_have_hubs(args.entries, num_entries);
  Reductions r;
  r.args = args;
  r.uses_lhs = uses_lhs(args.op);
  r.uses_rhs = uses_rhs(args.op);
  r.lhs_rows = row_picker(args.lhs.access, args.entries);
  r.rhs_rows = row_picker(args.rhs.access, args.entries);
  r.num_entries = num_entries;
  r.partials = context.workspace;
  visit_state<typename T::Accum>(args.reduce, [&]<class State>() {
    if (RowSums s; as_row_sums(args, s)) {
      s.num_entries = num_entries;
      s.partials = context.workspace;
      launch_sums<T>(s, SpmmPass::kRows, context.stream);
      if (hubs) launch_sums<T>(s, SpmmPass::kChunks, context.stream);
    } else {
      launch_reduction<T, State>(r, SpmmPass::kRows, context.stream);
      if (hubs) launch_reduction<T, State>(r, SpmmPass::kChunks, context.stream);
    }
    if (hubs) launch_reduction<T, State>(r, SpmmPass::kHubs, context.stream);
  });
}

}  // namespace

template <>
std::int64_t Kernel<SpmmArgs>::workspace(const SpmmArgs& args, std::int64_t num_entries) {
  std::int64_t bytes = 0;
  detail::visit(DTypes{}, args.dtype, [&]<class T>() {
    visit_state<typename T::Accum>(args.reduce, [&]<class State>() { bytes = sizeof(State); });
  });
  return num_partials(args.entries, entries_of_call(args, num_entries)) * args.out_length * bytes;
}

template <>
void Kernel<SpmmArgs>::run(const SpmmArgs& args, const CudaLaunch& context) {
  detail::visit(DTypes{}, args.dtype, [&]<class T>() { launch_spmm<T>(args, context); });
}

}  // namespace mezzo::kernels::cuda
