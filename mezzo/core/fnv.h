#pragma once

#include <cstdint>

namespace mezzo {

/// FNV-1a (Fowler, Noll, Vo), 64 bits: begin with the basis and mix in one byte after another. Of
/// whole words the high bits have to be folded down between the steps, for a product carries
/// upwards only. Tells apart what differs by accident; no defence against who seeks a collision.
inline constexpr std::uint64_t kFnvBasis = 0xCBF29CE484222325;

/// Can be undone, so two hashes that differ still do after the same `value`.
constexpr std::uint64_t fnv_step(std::uint64_t hash, std::uint64_t value) {
  return (hash ^ value) * 0x100000001B3;
}

}  // namespace mezzo
