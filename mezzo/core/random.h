#pragma once

#include <array>
#include <cstdint>

namespace mezzo {

/// Philox4x32-10 (Salmon et al., SC'11), a counter-based generator without state: the same (seed,
/// stream, index) gives the same bits on every machine, thread and device.
constexpr std::array<std::uint32_t, 4> philox(std::uint64_t seed, std::uint64_t stream,
                                              std::uint64_t index) {
  std::array<std::uint32_t, 4> c = {
      static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
      static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)};
  auto k0 = static_cast<std::uint32_t>(seed);
  auto k1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53} * c[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9;  // Weyl constants of the paper
    k1 += 0xBB67AE85;
  }
  return c;
}

/// 64 random bits of (seed, stream, index).
constexpr std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const auto c = philox(seed, stream, index);
  return (std::uint64_t{c[1]} << 32) | c[0];
}

/// A uniform integer in [0, bound), bound >= 1: the high half of a product. Bias below bound /
/// 2^64.
constexpr std::uint64_t random_below(std::uint64_t bound, std::uint64_t seed, std::uint64_t stream,
                                     std::uint64_t index) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((Wide{random_bits(seed, stream, index)} * bound) >> 64);
}

/// A uniform number in [0, 1) with 53 bits.
constexpr double random_uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return static_cast<double>(random_bits(seed, stream, index) >> 11) * 0x1p-53;
}

}  // namespace mezzo
