#include <algorithm>
#include <cstdint>
#include <limits>

#include "mezzo/core/type_list.h"
#include "mezzo/kernels/cuda/kernels.h"
#include "mezzo/kernels/cuda/row_lanes.h"
#include "mezzo/kernels/cuda/sparse/hubs.h"

// Softmax over the edges of a row, and its gradient. Adjacent lanes process the elements of one
// edge, so that each lane stays with one element; groups of them share the edges. A long row has
// its own block.

namespace mezzo::kernels::cuda {

namespace {

struct SoftmaxTuning {
  static constexpr int kThreads = 256;
  static constexpr int kHubThreads = 512;
  static constexpr std::int64_t kEntriesPerLane = 2;
  static constexpr int kFewestLanes = 8;  ///< per element: rows longer than most share a warp
  static constexpr int kKept = 4;         ///< numbers that a lane reads once; it rereads later ones
};

__device__ inline float exponential(float x) {
  return expf(x);
}
__device__ inline double exponential(double x) {
  return exp(x);
}

/// The lanes of a row within a warp: `elements` of one edge, `entries` times.
struct WarpTeam {
  int elements, entries;

  __device__ int lane() const { return static_cast<int>(threadIdx.x) & (elements * entries - 1); }
  __device__ int element() const { return lane() & (elements - 1); }
  __device__ int entry() const { return lane() / elements; }
  __device__ int num_entries() const { return entries; }

  /// Reduces over the lanes of one element.
  template <class A, class Join>
  __device__ A reduce(A x, Join join) const {
    return join_lanes(x, elements, elements * entries, join);
  }
};

/// A block's threads for one row, in the same order.
template <class A>
struct BlockTeam {
  static constexpr int kWarps = SoftmaxTuning::kHubThreads / kWarpLanes;
  int elements;
  A (*by_warp)[kWarpLanes];  ///< shared memory

  __device__ int element() const { return static_cast<int>(threadIdx.x) & (elements - 1); }
  __device__ int entry() const { return static_cast<int>(threadIdx.x) / elements; }
  __device__ int num_entries() const { return SoftmaxTuning::kHubThreads / elements; }

  template <class Join>
  __device__ A reduce(A x, Join join) const {
    x = join_lanes(x, elements, kWarpLanes, join);
    __syncthreads();  // the array may still be read
    if (static_cast<int>(threadIdx.x) % kWarpLanes < elements) {
      by_warp[threadIdx.x / kWarpLanes][element()] = x;
    }
    __syncthreads();
    A all = by_warp[0][element()];
    for (int warp = 1; warp < kWarps; ++warp) all = join(all, by_warp[warp][element()]);
    return all;
  }
};

/// The elements of a lane: one of every `stride`-th edge. `Read` returns the values that it needs
/// of an element.
template <class Read>
class LaneNumbers {
 public:
  template <class Team>
  __device__ LaneNumbers(const Read& read, const Team& team, EntryRange range)
      : read_(read),
        entry_(range.begin + team.entry()),
        end_(range.end),
        stride_(team.num_entries()) {
#pragma unroll
    for (int i = 0; i < SoftmaxTuning::kKept; ++i) {
      if (entry_ + i * stride_ < end_) cached_[i] = read_(entry_ + i * stride_);
    }
  }

  /// Calls f(entry, number) for each edge.
  template <class F>
  __device__ void each(F f) const {
#pragma unroll
    for (int i = 0; i < SoftmaxTuning::kKept; ++i) {
      if (entry_ + i * stride_ < end_) f(entry_ + i * stride_, cached_[i]);
    }
#pragma unroll 4
    for (std::int64_t entry = entry_ + SoftmaxTuning::kKept * stride_; entry < end_;
         entry += stride_) {
      f(entry, read_(entry));
    }
  }

 private:
  Read read_;
  std::int64_t entry_, end_, stride_;
  typename Read::Number cached_[SoftmaxTuning::kKept];
};

template <class T>
struct ReadLogit {
  using Number = typename T::Accum;
  const SoftmaxArgs& a;
  std::int64_t element;

  __device__ Number operator()(std::int64_t entry) const {
    return number_at<T>(a.logits, false, id_at(a.entries.second, entry) * a.length + element);
  }
};

template <class T>
struct ValueAndGrad {
  typename T::Accum value, grad;
};

template <class T>
struct ReadValueAndGrad {
  using Number = ValueAndGrad<T>;
  const SoftmaxGradArgs& a;
  std::int64_t element;

  __device__ Number operator()(std::int64_t entry) const {
    const std::int64_t at = id_at(a.entries.second, entry) * a.length + element;
    return {number_at<T>(a.value, false, at), number_at<T>(a.grad, false, at)};
  }
};

/// All threads of the team must call these; one without work passes an empty range.
template <class T, class Team>
__device__ void normalize(const SoftmaxArgs& a, const Team& team, EntryRange range,
                          std::int64_t element) {
  using Accum = typename T::Accum;
  const LaneNumbers<ReadLogit<T>> numbers({a, element}, team, range);
  // NaN may be lost here, but then the sum is NaN.
  const auto larger = [](Accum x, Accum y) { return x < y ? y : x; };
  Accum top = -std::numeric_limits<Accum>::infinity();
  numbers.each([&](std::int64_t, Accum x) { top = larger(top, x); });
  top = team.reduce(top, larger);
  Accum sum = 0;
  numbers.each([&](std::int64_t, Accum x) { sum += exponential(x - top); });
  sum = team.reduce(sum, [](Accum x, Accum y) { return x + y; });
  numbers.each([&](std::int64_t entry, Accum x) {
    store_number<T>(exponential(x - top) / sum, a.out, false,
                    id_at(a.out_ids, entry) * a.length + element);
  });
}

template <class T, class Team>
__device__ void normalize(const SoftmaxGradArgs& a, const Team& team, EntryRange range,
                          std::int64_t element) {
  using Accum = typename T::Accum;
  const LaneNumbers<ReadValueAndGrad<T>> numbers({a, element}, team, range);
  Accum sum = 0;
  numbers.each([&](std::int64_t, const ValueAndGrad<T>& x) { sum += x.value * x.grad; });
  sum = team.reduce(sum, [](Accum x, Accum y) { return x + y; });
  numbers.each([&](std::int64_t entry, const ValueAndGrad<T>& x) {
    store_number<T>(x.value * (x.grad - sum), a.out, false,
                    id_at(a.out_ids, entry) * a.length + element);
  });
}

template <class T, class Args>
__global__ void __launch_bounds__(SoftmaxTuning::kThreads)
    softmax_kernel(Args a, WarpTeam team, std::int64_t longest) {
  const int rows_per_block = SoftmaxTuning::kThreads / (team.elements * team.entries);
  const std::int64_t row = std::int64_t{blockIdx.x} * rows_per_block +
                           static_cast<int>(threadIdx.x) / (team.elements * team.entries);
  EntryRange range = row < a.row_end ? entries_of(a.entries, row) : EntryRange{0, 0};
  if (is_hub(range, longest)) range = {0, 0};
  const std::int64_t step = std::int64_t{gridDim.y} * team.elements;
  for (std::int64_t from = std::int64_t{blockIdx.y} * team.elements; from < a.length;
       from += step) {
    const std::int64_t element = from + team.element();
    normalize<T>(a, team, element < a.length ? range : EntryRange{0, 0}, element);
  }
}

/// One block per chunk of the edges: the one with the start of a long row processes the whole row.
template <class T, class Args>
__global__ void __launch_bounds__(SoftmaxTuning::kHubThreads)
    softmax_hub_kernel(Args a, int elements, std::int64_t num_entries) {
  using Accum = typename T::Accum;
  __shared__ Accum by_warp[BlockTeam<Accum>::kWarps][kWarpLanes];
  const Hub hub = hub_beginning_in(a.entries, a.row_end, num_entries, blockIdx.x);
  if (hub.row < 0) return;
  const BlockTeam<Accum> team{elements, by_warp};
  const std::int64_t step = std::int64_t{gridDim.y} * elements;
  for (std::int64_t from = std::int64_t{blockIdx.y} * elements; from < a.length; from += step) {
    const std::int64_t element = from + team.element();
    normalize<T>(a, team, element < a.length ? hub.range : EntryRange{0, 0}, element);
  }
}

template <class Args>
void launch_softmax(const char* name, const char* hub_name, const Args& args,
                    const CudaLaunch& context) {
  if (args.length == 0 || args.row_end == 0) return;
  const int elements = power_of_2(args.length, kWarpLanes);
  const int most = kWarpLanes / elements;
  const int lanes_for_mean = lanes_for_entries(args.entries, args.row_end, context.num_entries,
                                               SoftmaxTuning::kEntriesPerLane, most);
  const WarpTeam team{elements,
                      std::max(lanes_for_mean, std::min(SoftmaxTuning::kFewestLanes, most))};
  const int rows_per_block = SoftmaxTuning::kThreads / (team.elements * team.entries);
  const std::int64_t slabs = std::min(ceil_div(args.length, elements), kMostBlocksAlongY);
  const bool hubs = may_have_hubs(args.entries, context.num_entries);
  detail::visit(DTypes{}, args.dtype, [&]<class T>() {
    launch(name, &softmax_kernel<T, Args>, {ceil_div(args.row_end, rows_per_block), slabs},
           SoftmaxTuning::kThreads, context.stream, args, team, chunk_length(context.num_entries));
    if (!hubs) return;
    launch(hub_name, &softmax_hub_kernel<T, Args>, {num_chunks(context.num_entries), slabs},
           SoftmaxTuning::kHubThreads, context.stream, args, elements, context.num_entries);
  });
}

}  // namespace

template <>
std::int64_t Kernel<SoftmaxArgs>::workspace(const SoftmaxArgs& /*args*/,
                                            std::int64_t /*num_entries*/) {
  return 0;
}

template <>
void Kernel<SoftmaxArgs>::run(const SoftmaxArgs& args, const CudaLaunch& context) {
  launch_softmax("softmax", "softmax of hubs", args, context);
}

template <>
std::int64_t Kernel<SoftmaxGradArgs>::workspace(const SoftmaxGradArgs& /*args*/,
                                                std::int64_t /*num_entries*/) {
  return 0;
}

template <>
void Kernel<SoftmaxGradArgs>::run(const SoftmaxGradArgs& args, const CudaLaunch& context) {
  launch_softmax("softmax_grad", "softmax_grad of hubs", args, context);
}

}  // namespace mezzo::kernels::cuda
