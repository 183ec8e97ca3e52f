#include <algorithm>
#include <cstdint>
#include <limits>

#include "mezzo/kernels/cuda/device.h"
#include "mezzo/kernels/cuda/kernels.h"
#include "mezzo/kernels/cuda/philox.h"
#include "mezzo/kernels/cuda_sampling.h"

namespace mezzo::kernels::cuda {
namespace {

using kernels::DrawCount;
using kernels::DrawKey;
using kernels::RowDraw;

struct SamplingLaunch {
  static constexpr int kElementThreads = 256;                         ///< one thread per element
  static constexpr int kLaneThreads = 128;                            ///< a few lanes per row
  static constexpr int kBlockThreads = 128;                           ///< one block per row
  static constexpr std::int64_t kMostBlocks = std::int64_t{1} << 16;  ///< maximum of those
};

/// Random numbers of one row in any order; same as RowNumbers in kernels/cpu/sampling.h.
class RowNumbers {
 public:
  __device__ RowNumbers(DrawKey key, std::int64_t position, std::int64_t degree)
      : key_(key), position_(position), use_32_bits_(degree < kernels::kDegreeOf32BitDraws) {}

  /// Number i, in [0, bound).
  __device__ std::int64_t below(std::int64_t i, std::int64_t bound) const {
    std::uint32_t words[4];
    const std::int64_t call = use_32_bits_ ? i / 4 : i / 2;
    philox_words(key_.seed, key_.stream, kernels::call_index(position_, call), words);
    const auto factor = static_cast<std::uint64_t>(bound);
    if (use_32_bits_) {
      const std::uint32_t even = i & 2 ? words[2] : words[0], odd = i & 2 ? words[3] : words[1];
      return static_cast<std::int64_t>(((i & 1 ? odd : even) * factor) >> 32);
    }
    const std::uint32_t low = i & 1 ? words[2] : words[0], high = i & 1 ? words[3] : words[1];
    return static_cast<std::int64_t>(__umul64hi((std::uint64_t{high} << 32) | low, factor));
  }

 private:
  DrawKey key_;
  std::int64_t position_;
  bool use_32_bits_;
};

/// Output of a row's entries.
template <class Id>
struct Chosen {
  const Id* indices;
  Id *entries, *neighbors;
  std::int64_t begin;

  __device__ Chosen(const CudaDrawArgs& args, std::int64_t row)
      : indices(static_cast<const Id*>(args.indices.data)),
        entries(static_cast<Id*>(args.entries) + args.offsets[row]),
        neighbors(static_cast<Id*>(args.neighbors) + args.offsets[row]),
        begin(args.begins[row]) {}
  __device__ void put(std::int64_t i, std::int64_t offset) const {
    const std::int64_t entry = begin + offset;
    entries[i] = static_cast<Id>(entry);
    neighbors[i] = indices[entry];
  }
};

__global__ void find_rows(CudaDrawArgs args) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= args.num_nodes) return;
  const std::int64_t node = id_at(args.nodes, i), begin = args.indptr[node];
  const std::int64_t degree = args.indptr[node + 1] - begin;
  args.begins[i] = begin;
  args.degrees[i] = degree;
  args.counts[i] = args.count.of(degree);
}

// ---- rows with few draws, a few lanes per row

/// Whether draw_by_lanes() supports the row.
__device__ inline bool is_for_lanes(DrawCount count, std::int64_t degree) {
  const bool is_huge = degree > std::numeric_limits<std::int32_t>::max();
  return (count.fanout <= kernels::kSmallFanout && !is_huge) ||
         kernels::row_draw(count, degree) == RowDraw::kBits;
}

/// Writes the entries whose bits are set, or the others. Each lane of a group writes some of them.
template <int kLanes, class Id>
__device__ void put_bits(std::uint64_t bits, bool others, std::int64_t degree, int lane,
                         const Chosen<Id>& chosen) {
  if (others) bits = ~bits;
  const auto count_bits = [](std::uint64_t word) {
    return __popc(static_cast<unsigned>(word)) + __popc(static_cast<unsigned>(word >> 32));
  };
  for (int bit = lane; bit < degree; bit += kLanes) {
    if (((bits >> bit) & 1) == 0) continue;
    chosen.put(count_bits(bits & ((std::uint64_t{1} << bit) - 1)), bit);
  }
}

/// One row per group of kLanes lanes, one draw per lane. Lanes compare their draws with the others
/// to find duplicates and the order of edges.
template <class Id, int kLanes>
__global__ void __launch_bounds__(SamplingLaunch::kLaneThreads) draw_by_lanes(CudaDrawArgs args) {
  const int warp_lane = static_cast<int>(threadIdx.x) % kWarpLanes, lane = warp_lane % kLanes;
  const int first = warp_lane - lane;
  const std::int64_t row =
      (std::int64_t{blockIdx.x} * SamplingLaunch::kLaneThreads + threadIdx.x) / kLanes;
  const std::int64_t degree = row < args.num_nodes ? args.degrees[row] : 0;
  const bool is_served = degree > 0 && is_for_lanes(args.count, degree);
  const RowDraw how = kernels::row_draw(args.count, degree);
  const std::int64_t fanout = args.count.of(degree), left_out = degree - fanout;
  const bool others = how == RowDraw::kBits && left_out < fanout;
  const std::int64_t draws = is_served ? (others ? left_out : fanout) : 0;
  const bool is_drawing = lane < draws, is_last_new = how == RowDraw::kBits || how == RowDraw::kFew;

  // The maximum if nothing is drawn: above every edge of the supported rows.
  auto value = std::numeric_limits<std::int32_t>::max();
  const std::int64_t first_last = degree - draws, last = first_last + lane;
  if (is_drawing && how == RowDraw::kAll) value = lane;
  if (is_drawing && how != RowDraw::kAll) {
    const std::int64_t bound = is_last_new ? last + 1 : degree;
    value = static_cast<std::int32_t>(RowNumbers(args.key, row, degree).below(lane, bound));
  }

  bool is_again = false;
#pragma unroll
  for (int other = 0; other < kLanes; ++other) {
    const std::int32_t drawn = __shfl_sync(kAllLanes, value, first + other);
    is_again = is_again || (other < lane && drawn == value);
  }
  is_again = is_again && is_drawing && is_last_new;
  // A number may equal the last edge of an earlier draw, which is taken if that was a duplicate.
  const std::int64_t earlier = value - first_last;
  const bool may_follow = is_drawing && is_last_new && earlier >= 0 && earlier < lane;
  for (unsigned known = 0, repeats = __ballot_sync(kAllLanes, is_again); repeats != known;) {
    known = repeats;
    is_again = is_again || (may_follow && ((known >> (first + earlier)) & 1) != 0);
    repeats = __ballot_sync(kAllLanes, is_again);
  }
  if (is_again) value = static_cast<std::int32_t>(last);

  std::uint64_t bits = is_drawing && how == RowDraw::kBits ? std::uint64_t{1} << value : 0;
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) bits |= __shfl_xor_sync(kAllLanes, bits, step);
  int rank = 0;
#pragma unroll
  for (int other = 0; other < kLanes; ++other) {
    const std::int32_t drawn = __shfl_sync(kAllLanes, value, first + other);
    rank += drawn < value || (drawn == value && other < lane) ? 1 : 0;
  }
  if (!is_served) return;
  const Chosen<Id> chosen(args, row);
  if (how == RowDraw::kBits) {
    put_bits<kLanes>(bits, others, degree, lane, chosen);
  } else if (is_drawing) {
    chosen.put(rank, value);
  }
}

// ---- rows with many draws, one block per row; the output arrays hold intermediate results

/// Sorts by key, then by payload (if there is one). Bitonic sort, all comparisons ascending, so
/// that padding past the end would never move.
template <class Id>
__device__ void sort_in_block(Id* keys, Id* payloads, std::int64_t count) {
  const auto exchange = [&](std::int64_t a, std::int64_t b) {
    if (b >= count || keys[a] < keys[b]) return;
    if (keys[a] == keys[b] && (payloads == nullptr || payloads[a] < payloads[b])) return;
    const Id key = keys[a];
    keys[a] = keys[b];
    keys[b] = key;
    if (payloads == nullptr) return;
    const Id payload = payloads[a];
    payloads[a] = payloads[b];
    payloads[b] = payload;
  };
  std::int64_t padded = 1;
  while (padded < count) padded *= 2;
  for (std::int64_t size = 2; size <= padded; size *= 2) {
    for (std::int64_t half = size / 2; half > 0; half /= 2) {
      for (std::int64_t pair = threadIdx.x; pair < padded / 2; pair += blockDim.x) {
        const std::int64_t begin = pair / half * 2 * half, within = pair % half;
        const bool is_mirrored = half == size / 2;
        exchange(begin + within, begin + (is_mirrored ? 2 * half - 1 - within : half + within));
      }
      __syncthreads();
    }
  }
}

/// Draws `count` of `degree` edges: sorted in `numbers_of_row`; `flags` has the same size.
template <class Id>
__device__ void draw_with_last(const RowNumbers& numbers, std::int64_t degree, std::int64_t count,
                               Id* flags, Id* numbers_of_row) {
  const std::int64_t first_last = degree - count;
  const auto drawn = [&](std::int64_t i) { return numbers.below(i, first_last + i + 1); };
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    flags[i] = static_cast<Id>(drawn(i));
    numbers_of_row[i] = static_cast<Id>(i);
  }
  __syncthreads();
  sort_in_block(flags, numbers_of_row, count);
  for (std::int64_t at = threadIdx.x; at < count; at += blockDim.x) {
    if (at > 0 && flags[at] == flags[at - 1]) numbers_of_row[at] = ~numbers_of_row[at];
  }
  __syncthreads();
  // From here flags[i] says whether draw i is a duplicate; numbers can be recomputed.
  for (std::int64_t at = threadIdx.x; at < count; at += blockDim.x) {
    const Id draw = numbers_of_row[at];
    flags[draw < 0 ? ~draw : draw] = draw < 0 ? 1 : 0;
  }
  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    // A number may equal the last edge of an earlier draw, taken if that was a duplicate.
    std::int64_t draw = i, earlier = drawn(i) - first_last;
    while (flags[draw] == 0 && earlier >= 0 && earlier < draw) {
      draw = earlier;
      earlier = drawn(draw) - first_last;
    }
    numbers_of_row[i] = static_cast<Id>(flags[draw] != 0 ? first_last + i : drawn(i));
  }
  __syncthreads();
  sort_in_block(numbers_of_row, static_cast<Id*>(nullptr), count);
}

/// The first `count` distinct numbers below `degree`, sorted in `numbers_of_row` as above.
template <class Id>
__device__ void draw_different(const RowNumbers& numbers, std::int64_t degree, std::int64_t count,
                               Id* flags, Id* numbers_of_row) {
  __shared__ unsigned num_repeats;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    numbers_of_row[i] = static_cast<Id>(numbers.below(i, degree));
  }
  for (std::int64_t used = count;;) {
    if (threadIdx.x == 0) num_repeats = 0;
    __syncthreads();
    sort_in_block(numbers_of_row, static_cast<Id*>(nullptr), count);
    for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) {
      flags[i] = i > 0 && numbers_of_row[i] == numbers_of_row[i - 1] ? 1 : 0;
    }
    __syncthreads();
    // Any duplicate may take any of the next numbers: they are sorted again.
    for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) {
      if (flags[i] == 0) continue;
      numbers_of_row[i] =
          static_cast<Id>(numbers.below(used + atomicAdd(&num_repeats, 1U), degree));
    }
    __syncthreads();
    const unsigned repeats = num_repeats;
    __syncthreads();
    if (repeats == 0) return;
    used += repeats;
  }
}

template <class Id>
__device__ void draw_replacing(const RowNumbers& numbers, std::int64_t degree, std::int64_t count,
                               Id* numbers_of_row) {
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    numbers_of_row[i] = static_cast<Id>(numbers.below(i, degree));
  }
  __syncthreads();
  sort_in_block(numbers_of_row, static_cast<Id*>(nullptr), count);
}

template <class Id>
__global__ void __launch_bounds__(SamplingLaunch::kBlockThreads) draw_by_block(CudaDrawArgs args) {
  const std::int64_t fanout = args.count.fanout;
  for (std::int64_t row = blockIdx.x; row < args.num_nodes; row += gridDim.x) {
    const std::int64_t degree = args.degrees[row];
    const RowDraw how = kernels::row_draw(args.count, degree);
    if (how == RowDraw::kAll || is_for_lanes(args.count, degree)) continue;
    const Chosen<Id> chosen(args, row);
    const RowNumbers numbers(args.key, row, degree);
    if (how == RowDraw::kReplacing) {
      draw_replacing(numbers, degree, fanout, chosen.neighbors);
    } else if (how == RowDraw::kSparse) {
      draw_different(numbers, degree, fanout, chosen.entries, chosen.neighbors);
    } else {
      draw_with_last(numbers, degree, fanout, chosen.entries, chosen.neighbors);
    }
    for (std::int64_t i = threadIdx.x; i < fanout; i += blockDim.x) {
      chosen.put(i, chosen.neighbors[i]);
    }
  }
}

/// Copies rows that are taken whole, one thread per entry, so that threads share long rows.
template <class Id>
__global__ void take_whole_rows(CudaDrawArgs args, std::int64_t num_drawn) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t at = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; at < num_drawn;
       at += stride) {
    const std::int64_t row = row_of_entry(args.offsets, args.num_nodes, at);
    if (kernels::row_draw(args.count, args.degrees[row]) != RowDraw::kAll) continue;
    const std::int64_t offset = at - args.offsets[row];
    Chosen<Id>(args, row).put(offset, offset);
  }
}

template <class Id>
__global__ void renumber_step(CudaRenumberArgs args) {
  using Step = CudaRenumberArgs::Step;
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= args.count) return;
  Id* const ids = static_cast<Id*>(args.ids);
  const Id id = ids[i];
  const auto own = static_cast<std::int32_t>(args.num_known + i);
  switch (args.step) {
    case Step::kMark:
      atomicMin(args.first_at + id, own);
      break;
    case Step::kFlag:
      args.is_first[i] = args.first_at[id] == own ? 1 : 0;
      break;
    case Step::kNumber: {
      const std::int64_t first = args.first_at[id], position = first - args.num_known;
      const std::int64_t number =
          position < 0 ? first : args.num_known + args.running[position] - 1;
      if (first == own) static_cast<Id*>(args.nodes)[number] = id;
      ids[i] = static_cast<Id>(number);
      break;
    }
    case Step::kRemember:
      args.first_at[id] = static_cast<std::int32_t>(i);
      break;
    case Step::kForget:
      args.first_at[id] = std::numeric_limits<std::int32_t>::max();
      break;
  }
}

template <class Id, int kLanes>
void launch_lanes(const CudaDrawArgs& args, void* stream) {
  constexpr int kRowsPerBlock = SamplingLaunch::kLaneThreads / kLanes;
  launch("draw", draw_by_lanes<Id, kLanes>, {ceil_div(args.num_nodes, kRowsPerBlock)},
         SamplingLaunch::kLaneThreads, stream, args);
}

template <class Id>
void launch_draw(const CudaDrawArgs& args, const CudaLaunch& to) {
  constexpr bool kInt64Ids = sizeof(Id) == sizeof(std::int64_t);
  const bool is_small = args.count.fanout <= kernels::kSmallFanout;
  if (args.count.fanout <= 8) {
    launch_lanes<Id, 8>(args, to.stream);
  } else if (args.count.fanout <= 16) {
    launch_lanes<Id, 16>(args, to.stream);
  } else {
    launch_lanes<Id, kernels::kSmallFanout>(args, to.stream);
  }
  const auto at_most = [](std::int64_t blocks) {
    return Grid{std::min(blocks, SamplingLaunch::kMostBlocks)};
  };
  if (!is_small || kInt64Ids) {  // int32 ids have no huge rows
    launch("draw", draw_by_block<Id>, at_most(args.num_nodes), SamplingLaunch::kBlockThreads,
           to.stream, args);
  }
  if (is_small) return;
  launch("draw", take_whole_rows<Id>,
         at_most(ceil_div(to.num_entries, SamplingLaunch::kElementThreads)),
         SamplingLaunch::kElementThreads, to.stream, args, to.num_entries);
}

}  // namespace

template <>
std::int64_t Kernel<CudaDrawArgs>::workspace(const CudaDrawArgs& /*args*/,
                                             std::int64_t /*num_entries*/) {
  return 0;
}

template <>
void Kernel<CudaDrawArgs>::run(const CudaDrawArgs& args, const CudaLaunch& to) {
  if (args.offsets == nullptr) {
    launch("draw", find_rows, {ceil_div(args.num_nodes, SamplingLaunch::kElementThreads)},
           SamplingLaunch::kElementThreads, to.stream, args);
  } else if (to.num_entries > 0) {
    args.indices.is_int64 ? launch_draw<std::int64_t>(args, to)
                          : launch_draw<std::int32_t>(args, to);
  }
}

template <>
std::int64_t Kernel<CudaRenumberArgs>::workspace(const CudaRenumberArgs& /*args*/,
                                                 std::int64_t /*num_entries*/) {
  return 0;
}

template <>
void Kernel<CudaRenumberArgs>::run(const CudaRenumberArgs& args, const CudaLaunch& to) {
  launch("renumber", args.is_int64 ? renumber_step<std::int64_t> : renumber_step<std::int32_t>,
         {ceil_div(args.count, SamplingLaunch::kElementThreads)}, SamplingLaunch::kElementThreads,
         to.stream, args);
}

}  // namespace mezzo::kernels::cuda
