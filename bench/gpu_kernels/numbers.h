#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define MEZZO_HOST_DEVICE __host__ __device__
#else
#define MEZZO_HOST_DEVICE
#endif

// Formulas for the operands: device and host compute the same numbers without a copy.

namespace mezzo::bench::gpu {

/// Random bits of (seed, i).
MEZZO_HOST_DEVICE inline std::uint64_t mixed(std::uint64_t seed, std::uint64_t i) {
  std::uint64_t x = i + seed * 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

/// Element i of the array `seed`: a multiple of 1/8 in [-1, 1], which every dtype represents.
MEZZO_HOST_DEVICE inline float number(std::uint64_t seed, std::int64_t i) {
  const std::uint64_t bits = mixed(seed, static_cast<std::uint64_t>(i)) >> 32;
  return static_cast<float>(static_cast<int>(bits * 17 >> 32) - 8) / 8;
}

}  // namespace mezzo::bench::gpu
