#pragma once

#include <cstdint>
#include <limits>

#include "mezzo/kernels/attention.h"
#include "mezzo/kernels/cpu/access.h"
#include "mezzo/kernels/cpu/attention/head_numbers.h"
#include "mezzo/kernels/cpu/attention/head_runs.h"

namespace mezzo::kernels {

/// Computes the attention destination by destination. The sum of exponentials is known after the
/// last chunk of a row, so rows are summed unnormalised and divided once, at the store.
template <class V, class T>
class AttentionRows {
 public:
  using Accum = typename T::Accum;
  using Storage = typename T::Storage;

  explicit AttentionRows(const AttentionArgs& a)
      : a_(a),
        heads_(a.heads),
        period_(HeadPattern<V>::period(a.heads)),
        chunk_(chunk_entries(kForwardNumbers, a.heads)),
        scratch_(a.scratch),
        logit_(scratch_.take(chunk_ * heads_)),
        factor_(scratch_.take(chunk_ * heads_)),
        received_by_head_(scratch_.take(heads_)),
        received_(heads_, scratch_.take(period_)),
        top_(heads_, scratch_.take(period_)),
        sum_(heads_, period_, scratch_),
        running_(heads_ * a.features, scratch_) {}

  void run() {
    entries_end_ = entries_of(a_.entries, a_.row_end - 1).end;
    constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Storage));
    const std::int64_t head = a_.features * kBytes;
    streams_ = a_.out_streams && are_lines(a_.out, heads_ * head, head);
    for (std::int64_t row = a_.row_begin; row < a_.row_end; ++row) run_row(row);
    if (streams_) V::end_streams();
  }

 private:
  void run_row(std::int64_t row) {
    const EntryRange range = entries_of(a_.entries, row);
    Accum* top = static_cast<Accum*>(a_.top) + row * heads_;
    Accum* sum = static_cast<Accum*>(a_.sum) + row * heads_;
    const bool one_chunk = range.end - range.begin <= chunk_;
    find_top(row, range, top);
    sum_.clear();
    running_.begin_row();
    std::int64_t begin = range.begin;
    do {
      const std::int64_t count = range.end - begin < chunk_ ? range.end - begin : chunk_;
      if (!one_chunk) gather_logits(begin, count);
      exponentials(begin, count);
      sum_.close_chunk(count);
      if (begin + count == range.end) sum_.add_to(sum);
      // An empty row is 0 / 1.
      if (range.begin == range.end) {
        for (std::int64_t h = 0; h < heads_; ++h) sum[h] = 1;
      }
      HeadChunk<V, T> chunk;
      chunk.heads = heads_;
      chunk.features = a_.features;
      chunk.x = static_cast<const Storage*>(a_.z);
      chunk.ids = a_.entries.first;
      chunk.begin = begin;
      chunk.count = count;
      chunk.entries_end = entries_end_;
      chunk.weight = logit_;
      chunk.last = begin + count == range.end;
      chunk.apart = true;
      chunk.out = static_cast<Storage*>(a_.out) + row * heads_ * a_.features;
      chunk.streams = streams_;
      chunk.divisor = sum;
      running_.open(chunk);
      run_heads<V, T, true, false>(chunk);
      running_.close(chunk);
      begin += count;
    } while (begin < range.end);
  }

  /// Leaves the logits in logit_ if the row is one chunk.
  void find_top(std::int64_t row, EntryRange range, Accum* top) {
    copy_numbers<V, T>(a_.scores.dst, row, received_by_head_);
    received_.repeat(received_by_head_);
    top_.fill(-std::numeric_limits<Accum>::infinity());
    for (std::int64_t begin = range.begin; begin < range.end; begin += chunk_) {
      const std::int64_t count = range.end - begin < chunk_ ? range.end - begin : chunk_;
      gather_logits(begin, count);
      for_vectors<V>(count * heads_, period_, [&](std::int64_t i, std::int64_t t) {
        const V x = V::load_accum(logit_ + i), best = V::load_accum(top_.data() + t);
        select(best < x, x, best).store_accum(top_.data() + t);
      });
    }
    top_.largest_to(top);
    top_.repeat(top);
  }

  void gather_logits(std::int64_t begin, std::int64_t count) {
    // factor_ is free here; exponentials() uses it later.
    gather_numbers<V, T>(a_.scores.src, a_.entries.first, begin, count, entries_end_, factor_,
                         logit_);
    const V slope = V::set(static_cast<Accum>(a_.scores.negative_slope));
    for_vectors<V>(count * heads_, period_, [&](std::int64_t i, std::int64_t t) {
      const V x = V::load_accum(logit_ + i) + V::load_accum(received_.data() + t);
      leaky_relu(x, slope).store_accum(logit_ + i);
    });
    pad<V>(logit_, count * heads_, -std::numeric_limits<Accum>::infinity());
  }

  /// Replaces logits by exponentials, sums these, and multiplies them by dropout and edge weights.
  void exponentials(std::int64_t begin, std::int64_t count) {
    for_vectors<V>(count * heads_, period_, [&](std::int64_t i, std::int64_t t) {
      const V e = V::exp(V::load_accum(logit_ + i) - V::load_accum(top_.data() + t));
      e.store_accum(logit_ + i);
      (V::load_accum(sum_.data() + t) + e).store_accum(sum_.data() + t);
    });
    const AttentionScores& s = a_.scores;
    if (s.dropout.threshold > 0) {
      draw_mask<V>(s.dropout, a_.entries.second, heads_, begin, count, factor_);
      multiply(count);
    }
    if (s.edge_weight.data != nullptr) {
      gather_weights<V, T>(s.edge_weight, a_.entries.second, heads_, begin, count, entries_end_,
                           factor_);
      multiply(count);
    }
  }

  void multiply(std::int64_t count) {
    for (std::int64_t i = 0; i < count * heads_; i += V::width) {
      (V::load_accum(logit_ + i) * V::load_accum(factor_ + i)).store_accum(logit_ + i);
    }
  }

  const AttentionArgs& a_;
  std::int64_t entries_end_ = 0;
  bool streams_ = false;
  std::int64_t heads_, period_, chunk_;
  Scratch<V> scratch_;
  Accum *logit_, *factor_;  ///< by entry and head
  Accum* received_by_head_;
  HeadPattern<V> received_, top_;
  HeadSums<V> sum_;
  RunningRow<V, T> running_;
};

template <class V, class T>
void compute(const AttentionArgs& a) {
  if (a.row_begin < a.row_end) AttentionRows<V, T>(a).run();
}

}  // namespace mezzo::kernels
