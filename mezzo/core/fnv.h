#pragma once

#include <cstdint>

namespace mezzo {

/// FNV-1a (Fowler, Noll, Vo), 64 bits: start with the basis and mix in one byte per step. When
/// hashing whole words, fold the high bits down between steps. Not collision-resistant.
inline constexpr std::uint64_t kFnvBasis = 0xCBF29CE484222325;

/// Invertible: different hashes stay different after the same `value`.
constexpr std::uint64_t fnv_step(std::uint64_t hash, std::uint64_t value) {
  return (hash ^ value) * 0x100000001B3;
}

}  // namespace mezzo
