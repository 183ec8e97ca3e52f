#pragma once

#include <cstdint>

#include "mezzo/kernels/cpu/integer_lanes.h"
#include "mezzo/kernels/cpu/sparse/chosen.h"
#include "mezzo/kernels/sampling.h"

/// Samples neighbours with a backend's integer vectors; see integer_lanes.h.
namespace mezzo::kernels {

/// The most rows of a run. All random numbers of a run are generated together, with one call of
/// philox() per vector element.
inline constexpr std::int64_t kRowsTogether = 128;

/// The random 32-bit words of the rows of a run.
template <class I>
class RunWords {
 public:
  /// Requests `count` <= 64 words for the row at `position`; returns their place for at().
  [[gnu::always_inline]] std::int64_t request(std::int64_t position, std::int64_t count) {
    const std::int64_t first = size_, num_calls = (count + 3) / 4;
    // Four at once: loops with few iterations of varying number mispredict their end.
    for (std::int64_t call = 0; call < num_calls; call += 4) {
#pragma GCC unroll 4
      for (std::int64_t i = 0; i < 4; ++i) {
        indices_[first + call + i] = call_index(position, call + i);
      }
    }
    size_ += num_calls;
    return 4 * first;
  }

  void make(const PhiloxKeys& keys, std::uint64_t stream) {
    for (std::int64_t at = 0; at < size_; at += I::kLanes) {
      typename I::UInt64s index;
      __builtin_memcpy(&index, indices_ + at, sizeof(index));
      PhiloxLanes<I> lanes;
      lanes.generate(keys, stream, index);
      I::store_in_turn(lanes.pairs(0), lanes.pairs(1), words_ + 4 * at);
    }
    size_ = 0;
  }

  const std::uint32_t* at(std::int64_t place) const {
    return words_ + place;
  }

 private:
  // A row takes at most two words per entry, and its last call may generate three too many. Before
  // the last row of a run come fewer than kEntriesTogether entries; that row takes at most 64
  // words.
  static constexpr std::int64_t kMostCalls = kEntriesTogether / 2 + kRowsTogether + 16;
  alignas(64) std::uint64_t indices_[kMostCalls + 8];
  alignas(64) std::uint32_t words_[4 * (kMostCalls + 8)];
  std::int64_t size_ = 0;
};

/// values[i] = words[i] * (first_bound + i) >> 32 for i < count, and the largest number from there
/// to kCapacity. Stores whole vectors: later loads of vectors would stall on single stores.
template <class I, int kCapacity>
[[gnu::always_inline]] inline void scale_words(const std::uint32_t* words, std::int64_t first_bound,
                                               std::int64_t count, std::int32_t* values) {
  using UInt64s = typename I::UInt64s;
  using Int32s = typename I::Int32s;
  constexpr std::int64_t kInt32s = 2 * I::kLanes;
  const Int32s most = Int32s{} + 0x7FFFFFFF;
  // Bounds of the even elements; bounds of the odd elements are larger by 1.
  UInt64s bound = 2 * I::counted() + static_cast<std::uint64_t>(first_bound);
  Int32s place = I::places();
  for (std::int64_t at = 0; at < kCapacity; at += kInt32s) {
    UInt64s word;
    __builtin_memcpy(&word, words + at, sizeof(word));
    const UInt64s even = I::products(word, bound) >> 32, odd = I::products(word >> 32, bound + 1);
    const UInt64s both = even | (odd & 0xFFFFFFFF00000000);
    const Int32s value =
        place < static_cast<std::int32_t>(count) ? reinterpret_cast<Int32s>(both) : most;
    __builtin_memcpy(values + at, &value, sizeof(value));
    bound += 2 * I::kLanes;
    place += static_cast<std::int32_t>(kInt32s);
  }
}

/// Samples `fanout` < `degree` <= 64 entries by Floyd's algorithm (Bentley and Floyd, 1987) on the
/// bits of a word; samples the complement if that is smaller.
template <class Id>
[[gnu::always_inline]] inline void choose_bits(const std::uint32_t* words, std::int64_t degree,
                                               std::int64_t fanout, const Chosen<Id>& chosen) {
  const std::int64_t others = degree - fanout, draws = fanout < others ? fanout : others;
  std::uint64_t bits = 0;
  for (std::int64_t i = 0; i < draws; ++i) {
    const std::int64_t last = degree - draws + i, number = scaled(words[i], last + 1);
    const std::int64_t bit = (bits >> number) & 1 ? last : number;
    bits |= std::uint64_t{1} << bit;
  }
  if (others < fanout) bits = ~bits & (~std::uint64_t{0} >> (kBitsOfWord - degree));
  for (std::int64_t i = 0; i < fanout; ++i) {
    chosen.put(i, __builtin_ctzll(bits));
    bits &= bits - 1;
  }
}

/// Floyd's algorithm for repeated numbers: replaces number i by its upper bound first_last + i if
/// an earlier number, itself possibly replaced, has the same value.
template <class I, int kRoom>
void replace_repeats(std::int32_t* values, std::int64_t count, std::int32_t first_last) {
  using Int32s = typename I::Int32s;
  constexpr int kWidth = 2 * I::kLanes, kVectors = kRoom / kWidth;
  Int32s all[kVectors], places[kVectors], repeats[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    __builtin_memcpy(&all[v], values + std::int64_t{kWidth} * v, sizeof(Int32s));
    places[v] = I::places() + kWidth * v;
    repeats[v] = Int32s{};
  }
  for (std::int32_t i = 0; i < count; ++i) {
    const Int32s one = Int32s{} + values[i];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) repeats[v] |= (all[v] == one) & (places[v] > i);
  }
  alignas(64) std::int32_t is_replaced[kRoom];
  __builtin_memcpy(is_replaced, repeats, sizeof(is_replaced));
  for (std::int32_t i = 0; i < count; ++i) {
    if (is_replaced[i] == 0) continue;
    for (std::int32_t j = i + 1; j < count; ++j) is_replaced[j] |= values[j] == first_last + i;
    values[i] = first_last + i;
  }
}

/// Samples `fanout` <= kCapacity entries, fewer than `degree` < 2^31. Two vectors behind `words`
/// must be readable.
template <int kCapacity, class I, class Id>
[[gnu::always_inline]] inline void choose_few(const std::uint32_t* words, std::int64_t degree,
                                              std::int64_t fanout, const Chosen<Id>& chosen) {
  constexpr int kRoom = kCapacity > 2 * I::kLanes ? kCapacity : 2 * I::kLanes;
  alignas(64) std::int32_t values[kRoom], sorted[kRoom];
  if (degree < kDegreeOf32BitDraws) {
    scale_words<I, kCapacity>(words, degree - fanout + 1, fanout, values);
  } else {
    for (std::int64_t i = 0; i < kRoom; ++i) values[i] = 0x7FFFFFFF;
    for (std::int64_t i = 0; i < fanout; ++i) {
      const std::uint64_t word = (std::uint64_t{words[2 * i + 1]} << 32) | words[2 * i];
      values[i] = static_cast<std::int32_t>(scaled(word, degree - fanout + i + 1));
    }
  }
  if (!I::template sort<kCapacity>(values, fanout, sorted)) {
    replace_repeats<I, kRoom>(values, fanout, static_cast<std::int32_t>(degree - fanout));
    I::template sort<kCapacity>(values, fanout, sorted);
  }
  for (std::int64_t i = 0; i < fanout; ++i) chosen.put(i, sorted[i]);
}

template <class Id>
[[gnu::always_inline]] inline void choose_all(std::int64_t degree, const Chosen<Id>& chosen) {
  constexpr auto kIdsPerLine = static_cast<std::int64_t>(64 / sizeof(Id));
  for (std::int64_t i = 0; i < degree; ++i) {
    chosen.entries[i] = static_cast<Id>(chosen.begin + i);
  }
  // The first lines of a long row; hardware prefetches the rest.
  const std::int64_t count = degree < kEntriesTogether ? degree : kEntriesTogether;
  for (std::int64_t i = 0; i < count; i += kIdsPerLine) fetch(chosen.indices + chosen.begin + i);
  if (degree > 0) fetch(chosen.indices + chosen.begin + count - 1);
}

/// Random words that choose_bits() and choose_few() take.
[[gnu::always_inline]] inline std::int64_t words_of(RowDraw draw, std::int64_t degree,
                                                    std::int64_t fanout) {
  const std::int64_t others = degree - fanout;
  if (draw == RowDraw::kBits) return fanout < others ? fanout : others;
  if (draw == RowDraw::kFew) return degree < kDegreeOf32BitDraws ? fanout : 2 * fanout;
  return 0;
}

template <class I, class Id>
[[gnu::always_inline]] inline void choose(RowDraw draw, const UniformDraws<Id>& a, std::int64_t row,
                                          const std::uint32_t* words) {
  const std::int64_t degree = a.ranges.degrees[row], fanout = a.count.fanout;
  const Chosen<Id> chosen{a.rows.indices, a.entries + a.ranges.offsets[row], a.ranges.begins[row]};
  switch (draw) {
    case RowDraw::kAll:
      return choose_all(degree, chosen);
    case RowDraw::kBits:
      return choose_bits(words, degree, fanout, chosen);
    case RowDraw::kFew:
      if (fanout <= 8) return choose_few<8, I>(words, degree, fanout, chosen);
      if (fanout <= 16) return choose_few<16, I>(words, degree, fanout, chosen);
      return choose_few<kSmallFanout, I>(words, degree, fanout, chosen);
    default:
      return choose_other(a, row, chosen);
  }
}

/// Implements draw_uniform() of sampling.h.
template <class I, class Id>
void draw_rows(const UniformDraws<Id>& a) {
  const PhiloxKeys keys(a.key.seed);
  const DrawCount count = a.count;
  const std::int64_t *offsets = a.ranges.offsets, *degrees = a.ranges.degrees;
  RunWords<I> words;
  RowDraw draws[kRowsTogether];
  std::int64_t places[kRowsTogether];
  for (std::int64_t first = a.first; first < a.last;) {
    const std::int64_t begin = offsets[first];
    const std::int64_t most = a.last < first + kRowsTogether ? a.last : first + kRowsTogether;
    std::int64_t last = first;
    for (; last < most && offsets[last] < begin + kEntriesTogether; ++last) {
      const std::int64_t degree = degrees[last];
      const RowDraw draw = row_draw(count, degree);
      draws[last - first] = draw;
      places[last - first] = words.request(last, words_of(draw, degree, count.fanout));
    }
    words.make(keys, a.key.stream);
    for (std::int64_t row = first; row < last; ++row) {
      choose<I>(draws[row - first], a, row, words.at(places[row - first]));
    }
    for (std::int64_t i = begin; i < offsets[last]; ++i) {
      a.neighbors[i] = a.rows.indices[a.entries[i]];
    }
    first = last;
  }
}

}  // namespace mezzo::kernels
