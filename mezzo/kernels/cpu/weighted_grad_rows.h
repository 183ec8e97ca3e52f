#pragma once

#include <cstdint>

#include "mezzo/kernels/cpu/access.h"
#include "mezzo/kernels/cpu/head_numbers.h"
#include "mezzo/kernels/cpu/head_runs.h"
#include "mezzo/kernels/weighted_grad.h"

namespace mezzo {

template <class V, class T>
class WeightedGradRows {
 public:
  using Accum = typename T::Accum;
  using Storage = typename T::Storage;

  explicit WeightedGradRows(const WeightedGradArgs& a)
      : a_(a),
        length_(a.heads * a.features),
        chunk_(chunk_slots(kGradNumbers, a.heads)),
        scratch_(a.scratch),
        weight_(scratch_.take(chunk_ * a.heads)),
        product_(scratch_.take(chunk_ * a.heads)),
        running_(scratch_.take(length_)),
        partial_(scratch_.take((chunk_ * a.heads + V::width) * V::width)) {}

  void run() {
    const std::int64_t slots_end = slots_of(a_.slots, a_.row_end - 1).end;
    for (std::int64_t row = a_.row_begin; row < a_.row_end; ++row) {
      a_.own_grad != nullptr ? run_row<true>(row, slots_end) : run_row<false>(row, slots_end);
    }
  }

 private:
  template <bool kSum>
  void run_row(std::int64_t row, std::int64_t slots_end) {
    const SlotRange range = slots_of(a_.slots, row);
    const auto* scale = static_cast<const Accum*>(a_.own_scale);
    HeadChunk<V, T> chunk;
    chunk.heads = a_.heads;
    chunk.features = a_.features;
    chunk.x = static_cast<const Storage*>(a_.other);
    chunk.ids = a_.slots.first;
    chunk.slots_end = slots_end;
    chunk.weight = weight_;
    chunk.running = running_;
    // A row without slots is 0, which an infinite scale would make NaN.
    chunk.factor = scale != nullptr && range.begin < range.end ? scale[row] : Accum{1};
    if constexpr (kSum) chunk.out = static_cast<Storage*>(a_.own_grad) + row * length_;
    chunk.own = static_cast<const Storage*>(a_.own) + row * length_;
    chunk.partial = partial_;
    chunk.begin = range.begin;
    do {
      const std::int64_t left = range.end - chunk.begin;
      chunk.count = left < chunk_ ? left : chunk_;
      chunk.first = chunk.begin == range.begin;
      chunk.last = chunk.count == left;
      if constexpr (kSum) {
        weigh(chunk.begin, chunk.count, slots_end);
      }
      run_heads<V, T, kSum, true>(chunk);
      add_lanes<V>(partial_, chunk.count * a_.heads, product_);
      store_products(chunk.begin, chunk.count, chunk.factor);
      chunk.begin += chunk.count;
    } while (chunk.begin < range.end);
  }

  Accum other_scale(std::int64_t slot) const {
    const auto* scale = static_cast<const Accum*>(a_.other_scale);
    return scale != nullptr ? scale[id_at(a_.slots.first, slot)] : Accum{1};
  }

  void weigh(std::int64_t begin, std::int64_t count, std::int64_t slots_end) {
    gather_weights<V, T>(a_.weight, a_.slots.second, a_.heads, begin, count, slots_end, weight_);
    if (a_.other_scale == nullptr) return;
    for (std::int64_t i = 0; i < count; ++i) {
      const Accum scale = other_scale(begin + i);
      for (std::int64_t h = 0; h < a_.heads; ++h) weight_[i * a_.heads + h] *= scale;
    }
  }

  void store_products(std::int64_t begin, std::int64_t count, Accum own_scale) const {
    const std::int64_t total = count * a_.heads;
    if (a_.other_scale != nullptr) {
      for (std::int64_t i = 0; i < count; ++i) {
        const Accum scale = other_scale(begin + i);
        for (std::int64_t h = 0; h < a_.heads; ++h) product_[i * a_.heads + h] *= scale;
      }
    }
    const V scale = V::set(own_scale);
    for (std::int64_t i = 0; i < total; i += V::width) {
      store_result<V, T>(V::load_accum(product_ + i) * scale, a_.weight_grad, a_.weight_grad_wide,
                         begin * a_.heads + i, total - i);
    }
  }

  const WeightedGradArgs& a_;
  std::int64_t length_, chunk_;
  Scratch<V> scratch_;
  Accum *weight_, *product_, *running_, *partial_;
};

template <class V, class T>
void weighted_grad_rows(const WeightedGradArgs& a) {
  if (a.row_begin < a.row_end) WeightedGradRows<V, T>(a).run();
}

}  // namespace mezzo
