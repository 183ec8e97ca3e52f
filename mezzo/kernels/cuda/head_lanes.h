#pragma once

#include <cstdint>

#include "mezzo/kernels/cuda/device.h"
#include "mezzo/kernels/cuda/hubs.h"

// How the kernels that work by head share their rows among lanes. An item is a row (or a hub's part
// of a piece) and a head; a group of neighbouring lanes takes it, 32 slots or fewer at a time. Each
// lane prepares the numbers of one slot: its ids, scores, weights. Then the features of several
// slots are read at once, each slot's by some lanes side by side, and those lanes are sent what the
// slot's own lane prepared.

namespace mezzo::kernels::cuda {

struct HeadLaunch {
  static constexpr int kThreads = 128;
  static constexpr int kBlocks = 4;  ///< of a multiprocessor, at least: bounds the registers
  static constexpr int kMostBlocks = 1 << 30;
  static constexpr int kMostSlabs = 65535;
  static constexpr int kSlabBytes = 128;  ///< of each gathered row, so that a slab stays in the L2
  static constexpr int kPacksAhead = 4;   ///< loads under way of each lane
};

/// Lanes of a group (`item`), and those of them that share a slot's features, a pack each. Powers
/// of 2; slot <= item <= 32.
struct LaneShape {
  int item = kWarpLanes, slot = 1;
};

/// Slots whose features a group reads at once.
constexpr int slots_at_once(const LaneShape& shape) {
  return shape.item / shape.slot;
}

__device__ inline int lane_of_warp() {
  return static_cast<int>(threadIdx.x) % kWarpLanes;
}
/// Which of the packs side by side this lane reads.
__device__ inline int pack_of_lane(const LaneShape& shape) {
  return lane_of_warp() & (shape.slot - 1);
}
/// Whether this lane is one of its group's that store the features.
__device__ inline bool stores(const LaneShape& shape) {
  return (lane_of_warp() & (shape.item - 1)) < shape.slot;
}
__device__ inline bool leads(const LaneShape& shape) {
  return (lane_of_warp() & (shape.item - 1)) == 0;
}

/// The smallest power of 2 that is not below `count`, at most a warp.
constexpr int lanes_for(std::int64_t count) {
  int lanes = 1;
  while (lanes < kWarpLanes && lanes < count) lanes *= 2;
  return lanes;
}

/// Groups as large as rows of the mean length need.
constexpr LaneShape shape_for_rows(int slot_lanes, std::int64_t num_rows, std::int64_t num_slots) {
  const std::int64_t mean = num_rows > 0 ? num_slots / num_rows : 0;
  const int lanes = mean > 16 ? 32 : (mean > 8 ? 16 : 8);
  return {lanes > slot_lanes ? lanes : slot_lanes, slot_lanes};
}

/// Calls f.operator()<N>() for the largest N whose packs of N elements divide a head's features and
/// fit the addresses, given or-ed together.
template <class T, class F, int N = 16 / static_cast<int>(sizeof(typename T::Storage))>
void visit_pack(std::int64_t features, std::uintptr_t addresses, const F& f) {
  if constexpr (N > 1) {
    if (features % N != 0 || addresses % (N * sizeof(typename T::Storage)) != 0) {
      visit_pack<T, F, N / 2>(features, addresses, f);
      return;
    }
  }
  f.template operator()<N>();
}

inline std::uintptr_t address_of(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data);
}

/// Rows cut into slabs of a few heads, or of a part of one head's features. A launch's y-index is
/// the slab: all rows pass with one slab before the next one starts.
struct HeadSlabs {
  std::int64_t heads = 1, packs = 1;  ///< packs of a head
  std::int64_t heads_per_slab = 1;    ///< more than 1 only if slabs_per_head is 1
  std::int64_t slabs_per_head = 1, count = 1;
  int slot_lanes = 1;
};

/// Slabs of several heads only where `many_heads`.
template <class T, int N>
HeadSlabs slabs_of(std::int64_t heads, std::int64_t features, bool many_heads) {
  constexpr int kPackBytes = N * static_cast<int>(sizeof(typename T::Storage));
  constexpr int kPacks = HeadLaunch::kSlabBytes / kPackBytes;
  HeadSlabs slabs;
  slabs.heads = heads;
  slabs.packs = features / N;
  slabs.slot_lanes = lanes_for(slabs.packs < kPacks ? slabs.packs : kPacks);
  if (slabs.packs > slabs.slot_lanes) {
    slabs.slabs_per_head = ceil_div(slabs.packs, slabs.slot_lanes);
  } else if (many_heads && slabs.packs > 0 && slabs.packs < kPacks) {
    slabs.heads_per_slab = kPacks / slabs.packs < heads ? kPacks / slabs.packs : heads;
  }
  slabs.count = ceil_div(heads, slabs.heads_per_slab) * slabs.slabs_per_head;
  return slabs;
}

/// Rows, or the hubs' parts of the pieces: two a piece.
struct HeadRows {
  Slots slots;
  std::int64_t num_rows = 0, num_slots = 0;
  bool pieces = false;
  std::int64_t count = 0;
};

inline HeadRows rows_without_hubs(const Slots& slots, std::int64_t num_rows,
                                  std::int64_t num_slots) {
  return {slots, num_rows, num_slots, false, num_rows};
}
inline HeadRows parts_of_hubs(const Slots& slots, std::int64_t num_rows, std::int64_t num_slots) {
  return {slots, num_rows, num_slots, true, 2 * num_pieces(num_slots)};
}

/// Number `index` of the rows or parts; one without a row where there is nothing to do, as for -1.
__device__ inline HubPart part_at(const HeadRows& rows, std::int64_t index) {
  if (index < 0) return {};
  if (rows.pieces) {
    return hub_part(rows.slots, rows.num_rows, rows.num_slots, index / 2,
                    static_cast<int>(index % 2));
  }
  const SlotRange range = slots_of(rows.slots, index);
  if (is_hub(range, piece_length(rows.num_slots))) return {};
  return {index, range, -1};
}

inline unsigned blocks_for(std::int64_t items, const LaneShape& shape,
                           std::int64_t most = HeadLaunch::kMostBlocks) {
  const std::int64_t blocks = ceil_div(items * shape.item, HeadLaunch::kThreads);
  return static_cast<unsigned>(blocks < most ? blocks : most);
}
inline unsigned slabs_in_grid(std::int64_t slabs) {
  return static_cast<unsigned>(slabs < HeadLaunch::kMostSlabs ? slabs : HeadLaunch::kMostSlabs);
}

/// A block for each piece of the slots.
inline unsigned blocks_for_pieces(std::int64_t num_slots) {
  const std::int64_t pieces = num_pieces(num_slots);
  return static_cast<unsigned>(pieces < HeadLaunch::kMostBlocks ? pieces : HeadLaunch::kMostBlocks);
}

/// Calls f(item) for the group's items of [0, count). All groups of a warp call it equally often,
/// with -1 where there are no more.
template <class F>
__device__ inline void for_items(std::int64_t count, const LaneShape& shape, const F& f) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x / shape.item;
  const std::int64_t groups = kWarpLanes / shape.item;
  for (std::int64_t first = thread / kWarpLanes * groups; first < count; first += step) {
    const std::int64_t item = first + lane_of_warp() / shape.item;
    f(item < count ? item : -1);
  }
}

/// The gathered rows [.., heads, features] and this lane's pack of them.
template <class T>
struct GatheredPacks {
  const typename T::Storage* first = nullptr;  ///< this lane's pack in row 0
  std::int64_t row_length = 0;
  bool inside = false;  ///< false: the lane stands beyond the features
};

/// Takes the slots of the group's item in chunks, a slot for each lane. For every chunk:
///     own(slot, id, mine): the lane's own slot and its first id; `mine` is false beyond the end
///     use(x, taken, step, owner) for each slot whose features the lane reads: x is its pack, or
///         zeros if not `taken`; `owner` is the lane of the warp whose own slot it is, which is
///         number `step` of the lanes side by side
///     done(slot, mine)
/// Every lane of the warp takes part in all of them.
template <class T, int N, class Own, class Use, class Done>
__device__ inline void for_slots(const LaneShape& shape, SlotRange range, const Ids& ids,
                                 const GatheredPacks<T>& rows, const Own& own, const Use& use,
                                 const Done& done) {
  constexpr int kAhead = HeadLaunch::kPacksAhead;
  const int lane = lane_of_warp(), at_once = slots_at_once(shape);
  const int pack = pack_of_lane(shape), side = (lane & (shape.item - 1)) / shape.slot;
  // An int: hubs are cut into parts.
  const int length = static_cast<int>(range.end - range.begin);
  int longest = length;
  for (int step = shape.item; step < kWarpLanes; step *= 2) {
    const int other = __shfl_xor_sync(kAllLanes, longest, step);
    longest = other > longest ? other : longest;
  }
  for (int begin = 0; begin < longest; begin += shape.item) {
    const int at = begin + pack * at_once + side;
    const std::int64_t slot = range.begin + at;
    const bool mine = at < length;
    const std::int64_t id = mine ? id_at(ids, slot) : 0;
    const std::int64_t row_begin = id * rows.row_length;
    own(slot, id, mine);
    const int left = longest - begin;
    const int steps = left < shape.item ? (left + at_once - 1) / at_once : shape.slot;
    for (int from = 0; from < steps; from += kAhead) {
      Pack<T, N> packs[kAhead] = {};
      bool taken[kAhead] = {};
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        if (from + j < steps) {
          const int owner = lane - pack + from + j;
          const std::int64_t row = __shfl_sync(kAllLanes, row_begin, owner);
          taken[j] = rows.inside && begin + (from + j) * at_once + side < length;
          if (taken[j]) packs[j] = *reinterpret_cast<const Pack<T, N>*>(rows.first + row);
        }
      }
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        if (from + j < steps) {
          typename T::Accum x[N];
#pragma unroll
          for (int i = 0; i < N; ++i) x[i] = widened(packs[j].element[i]);
          use(x, taken[j], from + j, lane - pack + from + j);
        }
      }
    }
    done(slot, mine);
  }
}

/// Adds up the packs of the group's lanes that stand for the same features, in a fixed order.
template <class A, int N>
__device__ inline void add_slots(const LaneShape& shape, A (&sum)[N]) {
  for (int step = shape.slot; step < shape.item; step *= 2) {
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] += __shfl_xor_sync(kAllLanes, sum[i], step);
  }
}

}  // namespace mezzo::kernels::cuda
