#include <cstdint>

#include "mezzo/kernels/cuda/attention/attention_scores.h"
#include "mezzo/kernels/cuda/attention/head_lanes.h"
#include "mezzo/kernels/cuda/kernels.h"
#include "mezzo/kernels/cuda/sparse/hubs.h"

namespace mezzo::kernels::cuda {
namespace {

/// Numbers of a partial result besides its row: row maximum and sum of exponentials.
constexpr std::int64_t kPartialNumbers = 2;

/// Partial result of a long row's part, for one head.
template <class A>
__device__ A* partial_of(A* partials, const AttentionArgs& a, std::int64_t partial,
                         std::int64_t head) {
  return partials + (partial * a.heads + head) * (a.features + kPartialNumbers);
}

/// Attention of one destination and head, or a part of its edges; one pack of features per lane.
/// Online softmax: rescales the sums whenever the running maximum grows.
template <class T, int N>
__device__ void attend(const AttentionArgs& a, const LaneShape& shape, const HubPart& part,
                       std::int64_t head, std::int64_t pack, bool inside, bool first_pack,
                       typename T::Accum dropout_factor, typename T::Accum* partials) {
  using A = typename T::Accum;
  using Storage = typename T::Storage;
  const bool works = part.row >= 0;
  const std::int64_t at = part.row * a.heads + head;
  const A received = works ? head_number<T>(a.scores.dst, part.row, head) : A(0);
  const A slope = static_cast<A>(a.scores.negative_slope);
  const std::int64_t stride = a.features + a.z_padding;
  const GatheredPacks<T> rows = {static_cast<const Storage*>(a.z) + head * stride + pack * N,
                                 a.heads * stride, inside};
  RunningTop<A> running;
  A lane_sum = 0, weight = 0, row[N] = {};
  for_entries<T, N>(
      shape, part.range, a.entries.first, rows,
      [&](std::int64_t entry, std::int64_t source, bool mine) {
        A logit = -std::numeric_limits<A>::infinity();
        if (mine) logit = leaky_relu(head_number<T>(a.scores.src, source, head) + received, slope);
        const A factor = running.raise(largest_number(logit, running.top, shape.item));
        weight = running.relative(logit);
        lane_sum = lane_sum * factor + weight;
#pragma unroll
        for (int i = 0; i < N; ++i) row[i] *= factor;
        if (mine) {
          const auto factors = share_factors<T>(a.scores, id_at(a.entries.second, entry), head,
                                                a.heads, dropout_factor);
          weight = weight * factors.dropout_factor * factors.edge_weight;
        }
      },
      [&](const A(&x)[N], bool taken, int owner) {
        const A weight_of_owner = __shfl_sync(kAllLanes, weight, owner);
        const A entry_weight = taken ? weight_of_owner : A(0);
#pragma unroll
        for (int i = 0; i < N; ++i) row[i] += entry_weight * x[i];
      },
      [](std::int64_t /*entry*/, bool /*mine*/, A /*number*/) {});
  A sum = group_sum(lane_sum, shape.item);
  add_entries(shape, row);
  if (!works) return;
  if (part.partial >= 0) {
    A* partial = partial_of(partials, a, part.partial, head);
    if (leads(shape) && first_pack) partial[0] = running.top, partial[1] = sum;
    if (!stores(shape) || !inside) return;
    for (int i = 0; i < N; ++i) {
      if (pack * N + i < a.features) partial[kPartialNumbers + pack * N + i] = row[i];
    }
    return;
  }
  sum = running.divisor(sum, part.range.begin == part.range.end);
  if (leads(shape) && first_pack) {
    static_cast<A*>(a.top)[at] = running.top;
    static_cast<A*>(a.sum)[at] = sum;
  }
  if (!stores(shape) || !inside) return;
#pragma unroll
  for (int i = 0; i < N; ++i) row[i] /= sum;
  store_in_row<T, N>(row, static_cast<Storage*>(a.out) + at * a.features, pack * N, a.features);
}

template <class T, int N>
__global__ void __launch_bounds__(HeadLaunch::kThreads, HeadLaunch::kBlocks)
    attention_rows(AttentionArgs a, HeadRows rows, HeadSlabs slabs, LaneShape shape,
                   typename T::Accum dropout_factor, typename T::Accum* partials) {
  for (std::int64_t slab = blockIdx.y; slab < slabs.count; slab += gridDim.y) {
    const std::int64_t first_head = slab / slabs.slabs_per_head * slabs.heads_per_slab;
    const std::int64_t first_pack = slab % slabs.slabs_per_head * shape.entry;
    const std::int64_t pack = first_pack + pack_of_lane(shape);
    for_items(rows.count * slabs.heads_per_slab, shape, [&](std::int64_t item) {
      const std::int64_t row = quotient(item, slabs.heads_per_slab);
      const std::int64_t head = first_head + item - row * slabs.heads_per_slab;
      const bool works = item >= 0 && head < slabs.heads;
      const HubPart part = part_at(rows, works ? row : -1);
      attend<T, N>(a, shape, part, works ? head : 0, pack, pack < slabs.packs, first_pack == 0,
                   dropout_factor, partials);
    });
  }
}

/// Merges the partial results of long rows in chunk order: one block per long row, one thread per
/// element of its row.
template <class T>
__global__ void __launch_bounds__(HeadLaunch::kHubThreads)
    attention_hubs(AttentionArgs a, std::int64_t num_entries, typename T::Accum* partials) {
  using A = typename T::Accum;
  const std::int64_t chunks = num_chunks(num_entries);
  const std::int64_t length = a.features > 0 ? a.features : 1;
  for (std::int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const Hub hub = hub_beginning_in(a.entries, a.row_end, num_entries, chunk);
    if (hub.row < 0) continue;
    for (std::int64_t i = threadIdx.x; i < a.heads * length; i += blockDim.x) {
      const std::int64_t head = i / length, feature = i % length;
      RunningTop<A> running;
      for (std::int64_t p = hub.first_chunk; p <= hub.last_chunk; ++p) {
        const A top = *partial_of(partials, a, hub_partial(hub, p), head);
        running.top = running.top < top ? top : running.top;
      }
      A sum = 0, x = 0;
      for (std::int64_t p = hub.first_chunk; p <= hub.last_chunk; ++p) {
        const A* partial = partial_of(partials, a, hub_partial(hub, p), head);
        RunningTop<A> part = {partial[0]};
        const A factor = part.raise(running.top);
        sum += partial[1] * factor;
        if (feature < a.features) x += partial[kPartialNumbers + feature] * factor;
      }
      sum = running.divisor(sum, false);
      const std::int64_t at = hub.row * a.heads + head;
      if (feature == 0) {
        static_cast<A*>(a.top)[at] = running.top;
        static_cast<A*>(a.sum)[at] = sum;
      }
      if (feature < a.features) {
        static_cast<typename T::Storage*>(a.out)[at * a.features + feature] = narrowed<T>(x / sum);
      }
    }
  }
}

template <class T>
void launch_attention(const AttentionArgs& a, const CudaLaunch& to) {
  using A = typename T::Accum;
  auto* partials = static_cast<A*>(to.workspace);
  const A dropout_factor = kept_factor<A>(a.scores.dropout);
  visit_pack<T>(a.features, a.z_padding, address_of(a.z), address_of(a.out), [&]<int N>() {
    const HeadSlabs slabs = slabs_of<T, N>(a.heads, a.features + a.z_padding, true);
    const auto run = [&](const HeadRows& rows, const LaneShape& shape) {
      const Grid grid = {blocks_for(rows.count * slabs.heads_per_slab, shape),
                         slabs_in_grid(slabs.count)};
      launch("attention", attention_rows<T, N>, grid, HeadLaunch::kThreads, to.stream, a, rows,
             slabs, shape, dropout_factor, partials);
    };
    run(rows_without_hubs(a.entries, a.row_end, to.num_entries),
        shape_for_rows(slabs.entry_lanes, a.row_end, to.num_entries));
    if (may_have_hubs(a.entries, to.num_entries)) {
      run(parts_of_hubs(a.entries, a.row_end, to.num_entries), {kWarpLanes, slabs.entry_lanes});
    }
  });
  if (!may_have_hubs(a.entries, to.num_entries)) return;
  launch("attention", attention_hubs<T>, {blocks_for_chunks(to.num_entries)},
         HeadLaunch::kHubThreads, to.stream, a, to.num_entries, partials);
}

}  // namespace

template <>
std::int64_t Kernel<AttentionArgs>::workspace(const AttentionArgs& args, std::int64_t num_entries) {
  std::int64_t bytes = 0;
  detail::visit(DTypes{}, args.dtype, [&]<class T>() {
    bytes = num_partials(args.entries, num_entries) * args.heads *
            (args.features + kPartialNumbers) *
            static_cast<std::int64_t>(sizeof(typename T::Accum));
  });
  return bytes;
}

template <>
void Kernel<AttentionArgs>::run(const AttentionArgs& args, const CudaLaunch& launch) {
  detail::visit(DTypes{}, args.dtype, [&]<class T>() { launch_attention<T>(args, launch); });
}

}  // namespace mezzo::kernels::cuda
