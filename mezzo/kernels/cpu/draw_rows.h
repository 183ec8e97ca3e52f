#pragma once

#include <cstdint>

#include "mezzo/kernels/cpu/chosen.h"
#include "mezzo/kernels/cpu/integer_lanes.h"
#include "mezzo/kernels/sampling.h"

/// Draws of neighbours in vectors of a backend's integers; see integer_lanes.h.
namespace mezzo::kernels {

/// Rows are drawn in runs: all numbers of a run are made together, a call of philox() a lane.
inline constexpr std::int64_t kRowsTogether = 128;

/// The 32-bit words that the rows of a run draw from.
template <class I>
class RunWords {
 public:
  /// Asks for `count` <= 64 words of the row at `position`; returns where they will stand.
  [[gnu::always_inline]] std::int64_t ask(std::int64_t position, std::int64_t count) {
    const std::int64_t first = size_, num_calls = (count + 3) / 4;
    // Four at once, since loops of few and varying rounds cost most by their end.
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
      typename I::Wide index;
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
  // A row draws at most two words a slot, and its last call may have three too many; the rows of a
  // run have fewer than kSlotsTogether slots before the last, which has at most 64 words.
  static constexpr std::int64_t kMostCalls = kSlotsTogether / 2 + kRowsTogether + 16;
  alignas(64) std::uint64_t indices_[kMostCalls + 8];
  alignas(64) std::uint32_t words_[4 * (kMostCalls + 8)];
  std::int64_t size_ = 0;
};

/// values[i] = words[i] * (first_bound + i) >> 32 for i < count, and the largest number for those
/// up to kCapacity. Stored as whole vectors: a load of a vector waits for elements that were stored
/// one by one.
template <class I, int kCapacity>
[[gnu::always_inline]] inline void scale_words(const std::uint32_t* words, std::int64_t first_bound,
                                               std::int64_t count, std::int32_t* values) {
  using Wide = typename I::Wide;
  using Narrow = typename I::Narrow;
  constexpr std::int64_t kNarrow = 2 * I::kLanes;
  const Narrow most = Narrow{} + 0x7FFFFFFF;
  // Bounds of the even numbers; those of the odd ones are larger by 1.
  Wide bound = 2 * I::counted() + static_cast<std::uint64_t>(first_bound);
  Narrow place = I::places();
  for (std::int64_t at = 0; at < kCapacity; at += kNarrow) {
    Wide word;
    __builtin_memcpy(&word, words + at, sizeof(word));
    const Wide even = I::products(word, bound) >> 32, odd = I::products(word >> 32, bound + 1);
    const Wide both = even | (odd & 0xFFFFFFFF00000000);
    const Narrow value =
        place < static_cast<std::int32_t>(count) ? reinterpret_cast<Narrow>(both) : most;
    __builtin_memcpy(values + at, &value, sizeof(value));
    bound += 2 * I::kLanes;
    place += static_cast<std::int32_t>(kNarrow);
  }
}

/// `fanout` of `degree` <= 64, less than all. Floyd's algorithm (Bentley and Floyd, 1987) on the
/// bits of a word; of the chosen and the others it draws the fewer.
template <class Id>
[[gnu::always_inline]] inline void choose_bits(const std::uint32_t* words, std::int64_t degree,
                                               std::int64_t fanout, const Chosen<Id>& chosen) {
  const std::int64_t others = degree - fanout, draws = fanout < others ? fanout : others;
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

/// Floyd's algorithm where draws are equal: draw i gives way to first_last + i, the last that it
/// may be, where an earlier draw has its value, or one that gave way has come to it.
template <class I, int kRoom>
void replace_repeats(std::int32_t* values, std::int64_t count, std::int32_t first_last) {
  using Narrow = typename I::Narrow;
  constexpr int kWidth = 2 * I::kLanes, kVectors = kRoom / kWidth;
  Narrow all[kVectors], places[kVectors], repeats[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    __builtin_memcpy(&all[v], values + std::int64_t{kWidth} * v, sizeof(Narrow));
    places[v] = I::places() + kWidth * v;
    repeats[v] = Narrow{};
  }
  for (std::int32_t i = 0; i < count; ++i) {
    const Narrow one = Narrow{} + values[i];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) repeats[v] |= (all[v] == one) & (places[v] > i);
  }
  alignas(64) std::int32_t gives_way[kRoom];
  __builtin_memcpy(gives_way, repeats, sizeof(gives_way));
  for (std::int32_t i = 0; i < count; ++i) {
    if (gives_way[i] == 0) continue;
    for (std::int32_t j = i + 1; j < count; ++j) gives_way[j] |= values[j] == first_last + i;
    values[i] = first_last + i;
  }
}

/// `fanout` <= kCapacity of `degree` < 2^31, less than all. `words` has room for two vectors more.
template <int kCapacity, class I, class Id>
[[gnu::always_inline]] inline void choose_few(const std::uint32_t* words, std::int64_t degree,
                                              std::int64_t fanout, const Chosen<Id>& chosen) {
  constexpr int kRoom = kCapacity > 2 * I::kLanes ? kCapacity : 2 * I::kLanes;
  alignas(64) std::int32_t values[kRoom], sorted[kRoom];
  if (degree < kNarrowDegree) {
    scale_words<I, kCapacity>(words, degree - fanout + 1, fanout, values);
  } else {
    for (std::int64_t i = 0; i < kRoom; ++i) values[i] = 0x7FFFFFFF;
    for (std::int64_t i = 0; i < fanout; ++i) {
      const std::uint64_t wide = (std::uint64_t{words[2 * i + 1]} << 32) | words[2 * i];
      values[i] = static_cast<std::int32_t>(scaled(wide, degree - fanout + i + 1));
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
    chosen.slots[i] = static_cast<Id>(chosen.begin + i);
  }
  // The first lines of a long row; the hardware goes on by itself.
  const std::int64_t fetched = degree < kSlotsTogether ? degree : kSlotsTogether;
  for (std::int64_t i = 0; i < fetched; i += kIdsPerLine) fetch(chosen.indices + chosen.begin + i);
  if (degree > 0) fetch(chosen.indices + chosen.begin + fetched - 1);
}

/// Words that a row draws from by choose_bits() and choose_few().
[[gnu::always_inline]] inline std::int64_t words_of(RowDraw draw, std::int64_t degree,
                                                    std::int64_t fanout) {
  const std::int64_t others = degree - fanout;
  if (draw == RowDraw::kBits) return fanout < others ? fanout : others;
  if (draw == RowDraw::kFew) return degree < kNarrowDegree ? fanout : 2 * fanout;
  return 0;
}

template <class I, class Id>
[[gnu::always_inline]] inline void choose(RowDraw draw, const UniformDraws<Id>& a, std::int64_t row,
                                          const std::uint32_t* words) {
  const std::int64_t degree = a.found.degrees[row], fanout = a.count.fanout;
  const Chosen<Id> chosen{a.rows.indices, a.slots + a.found.offsets[row], a.found.begins[row]};
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

/// draw_uniform() of sampling.h.
template <class I, class Id>
void draw_rows(const UniformDraws<Id>& a) {
  const PhiloxKeys keys(a.key.seed);
  const DrawCount count = a.count;
  const std::int64_t *offsets = a.found.offsets, *degrees = a.found.degrees;
  RunWords<I> words;
  RowDraw draws[kRowsTogether];
  std::int64_t places[kRowsTogether];
  for (std::int64_t first = a.first; first < a.last;) {
    const std::int64_t begin = offsets[first];
    const std::int64_t most = a.last < first + kRowsTogether ? a.last : first + kRowsTogether;
    std::int64_t last = first;
    for (; last < most && offsets[last] < begin + kSlotsTogether; ++last) {
      const std::int64_t degree = degrees[last];
      const RowDraw draw = row_draw(count, degree);
      draws[last - first] = draw;
      places[last - first] = words.ask(last, words_of(draw, degree, count.fanout));
    }
    words.make(keys, a.key.stream);
    for (std::int64_t row = first; row < last; ++row) {
      choose<I>(draws[row - first], a, row, words.at(places[row - first]));
    }
    for (std::int64_t i = begin; i < offsets[last]; ++i) {
      a.neighbors[i] = a.rows.indices[a.slots[i]];
    }
    first = last;
  }
}

}  // namespace mezzo::kernels
