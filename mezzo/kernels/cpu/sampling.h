#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "mezzo/core/random.h"
#include "mezzo/kernels/sampling.h"

/// How the slots of one row are chosen, in the ways that sampling.cpp puts together.
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

/// The numbers of one row, one after the other.
class RowNumbers {
 public:
  RowNumbers(DrawKey key, std::int64_t position) : key_(key), position_(position) {}

  /// In [0, bound); all bounds of a row on the same side of kNarrowDegree.
  std::int64_t below(std::int64_t bound, bool narrow) {
    return narrow ? scaled(next(), bound) : scaled(next_wide(), bound);
  }
  std::uint64_t next_wide() {
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

/// The 8 words of philox() at the indices `first` and `second`: side by side where there is pmuludq
/// (SSE2), else one after the other.
[[gnu::always_inline]] inline void philox_pair(DrawKey key, std::uint64_t first,
                                               std::uint64_t second, std::uint32_t* words) {
#ifdef __SSE2__
  // Each call has one word in the lower half of its lane. Products read the lower halves alone, so
  // that the upper ones may hold anything until the words are put together.
  const auto lanes = [](std::uint64_t low, std::uint64_t high) {
    return _mm_set_epi64x(static_cast<std::int64_t>(high), static_cast<std::int64_t>(low));
  };
  const auto both = [&](std::uint64_t word) { return lanes(word, word); };
  const __m128i m0 = both(0xD2511F53), m1 = both(0xCD9E8D57);
  const __m128i w0 = both(0x9E3779B9), w1 = both(0xBB67AE85);
  __m128i c0 = lanes(first, second), c1 = _mm_srli_epi64(c0, 32);
  __m128i c2 = both(key.stream), c3 = both(key.stream >> 32);
  __m128i k0 = both(key.seed), k1 = both(key.seed >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const __m128i p0 = _mm_mul_epu32(c0, m0), p1 = _mm_mul_epu32(c2, m1);
    c0 = _mm_xor_si128(_mm_xor_si128(_mm_srli_epi64(p1, 32), c1), k0);
    c2 = _mm_xor_si128(_mm_xor_si128(_mm_srli_epi64(p0, 32), c3), k1);
    c1 = p1;
    c3 = p0;
    k0 = _mm_add_epi32(k0, w0);
    k1 = _mm_add_epi32(k1, w1);
  }
  const __m128i lower = both(0xFFFFFFFF);
  const __m128i c01 = _mm_or_si128(_mm_and_si128(c0, lower), _mm_slli_epi64(c1, 32));
  const __m128i c23 = _mm_or_si128(_mm_and_si128(c2, lower), _mm_slli_epi64(c3, 32));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(words), _mm_unpacklo_epi64(c01, c23));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(words + 4), _mm_unpackhi_epi64(c01, c23));
#else
  const auto one = philox(key.seed, key.stream, first),
             other = philox(key.seed, key.stream, second);
  __builtin_memcpy(words, one.data(), sizeof(one));
  __builtin_memcpy(words + 4, other.data(), sizeof(other));
#endif
}

/// The first 32-bit words of a row's numbers; `words` has room for a multiple of 8.
[[gnu::always_inline]] inline void fill_words(DrawKey key, std::int64_t position,
                                              std::int64_t count, std::uint32_t* words) {
  for (std::int64_t at = 0; at < count; at += 8) {
    philox_pair(key, call_index(position, at / 4), call_index(position, at / 4 + 1), words + at);
  }
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

/// `fanout` of `degree` <= 64, less than all. Floyd's algorithm (Bentley and Floyd, 1987) on the
/// bits of a word; of the chosen and the others it draws the fewer.
template <class Id>
void choose_bits(DrawKey key, std::int64_t position, std::int64_t degree, std::int64_t fanout,
                 const Chosen<Id>& chosen) {
  const std::int64_t others = degree - fanout, draws = std::min(fanout, others);
  std::uint32_t words[kBitsOfWord];
  fill_words(key, position, draws, words);
  std::uint64_t bits = 0;
  for (std::int64_t i = 0; i < draws; ++i) {
    const std::int64_t last = degree - draws + i, drawn = scaled(words[i], last + 1);
    const std::int64_t bit = (bits >> drawn) & 1 ? last : drawn;
    bits |= std::uint64_t{1} << bit;
  }
  if (others < fanout) bits = ~bits & (~std::uint64_t{0} >> (kBitsOfWord - degree));
  for (std::int64_t i = 0; i < fanout; ++i) {
    chosen.put(i, __builtin_ctzll(bits));
    bits &= bits - 1;
  }
}

using FourInts [[gnu::vector_size(16)]] = std::int32_t;

/// values[i] = words[i] * (first_bound + i) >> 32 for i < count, of bounds below 2^16, and the
/// largest number for those up to a multiple of 4. Stored as whole vectors: a load of a vector
/// waits for elements that were stored one by one.
[[gnu::always_inline]] inline void scale_words(const std::uint32_t* words, std::int64_t first_bound,
                                               std::int64_t count, std::int32_t* values) {
  using FourWords [[gnu::vector_size(16)]] = std::uint32_t;
  const FourInts most = FourInts{} + std::numeric_limits<std::int32_t>::max();
  for (std::int64_t at = 0; at < count; at += 4) {
    FourWords word;
    __builtin_memcpy(&word, words + at, sizeof(word));
    const FourWords bound = FourWords{0, 1, 2, 3} + static_cast<std::uint32_t>(first_bound + at);
    // The upper half of the product of 32 by 16 bits, from two products of 16 by 16 bits.
    const FourWords high = (word >> 16) * bound, low = (word & 0xFFFF) * bound;
    const auto scaled_down = reinterpret_cast<FourInts>((high + (low >> 16)) >> 16);
    const FourInts place = FourInts{0, 1, 2, 3} + static_cast<std::int32_t>(at);
    const FourInts value = place < static_cast<std::int32_t>(count) ? scaled_down : most;
    __builtin_memcpy(values + at, &value, sizeof(value));
  }
}

/// Sorts the first `count` of `values`, the others of which are the largest number. False where two
/// are equal; `sorted` is then of no use. Counts for each value the smaller ones: no branches.
/// Unrolled, since -O2 alone leaves both arrays of vectors in memory.
template <int kCapacity>
[[gnu::always_inline]] inline bool rank_sort(const std::int32_t* values, std::int64_t count,
                                             std::int32_t* sorted) {
  constexpr int kVectors = kCapacity / 4;
  FourInts all[kVectors], ranks[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    __builtin_memcpy(&all[v], values + 4 * v, sizeof(FourInts));
    ranks[v] = FourInts{};
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const FourInts one = FourInts{} + values[i];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) ranks[v] -= all[v] > one;  // true is -1
  }
  std::int32_t rank[kCapacity];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) __builtin_memcpy(rank + 4 * v, &ranks[v], sizeof(FourInts));
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    sum += rank[i];
    sorted[rank[i]] = values[i];
  }
  return sum == count * (count - 1) / 2;
}

/// Floyd's algorithm where two draws are equal, each value put in its place among those before.
inline void settle_repeats(const std::int32_t* values, std::int64_t count, std::int64_t degree,
                           std::int32_t* sorted) {
  for (std::int64_t i = 0; i < count; ++i) {
    // The last of those that may be drawn is larger than all that were.
    const bool repeated = std::find(sorted, sorted + i, values[i]) != sorted + i;
    const auto value = repeated ? static_cast<std::int32_t>(degree - count + i) : values[i];
    std::int64_t at = i;
    for (; at > 0 && sorted[at - 1] > value; --at) sorted[at] = sorted[at - 1];
    sorted[at] = value;
  }
}

/// `fanout` <= kCapacity of `degree` < 2^31, less than all.
template <int kCapacity, class Id>
void choose_few(DrawKey key, std::int64_t position, std::int64_t degree, std::int64_t fanout,
                const Chosen<Id>& chosen) {
  std::int32_t values[kCapacity], sorted[kCapacity];
  std::fill(values, values + kCapacity, std::numeric_limits<std::int32_t>::max());
  std::uint32_t words[2 * kCapacity];
  if (degree < kNarrowDegree) {
    fill_words(key, position, fanout, words);
    scale_words(words, degree - fanout + 1, fanout, values);
  } else {
    fill_words(key, position, 2 * fanout, words);
    for (std::int64_t i = 0; i < fanout; ++i) {
      const std::uint64_t wide = (std::uint64_t{words[2 * i + 1]} << 32) | words[2 * i];
      values[i] = static_cast<std::int32_t>(scaled(wide, degree - fanout + i + 1));
    }
  }
  if (!rank_sort<kCapacity>(values, fanout, sorted)) {
    settle_repeats(values, fanout, degree, sorted);
  }
  for (std::int64_t i = 0; i < fanout; ++i) chosen.put(i, sorted[i]);
}

/// `fanout` of `degree`, less than all: marks in a bit map of the row.
template <class Id>
void choose_marked(DrawKey key, std::int64_t position, std::int64_t degree, std::int64_t fanout,
                   std::uint64_t* map, const Chosen<Id>& chosen) {
  const std::int64_t num_words = (degree + kBitsOfWord - 1) / kBitsOfWord;
  std::fill(map, map + num_words, 0);
  const auto is_marked = [&](std::int64_t at) { return (map[at / 64] >> (at % 64)) & 1; };
  const bool narrow = degree < kNarrowDegree;
  RowNumbers numbers(key, position);
  for (std::int64_t last = degree - fanout; last < degree; ++last) {
    const std::int64_t drawn = numbers.below(last + 1, narrow);
    const std::int64_t at = is_marked(drawn) ? last : drawn;
    map[at / 64] |= std::uint64_t{1} << (at % 64);
  }
  std::int64_t i = 0;
  for (std::int64_t word = 0; word < num_words; ++word) {
    for (std::uint64_t bits = map[word]; bits != 0; bits &= bits - 1) {
      chosen.put(i++, word * kBitsOfWord + __builtin_ctzll(bits));
    }
  }
}

/// `fanout` of a degree many times larger: draws until so many differ. Whatever they are, they are
/// as likely as any others, since only whether draws are equal decides when to stop.
template <class Id>
void choose_sparse(DrawKey key, std::int64_t position, std::int64_t degree, std::int64_t fanout,
                   const Chosen<Id>& chosen) {
  const bool narrow = degree < kNarrowDegree;
  RowNumbers numbers(key, position);
  Id* const end = chosen.slots + fanout;
  for (Id* distinct = chosen.slots; distinct != end;) {
    for (Id* slot = distinct; slot != end; ++slot) {
      *slot = static_cast<Id>(numbers.below(degree, narrow));
    }
    std::sort(chosen.slots, end);
    distinct = std::unique(chosen.slots, end);
  }
  for (std::int64_t i = 0; i < fanout; ++i) chosen.put(i, chosen.slots[i]);
}

template <class Id>
void choose_replacing(DrawKey key, std::int64_t position, std::int64_t degree, std::int64_t fanout,
                      const Chosen<Id>& chosen) {
  const bool narrow = degree < kNarrowDegree;
  RowNumbers numbers(key, position);
  for (std::int64_t i = 0; i < fanout; ++i) {
    chosen.slots[i] = static_cast<Id>(numbers.below(degree, narrow));
  }
  std::sort(chosen.slots, chosen.slots + fanout);
  for (std::int64_t i = 0; i < fanout; ++i) chosen.put(i, chosen.slots[i]);
}

template <class Id>
void choose_all(std::int64_t degree, const Chosen<Id>& chosen) {
  constexpr auto kIdsPerLine = static_cast<std::int64_t>(64 / sizeof(Id));
  for (std::int64_t i = 0; i < degree; ++i) {
    chosen.slots[i] = static_cast<Id>(chosen.begin + i);
  }
  // The first lines of a long row; the hardware goes on by itself.
  const std::int64_t fetched = std::min(degree, kSlotsTogether);
  for (std::int64_t i = 0; i < fetched; i += kIdsPerLine) fetch(chosen.indices + chosen.begin + i);
  if (degree > 0) fetch(chosen.indices + chosen.begin + fetched - 1);
}

template <class Id>
void choose(DrawKey key, std::int64_t position, std::int64_t degree, DrawCount count,
            std::uint64_t* scratch, const Chosen<Id>& chosen) {
  const std::int64_t fanout = count.fanout;
  switch (row_draw(count, degree)) {
    case RowDraw::kAll:
      return choose_all(degree, chosen);
    case RowDraw::kReplacing:
      return choose_replacing(key, position, degree, fanout, chosen);
    case RowDraw::kBits:
      return choose_bits(key, position, degree, fanout, chosen);
    case RowDraw::kFew:
      if (fanout <= 8) return choose_few<8>(key, position, degree, fanout, chosen);
      if (fanout <= 16) return choose_few<16>(key, position, degree, fanout, chosen);
      return choose_few<kSmallFanout>(key, position, degree, fanout, chosen);
    case RowDraw::kMarked:
      return choose_marked(key, position, degree, fanout, scratch, chosen);
    case RowDraw::kSparse:
      return choose_sparse(key, position, degree, fanout, chosen);
  }
}

}  // namespace mezzo::kernels
