#pragma once

#include <cstdint>

#include "mezzo/core/dtype.h"

namespace mezzo::kernels {

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
  /// Or null. CUDA kernels add the number there, modulo 2^64, to the seed when they run: one that a
  /// graph repeats draws anew where the number is another one. The CPU's kernels do not read it.
  const std::int64_t* seed_offset = nullptr;
};

/// out[i] = x[i] / (1 - probability), or 0 where element i is dropped (even where it is inf or
/// NaN), for the elements that the draws [draw_begin, draw_end) decide. One rounding.
struct DropoutArgs {
  std::int64_t draw_begin = 0, draw_end = 0;
  DType dtype = DType::kFloat32;
  DropoutLevel dropout;
  std::int64_t count = 0;  ///< elements of the whole tensor
  const void* x = nullptr;
  void* out = nullptr;
  bool out_streams = false;  ///< past the CPU's caches
};

}  // namespace mezzo::kernels
