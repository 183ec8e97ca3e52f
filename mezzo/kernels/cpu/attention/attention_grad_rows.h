#pragma once

#include <cstdint>

#include "mezzo/kernels/attention.h"
#include "mezzo/kernels/cpu/access.h"
#include "mezzo/kernels/cpu/attention/head_numbers.h"
#include "mezzo/kernels/cpu/attention/head_runs.h"

namespace mezzo::kernels {

template <class V, class T>
void compute(const AttentionStateArgs& a) {
  using Accum = typename T::Accum;
  const Operand out{.data = a.out}, grad{.data = a.grad};
  for (std::int64_t row = a.row_begin; row < a.row_end; ++row) {
    Accum* state = static_cast<Accum*>(a.state) + row * kStateNumbers * a.heads;
    for (std::int64_t h = 0; h < a.heads; ++h) {
      const std::int64_t at = row * a.heads + h;
      V mean = V::zero();
      for (std::int64_t f = 0; f < a.features; f += V::width) {
        const std::int64_t left = a.features - f, from = at * a.features + f;
        mean = V::fma(load_operand<V, T>(out, from, 1, left),
                      load_operand<V, T>(grad, from, 1, left), mean);
      }
      state[h] = number_at<V, T>(a.score_dst, at);
      state[a.heads + h] = static_cast<const Accum*>(a.top)[at];
      state[2 * a.heads + h] = 1 / static_cast<const Accum*>(a.sum)[at];
      state[3 * a.heads + h] = mean.sum();
    }
  }
}

/// Computes the gradients source by source. Reads the rows of `grad` once, for the gradient of z (a
/// weighted sum) and of the attention (dot products with the row of z).
template <class V, class T>
class AttentionGradRows {
 public:
  using Accum = typename T::Accum;
  using Storage = typename T::Storage;

  explicit AttentionGradRows(const AttentionGradArgs& a)
      : a_(a),
        heads_(a.heads),
        length_(a.heads * a.features),
        period_(HeadPattern<V>::period(a.heads)),
        chunk_(chunk_entries(kGradNumbers, a.heads)),
        scratch_(a.scratch),
        running_(length_, scratch_),
        sent_by_head_(scratch_.take(heads_)),
        sent_(heads_, scratch_.take(period_)),
        score_grad_(heads_, period_, scratch_) {
    for (Accum** array : {&numbers_.received, &numbers_.top, &numbers_.inverse, &numbers_.mean,
                          &numbers_.share, &numbers_.slope, &numbers_.mask, &numbers_.edge_weight,
                          &numbers_.weight, &numbers_.product, &numbers_.grad}) {
      *array = scratch_.take(chunk_ * heads_);
    }
    partial_ = scratch_.take((chunk_ * heads_ + V::width) * V::width);
  }

  void run() {
    const std::int64_t entries_end = entries_of(a_.entries, a_.row_end - 1).end;
    constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Storage));
    streams_ = a_.out_streams && are_lines(a_.z_grad, length_ * kBytes, a_.features * kBytes);
    for (std::int64_t row = a_.row_begin; row < a_.row_end; ++row) run_row(row, entries_end);
    if (streams_) V::end_streams();
  }

 private:
  /// [count, heads] numbers of the chunk.
  struct Numbers {
    Accum *received, *top, *inverse, *mean;  ///< of the destination
    Accum* share;                            ///< softmax
    Accum* slope;                            ///< derivative of the leaky ReLU
    Accum *mask, *edge_weight;               ///< if used
    Accum* weight;                           ///< of z: share * mask * edge_weight
    Accum* product;                          ///< <grad, z>
    Accum* grad;                             ///< of the edge weights
  };

  bool drops() const { return a_.scores.dropout.threshold > 0; }
  bool weighted() const { return a_.scores.edge_weight.data != nullptr; }

  void run_row(std::int64_t row, std::int64_t entries_end) {
    const EntryRange range = entries_of(a_.entries, row);
    copy_numbers<V, T>(a_.scores.src, row, sent_by_head_);
    sent_.repeat(sent_by_head_);
    score_grad_.clear();
    HeadChunk<V, T> chunk;
    chunk.heads = heads_;
    chunk.features = a_.features;
    chunk.x = static_cast<const Storage*>(a_.grad);
    chunk.ids = a_.entries.first;
    chunk.entries_end = entries_end;
    chunk.weight = numbers_.weight;
    chunk.apart = true;
    chunk.out = static_cast<Storage*>(a_.z_grad) + row * length_;
    chunk.streams = streams_;
    chunk.own = static_cast<const Storage*>(a_.z) + row * length_;
    chunk.partial = partial_;
    chunk.begin = range.begin;
    running_.begin_row();
    do {
      const std::int64_t left = range.end - chunk.begin;
      chunk.count = left < chunk_ ? left : chunk_;
      chunk.last = chunk.count == left;
      gather(chunk.begin, chunk.count, entries_end);
      recompute(chunk.count);
      running_.open(chunk);
      run_heads<V, T, true, true>(chunk);
      running_.close(chunk);
      add_lanes<V>(partial_, chunk.count * heads_, numbers_.product);
      grad_of_sums(chunk.begin, chunk.count);
      if (a_.weight_grad != nullptr) grad_of_weights(chunk.begin, chunk.count);
      chunk.begin += chunk.count;
    } while (chunk.begin < range.end);
    score_grad_.add_to(static_cast<Accum*>(a_.score_grad) + row * heads_);
  }

  void gather(std::int64_t begin, std::int64_t count, std::int64_t entries_end) {
    const Numbers& n = numbers_;
    const auto copy = [&]<std::int64_t kHeads>() {
      const std::int64_t heads = kHeads > 0 ? kHeads : heads_;
      const auto bytes = kStateNumbers * heads * static_cast<std::int64_t>(sizeof(Accum));
      const auto state_of = [&](std::int64_t entry) {
        return static_cast<const Accum*>(a_.state) +
               id_at(a_.entries.first, entry) * kStateNumbers * heads;
      };
      const auto put = [&](const Accum* from, Accum* to) {
        if constexpr (kHeads > 0) {
          __builtin_memcpy(to, from, kHeads * sizeof(Accum));
        } else {
          copy_row<V>(from, heads, to);
        }
      };
      for (std::int64_t i = 0; i < count; ++i) {
        if (begin + i + kNumbersAhead < entries_end)
          prefetch(state_of(begin + i + kNumbersAhead), bytes);
        const Accum* state = state_of(begin + i);
        const std::int64_t to = i * heads;
        put(state, n.received + to);
        put(state + heads, n.top + to);
        put(state + 2 * heads, n.inverse + to);
        put(state + 3 * heads, n.mean + to);
      }
    };
    // Copies of constant size take one load and one store each.
    switch (heads_) {
      case 2:
        copy.template operator()<2>();
        break;
      case 4:
        copy.template operator()<4>();
        break;
      case 8:
        copy.template operator()<8>();
        break;
      default:
        copy.template operator()<0>();
    }
    const Ids& edges = a_.entries.second;
    if (drops()) draw_mask<V>(a_.scores.dropout, edges, heads_, begin, count, n.mask);
    if (weighted()) {
      gather_weights<V, T>(a_.scores.edge_weight, edges, heads_, begin, count, entries_end,
                           n.edge_weight);
    }
  }

  void recompute(std::int64_t count) {
    const Numbers& n = numbers_;
    const V slope = V::set(static_cast<Accum>(a_.scores.negative_slope)), one = V::set(1);
    for_vectors<V>(count * heads_, period_, [&](std::int64_t i, std::int64_t t) {
      const V x = V::load_accum(n.received + i) + V::load_accum(sent_.data() + t);
      const auto positive = V::zero() < x;
      const V logit = leaky_relu(x, slope);
      const V share = V::exp(logit - V::load_accum(n.top + i)) * V::load_accum(n.inverse + i);
      V weight = share;
      if (drops()) weight = weight * V::load_accum(n.mask + i);
      if (weighted()) weight = weight * V::load_accum(n.edge_weight + i);
      share.store_accum(n.share + i);
      select(positive, one, slope).store_accum(n.slope + i);
      weight.store_accum(n.weight + i);
    });
  }

  /// The gradient of score_src + score_dst, through softmax and leaky ReLU.
  void grad_of_sums(std::int64_t begin, std::int64_t count) {
    const Numbers& n = numbers_;
    const std::int64_t total = count * heads_;
    for_vectors<V>(total, period_, [&](std::int64_t i, std::int64_t t) {
      const V mean = V::load_accum(n.share + i) * V::load_accum(n.mean + i);
      const V own = V::load_accum(n.weight + i) * V::load_accum(n.product + i);
      V grad = (own - mean) * V::load_accum(n.slope + i);
      // Elements beyond the last number are undefined.
      if (total - i < V::width) grad = V::keep(grad, total - i);
      store_result<V, T>(grad, a_.sum_grad, true, begin * heads_ + i, total - i);
      (V::load_accum(score_grad_.data() + t) + grad).store_accum(score_grad_.data() + t);
    });
    score_grad_.close_chunk(count);
  }

  void grad_of_weights(std::int64_t begin, std::int64_t count) {
    const Numbers& n = numbers_;
    for (std::int64_t i = 0; i < count * heads_; i += V::width) {
      V attention = V::load_accum(n.share + i);
      if (drops()) attention = attention * V::load_accum(n.mask + i);
      (attention * V::load_accum(n.product + i)).store_accum(n.grad + i);
    }
    const std::int64_t length = a_.scores.edge_weight.length;
    auto* to = static_cast<Accum*>(a_.weight_grad) + begin * length;
    if (length == heads_) {
      for (std::int64_t i = 0; i < count * heads_; ++i) to[i] = n.grad[i];
      return;
    }
    for (std::int64_t i = 0; i < count; ++i) {
      to[i] = 0;
      for (std::int64_t h = 0; h < heads_; ++h) to[i] += n.grad[i * heads_ + h];
    }
  }

  const AttentionGradArgs& a_;
  std::int64_t heads_, length_, period_, chunk_;
  bool streams_ = false;
  Scratch<V> scratch_;
  Numbers numbers_{};
  RunningRow<V, T> running_;
  Accum* sent_by_head_;
  HeadPattern<V> sent_;
  HeadSums<V> score_grad_;
  Accum* partial_;
};

template <class V, class T>
void compute(const AttentionGradArgs& a) {
  if (a.row_begin < a.row_end) AttentionGradRows<V, T>(a).run();
}

}  // namespace mezzo::kernels
