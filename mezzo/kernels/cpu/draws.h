#pragma once

#include <cstdint>

#include "mezzo/kernels/dropout.h"

namespace mezzo {

/// The generator in the compiler's own vectors, one draw a lane. The numbers are those of philox()
/// in core/random.h, which is one function for all files and so must not be called from here.
template <class V>
struct DrawLanes {
  static constexpr std::int64_t kLanes = 8;
  static constexpr std::uint64_t kLow = 0xFFFFFFFF;
  using Words [[gnu::vector_size(kLanes * 8)]] = std::uint64_t;
  Words made[4];  ///< 32 bits each

  /// The words of kLanes draws of kDropoutStream; `draws` is aligned as a vector is.
  void generate(std::uint64_t seed, const std::uint64_t* draws) {
    const Words index = *reinterpret_cast<const Words*>(draws);
    Words c0 = index & kLow, c1 = index >> 32;
    Words c2 = index ^ index ^ (kDropoutStream & kLow), c3 = index ^ index ^ (kDropoutStream >> 32);
    std::uint64_t k0 = seed & kLow, k1 = seed >> 32;
    for (int round = 0; round < 10; ++round) {
      const Words p0 = c0 * std::uint64_t{0xD2511F53}, p1 = c2 * std::uint64_t{0xCD9E8D57};
      c0 = (p1 >> 32) ^ c1 ^ k0;
      c1 = p1 & kLow;
      c2 = (p0 >> 32) ^ c3 ^ k1;
      c3 = p0 & kLow;
      k0 = (k0 + 0x9E3779B9) & kLow;
      k1 = (k1 + 0xBB67AE85) & kLow;
    }
    made[0] = c0, made[1] = c1, made[2] = c2, made[3] = c3;
  }
};

/// Draws in any order, several at once.
template <class V>
struct DrawBatch {
  using Lanes = DrawLanes<V>;
  static constexpr std::int64_t kSize = 2 * Lanes::kLanes;
  struct Place {
    std::int64_t first;       ///< where the draw's first element would stand
    std::int64_t begin, end;  ///< which numbers are wanted
  };
  alignas(64) std::uint64_t draws[kSize];
  alignas(64) std::uint64_t words[4][kSize];  ///< 32 bits each
  Place places[kSize];
  std::int64_t size = 0;

  void add(std::int64_t draw, const Place& place) {
    draws[size] = static_cast<std::uint64_t>(draw);
    places[size++] = place;
  }

  void generate(std::uint64_t seed) {
    using Words = typename Lanes::Words;
    for (std::int64_t at = 0; at < kSize; at += Lanes::kLanes) {
      Lanes lanes;
      lanes.generate(seed, draws + at);
      for (int w = 0; w < 4; ++w) *reinterpret_cast<Words*>(words[w] + at) = lanes.made[w];
    }
  }
};

}  // namespace mezzo
