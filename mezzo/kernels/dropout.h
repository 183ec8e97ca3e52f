#pragma once

#include <cstdint>

namespace mezzo {

// Dropout from the counter-based generator: element i of a tensor is dropped where its 16 bits of
// philox(seed, kDropoutStream, i / kElementsPerDraw) are below the threshold.

/// The numbers of this stream are drawn for dropout and nothing else.
inline constexpr std::uint64_t kDropoutStream = 0x64726F70;
/// Elements that one draw of the generator decides: 128 bits, 16 each.
inline constexpr std::int64_t kElementsPerDraw = 8;
/// Steps of the probability.
inline constexpr double kDropoutLevels = 65536;

/// Which elements are dropped, as kernels take it.
struct DropoutLevel {
  std::uint64_t seed = 0;
  std::uint32_t threshold = 0;  ///< of kDropoutLevels; 0: nothing is dropped
};

}  // namespace mezzo
