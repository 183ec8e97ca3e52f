#pragma once

#include <cstdint>

#include "mezzo/core/dtype.h"

namespace mezzo::kernels {

// Dropout from the counter-based generator: element i of a tensor is dropped if its 16 bits of
// philox(seed, kDropoutStream, i / kElementsPerDraw) are below the threshold.

/// The stream of random numbers that only dropout uses.
inline constexpr std::uint64_t kDropoutStream = 0x64726F70;
/// Elements per call of the generator: 128 bits, 16 each.
inline constexpr std::int64_t kElementsPerDraw = 8;
/// The number of representable probabilities.
inline constexpr double kDropoutLevels = 65536;

/// Which elements are dropped.
struct DropoutLevel {
  std::uint64_t seed = 0;
  std::uint32_t threshold = 0;  ///< of kDropoutLevels; 0: nothing is dropped
  /// Or null. CUDA kernels add this number to the seed, modulo 2^64, when they run, so that replays
  /// of a CUDA graph can drop different elements. CPU kernels ignore it.
  const std::int64_t* seed_offset = nullptr;
};

/// out[i] = x[i] / (1 - probability), or 0 if element i is dropped (even if x[i] is inf or NaN),
/// for i in [draw_begin, draw_end) * kElementsPerDraw, i < count. Rounded once.
struct DropoutArgs {
  std::int64_t draw_begin = 0, draw_end = 0;
  DType dtype = DType::kFloat32;
  DropoutLevel dropout;
  std::int64_t count = 0;  ///< elements of the whole tensor
  const void* x = nullptr;
  void* out = nullptr;
  bool out_streams = false;  ///< non-temporal stores on the CPU
};

}  // namespace mezzo::kernels
