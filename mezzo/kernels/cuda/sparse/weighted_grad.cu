#include <algorithm>
#include <cstdint>

#include "mezzo/core/type_list.h"
#include "mezzo/kernels/cuda/kernels.h"
#include "mezzo/kernels/cuda/row_lanes.h"
#include "mezzo/kernels/cuda/sparse/hub_sums.h"
#include "mezzo/kernels/cuda/sparse/spmm_work.h"

// Gradients of a weighted sum of rows. A unit of work is one head of one row, or of the part of a
// long row in one chunk of the edges. Adjacent lanes hold its features in packs, and several such
// teams share the edges. An edge's row is read once, for the sum and for the dot product.

namespace mezzo::kernels::cuda {

namespace {

struct WeightedGradTuning {
  static constexpr int kThreads = 64;  ///< few: a block's warps wait for its longest row
  static constexpr int kBlocks = 8;    ///< per multiprocessor: bounds the registers
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
      : a_(a),
        lanes_(lanes),
        unit_(unit),
        dots_(slab == 0),
        others_(row_picker(a.entries.first)),
        edges_(row_picker(a.entries.second)),
        count_(static_cast<int>(unit.range.end - unit.range.begin)) {
    const int lane = lane_of_warp() & (lanes.features * lanes.entries - 1);
    feature_lane_ = lane & (lanes.features - 1);
    entry_lane_ = shifted(lane, lanes.features);
    const std::int64_t slab_features = std::int64_t{lanes.features} * kPacks * N;
    first_ = slab * slab_features + feature_lane_ * N;
    own_ = static_cast<const Storage*>(a.own) + (unit.row * a.heads + unit.head) * a.features;
    const auto* scales = static_cast<const Accum*>(a.own_scale);
    // An empty row is 0, which an infinite scale would turn into NaN.
    own_scale_ = scales != nullptr && count_ > 0 ? scales[unit.row] : Accum(1);
  }

  __device__ void run() {
    if (dots_) load_own();
    const int step = kEntriesAhead * lanes_.entries;
    for (int first = entry_lane_; __any_sync(kAllLanes, first < count_); first += step) {
      add_entries(first);
    }
    if (a_.own_grad != nullptr) store_sum();
  }

 private:
  using Numbers = Accum[kEntriesAhead];

  __device__ std::int64_t feature(int pack) const {
    return first_ + std::int64_t{pack} * lanes_.features * N;
  }

  __device__ void load_own() {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (count_ > 0 && feature(k) < a_.features) {
        load_in_row<T, N>(own_, feature(k), a_.features, own_values_[k]);
      }
    }
  }

  /// Adds edges number first, first + lanes_.entries, ... of the row. Loads all their rows before
  /// it uses one; past the end it adds zeros.
  __device__ void add_entries(int first) {
    int positions[kEntriesAhead];
    std::int64_t others[kEntriesAhead] = {};
    Numbers scales, weights = {};
#pragma unroll
    for (int j = 0; j < kEntriesAhead; ++j) {
      positions[j] = min(first + j * lanes_.entries, count_ - 1);
      scales[j] = Accum(1);
    }
    const bool any = first < count_;
    if (any) {
      others_.at(unit_.row, unit_.range.begin, positions, others);
      if (a_.other_scale != nullptr) {
        numbers_at<T>(Operand{.data = a_.other_scale, .is_accum = true}, others, scales);
      }
      if (a_.own_grad != nullptr) read_weights(positions, weights);
    }
    const Storage* rows[kEntriesAhead];
    bool mine[kEntriesAhead];
#pragma unroll
    for (int j = 0; j < kEntriesAhead; ++j) {
      rows[j] = static_cast<const Storage*>(a_.other) +
                (others[j] * a_.heads + unit_.head) * (a_.features + a_.other_padding);
      mine[j] = first + j * lanes_.entries < count_;
      weights[j] = mine[j] ? weights[j] * scales[j] : Accum(0);
    }
    Numbers dots = {};
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      Pack<T, N> packs[kEntriesAhead];
#pragma unroll
      for (int j = 0; j < kEntriesAhead; ++j) {
        packs[j] = load_pack<T, N>(rows[j] + feature(k), mine[j] && feature(k) < a_.features);
      }
#pragma unroll
      for (int j = 0; j < kEntriesAhead; ++j) {
        Accum values[N];
        widen(packs[j], values);
#pragma unroll
        for (int i = 0; i < N; ++i) {
          sum_[k][i] += weights[j] * values[i];
          dots[j] += own_values_[k][i] * values[i];
        }
      }
    }
    if (!dots_) return;
    if (lanes_.slabs > 1 && any) add_rest_of_dots(rows, dots);
    store_dots(first, scales, dots);
  }

  __device__ void read_weights(const int (&positions)[kEntriesAhead], Numbers& weights) const {
    std::int64_t at[kEntriesAhead];
    edges_.at(unit_.row, unit_.range.begin, positions, at);
#pragma unroll
    for (int j = 0; j < kEntriesAhead; ++j) {
      at[j] = at[j] * a_.weight.length + (a_.weight.length == 1 ? 0 : unit_.head);
    }
    numbers_at<T>(Operand{.data = a_.weight.data, .is_accum = a_.weight.is_accum}, at, weights);
  }

  /// The features after the first slab.
  __device__ void add_rest_of_dots(const Storage* const (&rows)[kEntriesAhead],
                                   Numbers& dots) const {
    Numbers rest = {};
    for (std::int64_t f = feature(kPacks); f < a_.features; f += lanes_.features * N) {
      Accum own[N] = {};
      load_in_row<T, N>(own_, f, a_.features, own);
      Pack<T, N> packs[kEntriesAhead];
#pragma unroll
      for (int j = 0; j < kEntriesAhead; ++j) packs[j] = load_pack<T, N>(rows[j] + f);
#pragma unroll
      for (int j = 0; j < kEntriesAhead; ++j) {
        Accum values[N];
        widen(packs[j], values);
#pragma unroll
        for (int i = 0; i < N; ++i) rest[j] += own[i] * values[i];
      }
    }
#pragma unroll
    for (int j = 0; j < kEntriesAhead; ++j) dots[j] += rest[j];
  }

  __device__ void store_dots(int first, const Numbers& scales, Numbers& dots) const {
    sum_parts(dots, lanes_.features);
#pragma unroll
    for (int i = 0; i < kEntriesAhead; ++i) {
      const int number = feature_lane_ + i * lanes_.features;
      const int position = first + number * lanes_.entries;
      if (number >= kEntriesAhead || position >= count_) continue;
      Accum scale = scales[0];
#pragma unroll
      for (int j = 1; j < kEntriesAhead; ++j) {
        if (number == j) scale = scales[j];
      }
      store_number<T>(dots[i] * scale * own_scale_, a_.weight_grad, a_.weight_grad_is_accum,
                      (unit_.range.begin + position) * a_.heads + unit_.head);
    }
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
        for (int i = 0; i < N; ++i) {
          if (feature(k) + i < a_.features) unit_.partial[at + feature(k) + i] = sum_[k][i];
        }
      } else {
#pragma unroll
        for (int i = 0; i < N; ++i) sum_[k][i] *= own_scale_;
        store_in_row<T, N>(sum_[k], out, feature(k), a_.features);
      }
    }
  }

  const WeightedGradArgs& a_;
  const UnitLanes& lanes_;
  const Unit<Accum>& unit_;
  const bool dots_;
  const RowPicker others_, edges_;
  const int count_;
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
  const std::int64_t row = quotient(index, a.heads);
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
__global__ void __launch_bounds__(WeightedGradTuning::kThreads, WeightedGradTuning::kBlocks)
    weighted_grad_kernel(WeightedGradArgs a, UnitLanes lanes, HubWork work) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * WeightedGradTuning::kThreads + threadIdx.x;
  const auto unit =
      unit_at<typename T::Accum>(a, work, shifted(thread, lanes.features * lanes.entries));
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
      args.own_grad != nullptr ? std::min(lanes.slabs, kMostBlocksAlongY) : 1;
  const auto launch_units = [&](const char* name, std::int64_t rows, const HubWork& work) {
    const std::int64_t threads = rows * args.heads * lanes.features * lanes.entries;
    launch(name, &weighted_grad_kernel<T, N>,
           {ceil_div(threads, WeightedGradTuning::kThreads), slabs}, WeightedGradTuning::kThreads,
           context.stream, args, lanes, work);
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
    visit_pack<T>(args.features, args.other_padding, address_of(args.other),
                  address_of(args.own) | address_of(args.own_grad),
                  [&]<int N>() { launch_weighted_grad<T, N>(args, context); });
  });
}

}  // namespace mezzo::kernels::cuda
