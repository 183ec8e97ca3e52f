#pragma once

#include <cstdint>

#include "mezzo/kernels/cpu/integer_lanes.h"
#include "mezzo/kernels/dropout.h"

namespace mezzo::kernels {

/// Several dropout draws in any order, generated together.
template <class V>
struct DrawBatch {
  using Integers = typename V::Integers;
  static constexpr std::int64_t kSize = 16;
  struct Place {
    std::int64_t first;       ///< index of the draw's first element
    std::int64_t begin, end;  ///< the elements to write
  };
  alignas(64) std::uint64_t draws[kSize];
  alignas(64) std::uint64_t words[4][kSize];  ///< the lower 32 bits of each
  Place places[kSize];
  std::int64_t size = 0;

  void add(std::int64_t draw, const Place& place) {
    draws[size] = static_cast<std::uint64_t>(draw);
    places[size++] = place;
  }

  void generate(const PhiloxKeys& keys) {
    using Words = typename Integers::UInt64s;
    for (std::int64_t at = 0; at < kSize; at += Integers::kLanes) {
      PhiloxLanes<Integers> lanes;
      lanes.generate(keys, kDropoutStream, *reinterpret_cast<const Words*>(draws + at));
      for (int w = 0; w < 4; ++w) *reinterpret_cast<Words*>(words[w] + at) = lanes.words[w];
    }
  }
};

}  // namespace mezzo::kernels
