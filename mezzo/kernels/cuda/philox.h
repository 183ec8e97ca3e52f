#pragma once

#include <cstdint>

// Bitwise equal to core/random.h, whose functions return std::array: its members are not device
// code.

namespace mezzo::kernels::cuda {

/// The four words of mezzo::philox(seed, stream, index).
__device__ inline void philox_words(std::uint64_t seed, std::uint64_t stream, std::uint64_t index,
                                    std::uint32_t (&words)[4]) {
  auto c0 = static_cast<std::uint32_t>(index), c1 = static_cast<std::uint32_t>(index >> 32);
  auto c2 = static_cast<std::uint32_t>(stream), c3 = static_cast<std::uint32_t>(stream >> 32);
  auto k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53} * c0;
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(p1);
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(p0);
    k0 += 0x9E3779B9;  // Weyl constants of the paper
    k1 += 0xBB67AE85;
  }
  words[0] = c0;
  words[1] = c1;
  words[2] = c2;
  words[3] = c3;
}

/// mezzo::random_bits(seed, stream, index).
__device__ inline std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream,
                                            std::uint64_t index) {
  std::uint32_t words[4];
  philox_words(seed, stream, index, words);
  return (std::uint64_t{words[1]} << 32) | words[0];
}

/// mezzo::random_below(bound, seed, stream, index).
__device__ inline std::uint64_t random_below(std::uint64_t bound, std::uint64_t seed,
                                             std::uint64_t stream, std::uint64_t index) {
  return __umul64hi(random_bits(seed, stream, index), bound);
}

/// mezzo::random_uniform(seed, stream, index).
__device__ inline double random_uniform(std::uint64_t seed, std::uint64_t stream,
                                        std::uint64_t index) {
  return static_cast<double>(random_bits(seed, stream, index) >> 11) * 0x1p-53;
}

}  // namespace mezzo::kernels::cuda
