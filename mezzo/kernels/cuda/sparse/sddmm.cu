#include <algorithm>
#include <cstdint>

#include "mezzo/core/type_list.h"
#include "mezzo/kernels/cuda/kernels.h"
#include "mezzo/kernels/cuda/sparse/spmm_work.h"

namespace mezzo::kernels::cuda {

namespace {

struct SddmmTuning {
  static constexpr int kThreads = 256;
  static constexpr int kBlocks = 3;  ///< per multiprocessor: bounds the registers
  /// Packs of a result (elementwise) or results (dot) per lane, or group of lanes: neighboring
  /// edges share their row, which is searched once.
  static constexpr int kRounds = 8;
  static constexpr int kUnroll = 4;  ///< dots whose rows a lane reads at once
};

struct SddmmCall {
  SddmmArgs args;
  bool uses_lhs = true, uses_rhs = true;
  RowPicker lhs_rows, rhs_rows, out_rows;
  std::int64_t num_entries = 0;
  std::int64_t entries_per_warp = 1;
  int parts = 1;  ///< packs or dots per edge
  int lanes = 1;  ///< lanes per dot
};

/// Finds the rows of edges in ascending order.
class RowWalk {
 public:
  __device__ RowWalk(const SddmmCall& c, std::int64_t entry) : a_(c.args) {
    const bool reads_row = (c.uses_lhs && a_.lhs.access == Access::kRow) ||
                           (c.uses_rhs && a_.rhs.access == Access::kRow);
    walks_ = a_.entries.indptr != nullptr && reads_row;
    if (walks_) find(entry);
  }

  /// The row of `entry`, which must not be before that of the last call; unspecified if no operand
  /// is read by row.
  __device__ std::int64_t row_of(std::int64_t entry) {
    if (!walks_) return entry;
    // Usually adjacent, but many empty rows may lie between.
    for (int step = 0; step < kSteps && end_ <= entry; ++step) end_ = a_.entries.indptr[++row_ + 1];
    if (end_ <= entry) find(entry);
    return row_;
  }

 private:
  static constexpr int kSteps = 8;

  __device__ void find(std::int64_t entry) {
    row_ = row_of_entry(a_.entries.indptr, a_.row_end, entry);
    end_ = a_.entries.indptr[row_ + 1];
  }

  const SddmmArgs& a_;
  std::int64_t row_ = 0, end_ = 0;
  bool walks_ = false;
};

/// The edges of a warp.
__device__ inline EntryRange entries_of_warp(const SddmmCall& c) {
  const std::int64_t warp =
      static_cast<std::int64_t>(blockIdx.x) * (SddmmTuning::kThreads / kWarpLanes) +
      threadIdx.x / kWarpLanes;
  const std::int64_t begin = min(warp * c.entries_per_warp, c.num_entries);
  return {begin, min(begin + c.entries_per_warp, c.num_entries)};
}

/// Loads N elements of an operand from element `at` of its rows on. Packs (N > 1) have the kernel's
/// dtype, or repeat one element.
template <class T, int N>
__device__ inline void load_operand(const Operand& operand, std::int64_t step, std::int64_t at,
                                    typename T::Accum (&to)[N]) {
  if (N > 1 && step == 1) {
    load<T, N>(static_cast<const typename T::Storage*>(operand.data) + at, to);
    return;
  }
  const typename T::Accum x = number_at<T>(operand.data, operand.is_accum, at);
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = x;
}

/// One pack of the result per lane at a time; the lanes of a warp are adjacent.
template <class T, int N>
__global__ void __launch_bounds__(SddmmTuning::kThreads, SddmmTuning::kBlocks)
    sddmm_elements(SddmmCall c) {
  using A = typename T::Accum;
  const SddmmArgs& a = c.args;
  const Layout& layout = a.layout;
  const EntryRange run = entries_of_warp(c);
  if (run.begin == run.end) return;
  RowWalk walk(c, run.begin);
  const auto parts = static_cast<std::uint32_t>(c.parts);
  const auto inner = static_cast<std::uint32_t>(layout.inner);
  const auto count = static_cast<std::uint32_t>(run.end - run.begin) * parts;
  for (std::uint32_t i = threadIdx.x % kWarpLanes; i < count; i += kWarpLanes) {
    const std::uint32_t of_run = i / parts;
    const std::uint32_t column = (i - of_run * parts) * N;
    const std::uint32_t group = layout.num_groups > 1 ? column / inner : 0;
    const std::int64_t d = column - group * inner;
    const std::int64_t entry = run.begin + of_run;
    const std::int64_t row = walk.row_of(entry);
    A x[N] = {}, y[N] = {}, result[N];
    if (c.uses_lhs) {
      const std::int64_t at =
          offset_of(layout.lhs_offset, group, inner, layout.lhs_step) + d * layout.lhs_step;
      load_operand<T, N>(a.lhs, layout.lhs_step, c.lhs_rows.at(row, entry) * a.lhs.length + at, x);
    }
    if (c.uses_rhs) {
      const std::int64_t at =
          offset_of(layout.rhs_offset, group, inner, layout.rhs_step) + d * layout.rhs_step;
      load_operand<T, N>(a.rhs, layout.rhs_step, c.rhs_rows.at(row, entry) * a.rhs.length + at, y);
    }
#pragma unroll
    for (int k = 0; k < N; ++k) result[k] = message_of(a.op, x[k], y[k]);
    const std::int64_t at = c.out_rows.at(row, entry) * a.out_length +
                            offset_of(layout.out_offset, group, inner, 1) + d;
    if (N > 1 && !a.out_is_accum) {
      store<T, N>(result, static_cast<typename T::Storage*>(a.out) + at);
    } else {
#pragma unroll
      for (int k = 0; k < N; ++k) store_number<T>(result[k], a.out, a.out_is_accum, at + k);
    }
  }
}

/// An operand of a dot and the location of its rows.
struct DotSide {
  Operand operand;
  RowPicker rows;
  const std::int64_t* offset;
  std::int64_t step;
};

/// The two sides; `own` is that of the row itself, if any.
struct DotSides {
  DotSide own, other;
};

__device__ inline DotSides dot_sides(const SddmmCall& c) {
  const Layout& layout = c.args.layout;
  const DotSide lhs = {c.args.lhs, c.lhs_rows, layout.lhs_offset, layout.lhs_step};
  const DotSide rhs = {c.args.rhs, c.rhs_rows, layout.rhs_offset, layout.rhs_step};
  if (c.args.lhs.access == Access::kRow) return {lhs, rhs};
  return {rhs, lhs};
}

/// N stored elements, or a single one that may be an accumulator.
template <class T, int N>
using DotPack = std::conditional_t<N == 1, typename T::Accum, Pack<T, N>>;

template <class T, int N>
__device__ inline DotPack<T, N> dot_pack(const Operand& operand, std::int64_t at) {
  if constexpr (N == 1) {
    return number_at<T>(operand.data, operand.is_accum, at);
  } else {
    return load_pack<T, N>(static_cast<const typename T::Storage*>(operand.data) + at);
  }
}

template <class T, int N>
__device__ inline typename T::Accum dot_of(const DotPack<T, N>& x, const DotPack<T, N>& y,
                                           typename T::Accum sum) {
  if constexpr (N == 1) {
    sum += x * y;
  } else {
    typename T::Accum a[N], b[N];
    widen(x, a);
    widen(y, b);
#pragma unroll
    for (int k = 0; k < N; ++k) sum += a[k] * b[k];
  }
  return sum;
}

/// Groups of `lanes` lanes compute one dot each, in order of the warp's edges. Rereads the row's
/// own operand only if the row, or the dot's position in it, changes.
template <class T, int N>
__global__ void __launch_bounds__(SddmmTuning::kThreads, SddmmTuning::kBlocks)
    sddmm_dots(SddmmCall c) {
  using A = typename T::Accum;
  constexpr int kUnroll = SddmmTuning::kUnroll;
  const SddmmArgs& a = c.args;
  const std::int64_t inner = a.layout.inner;
  const auto [own, other] = dot_sides(c);
  const EntryRange run = entries_of_warp(c);
  if (run.begin == run.end) return;
  RowWalk walk(c, run.begin);
  const auto dots = static_cast<std::uint32_t>(c.parts);
  const auto count = static_cast<std::uint32_t>(run.end - run.begin) * dots;
  const int lane = static_cast<int>(threadIdx.x) % kWarpLanes;
  const int groups = kWarpLanes / c.lanes, group_lane = lane % c.lanes;
  std::int64_t cached_at = -1;
  DotPack<T, N> cached = {};
  for (std::uint32_t round = 0; round < count; round += kUnroll * groups) {
    const std::uint32_t first = round + lane / c.lanes;
    int positions[kUnroll];
    std::int64_t own_at[kUnroll], other_at[kUnroll];
    std::uint32_t dot[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::uint32_t i = min(first + u * groups, count - 1);
      const std::uint32_t of_run = dots > 1 ? i / dots : i;
      dot[u] = i - of_run * dots;
      positions[u] = static_cast<int>(of_run);
    }
    other.rows.at(0, run.begin, positions, other_at);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t entry = run.begin + positions[u];
      const std::int64_t row = walk.row_of(entry);
      own_at[u] = own.rows.at(row, entry) * own.operand.length +
                  offset_of(own.offset, dot[u], inner, own.step);
      if (other.rows.own_row) other_at[u] = row;
      other_at[u] =
          other_at[u] * other.operand.length + offset_of(other.offset, dot[u], inner, other.step);
    }
    A sum[kUnroll] = {};
    for (std::int64_t d = group_lane * N; d < inner; d += c.lanes * N) {
      DotPack<T, N> x[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        x[u] = dot_pack<T, N>(other.operand, other_at[u] + d * other.step);
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t at = own_at[u] + d * own.step;
        if (at != cached_at) cached = dot_pack<T, N>(own.operand, at);
        cached_at = at;
        sum[u] = dot_of<T, N>(cached, x[u], sum[u]);
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      sum[u] = group_sum(sum[u], c.lanes);
      if (group_lane != 0 || first + u * groups >= count) continue;
      const std::int64_t at = c.out_rows.at(0, run.begin + positions[u]) * a.out_length +
                              offset_of(a.layout.out_offset, dot[u], inner, 0);
      store_number<T>(sum[u], a.out, a.out_is_accum, at);
    }
  }
}

/// Number of elements that a lane may read at once from an operand that is not repeated and whose
/// groups begin at multiples of `inner`.
template <class T>
int operand_width(const Operand& operand, std::int64_t step, std::int64_t inner) {
  int width = widest_pack<T>(inner);
  if (step == 1 && operand.is_accum && sizeof(typename T::Storage) != sizeof(typename T::Accum)) {
    return 1;
  }
  const auto fits = [&](std::int64_t n) {
    return operand.length % n == 0 &&
           is_aligned(operand.data, n * static_cast<std::int64_t>(sizeof(typename T::Storage)));
  };
  while (step == 1 && width > 1 && !fits(width)) width /= 2;
  return width;
}

template <class T>
int pack_width(const SddmmArgs& a) {
  const Layout& layout = a.layout;
  int width = widest_pack<T>(layout.inner);
  const bool repeats = layout.lhs_step == 0 || layout.rhs_step == 0;
  if (a.op == BinaryOp::kDot && repeats) return 1;
  if (uses_lhs(a.op))
    width = std::min(width, operand_width<T>(a.lhs, layout.lhs_step, layout.inner));
  if (uses_rhs(a.op))
    width = std::min(width, operand_width<T>(a.rhs, layout.rhs_step, layout.inner));
  if (a.op == BinaryOp::kDot) return width;
  const Operand out = {.data = a.out, .length = a.out_length};
  return a.out_is_accum ? width : std::min(width, operand_width<T>(out, 1, layout.inner));
}

template <class T, int N>
void launch_width(SddmmCall c, int width, void* stream) {
  if constexpr (N > 1) {
    if (width < N) return launch_width<T, N / 2>(c, width, stream);
  }
  const Layout& layout = c.args.layout;
  const bool dot = c.args.op == BinaryOp::kDot;
  c.lanes = dot ? power_of_2(ceil_div(layout.inner, N), kWarpLanes) : 1;
  const std::int64_t parts = dot ? layout.num_groups : layout.num_groups * layout.inner / N;
  if (parts == 0) return;
  c.parts = static_cast<int>(parts);
  const std::int64_t parts_of_warp = SddmmTuning::kRounds * (kWarpLanes / c.lanes);
  c.entries_per_warp = ceil_div(parts_of_warp, parts);
  const std::int64_t warps = ceil_div(c.num_entries, c.entries_per_warp);
  const Grid grid = {ceil_div(warps, SddmmTuning::kThreads / kWarpLanes)};
  launch("sddmm", dot ? sddmm_dots<T, N> : sddmm_elements<T, N>, grid, SddmmTuning::kThreads,
         stream, c);
}

}  // namespace

template <>
std::int64_t Kernel<SddmmArgs>::workspace(const SddmmArgs& /*args*/, std::int64_t /*num_entries*/) {
  return 0;
}

template <>
void Kernel<SddmmArgs>::run(const SddmmArgs& args, const CudaLaunch& context) {
  SddmmCall c;
  c.args = args;
  c.uses_lhs = uses_lhs(args.op);
  c.uses_rhs = uses_rhs(args.op);
  c.lhs_rows = row_picker(args.lhs.access, args.entries);
  c.rhs_rows = row_picker(args.rhs.access, args.entries);
  c.out_rows = row_picker(args.out_ids);
  c.num_entries = args.entries.indptr != nullptr ? context.num_entries : args.row_end;
  detail::visit(DTypes{}, args.dtype, [&]<class T>() {
    constexpr int kWidest = 16 / static_cast<int>(sizeof(typename T::Storage));
    launch_width<T, kWidest>(c, pack_width<T>(args), context.stream);
  });
}

}  // namespace mezzo::kernels::cuda
