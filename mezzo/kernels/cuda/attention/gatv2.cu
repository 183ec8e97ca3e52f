#include <cstdint>

#include "mezzo/kernels/cuda/attention/attention_scores.h"
#include "mezzo/kernels/cuda/attention/head_lanes.h"
#include "mezzo/kernels/cuda/kernels.h"
#include "mezzo/kernels/cuda/sparse/hubs.h"

namespace mezzo::kernels::cuda {
namespace {

/// The gradient of attn is summed by a fixed number of warps per slab, then over the warps.
struct AttnLaunch {
  static constexpr std::int64_t kMostBlocks = 2048;
  static constexpr std::int64_t kWarpsOfBlock = HeadLaunch::kThreads / kWarpLanes;
};

/// One row and head, or a part of its edges: this lane's pack of the own row and of attn.
template <class T, int N>
struct OwnPack {
  using A = typename T::Accum;

  __device__ OwnPack(const GATv2Pairs& pairs, std::int64_t row, std::int64_t head,
                     std::int64_t pack, bool inside)
      : at(head * pairs.features + pack * N) {
    if (row < 0 || !inside) return;
    load<T, N>(static_cast<const typename T::Storage*>(pairs.own) +
                   row * pairs.heads * pairs.features + at,
               own);
    for (int i = 0; i < N; ++i) attn[i] = static_cast<const A*>(pairs.attn)[at + i];
  }

  std::int64_t at;  ///< offset in a row [heads, features]
  A own[N] = {}, attn[N] = {};
};

/// Adds the scores of one launch's features, from `first_pack` on, to those of earlier launches in
/// `scores`.
template <class T, int N>
__global__ void __launch_bounds__(HeadLaunch::kThreads, HeadLaunch::kBlocks)
    gatv2_score_rows(GATv2ScoresArgs a, HeadRows rows, LaneShape shape, std::int64_t first_pack) {
  using A = typename T::Accum;
  const GATv2Pairs& pairs = a.pairs;
  const A slope = static_cast<A>(pairs.negative_slope);
  const std::int64_t pack = first_pack + pack_of_lane(shape);
  const bool inside = pack < pairs.features / N;
  for_items(rows.count * pairs.heads, shape, [&](std::int64_t item) {
    const std::int64_t row = item < 0 ? -1 : quotient(item, pairs.heads);
    const std::int64_t head = item < 0 ? 0 : item - row * pairs.heads;
    const HubPart part = part_at(rows, row);
    const OwnPack<T, N> own(pairs, part.row, head, pack, inside);
    const GatheredPacks<T> others = {static_cast<const typename T::Storage*>(pairs.other) + own.at,
                                     pairs.heads * pairs.features, inside};
    for_entries<T, N>(
        shape, part.range, a.entries.first, others,
        [](std::int64_t /*entry*/, std::int64_t /*id*/, bool /*mine*/) {},
        [&](const A(&x)[N], bool /*taken*/, int /*owner*/) {
          A score = 0;
#pragma unroll
          for (int i = 0; i < N; ++i) score += own.attn[i] * leaky_relu(own.own[i] + x[i], slope);
          return score;
        },
        [&](std::int64_t entry, bool mine, A score) {
          if (!mine) return;
          A& stored =
              static_cast<A*>(a.scores)[id_at(a.entries.second, entry) * pairs.heads + head];
          stored = first_pack == 0 ? score : stored + score;
        });
  });
}

template <class T>
void launch_scores(const GATv2ScoresArgs& a, const CudaLaunch& to) {
  visit_pack<T>(
      a.pairs.features, address_of(a.pairs.own) | address_of(a.pairs.other), [&]<int N>() {
        const std::int64_t packs = a.pairs.features / N;
        const int entry_lanes = lanes_for(packs);
        std::int64_t first_pack = 0;
        const auto run = [&](const HeadRows& rows, const LaneShape& shape) {
          launch("gatv2_scores", gatv2_score_rows<T, N>,
                 {blocks_for(rows.count * a.pairs.heads, shape)}, HeadLaunch::kThreads, to.stream,
                 a, rows, shape, first_pack);
        };
        do {
          run(rows_without_hubs(a.entries, a.row_end, to.num_entries),
              shape_for_rows(entry_lanes, a.row_end, to.num_entries));
          if (may_have_hubs(a.entries, to.num_entries)) {
            run(parts_of_hubs(a.entries, a.row_end, to.num_entries), {kWarpLanes, entry_lanes});
          }
          first_pack += entry_lanes;
        } while (first_pack < packs);
      });
}

/// Sums stored between launches.
template <class A>
struct GradSums {
  A* hubs = nullptr;  ///< own gradient of long rows: [partials, heads, features]
  A* attn = nullptr;  ///< gradient of attn: [warps, heads, features]
};

/// Own gradient of rows or of parts of long rows, and attn's gradient summed over them. A warp
/// stays with one head and slab, so that its lanes sum the latter in registers.
template <class T, int N>
__global__ void __launch_bounds__(HeadLaunch::kThreads, HeadLaunch::kBlocks)
    gatv2_grad_rows(GATv2ScoresGradArgs a, HeadRows rows, HeadSlabs slabs, LaneShape shape,
                    GradSums<typename T::Accum> sums) {
  using A = typename T::Accum;
  using Storage = typename T::Storage;
  const GATv2Pairs& pairs = a.pairs;
  const A slope = static_cast<A>(pairs.negative_slope);
  const std::int64_t length = pairs.heads * pairs.features;
  for (std::int64_t slab = blockIdx.y; slab < slabs.count; slab += gridDim.y) {
    const std::int64_t head = slab / slabs.slabs_per_head;
    const std::int64_t pack = slab % slabs.slabs_per_head * shape.entry + pack_of_lane(shape);
    const bool inside = pack < slabs.packs;
    A attn_sum[N] = {};
    for_items(rows.count, shape, [&](std::int64_t item) {
      const HubPart part = part_at(rows, item);
      const OwnPack<T, N> own(pairs, part.row, head, pack, inside);
      const GatheredPacks<T> others = {static_cast<const Storage*>(pairs.other) + own.at, length,
                                       inside};
      A grad = 0, own_sum[N] = {};
      for_entries<T, N>(
          shape, part.range, a.entries.first, others,
          [&](std::int64_t entry, std::int64_t /*id*/, bool mine) {
            grad = mine ? static_cast<const A*>(
                              a.grad)[id_at(a.entries.second, entry) * pairs.heads + head]
                        : A(0);
          },
          [&](const A(&x)[N], bool taken, int owner) {
            const A above = __shfl_sync(kAllLanes, grad, owner), below = above * slope;
            if (!taken) return;
#pragma unroll
            for (int i = 0; i < N; ++i) {
              const A sum = own.own[i] + x[i];
              const A share = A(0) < sum ? above : below;
              own_sum[i] += share;
              attn_sum[i] += share * sum;
            }
          },
          [](std::int64_t /*entry*/, bool /*mine*/, A /*number*/) {});
      add_entries(shape, own_sum);
      if (part.row < 0 || a.own_grad == nullptr || !stores(shape) || !inside) return;
      if (part.partial >= 0) {
        for (int i = 0; i < N; ++i) sums.hubs[part.partial * length + own.at + i] = own_sum[i];
        return;
      }
      // Not 0 * attn, which is NaN if attn is not finite.
      const bool empty = part.range.begin == part.range.end;
#pragma unroll
      for (int i = 0; i < N; ++i) own_sum[i] = empty ? A(0) : own.attn[i] * own_sum[i];
      store<T, N>(own_sum, static_cast<Storage*>(a.own_grad) + part.row * length + own.at);
    });
    if (a.attn_grad == nullptr) continue;
    add_entries({kWarpLanes, shape.entry}, attn_sum);
    if (lane_of_warp() >= shape.entry || !inside) continue;
    const std::int64_t warp = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kWarpLanes;
    A* to = sums.attn + warp * length + head * pairs.features + pack * N;
    for (int i = 0; i < N; ++i) to[i] = attn_sum[i];
  }
}

/// Own gradients of long rows from their partial results, in chunk order: one block per long row,
/// one thread per feature.
template <class T>
__global__ void __launch_bounds__(HeadLaunch::kHubThreads)
    gatv2_grad_hubs(GATv2ScoresGradArgs a, std::int64_t num_entries, typename T::Accum* partials) {
  using A = typename T::Accum;
  const std::int64_t chunks = num_chunks(num_entries), length = a.pairs.heads * a.pairs.features;
  for (std::int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const Hub hub = hub_beginning_in(a.entries, a.row_end, num_entries, chunk);
    if (hub.row < 0) continue;
    for (std::int64_t i = threadIdx.x; i < length; i += blockDim.x) {
      A sum = 0;
      for (std::int64_t p = hub.first_chunk; p <= hub.last_chunk; ++p) {
        sum += partials[hub_partial(hub, p) * length + i];
      }
      static_cast<typename T::Storage*>(a.own_grad)[hub.row * length + i] =
          narrowed<T>(static_cast<const A*>(a.pairs.attn)[i] * sum);
    }
  }
}

/// Adds the warps' sums of attn's gradient in a fixed order, one warp per element.
template <class A>
__global__ void __launch_bounds__(HeadLaunch::kThreads)
    add_attn_grad(const A* sums, std::int64_t num_sums, std::int64_t length, A* attn_grad) {
  for_items(length, {kWarpLanes, kWarpLanes}, [&](std::int64_t element) {
    A sum = 0;
    for (std::int64_t i = lane_of_warp(); i < num_sums; i += kWarpLanes) {
      sum += sums[i * length + element];
    }
    sum = group_sum(sum, kWarpLanes);
    if (lane_of_warp() == 0) attn_grad[element] += sum;
  });
}

/// Launches over rows and over parts of long rows; without long rows the latter has no blocks.
struct GradGrid {
  LaneShape rows, parts;
  std::int64_t row_blocks = 0, part_blocks = 0;

  std::int64_t row_warps() const { return row_blocks * AttnLaunch::kWarpsOfBlock; }
  std::int64_t warps() const { return (row_blocks + part_blocks) * AttnLaunch::kWarpsOfBlock; }
};

GradGrid grid_of(const GATv2ScoresGradArgs& a, int entry_lanes, std::int64_t num_entries) {
  const std::int64_t most =
      a.attn_grad != nullptr ? AttnLaunch::kMostBlocks : HeadLaunch::kMostBlocks;
  GradGrid grid;
  grid.rows = shape_for_rows(entry_lanes, a.row_end, num_entries);
  grid.parts = {kWarpLanes, entry_lanes};
  grid.row_blocks = blocks_for(a.row_end, grid.rows, most);
  if (may_have_hubs(a.entries, num_entries)) {
    grid.part_blocks = blocks_for(2 * num_chunks(num_entries), grid.parts, most);
  }
  return grid;
}

std::int64_t hub_numbers(const GATv2ScoresGradArgs& a, std::int64_t num_entries) {
  if (a.own_grad == nullptr) return 0;
  return num_partials(a.entries, num_entries) * a.pairs.heads * a.pairs.features;
}

template <class T, class F>
void visit_grad_pack(const GATv2ScoresGradArgs& a, const F& f) {
  visit_pack<T>(a.pairs.features,
                address_of(a.pairs.own) | address_of(a.pairs.other) | address_of(a.own_grad), f);
}

template <class T>
void launch_scores_grad(const GATv2ScoresGradArgs& a, const CudaLaunch& to) {
  using A = typename T::Accum;
  const std::int64_t length = a.pairs.heads * a.pairs.features;
  GradSums<A> sums;
  sums.hubs = static_cast<A*>(to.workspace);
  sums.attn = sums.hubs + hub_numbers(a, to.num_entries);
  std::int64_t num_warps = 0;
  visit_grad_pack<T>(a, [&]<int N>() {
    const HeadSlabs slabs = slabs_of<T, N>(a.pairs.heads, a.pairs.features, false);
    const GradGrid grid = grid_of(a, slabs.entry_lanes, to.num_entries);
    const auto run = [&](const HeadRows& rows, const LaneShape& shape, std::int64_t blocks,
                         const GradSums<A>& into) {
      launch("gatv2_scores_grad", gatv2_grad_rows<T, N>, {blocks, slabs_in_grid(slabs.count)},
             HeadLaunch::kThreads, to.stream, a, rows, slabs, shape, into);
    };
    run(rows_without_hubs(a.entries, a.row_end, to.num_entries), grid.rows, grid.row_blocks, sums);
    run(parts_of_hubs(a.entries, a.row_end, to.num_entries), grid.parts, grid.part_blocks,
        {sums.hubs, sums.attn + grid.row_warps() * length});
    num_warps = grid.warps();
  });
  if (a.own_grad != nullptr && may_have_hubs(a.entries, to.num_entries)) {
    launch("gatv2_scores_grad", gatv2_grad_hubs<T>, {blocks_for_chunks(to.num_entries)},
           HeadLaunch::kHubThreads, to.stream, a, to.num_entries, sums.hubs);
  }
  if (a.attn_grad != nullptr) {
    launch("gatv2_scores_grad", add_attn_grad<A>, {blocks_for(length, {kWarpLanes, kWarpLanes})},
           HeadLaunch::kThreads, to.stream, sums.attn, num_warps, length,
           static_cast<A*>(a.attn_grad));
  }
}

}  // namespace

template <>
std::int64_t Kernel<GATv2ScoresArgs>::workspace(const GATv2ScoresArgs& /*args*/,
                                                std::int64_t /*num_entries*/) {
  return 0;
}

template <>
void Kernel<GATv2ScoresArgs>::run(const GATv2ScoresArgs& args, const CudaLaunch& launch) {
  detail::visit(DTypes{}, args.dtype, [&]<class T>() { launch_scores<T>(args, launch); });
}

template <>
std::int64_t Kernel<GATv2ScoresGradArgs>::workspace(const GATv2ScoresGradArgs& args,
                                                    std::int64_t num_entries) {
  std::int64_t numbers = hub_numbers(args, num_entries), bytes = 0;
  detail::visit(DTypes{}, args.dtype, [&]<class T>() {
    visit_grad_pack<T>(args, [&]<int N>() {
      const auto slabs = slabs_of<T, N>(args.pairs.heads, args.pairs.features, false);
      const GradGrid grid = grid_of(args, slabs.entry_lanes, num_entries);
      if (args.attn_grad != nullptr) {
        numbers += grid.warps() * args.pairs.heads * args.pairs.features;
      }
    });
    bytes = numbers * static_cast<std::int64_t>(sizeof(typename T::Accum));
  });
  return bytes;
}

template <>
void Kernel<GATv2ScoresGradArgs>::run(const GATv2ScoresGradArgs& args, const CudaLaunch& launch) {
  detail::visit(DTypes{}, args.dtype, [&]<class T>() { launch_scores_grad<T>(args, launch); });
}

}  // namespace mezzo::kernels::cuda
