#pragma once

#include <cstdint>

#include "mezzo/kernels/cpu/integer_lanes.h"
#include "mezzo/kernels/dropout.h"

namespace mezzo {

/// The words of kLanes draws of dropout, one draw a lane.
template <class V>
struct DrawLanes {
  using Integers = typename V::Integers;
  using Words = typename Integers::Wide;
  static constexpr std::int64_t kLanes = Integers::kLanes;
  PhiloxLanes<Integers> made;

  /// `draws` is aligned as a vector is.
  void generate(const PhiloxKeys& keys, const std::uint64_t* draws) {
    made.generate(keys, kDropoutStream, *reinterpret_cast<const Words*>(draws));
  }
};

/// Draws in any order, several at once.
template <class V>
struct DrawBatch {
  using Lanes = DrawLanes<V>;
  static constexpr std::int64_t kSize = 16;
  struct Place {
    std::int64_t first;       ///< where the draw's first element would stand
    std::int64_t begin, end;  ///< which numbers are wanted
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
    using Words = typename Lanes::Words;
    for (std::int64_t at = 0; at < kSize; at += Lanes::kLanes) {
      Lanes lanes;
      lanes.generate(keys, draws + at);
      for (int w = 0; w < 4; ++w) *reinterpret_cast<Words*>(words[w] + at) = lanes.made.words[w];
    }
  }
};

}  // namespace mezzo
