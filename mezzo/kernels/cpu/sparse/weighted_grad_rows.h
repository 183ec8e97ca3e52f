#pragma once

#include <cstdint>

#include "mezzo/kernels/cpu/access.h"
#include "mezzo/kernels/cpu/attention/head_numbers.h"
#include "mezzo/kernels/cpu/attention/head_runs.h"
#include "mezzo/kernels/weighted_grad.h"

namespace mezzo::kernels {

/// Processes entries in windows of up to a chunk, which span short rows: steps that take a vector
/// of entries at a time (loading weights, summing products, storing) use whole vectors.
template <class V, class T>
class WeightedGradRows {
 public:
  using Accum = typename T::Accum;
  using Storage = typename T::Storage;

  explicit WeightedGradRows(const WeightedGradArgs& a)
      : a_(a),
        length_(a.heads * a.features),
        most_(chunk_entries(kGradNumbers, a.heads)),
        entries_end_(entries_of(a.entries, a.row_end - 1).end),
        streams_(a.out_streams && are_lines(a.own_grad, length_ * kBytes, a.features * kBytes)),
        scratch_(a.scratch),
        weight_(scratch_.take(most_ * a.heads)),
        product_(scratch_.take(most_ * a.heads)),
        row_scale_(scratch_.take(most_ * a.heads)),
        running_(length_, scratch_),
        partial_(scratch_.take((most_ * a.heads + V::width) * V::width)) {
    window_.begin = window_.end = entries_of(a.entries, a.row_begin).begin;
  }

  void run() {
    a_.own_grad != nullptr ? run_rows<true>() : run_rows<false>();
    if (streams_) V::end_streams();
  }

 private:
  static constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Storage));
  template <bool kSum>
  void run_rows() {
    for (std::int64_t row = a_.row_begin; row < a_.row_end; ++row) {
      const EntryRange range = entries_of(a_.entries, row);
      if (range.begin < range.end) {
        run_row<kSum>(row, range);
      } else if constexpr (kSum) {
        Storage* out = static_cast<Storage*>(a_.own_grad) + row * length_;
        for (std::int64_t i = 0; i < length_; i += V::width) {
          if (streams_) {
            V::zero().stream(T{}, out + i);
          } else {
            store_result<V, T>(V::zero(), out, false, i, length_ - i);
          }
        }
      }
    }
    store_products();
  }

  template <bool kSum>
  void run_row(std::int64_t row, EntryRange range) {
    const auto* scale = static_cast<const Accum*>(a_.own_scale);
    HeadChunk<V, T> chunk;
    chunk.heads = a_.heads;
    chunk.features = a_.features;
    chunk.x = static_cast<const Storage*>(a_.other);
    chunk.ids = a_.entries.first;
    chunk.entries_end = entries_end_;
    chunk.factor = scale != nullptr ? scale[row] : Accum{1};
    chunk.streams = streams_;
    if constexpr (kSum) chunk.out = static_cast<Storage*>(a_.own_grad) + row * length_;
    chunk.own = static_cast<const Storage*>(a_.own) + row * length_;
    if constexpr (kSum) {
      // A window begins with such a row, so that its result does not depend on other rows.
      chunk.apart = range.end - range.begin > kEntriesApart;
      if (chunk.apart && range.begin < window_.end) window_.end = range.begin;
    }
    running_.begin_row();
    for (std::int64_t begin = range.begin; begin < range.end; begin += chunk.count) {
      if (begin == window_.end) {
        store_products();
        open_window<kSum>(begin);
      }
      const std::int64_t end = range.end < window_.end ? range.end : window_.end;
      const std::int64_t at = (begin - window_.begin) * a_.heads;
      chunk.begin = begin;
      chunk.count = end - begin;
      chunk.last = end == range.end;
      chunk.weight = weight_ + at;
      chunk.partial = partial_ + at * V::width;
      if constexpr (kSum) running_.open(chunk);
      run_heads<V, T, kSum, true>(chunk);
      if constexpr (kSum) running_.close(chunk);
      if (scale == nullptr) continue;
      for (std::int64_t i = 0; i < chunk.count * a_.heads; ++i) row_scale_[at + i] = chunk.factor;
    }
  }

  Accum other_scale(std::int64_t entry) const {
    return static_cast<const Accum*>(a_.other_scale)[id_at(a_.entries.first, entry)];
  }

  template <bool kSum>
  void open_window(std::int64_t begin) {
    window_.begin = begin;
    window_.end = entries_end_ - begin < most_ ? entries_end_ : begin + most_;
    if constexpr (kSum) {
      const std::int64_t count = window_.end - begin;
      gather_weights<V, T>(a_.weight, a_.entries.second, a_.heads, begin, count, entries_end_,
                           weight_);
      if (a_.other_scale != nullptr) scale_by_other(weight_);
    }
  }

  /// Multiplies the numbers of the window by the scales of the other rows.
  void scale_by_other(Accum* numbers) const {
    for (std::int64_t entry = window_.begin; entry < window_.end; ++entry) {
      const Accum scale = other_scale(entry);
      for (std::int64_t h = 0; h < a_.heads; ++h) *numbers++ *= scale;
    }
  }

  void store_products() {
    const std::int64_t total = (window_.end - window_.begin) * a_.heads;
    add_lanes<V>(partial_, total, product_);
    if (a_.other_scale != nullptr) scale_by_other(product_);
    for (std::int64_t i = 0; i < total; i += V::width) {
      V v = V::load_accum(product_ + i);
      if (a_.own_scale != nullptr) v = v * V::load_accum(row_scale_ + i);
      store_result<V, T>(v, a_.weight_grad, a_.weight_grad_is_accum, window_.begin * a_.heads + i,
                         total - i);
    }
  }

  const WeightedGradArgs& a_;
  std::int64_t length_, most_, entries_end_;
  bool streams_;
  Scratch<V> scratch_;
  Accum *weight_, *product_, *row_scale_;
  RunningRow<V, T> running_;
  Accum* partial_;
  EntryRange window_{};
};

template <class V, class T>
void compute(const WeightedGradArgs& a) {
  if (a.row_begin < a.row_end) WeightedGradRows<V, T>(a).run();
}

}  // namespace mezzo::kernels
