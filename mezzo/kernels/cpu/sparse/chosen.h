#pragma once

#include <cstdint>

#include "mezzo/kernels/sampling.h"

/// What all ways to sample the entries of a row share. Always inlined: the linker must not replace
/// one file's copy by another's.
namespace mezzo::kernels {

/// The prefetch distance of random reads, and how many entries one loop prefetches before a second
/// loop reads them.
inline constexpr std::int64_t kReadsAhead = 32, kEntriesTogether = 256;

// gcc drops calls of functions that only prefetch unless it inlines them first.
[[gnu::always_inline]] inline void fetch(const void* address) {
  __builtin_prefetch(address);
}

[[gnu::always_inline]] inline std::int64_t scaled(std::uint32_t word, std::int64_t bound) {
  return static_cast<std::int64_t>((word * static_cast<std::uint64_t>(bound)) >> 32);
}

[[gnu::always_inline]] inline std::int64_t scaled(std::uint64_t word, std::int64_t bound) {
  __extension__ using UInt128 = unsigned __int128;
  return static_cast<std::int64_t>((UInt128{word} * static_cast<std::uint64_t>(bound)) >> 64);
}

/// Output of the sampled entries of a row.
template <class Id>
struct Chosen {
  const Id* indices;
  Id* entries;
  std::int64_t begin;

  [[gnu::always_inline]] void put(std::int64_t i, std::int64_t offset) const {
    const std::int64_t entry = begin + offset;
    entries[i] = static_cast<Id>(entry);
    fetch(indices + entry);
  }
};

/// Samples a row without vectors: kReplacing, kMarked and kSparse.
template <class Id>
void choose_other(const UniformDraws<Id>& draws, std::int64_t row, const Chosen<Id>& chosen);

}  // namespace mezzo::kernels
