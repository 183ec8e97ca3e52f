#include <cstdint>

#include "mezzo/kernels/cuda/attention/attention_scores.h"
#include "mezzo/kernels/cuda/attention/head_lanes.h"
#include "mezzo/kernels/cuda/kernels.h"
#include "mezzo/kernels/cuda/sparse/hubs.h"

namespace mezzo::kernels::cuda {
namespace {

/// One group of lanes per destination and head.
template <class T, int N>
__global__ void __launch_bounds__(HeadLaunch::kThreads, HeadLaunch::kBlocks)
    attention_states(AttentionStateArgs a, LaneShape shape) {
  using A = typename T::Accum;
  using Storage = typename T::Storage;
  for_items(a.row_end * a.heads, shape, [&](std::int64_t at) {
    const std::int64_t end = at < 0 ? 0 : a.features;
    A mean = 0;
    for (std::int64_t f = pack_of_lane(shape) * N; f < end; f += shape.entry * N) {
      A out[N], grad[N];
      load<T, N>(static_cast<const Storage*>(a.out) + at * a.features + f, out);
      load<T, N>(static_cast<const Storage*>(a.grad) + at * a.features + f, grad);
#pragma unroll
      for (int i = 0; i < N; ++i) mean += out[i] * grad[i];
    }
    mean = group_sum(mean, shape.item);
    if (at < 0 || !leads(shape)) return;
    const std::int64_t row = at / a.heads, head = at % a.heads;
    A* state = static_cast<A*>(a.state) + row * kStateNumbers * a.heads + head;
    state[0] = head_number<T>(a.score_dst, row, head);
    state[a.heads] = static_cast<const A*>(a.top)[at];
    state[2 * a.heads] = 1 / static_cast<const A*>(a.sum)[at];
    state[3 * a.heads] = mean;
  });
}

template <class T>
void launch_state(const AttentionStateArgs& a, const CudaLaunch& to) {
  visit_pack<T>(a.features, address_of(a.out) | address_of(a.grad), [&]<int N>() {
    const int lanes = lanes_for(a.features / N);
    const LaneShape shape = {lanes, lanes};
    launch("attention_state", attention_states<T, N>, {blocks_for(a.row_end * a.heads, shape)},
           HeadLaunch::kThreads, to.stream, a, shape);
  });
}

/// Features processed by one launch: as many as the lanes of a group hold, one pack each. Every
/// launch except the last stores its part of each edge's <grad, z> in sum_grad for the next one.
struct Window {
  std::int64_t first_pack = 0, packs = 0;  ///< packs: of the whole head
  bool first = true, last = true;          ///< first or last launch
};

/// Numbers of a partial result besides its row: the part of score_grad.
constexpr std::int64_t kPartialNumbers = 1;

constexpr std::int64_t heads_of_call(const AttentionGradArgs& a) {
  return a.head_end - a.head_begin;
}

/// Partial result of a long row's part, for one head.
template <class A>
__device__ A* partial_of(A* partials, const AttentionGradArgs& a, std::int64_t partial,
                         std::int64_t head) {
  return partials +
         (partial * heads_of_call(a) + head - a.head_begin) * (a.features + kPartialNumbers);
}

template <class A>
__device__ A& sum_grad_of(const AttentionGradArgs& a, std::int64_t entry, std::int64_t head) {
  return static_cast<A*>(a.sum_grad)[entry * heads_of_call(a) + head - a.head_begin];
}

/// Recomputed attention of one edge and head.
template <class A>
struct Recomputed {
  A share = 0;          ///< softmax output
  A mean = 0;           ///< mean of the destination
  A dropped_share = 0;  ///< share after dropout
  A weight = 0;         ///< weight of z: `dropped_share` times the edge's weight
  A slope = 0;          ///< derivative of the leaky ReLU
};

template <class T>
__device__ Recomputed<typename T::Accum> recompute(const AttentionGradArgs& a, std::int64_t entry,
                                                   std::int64_t destination, std::int64_t head,
                                                   typename T::Accum sent,
                                                   typename T::Accum kept_factor) {
  using A = typename T::Accum;
  const A* state = static_cast<const A*>(a.state) + destination * kStateNumbers * a.heads + head;
  const A slope = static_cast<A>(a.scores.negative_slope), x = state[0] + sent;
  const auto factors =
      share_factors<T>(a.scores, id_at(a.entries.second, entry), head, a.heads, kept_factor);
  Recomputed<A> of;
  of.share = exponential(leaky_relu(x, slope) - state[a.heads]) * state[2 * a.heads];
  of.mean = state[3 * a.heads];
  of.dropped_share = of.share * factors.dropout_factor;
  of.weight = of.dropped_share * factors.edge_weight;
  of.slope = A(0) < x ? A(1) : slope;
  return of;
}

/// Stores the results of an edge and head; returns the gradient of score_src + score_dst.
template <class A>
__device__ A store_entry(const AttentionGradArgs& a, const Recomputed<A>& of, A product,
                         std::int64_t entry, std::int64_t head) {
  const A grad = (of.weight * product - of.share * of.mean) * of.slope;
  sum_grad_of<A>(a, entry, head) = grad;
  if (a.weight_grad == nullptr) return grad;
  const std::int64_t length = a.scores.edge_weight.length;
  A* weight_grad = static_cast<A*>(a.weight_grad) + entry * length;
  if (length == a.heads) {
    weight_grad[head] = of.dropped_share * product;
  } else {
    // The same lane processes all heads, one after another, and calls run in order.
    *weight_grad = (head == 0 ? A(0) : *weight_grad) + of.dropped_share * product;
  }
  return grad;
}

/// Gradient of one source and head, or of a part of its edges.
template <class T, int N>
__device__ void attend_back(const AttentionGradArgs& a, const Window& window,
                            const LaneShape& shape, const HubPart& part, std::int64_t head,
                            typename T::Accum kept_factor, typename T::Accum* partials) {
  using A = typename T::Accum;
  using Storage = typename T::Storage;
  const bool works = part.row >= 0;
  const std::int64_t pack = window.first_pack + pack_of_lane(shape);
  const bool inside = pack < window.packs;
  const std::int64_t at = part.row * a.heads + head, stride = a.features + a.grad_padding;
  const A sent = works ? head_number<T>(a.scores.src, part.row, head) : A(0);
  A own[N] = {};
  if (works && inside) {
    load_in_row<T, N>(static_cast<const Storage*>(a.z) + at * a.features, pack * N, a.features,
                      own);
  }
  const GatheredPacks<T> rows = {static_cast<const Storage*>(a.grad) + head * stride + pack * N,
                                 a.heads * stride, inside};
  Recomputed<A> mine_of;
  A score_grad = 0, row[N] = {};
  for_entries<T, N>(
      shape, part.range, a.entries.first, rows,
      [&](std::int64_t entry, std::int64_t destination, bool mine) {
        mine_of = {};
        if (mine) mine_of = recompute<T>(a, entry, destination, head, sent, kept_factor);
      },
      [&](const A(&x)[N], bool taken, int owner) {
        const A weight_of_owner = __shfl_sync(kAllLanes, mine_of.weight, owner);
        const A weight = taken ? weight_of_owner : A(0);
        A dot = 0;
#pragma unroll
        for (int i = 0; i < N; ++i) {
          row[i] += weight * x[i];
          dot += own[i] * x[i];
        }
        return dot;
      },
      [&](std::int64_t entry, bool mine, A product) {
        if (!mine) return;
        A& before = sum_grad_of<A>(a, entry, head);
        if (!window.first) product += before;
        if (window.last) {
          score_grad += store_entry(a, mine_of, product, entry, head);
        } else {
          before = product;
        }
      });
  score_grad = group_sum(score_grad, shape.item);
  add_entries(shape, row);
  if (!works) return;
  if (part.partial >= 0) {
    A* partial = partial_of(partials, a, part.partial, head);
    if (leads(shape) && window.last) *partial = score_grad;
    if (!stores(shape) || !inside) return;
    for (int i = 0; i < N; ++i) {
      if (pack * N + i < a.features) partial[kPartialNumbers + pack * N + i] = row[i];
    }
    return;
  }
  if (leads(shape) && window.last) static_cast<A*>(a.score_grad)[at] = score_grad;
  if (!stores(shape) || !inside) return;
  store_in_row<T, N>(row, static_cast<Storage*>(a.z_grad) + at * a.features, pack * N, a.features);
}

/// An item has `heads_of_item` heads: all heads of the call if they share an edge's weight, so that
/// one lane sums its gradient.
template <class T, int N>
__global__ void __launch_bounds__(HeadLaunch::kThreads, HeadLaunch::kBlocks)
    attention_grad_rows(AttentionGradArgs a, HeadRows rows, Window window, LaneShape shape,
                        std::int64_t heads_of_item, typename T::Accum kept_factor,
                        typename T::Accum* partials) {
  const std::int64_t items_of_row = heads_of_call(a) / heads_of_item;
  for_items(rows.count * items_of_row, shape, [&](std::int64_t item) {
    const std::int64_t row = item < 0 ? -1 : quotient(item, items_of_row);
    const HubPart part = part_at(rows, row);
    const std::int64_t first_head =
        a.head_begin + (item < 0 ? 0 : (item - row * items_of_row) * heads_of_item);
    for (std::int64_t head = first_head; head < first_head + heads_of_item; ++head) {
      attend_back<T, N>(a, window, shape, part, head, kept_factor, partials);
    }
  });
}

/// Sums the partial results of long rows in chunk order: one block per long row, one thread per
/// element.
template <class T>
__global__ void __launch_bounds__(HeadLaunch::kHubThreads)
    attention_grad_hubs(AttentionGradArgs a, std::int64_t num_entries,
                        typename T::Accum* partials) {
  using A = typename T::Accum;
  const std::int64_t chunks = num_chunks(num_entries), length = a.features + kPartialNumbers;
  for (std::int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const Hub hub = hub_beginning_in(a.entries, a.row_end, num_entries, chunk);
    if (hub.row < 0) continue;
    for (std::int64_t i = threadIdx.x; i < heads_of_call(a) * length; i += blockDim.x) {
      const std::int64_t head = a.head_begin + i / length, number = i % length;
      A sum = 0;
      for (std::int64_t p = hub.first_chunk; p <= hub.last_chunk; ++p) {
        sum += partial_of(partials, a, hub_partial(hub, p), head)[number];
      }
      const std::int64_t at = hub.row * a.heads + head;
      if (number == 0) {
        static_cast<A*>(a.score_grad)[at] = sum;
      } else {
        static_cast<typename T::Storage*>(a.z_grad)[at * a.features + number - kPartialNumbers] =
            narrowed<T>(sum);
      }
    }
  }
}

template <class T, int N>
void launch_windows(const AttentionGradArgs& a, const CudaLaunch& to) {
  using A = typename T::Accum;
  const bool one_weight = a.weight_grad != nullptr && a.scores.edge_weight.length != a.heads;
  const std::int64_t heads_of_item = one_weight ? heads_of_call(a) : 1;
  Window window;
  window.packs = (a.features + a.grad_padding) / N;
  const int entry_lanes = lanes_for(window.packs);
  const auto run = [&](const HeadRows& rows, const LaneShape& shape) {
    const std::int64_t items = rows.count * (heads_of_call(a) / heads_of_item);
    launch("attention_grad", attention_grad_rows<T, N>, {blocks_for(items, shape)},
           HeadLaunch::kThreads, to.stream, a, rows, window, shape, heads_of_item,
           kept_factor<A>(a.scores.dropout), static_cast<A*>(to.workspace));
  };
  do {
    window.first = window.first_pack == 0;
    window.last = window.first_pack + entry_lanes >= window.packs;
    run(rows_without_hubs(a.entries, a.row_end, to.num_entries),
        shape_for_rows(entry_lanes, a.row_end, to.num_entries));
    if (may_have_hubs(a.entries, to.num_entries)) {
      run(parts_of_hubs(a.entries, a.row_end, to.num_entries), {kWarpLanes, entry_lanes});
    }
    window.first_pack += entry_lanes;
  } while (window.first_pack < window.packs);
}

template <class T>
void launch_grad(const AttentionGradArgs& a, const CudaLaunch& to) {
  if (heads_of_call(a) == 0) return;
  visit_pack<T>(a.features, a.grad_padding, address_of(a.grad),
                address_of(a.z) | address_of(a.z_grad),
                [&]<int N>() { launch_windows<T, N>(a, to); });
  if (!may_have_hubs(a.entries, to.num_entries)) return;
  launch("attention_grad", attention_grad_hubs<T>, {blocks_for_chunks(to.num_entries)},
         HeadLaunch::kHubThreads, to.stream, a, to.num_entries,
         static_cast<typename T::Accum*>(to.workspace));
}

}  // namespace

template <>
std::int64_t Kernel<AttentionStateArgs>::workspace(const AttentionStateArgs& /*args*/,
                                                   std::int64_t /*num_entries*/) {
  return 0;
}

template <>
void Kernel<AttentionStateArgs>::run(const AttentionStateArgs& args, const CudaLaunch& launch) {
  detail::visit(DTypes{}, args.dtype, [&]<class T>() { launch_state<T>(args, launch); });
}

template <>
std::int64_t Kernel<AttentionGradArgs>::workspace(const AttentionGradArgs& args,
                                                  std::int64_t num_entries) {
  std::int64_t bytes = 0;
  detail::visit(DTypes{}, args.dtype, [&]<class T>() {
    bytes = num_partials(args.entries, num_entries) * heads_of_call(args) *
            (args.features + kPartialNumbers) *
            static_cast<std::int64_t>(sizeof(typename T::Accum));
  });
  return bytes;
}

template <>
void Kernel<AttentionGradArgs>::run(const AttentionGradArgs& args, const CudaLaunch& launch) {
  detail::visit(DTypes{}, args.dtype, [&]<class T>() { launch_grad<T>(args, launch); });
}

}  // namespace mezzo::kernels::cuda
