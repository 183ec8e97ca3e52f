#include <algorithm>
#include <cstdint>

#include "mezzo/core/type_list.h"
#include "mezzo/kernels/cuda/kernels.h"
#include "mezzo/kernels/cuda/row_lanes.h"
#include "mezzo/kernels/cuda/sparse/hub_sums.h"

// Gradients of a weighted sum of rows. A unit of work is one head of one row, or of the part of a
// long row in one chunk of the edges. Adjacent lanes hold its features in packs, and several such
// teams share the edges. An edge's row is read once, for the sum and for the dot product.

namespace mezzo::kernels::cuda {

namespace {

struct WeightedGradTuning {
  static constexpr int kThreads = 256;
  /// Features per lane in registers, for `own` and for the sum. Larger heads are processed in
  /// slabs.
  static constexpr int kFeatures = 8;
  static constexpr std::int64_t kEntriesPerLane = 4;
};

/// The lanes of a unit, within a warp: `features` adjacent lanes, `entries` times.
struct UnitLanes {
  int features = 1, entries = 1;
  std::int64_t slabs = 1;  ///< number of slabs of features
};

/// One unit. `partial`: output for a long row's sum; null: own_grad.
template <class A>
struct Unit {
  std::int64_t row = 0, head = 0;
  EntryRange range = {0, 0};
  bool active = false;
  A* partial = nullptr;
};

/// One slab of one unit's features, in packs of `N`. All lanes of the warp must take part.
template <class T, int N>
class SlabSum {
 public:
  using Accum = typename T::Accum;
  using Storage = typename T::Storage;
  static constexpr int kPacks = WeightedGradTuning::kFeatures / N;

  __device__ SlabSum(const WeightedGradArgs& a, const UnitLanes& lanes, const Unit<Accum>& unit,
                     std::int64_t slab)
      : a_(a), lanes_(lanes), unit_(unit), dots_(slab == 0) {
    const int lane = static_cast<int>(threadIdx.x) & (lanes.features * lanes.entries - 1);
    feature_lane_ = lane & (lanes.features - 1);
    entry_lane_ = lane / lanes.features;
    const std::int64_t slab_features = std::int64_t{lanes.features} * kPacks * N;
    first_ = slab * slab_features + feature_lane_ * N;
    own_ = static_cast<const Storage*>(a.own) + (unit.row * a.heads + unit.head) * a.features;
    const auto* scales = static_cast<const Accum*>(a.own_scale);
    // An empty row is 0, which an infinite scale would turn into NaN.
    const bool scaled = scales != nullptr && unit.range.begin < unit.range.end;
    own_scale_ = scaled ? scales[unit.row] : Accum(1);
  }

  __device__ void run() {
    if (dots_) load_own();
    const EntryRange range = unit_.range;
    std::int64_t entry = range.begin + entry_lane_;
    std::int64_t other = entry < range.end ? id_at(a_.entries.first, entry) : 0;
    while (__any_sync(kAllLanes, entry < range.end)) {
      // Prefetches the next row's id while this row is read.
      const std::int64_t next = entry + lanes_.entries;
      const std::int64_t next_other = next < range.end ? id_at(a_.entries.first, next) : 0;
      const bool mine = entry < range.end;
      const Accum scale = mine ? other_scale(other) : Accum(0);
      Accum dot = mine ? add_entry(entry, other, scale) : Accum(0);
      if (dots_) {
        dot = group_sum(dot, lanes_.features);
        if (mine && feature_lane_ == 0) {
          store_number<T>(dot * scale * own_scale_, a_.weight_grad, a_.weight_grad_is_accum,
                          entry * a_.heads + unit_.head);
        }
      }
      entry = next;
      other = next_other;
    }
    if (a_.own_grad != nullptr) store_sum();
  }

 private:
  __device__ std::int64_t feature(int pack) const {
    return first_ + std::int64_t{pack} * lanes_.features * N;
  }

  __device__ void load_own() {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (unit_.range.begin < unit_.range.end && feature(k) < a_.features) {
        load<T, N>(own_ + feature(k), own_values_[k]);
      }
    }
  }

  __device__ Accum other_scale(std::int64_t other) const {
    const auto* scales = static_cast<const Accum*>(a_.other_scale);
    return scales != nullptr ? scales[other] : Accum(1);
  }

  /// This lane's part of the edge's dot product.
  __device__ Accum add_entry(std::int64_t entry, std::int64_t other, Accum scale) {
    const Storage* x =
        static_cast<const Storage*>(a_.other) + (other * a_.heads + unit_.head) * a_.features;
    Accum weight = 0;
    if (a_.own_grad != nullptr) {
      const std::int64_t at = id_at(a_.entries.second, entry) * a_.weight.length;
      weight = number_at<T>(a_.weight.data, a_.weight.is_accum,
                            at + (a_.weight.length == 1 ? 0 : unit_.head)) *
               scale;
    }
    Accum dot = 0;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (feature(k) >= a_.features) continue;
      Accum values[N];
      load<T, N>(x + feature(k), values);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        sum_[k][i] += weight * values[i];
        if (dots_) dot += own_values_[k][i] * values[i];
      }
    }
    if (dots_ && lanes_.slabs > 1) dot += rest_of_dot(x);
    return dot;
  }

  /// Dot product of the features after the first slab.
  __device__ Accum rest_of_dot(const Storage* x) const {
    Accum dot = 0;
    for (std::int64_t f = feature(kPacks); f < a_.features; f += lanes_.features * N) {
      Accum values[N], own[N];
      load<T, N>(x + f, values);
      load<T, N>(own_ + f, own);
#pragma unroll
      for (int i = 0; i < N; ++i) dot += own[i] * values[i];
    }
    return dot;
  }

  __device__ void store_sum() {
    const std::int64_t at = unit_.head * a_.features;
    Storage* out = static_cast<Storage*>(a_.own_grad) + unit_.row * a_.heads * a_.features + at;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        sum_[k][i] = sum_lanes(sum_[k][i], lanes_.features, lanes_.features * lanes_.entries);
      }
      if (!unit_.active || entry_lane_ != 0 || feature(k) >= a_.features) continue;
      if (unit_.partial != nullptr) {
#pragma unroll
        for (int i = 0; i < N; ++i) unit_.partial[at + feature(k) + i] = sum_[k][i];
      } else {
#pragma unroll
        for (int i = 0; i < N; ++i) sum_[k][i] *= own_scale_;
        store<T, N>(sum_[k], out + feature(k));
      }
    }
  }

  const WeightedGradArgs& a_;
  const UnitLanes& lanes_;
  const Unit<Accum>& unit_;
  const bool dots_;
  int feature_lane_, entry_lane_;
  std::int64_t first_;
  const Storage* own_;
  Accum own_scale_;
  Accum own_values_[kPacks][N] = {}, sum_[kPacks][N] = {};
};

/// The edges of all rows, and the partial sums of long rows.
struct HubWork {
  bool in_chunks = false;  ///< units are parts of long rows; else rows
  bool skip_hubs = false;  ///< long rows are processed separately
  std::int64_t num_entries = 0;
  void* partials = nullptr;
};

template <class A>
__device__ Unit<A> unit_at(const WeightedGradArgs& a, const HubWork& work, std::int64_t index) {
  Unit<A> unit;
  const std::int64_t row = index / a.heads;
  unit.head = index - row * a.heads;
  if (work.in_chunks) {
    if (row >= 2 * num_chunks(work.num_entries)) return unit;
    const HubPart part =
        hub_part(a.entries, a.row_end, work.num_entries, row / 2, static_cast<int>(row % 2));
    if (part.row < 0) return unit;
    unit.row = part.row;
    unit.range = part.range;
    unit.active = true;
    if (a.own_grad != nullptr) {
      unit.partial = static_cast<A*>(work.partials) + part.partial * a.heads * a.features;
    }
    return unit;
  }
  if (row >= a.row_end) return unit;
  const EntryRange range = entries_of(a.entries, row);
  if (work.skip_hubs && is_hub(range, chunk_length(work.num_entries))) return unit;
  unit.row = row;
  unit.range = range;
  unit.active = true;
  return unit;
}

template <class T, int N>
__global__ void __launch_bounds__(WeightedGradTuning::kThreads)
    weighted_grad_kernel(WeightedGradArgs a, UnitLanes lanes, HubWork work) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * WeightedGradTuning::kThreads + threadIdx.x;
  const auto unit = unit_at<typename T::Accum>(a, work, thread / (lanes.features * lanes.entries));
  // Without a sum the first slab computes the whole dot products.
  const std::int64_t slabs = a.own_grad != nullptr ? lanes.slabs : 1;
  for (std::int64_t slab = blockIdx.y; slab < slabs; slab += gridDim.y) {
    SlabSum<T, N>(a, lanes, unit, slab).run();
  }
}

template <int N>
UnitLanes unit_lanes(const WeightedGradArgs& a, std::int64_t num_entries) {
  UnitLanes lanes;
  lanes.features = power_of_2(ceil_div(a.features, N), kWarpLanes);
  // Whole rows first, then several edges of one row.
  const int row_lanes = lanes.features * power_of_2(a.heads, kWarpLanes / lanes.features);
  lanes.entries = lanes_for_entries(a.entries, a.row_end, num_entries,
                                    WeightedGradTuning::kEntriesPerLane, kWarpLanes / row_lanes);
  const std::int64_t in_slab = std::int64_t{lanes.features} * WeightedGradTuning::kFeatures;
  lanes.slabs = ceil_div(a.features, in_slab);
  return lanes;
}

template <class T, int N>
void launch_weighted_grad(const WeightedGradArgs& args, const CudaLaunch& context) {
  const UnitLanes lanes = unit_lanes<N>(args, context.num_entries);
  // Without a sum the first slab is enough: it computes the whole dot products.
  const std::int64_t slabs =
      args.own_grad != nullptr ? std::min<std::int64_t>(lanes.slabs, 65535) : 1;
  const auto launch_units = [&](const char* name, std::int64_t rows, const HubWork& work) {
    const std::int64_t threads = rows * args.heads * lanes.features * lanes.entries;
    launch(name, &weighted_grad_kernel<T, N>,
           dim3(static_cast<unsigned>(ceil_div(threads, WeightedGradTuning::kThreads)),
                static_cast<unsigned>(slabs)),
           dim3(WeightedGradTuning::kThreads), context.stream, args, lanes, work);
  };
  HubWork work{.skip_hubs = may_have_hubs(args.entries, context.num_entries),
               .num_entries = context.num_entries,
               .partials = context.workspace};
  launch_units("weighted_grad", args.row_end, work);
  if (!work.skip_hubs) return;
  work.in_chunks = true;
  launch_units("weighted_grad of hubs", 2 * num_chunks(context.num_entries), work);
  if (args.own_grad == nullptr) return;
  launch_hub_sums<T>("weighted_grad, sums of hubs",
                     {.entries = args.entries,
                      .num_rows = args.row_end,
                      .num_entries = context.num_entries,
                      .partials = context.workspace,
                      .length = args.heads * args.features,
                      .row_scale = args.own_scale,
                      .out = args.own_grad},
                     context.stream);
}

/// Whether each head of each array is aligned to packs of N elements.
template <class T, int N>
bool fits(const WeightedGradArgs& a) {
  constexpr auto kBytes = static_cast<std::int64_t>(N * sizeof(typename T::Storage));
  return a.features % N == 0 && is_aligned(a.own, kBytes) && is_aligned(a.other, kBytes) &&
         is_aligned(a.own_grad, kBytes);
}

}  // namespace

template <>
std::int64_t Kernel<WeightedGradArgs>::workspace(const WeightedGradArgs& args,
                                                 std::int64_t num_entries) {
  if (args.own_grad == nullptr) return 0;
  const std::int64_t size = args.dtype == DType::kFloat64 ? sizeof(double) : sizeof(float);
  return num_partials(args.entries, num_entries) * args.heads * args.features * size;
}

template <>
void Kernel<WeightedGradArgs>::run(const WeightedGradArgs& args, const CudaLaunch& context) {
  if (args.row_end == 0 || args.heads == 0 || args.features == 0) return;
  detail::visit(DTypes{}, args.dtype, [&]<class T>() {
    constexpr int kWidest = 16 / static_cast<int>(sizeof(typename T::Storage));
    if (fits<T, kWidest>(args)) {
      launch_weighted_grad<T, kWidest>(args, context);
      return;
    }
    if constexpr (kWidest == 8) {
      if (fits<T, 2>(args)) {
        launch_weighted_grad<T, 2>(args, context);
        return;
      }
    }
    launch_weighted_grad<T, 1>(args, context);
  });
}

}  // namespace mezzo::kernels::cuda
