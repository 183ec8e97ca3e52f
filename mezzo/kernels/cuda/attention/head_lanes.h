#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "mezzo/kernels/cuda/row_lanes.h"
#include "mezzo/kernels/cuda/sparse/hubs.h"

// Mapping of rows to lanes in kernels that work by head. An item is a row (or a long row's part of
// a chunk) and a head; a group of adjacent lanes processes it, up to 32 edges at a time. Each lane
// first computes the values of one edge: ids, scores, weights. Then the group reads the features of
// several edges at once, with some adjacent lanes per edge, which get the values of the edge by
// shuffles.

namespace mezzo::kernels::cuda {

struct HeadLaunch {
  static constexpr int kThreads = 64;      ///< few: a block's warps wait for its longest row
  static constexpr int kBlocks = 8;        ///< minimum per multiprocessor: bounds the registers
  static constexpr int kHubThreads = 128;  ///< for sums of long rows' parts
  static constexpr std::int64_t kMostBlocks = 1 << 30;
  static constexpr int kSlabBytes = 128;  ///< per gathered row, so that a slab stays in the L2
};

/// Lanes per group (`item`) and lanes per edge (`entry`). Each lane reads a pack of features.
/// Powers of 2; entry <= item <= 32.
struct LaneShape {
  int item = kWarpLanes, entry = 1;
};

/// Index of this lane's pack among adjacent ones.
__device__ inline int pack_of_lane(const LaneShape& shape) {
  return lane_of_warp() & (shape.entry - 1);
}
/// Whether this lane stores features for its group.
__device__ inline bool stores(const LaneShape& shape) {
  return (lane_of_warp() & (shape.item - 1)) < shape.entry;
}
__device__ inline bool leads(const LaneShape& shape) {
  return (lane_of_warp() & (shape.item - 1)) == 0;
}

/// The smallest power of 2 that is at least `count`, at most a warp.
constexpr int lanes_for(std::int64_t count) {
  int lanes = 1;
  while (lanes < kWarpLanes && lanes < count) lanes *= 2;
  return lanes;
}

/// Sizes groups for rows of mean length.
constexpr LaneShape shape_for_rows(int entry_lanes, std::int64_t num_rows,
                                   std::int64_t num_entries) {
  const std::int64_t mean = num_rows > 0 ? num_entries / num_rows : 0;
  const int lanes = mean > 16 ? 32 : (mean > 8 ? 16 : 8);
  return {lanes > entry_lanes ? lanes : entry_lanes, entry_lanes};
}

/// Splits rows into slabs of a few heads, or of a part of one head's features. blockIdx.y is the
/// slab: all rows of one slab run before the next slab starts.
struct HeadSlabs {
  std::int64_t heads = 1, packs = 1;  ///< packs per head
  std::int64_t heads_per_slab = 1;    ///< more than 1 only if slabs_per_head is 1
  std::int64_t slabs_per_head = 1, count = 1;
  int entry_lanes = 1;
};

/// Uses slabs of several heads only if `many_heads`.
template <class T, int N>
HeadSlabs slabs_of(std::int64_t heads, std::int64_t features, bool many_heads) {
  constexpr int kPackBytes = N * static_cast<int>(sizeof(typename T::Storage));
  constexpr int kPacks = HeadLaunch::kSlabBytes / kPackBytes;
  HeadSlabs slabs;
  slabs.heads = heads;
  slabs.packs = features / N;
  slabs.entry_lanes = lanes_for(slabs.packs < kPacks ? slabs.packs : kPacks);
  if (slabs.packs > slabs.entry_lanes) {
    slabs.slabs_per_head = ceil_div(slabs.packs, slabs.entry_lanes);
  } else if (many_heads && slabs.packs > 0 && slabs.packs < kPacks) {
    slabs.heads_per_slab = kPacks / slabs.packs < heads ? kPacks / slabs.packs : heads;
  }
  slabs.count = ceil_div(heads, slabs.heads_per_slab) * slabs.slabs_per_head;
  return slabs;
}

/// Rows, or the parts of long rows: two per chunk.
struct HeadRows {
  Entries entries;
  std::int64_t num_rows = 0, num_entries = 0;
  bool in_chunks = false;
  std::int64_t count = 0;
};

inline HeadRows rows_without_hubs(const Entries& entries, std::int64_t num_rows,
                                  std::int64_t num_entries) {
  return {entries, num_rows, num_entries, false, num_rows};
}
inline HeadRows parts_of_hubs(const Entries& entries, std::int64_t num_rows,
                              std::int64_t num_entries) {
  return {entries, num_rows, num_entries, true, 2 * num_chunks(num_entries)};
}

/// Row or part `index`; row -1 if there is nothing to do, e.g. for index -1.
__device__ inline HubPart part_at(const HeadRows& rows, std::int64_t index) {
  if (index < 0) return {};
  if (rows.in_chunks) {
    return hub_part(rows.entries, rows.num_rows, rows.num_entries, index / 2,
                    static_cast<int>(index % 2));
  }
  const EntryRange range = entries_of(rows.entries, index);
  if (is_hub(range, chunk_length(rows.num_entries))) return {};
  return {index, range, -1};
}

inline std::int64_t blocks_for(std::int64_t items, const LaneShape& shape,
                               std::int64_t most = HeadLaunch::kMostBlocks) {
  return std::min(ceil_div(items * shape.item, HeadLaunch::kThreads), most);
}
inline std::int64_t slabs_in_grid(std::int64_t slabs) {
  return std::min(slabs, kMostBlocksAlongY);
}

/// One block per chunk of the edges.
inline std::int64_t blocks_for_chunks(std::int64_t num_entries) {
  return std::min(num_chunks(num_entries), HeadLaunch::kMostBlocks);
}

/// Calls f(item) for the group's items of [0, count). All groups of a warp make the same number of
/// calls, with -1 after their last item.
template <class F>
__device__ inline void for_items(std::int64_t count, const LaneShape& shape, const F& f) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t step = shifted(std::int64_t{gridDim.x} * blockDim.x, shape.item);
  const std::int64_t groups = shifted(kWarpLanes, shape.item);
  for (std::int64_t first = thread / kWarpLanes * groups; first < count; first += step) {
    const std::int64_t item = first + shifted(lane_of_warp(), shape.item);
    f(item < count ? item : -1);
  }
}

/// The gathered rows [.., heads, features] and this lane's pack of each.
template <class T>
struct GatheredPacks {
  const typename T::Storage* first = nullptr;  ///< this lane's pack in row 0
  std::int64_t row_length = 0;
  bool inside = false;  ///< false: the lane is beyond the features
};

/// Processes the edges of the group's item in chunks, one edge per lane. For every chunk:
///     own(entry, id, mine): the lane's own edge and its first id; `mine` is false past the end
///     use(x, taken, owner) for edges whose features the lane reads: x is its pack, or zeros if not
///         `taken`, which it may be past the end; `owner` is the lane of the warp that owns the
///         edge. Returns the lane's part of a number of the edge, or nothing
///     done(entry, mine, number): the sum of the parts of the lane's own edge; 0 without parts
/// All lanes of the warp take part in all calls.
template <class T, int N, class Own, class Use, class Done>
__device__ inline void for_entries(const LaneShape& shape, EntryRange range, const Ids& ids,
                                   const GatheredPacks<T>& rows, const Own& own, const Use& use,
                                   const Done& done) {
  using A = typename T::Accum;
  constexpr int kAhead = kEntriesAhead;
  constexpr bool kSums = !std::is_void_v<std::invoke_result_t<Use, const A(&)[N], bool, int>>;
  const int lane = lane_of_warp(), at_once = shifted(shape.item, shape.entry);
  const int pack = pack_of_lane(shape), side = shifted(lane & (shape.item - 1), shape.entry);
  // int suffices: long rows are split into parts.
  const int length = static_cast<int>(range.end - range.begin);
  const int readable = rows.inside ? length : 0;
  const auto* first = rows.first - (rows.inside ? 0 : pack * N);  // the first lane's is inside
  const int steps = rows.row_length > 0 ? shape.entry : 0;
  int longest = length;
  for (int step = shape.item; step < kWarpLanes; step *= 2) {
    const int other = __shfl_xor_sync(kAllLanes, longest, step);
    longest = other > longest ? other : longest;
  }
  for (int begin = 0; begin < longest; begin += shape.item) {
    const int at = begin + pack * at_once + side;
    const std::int64_t entry = range.begin + at;
    const bool mine = at < length;
    const std::int64_t id = mine ? id_at(ids, entry) : 0;
    const std::int64_t row_begin = id * rows.row_length;
    own(entry, id, mine);
    A number = 0;
    // The edges of step s are the lanes' own edges whose pack is s.
    for (int from = 0; from < steps && begin + from * at_once < longest; from += kAhead) {
      // No shuffle or condition between the loads: it would wait for the load before it. Lanes
      // without an edge read another row.
      std::int64_t begins[kAhead];
      bool taken[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const int step = from + j;
        begins[j] = __shfl_sync(kAllLanes, row_begin, lane - pack + step);
        taken[j] = (step < shape.entry) & (begin + step * at_once + side < readable);
      }
      Pack<T, N> packs[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) packs[j] = load_pack<T, N>(first + begins[j]);
      __syncwarp();  // keeps all loads before the first use
      A parts[kAhead] = {};
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        if (!taken[j]) packs[j] = {};
        A x[N];
        widen(packs[j], x);
        if constexpr (kSums) {
          parts[j] = use(x, taken[j], lane - pack + from + j);
        } else {
          use(x, taken[j], lane - pack + from + j);
        }
      }
      if constexpr (kSums) {
        sum_parts(parts, shape.entry);
        if (pack / kAhead == from / kAhead) number = parts[0];
      }
    }
    done(entry, mine, number);
  }
}

/// Sums the packs of lanes that hold the same features of the group, in a fixed order.
template <class A, int N>
__device__ inline void add_entries(const LaneShape& shape, A (&sum)[N]) {
  for (int step = shape.entry; step < shape.item; step *= 2) {
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] += __shfl_xor_sync(kAllLanes, sum[i], step);
  }
}

}  // namespace mezzo::kernels::cuda
