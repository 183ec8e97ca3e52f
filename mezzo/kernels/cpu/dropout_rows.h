#pragma once

#include <cstdint>

#include "mezzo/kernels/cpu/access.h"
#include "mezzo/kernels/cpu/draws.h"
#include "mezzo/kernels/dropout.h"

namespace mezzo::kernels {

/// Generates the draws [first, first + kLanes): 16 bits for each element, in the order of elements.
template <class V>
[[gnu::always_inline]] inline void draw_levels(const PhiloxKeys& keys, std::int64_t first,
                                               std::uint16_t* levels) {
  using Integers = typename V::Integers;
  PhiloxLanes<Integers> lanes;
  lanes.generate(keys, kDropoutStream,
                 all_lanes<Integers>(static_cast<std::uint64_t>(first)) + Integers::counted());
  // Word 0 of a draw is for the first two elements.
  Integers::store_in_turn(lanes.pairs(0), lanes.pairs(1), levels);
}

/// Dropout of blocks of elements, one vector of draws each.
template <class V, class T>
class DropoutRows {
 public:
  using Number = typename V::Scalar;
  using Storage = typename T::Storage;

  explicit DropoutRows(const DropoutArgs& a)
      : a_(a),
        keys_(a.dropout.seed),
        factor_(
            V::set(static_cast<Number>(kDropoutLevels / (kDropoutLevels - a.dropout.threshold)))) {}

  void run() const {
    const std::int64_t draws_end = a_.draw_end * kElementsPerDraw;
    const std::int64_t end = draws_end < a_.count ? draws_end : a_.count;
    auto* out = static_cast<Storage*>(a_.out);
    const bool streams = a_.out_streams && are_lines(out + a_.draw_begin * kElementsPerDraw, 0, 0);
    std::int64_t at = a_.draw_begin * kElementsPerDraw;
    if (streams) {
      for (; end - at >= kBlock; at += kBlock) {
        drop_block(at, [&](V v, std::int64_t i) { v.stream(T{}, out + i); });
      }
      V::end_streams();
    }
    for (; end - at >= kBlock; at += kBlock) {
      drop_block(at, [&](V v, std::int64_t i) { v.store(T{}, out + i); });
    }
    if (at < end) drop_last(at, end, out);
  }

 private:
  static constexpr std::int64_t kBlock = V::Integers::kLanes * kElementsPerDraw;

  [[gnu::always_inline]] V drop(V v, const std::uint16_t* levels) const {
    // A select, not a product: dropped elements are 0 even if they are inf or NaN.
    return select(V::at_least(levels, a_.dropout.threshold), v * factor_, V::zero());
  }

  template <class Put>
  [[gnu::always_inline]] void drop_block(std::int64_t at, const Put& put) const {
    alignas(64) std::uint16_t levels[kBlock];
    draw_levels<V>(keys_, at / kElementsPerDraw, levels);
    const auto* x = static_cast<const Storage*>(a_.x) + at;
#pragma GCC unroll 4
    for (std::int64_t i = 0; i < kBlock; i += V::width) {
      put(drop(V::load(T{}, x + i), levels + i), at + i);
    }
  }

  void drop_last(std::int64_t at, std::int64_t end, Storage* out) const {
    alignas(64) std::uint16_t levels[kBlock];
    draw_levels<V>(keys_, at / kElementsPerDraw, levels);
    const auto* x = static_cast<const Storage*>(a_.x);
    for (std::int64_t i = at; i < end; i += V::width) {
      const std::int64_t left = end - i;
      const V v = left >= V::width ? V::load(T{}, x + i) : V::load(T{}, x + i, left);
      const V result = drop(v, levels + (i - at));
      left >= V::width ? result.store(T{}, out + i) : result.store(T{}, out + i, left);
    }
  }

  const DropoutArgs& a_;
  PhiloxKeys keys_;
  V factor_;
};

template <class V, class T>
void compute(const DropoutArgs& a) {
  if (a.draw_begin < a.draw_end) DropoutRows<V, T>(a).run();
}

}  // namespace mezzo::kernels
