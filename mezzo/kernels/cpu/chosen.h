#pragma once

#include <cstdint>

#include "mezzo/kernels/sampling.h"

/// What all ways to draw the slots of a row share. Inlined everywhere, so that no file's copy
/// stands in for another's.
namespace mezzo::kernels {

/// Elements ahead whose random reads are fetched, and elements that a loop handles before the next
/// begins to read what it has fetched.
inline constexpr std::int64_t kReadsAhead = 32, kSlotsTogether = 256;

// gcc drops calls of functions that only prefetch, unless they are inlined first.
[[gnu::always_inline]] inline void fetch(const void* address) {
  __builtin_prefetch(address);
}

[[gnu::always_inline]] inline std::int64_t scaled(std::uint32_t word, std::int64_t bound) {
  return static_cast<std::int64_t>((word * static_cast<std::uint64_t>(bound)) >> 32);
}

[[gnu::always_inline]] inline std::int64_t scaled(std::uint64_t word, std::int64_t bound) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::int64_t>((Wide{word} * static_cast<std::uint64_t>(bound)) >> 64);
}

/// Where the slots of a row go.
template <class Id>
struct Chosen {
  const Id* indices;
  Id* slots;
  std::int64_t begin;

  [[gnu::always_inline]] void put(std::int64_t i, std::int64_t offset) const {
    const std::int64_t slot = begin + offset;
    slots[i] = static_cast<Id>(slot);
    fetch(indices + slot);
  }
};

/// The slots of a row that no vectors draw: kReplacing, kMarked and kSparse.
template <class Id>
void choose_other(const UniformDraws<Id>& draws, std::int64_t row, const Chosen<Id>& chosen);

}  // namespace mezzo::kernels
