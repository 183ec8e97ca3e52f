#include <algorithm>
#include <cstdint>
#include <iterator>

#include "mezzo/core/type_list.h"
#include "mezzo/kernels/cuda/kernels.h"
#include "mezzo/kernels/cuda/row_lanes.h"
#include "mezzo/kernels/cuda/sparse/hub_sums.h"
#include "mezzo/kernels/cuda/sparse/message_grad_lane.h"

// Gradient of one operand of the messages. Targets are rows, edges, or the parts of long rows in
// one chunk of the edges. A team of adjacent lanes processes a target in units of N elements. If an
// element sums a run of the message, or if rows have few elements, several lanes share a unit.

namespace mezzo::kernels::cuda {

namespace {

struct MessageGradTuning {
  static constexpr int kThreads = 256;
  static constexpr std::int64_t kEntriesPerLane = 4;
};

enum class GradTargets : std::uint8_t { kRows, kEntries, kHubParts };

/// Mapping of work to threads; all lane counts are powers of 2.
struct GradPlan {
  GradTargets targets = GradTargets::kRows;
  std::int64_t num_targets = 0, num_entries = 0;
  std::int64_t length = 0;  ///< row length of the operand
  int team = 1;             ///< lanes of the block per target
  UnitShare share;          ///< lanes of a warp per unit
  bool skip_hubs = false;   ///< long rows are processed separately
  bool needs_row = false;   ///< for edges: something is read by row
  GradReads reads;
  void* partials = nullptr;  ///< long rows: accumulator type [num_partials(), length]
};

struct GradTarget {
  bool active = false;
  std::int64_t row = 0;
  EntryRange range = {0, 0};
  std::int64_t to = 0;  ///< row of the result, or index of the partial result
};

/// The row of one of the block's edges, searched between those of its first and last edge. All
/// threads of the block must call it.
__device__ inline std::int64_t row_in_block(const Entries& entries, std::int64_t num_rows,
                                            EntryRange block, std::int64_t entry) {
  __shared__ std::int64_t ends[2];
  if (threadIdx.x < 2) {
    ends[threadIdx.x] =
        row_of_entry(entries.indptr, num_rows, threadIdx.x == 0 ? block.begin : block.end - 1);
  }
  __syncthreads();
  const std::int64_t first = ends[0], last = ends[1];
  return first + row_of_entry(entries.indptr + first, last - first + 1, entry);
}

/// All threads of the block must call it.
__device__ inline GradTarget target_of_thread(const MessageGradArgs& a, const GradPlan& plan) {
  const int per_block = MessageGradTuning::kThreads / plan.team;
  const std::int64_t first = std::int64_t{blockIdx.x} * per_block;
  const std::int64_t index = first + static_cast<int>(threadIdx.x) / plan.team;
  GradTarget target;
  target.active = index < plan.num_targets;
  if (plan.targets == GradTargets::kEntries) {
    const std::int64_t entry = min(index, plan.num_targets - 1);
    const std::int64_t end = min(first + per_block, plan.num_targets);
    target.row = plan.needs_row ? row_in_block(a.entries, a.row_end, {first, end}, entry) : entry;
    target.range = {entry, entry + 1};
    target.to = id_at(a.entries.second, entry);
    return target;
  }
  if (!target.active) return target;
  if (plan.targets == GradTargets::kRows) {
    target.row = target.to = index;
    target.range = entries_of(a.entries, index);
    target.active = !plan.skip_hubs || !is_hub(target.range, chunk_length(plan.num_entries));
    return target;
  }
  const HubPart part =
      hub_part(a.entries, a.row_end, plan.num_entries, index / 2, static_cast<int>(index % 2));
  target.active = part.row >= 0;
  target.row = part.row;
  target.range = part.range;
  target.to = part.partial;
  return target;
}

template <class T, int N>
__device__ void store_unit(const typename T::Accum (&sum)[N], const MessageGradArgs& a,
                           const GradPlan& plan, std::int64_t at) {
  const bool partial = plan.targets == GradTargets::kHubParts;
  void* out = partial ? plan.partials : a.out;
  const bool is_accum = partial || a.out_is_accum;
  if constexpr (N == 1) {
    store_number<T>(sum[0], out, is_accum, at);
  } else if (is_accum) {
    using AccumDType = typename Accumulators<T>::Dtype;
    store<AccumDType, N>(sum, static_cast<typename T::Accum*>(out) + at);
  } else {
    store<T, N>(sum, static_cast<typename T::Storage*>(out) + at);
  }
}

template <class T, int N, bool kProduct>
__global__ void __launch_bounds__(MessageGradTuning::kThreads)
    message_grad_kernel(MessageGradArgs a, GradPlan plan) {
  const GradTarget target = target_of_thread(a, plan);
  const int unit_lanes = plan.share.run_lanes * plan.share.entry_lanes;
  const int lane = static_cast<int>(threadIdx.x) & (plan.team - 1);
  const int lane_in_unit = lane & (unit_lanes - 1);
  const std::int64_t units = plan.length / N, step = plan.team / unit_lanes;
  // All lanes of a warp must run the same number of iterations for the sums below.
  for (std::int64_t first = 0; first < units; first += step) {
    const std::int64_t element = (first + lane / unit_lanes) * N;
    const bool active = target.active && element < plan.length;
    GradLane<T, N, kProduct> sum(a, plan.reads, plan.share, lane_in_unit);
    if (active) sum.add(target.row, target.range, element);
#pragma unroll
    for (int i = 0; i < N; ++i) sum.value[i] = sum_lanes(sum.value[i], 1, unit_lanes);
    if (active && lane_in_unit == 0) {
      store_unit<T, N>(sum.value, a, plan, target.to * plan.length + element);
    }
  }
}

GradPlan plan_of(const MessageGradArgs& a, const CudaLaunch& context, int elements) {
  const std::int64_t own_step = a.of_lhs ? a.layout.lhs_step : a.layout.rhs_step;
  const Operand& other = a.of_lhs ? a.rhs : a.lhs;
  const auto by_row = [](const void* data, Access access) {
    return data != nullptr && access == Access::kRow;
  };
  GradPlan plan;
  plan.reads = grad_reads(a);
  plan.num_entries = a.entries.indptr != nullptr ? context.num_entries : a.row_end;
  plan.length = a.of_lhs ? a.lhs.length : a.rhs.length;
  plan.partials = context.workspace;
  plan.share.run_lanes = own_step == 0 ? power_of_2(a.layout.inner, kWarpLanes) : 1;
  const int side_by_side =
      plan.share.run_lanes * power_of_2(plan.length / elements, kWarpLanes / plan.share.run_lanes);
  if (a.per_entry) {
    plan.targets = GradTargets::kEntries;
    plan.num_targets = plan.num_entries;
    plan.needs_row = a.entries.indptr != nullptr &&
                     (by_row(a.grad.data, a.grad.access) || by_row(a.lhs.data, a.lhs.access) ||
                      by_row(a.rhs.data, a.rhs.access) || by_row(a.arg, a.edge) ||
                      by_row(a.other_scale, other.access));
  } else {
    plan.num_targets = a.row_end;
    plan.skip_hubs = may_have_hubs(a.entries, context.num_entries);
    plan.share.entry_lanes =
        lanes_for_entries(a.entries, a.row_end, context.num_entries,
                          MessageGradTuning::kEntriesPerLane, kWarpLanes / side_by_side);
  }
  const std::int64_t lanes = plan.length / elements * plan.share.run_lanes * plan.share.entry_lanes;
  plan.team = power_of_2(lanes, MessageGradTuning::kThreads);
  return plan;
}

template <class T, int N, bool kProduct>
void launch_message_grad(const MessageGradArgs& args, const CudaLaunch& context) {
  GradPlan plan = plan_of(args, context, N);
  const auto launch_targets = [&](const char* name) {
    const int per_block = MessageGradTuning::kThreads / plan.team;
    launch(name, &message_grad_kernel<T, N, kProduct>, {ceil_div(plan.num_targets, per_block)},
           MessageGradTuning::kThreads, context.stream, args, plan);
  };
  launch_targets("message_grad");
  if (!plan.skip_hubs) return;
  plan.targets = GradTargets::kHubParts;
  plan.num_targets = 2 * num_chunks(context.num_entries);
  launch_targets("message_grad of hubs");
  launch_hub_sums<T>("message_grad, sums of hubs",
                     {.entries = args.entries,
                      .num_rows = args.row_end,
                      .num_entries = context.num_entries,
                      .partials = context.workspace,
                      .length = plan.length,
                      .out = args.out,
                      .out_is_accum = args.out_is_accum},
                     context.stream);
}

/// Whether elements can be processed in packs of N: no broadcasting over groups, adjacent elements
/// in operand and gradient, and every row of every array aligned to packs.
template <int N>
bool fits(const MessageGradArgs& a) {
  const Layout& layout = a.layout;
  const bool tables =
      layout.lhs_offset != nullptr || layout.rhs_offset != nullptr || layout.out_offset != nullptr;
  const std::int64_t own_length = a.of_lhs ? a.lhs.length : a.rhs.length;
  const std::int64_t own_step = a.of_lhs ? layout.lhs_step : layout.rhs_step;
  if (tables || layout.num_groups != 1 || layout.inner % N != 0 || own_step != 1 ||
      layout.out_step != 1 || own_length != layout.inner) {
    return false;
  }
  const void* arrays[] = {a.lhs.data, a.rhs.data, a.grad.data, a.arg, a.product, a.out};
  return std::all_of(std::begin(arrays), std::end(arrays),
                     [](const void* array) { return is_aligned(array, 16); });
}

}  // namespace

template <>
std::int64_t Kernel<MessageGradArgs>::workspace(const MessageGradArgs& args,
                                                std::int64_t num_entries) {
  if (args.per_entry) return 0;
  const std::int64_t size = args.dtype == DType::kFloat64 ? sizeof(double) : sizeof(float);
  const std::int64_t length = args.of_lhs ? args.lhs.length : args.rhs.length;
  return num_partials(args.entries, num_entries) * length * size;
}

template <>
void Kernel<MessageGradArgs>::run(const MessageGradArgs& args, const CudaLaunch& context) {
  if (args.row_end == 0 || (args.of_lhs ? args.lhs.length : args.rhs.length) == 0) return;
  detail::visit(DTypes{}, args.dtype, [&]<class T>() {
    // Packs of accumulators too, for products and arrays of accumulator type.
    constexpr int kPack = 16 / static_cast<int>(sizeof(typename T::Accum));
    const bool packed = fits<kPack>(args);
    if (args.product != nullptr) {
      packed ? launch_message_grad<T, kPack, true>(args, context)
             : launch_message_grad<T, 1, true>(args, context);
    } else {
      packed ? launch_message_grad<T, kPack, false>(args, context)
             : launch_message_grad<T, 1, false>(args, context);
    }
  });
}

}  // namespace mezzo::kernels::cuda
