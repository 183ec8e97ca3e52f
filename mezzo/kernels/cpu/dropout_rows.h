#pragma once

#include <cstdint>

#include "mezzo/kernels/cpu/access.h"
#include "mezzo/kernels/cpu/draws.h"
#include "mezzo/kernels/dropout.h"

namespace mezzo {

/// factors[i] = 0 where element i of the draws [first, first + kLanes) is dropped, else `scale`.
template <class V>
void draw_factors(const DropoutLevel& dropout, const PhiloxKeys& keys, std::int64_t first,
                  typename V::Scalar scale, typename V::Scalar* factors) {
  using Lanes = DrawLanes<V>;
  constexpr std::int64_t kHalves = 2 * Lanes::kLanes;
  alignas(64) std::uint64_t draws[Lanes::kLanes];
  for (std::int64_t i = 0; i < Lanes::kLanes; ++i) draws[i] = static_cast<std::uint64_t>(first + i);
  Lanes lanes;
  lanes.generate(keys, draws);
  // Each draw's elements in their order, 16 bits each: word 0 has the first two.
  alignas(64) std::uint64_t halves[kHalves];
  Lanes::Integers::store_in_turn(lanes.made.pairs(0), lanes.made.pairs(1), halves);
  alignas(64) std::uint16_t levels[4 * kHalves];
  __builtin_memcpy(levels, halves, sizeof(halves));
  for (std::int64_t i = 0; i < 4 * kHalves; ++i) {
    factors[i] = levels[i] >= dropout.threshold ? scale : 0;
  }
}

template <class V, class T>
void dropout_rows(const DropoutArgs& a) {
  using Number = typename V::Scalar;
  constexpr std::int64_t kDraws = DrawLanes<V>::kLanes, kElements = kDraws * kElementsPerDraw;
  const auto scale = static_cast<Number>(kDropoutLevels / (kDropoutLevels - a.dropout.threshold));
  const auto* x = static_cast<const typename T::Storage*>(a.x);
  auto* out = static_cast<typename T::Storage*>(a.out);
  const bool streams = a.out_streams && are_lines(out + a.draw_begin * kElementsPerDraw, 0, 0);
  const PhiloxKeys keys(a.dropout.seed);
  alignas(64) Number factors[kElements];
  for (std::int64_t draw = a.draw_begin; draw < a.draw_end; draw += kDraws) {
    draw_factors<V>(a.dropout, keys, draw, scale, factors);
    const std::int64_t first = draw * kElementsPerDraw;
    const std::int64_t past = (a.draw_end < draw + kDraws ? a.draw_end : draw + kDraws);
    const std::int64_t wanted = past * kElementsPerDraw;
    const std::int64_t end = wanted < a.count ? wanted : a.count;
    for (std::int64_t i = first; i < end; i += V::width) {
      const V factor = V::load_accum(factors + (i - first));
      const bool whole = end - i >= V::width;
      const V v = whole ? V::load(T{}, x + i) : V::load(T{}, x + i, end - i);
      // A choice, not a product: what is dropped is 0 even where it is inf or NaN.
      const V kept = select(V::zero() < factor, v * factor, V::zero());
      if (streams && whole) {
        kept.stream(T{}, out + i);
      } else {
        whole ? kept.store(T{}, out + i) : kept.store(T{}, out + i, end - i);
      }
    }
  }
  if (streams) V::end_streams();
}

}  // namespace mezzo
