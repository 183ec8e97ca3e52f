#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "mezzo/core/random.h"
#include "mezzo/kernels/cpu/sparse/chosen.h"
#include "mezzo/kernels/sampling.h"

/// The ways to sample a row without vectors; draw_rows.h has the others.
namespace mezzo::kernels {

/// The random numbers of one row.
class RowNumbers {
 public:
  RowNumbers(DrawKey key, std::int64_t position) : key_(key), position_(position) {}

  /// A number in [0, bound). `use_32_bits`: bound <= kDegreeOf32BitDraws, the same for all numbers
  /// of a row.
  std::int64_t below(std::int64_t bound, bool use_32_bits) {
    return use_32_bits ? scaled(next(), bound) : scaled(next_64_bits(), bound);
  }
  std::uint64_t next_64_bits() {
    const std::uint64_t low = next();
    return (std::uint64_t{next()} << 32) | low;
  }

 private:
  std::uint32_t next() {
    if (used_ == 4) {
      words_ = philox(key_.seed, key_.stream, call_index(position_, call_++));
      used_ = 0;
    }
    return words_[used_++];
  }

  DrawKey key_;
  std::int64_t position_, call_ = 0;
  std::size_t used_ = 4;
  std::array<std::uint32_t, 4> words_{};
};

/// Samples `fanout` < `degree` entries with a bit map of the row.
template <class Id>
void choose_marked(DrawKey key, std::int64_t position, std::int64_t degree, std::int64_t fanout,
                   std::uint64_t* map, const Chosen<Id>& chosen) {
  const std::int64_t num_words = (degree + kBitsOfWord - 1) / kBitsOfWord;
  std::fill(map, map + num_words, 0);
  const auto is_marked = [&](std::int64_t at) { return (map[at / 64] >> (at % 64)) & 1; };
  const bool use_32_bits = degree < kDegreeOf32BitDraws;
  RowNumbers numbers(key, position);
  for (std::int64_t last = degree - fanout; last < degree; ++last) {
    const std::int64_t number = numbers.below(last + 1, use_32_bits);
    const std::int64_t at = is_marked(number) ? last : number;
    map[at / 64] |= std::uint64_t{1} << (at % 64);
  }
  std::int64_t i = 0;
  for (std::int64_t word = 0; word < num_words; ++word) {
    for (std::uint64_t bits = map[word]; bits != 0; bits &= bits - 1) {
      chosen.put(i++, word * kBitsOfWord + __builtin_ctzll(bits));
    }
  }
}

/// Samples `fanout` entries of a much larger degree: draws numbers until `fanout` are distinct.
/// Every set is equally likely, because only equality of numbers decides when to stop.
template <class Id>
void choose_sparse(DrawKey key, std::int64_t position, std::int64_t degree, std::int64_t fanout,
                   const Chosen<Id>& chosen) {
  const bool use_32_bits = degree < kDegreeOf32BitDraws;
  RowNumbers numbers(key, position);
  Id* const end = chosen.entries + fanout;
  for (Id* distinct = chosen.entries; distinct != end;) {
    for (Id* entry = distinct; entry != end; ++entry) {
      *entry = static_cast<Id>(numbers.below(degree, use_32_bits));
    }
    std::sort(chosen.entries, end);
    distinct = std::unique(chosen.entries, end);
  }
  for (std::int64_t i = 0; i < fanout; ++i) chosen.put(i, chosen.entries[i]);
}

template <class Id>
void choose_replacing(DrawKey key, std::int64_t position, std::int64_t degree, std::int64_t fanout,
                      const Chosen<Id>& chosen) {
  const bool use_32_bits = degree < kDegreeOf32BitDraws;
  RowNumbers numbers(key, position);
  for (std::int64_t i = 0; i < fanout; ++i) {
    chosen.entries[i] = static_cast<Id>(numbers.below(degree, use_32_bits));
  }
  std::sort(chosen.entries, chosen.entries + fanout);
  for (std::int64_t i = 0; i < fanout; ++i) chosen.put(i, chosen.entries[i]);
}

}  // namespace mezzo::kernels
