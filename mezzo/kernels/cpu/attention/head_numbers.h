#pragma once

#include <cstdint>
#include <utility>

#include "mezzo/kernels/cpu/access.h"
#include "mezzo/kernels/cpu/draws.h"
#include "mezzo/kernels/cpu/scratch.h"
#include "mezzo/kernels/dropout.h"
#include "mezzo/kernels/head_scratch.h"

// Numbers [count, heads] per entry and head: how the row loops gather them and combine them with
// numbers per head.

namespace mezzo::kernels {

/// x if x > 0, else slope * x.
template <class V>
V leaky_relu(V x, V slope) {
  return select(V::zero() < x, x, x * slope);
}

template <class V, class T>
typename T::Accum number_at(const HeadNumbers& from, std::int64_t at) {
  if (from.is_accum) return static_cast<const typename T::Accum*>(from.data)[at];
  return V::load_one(T{}, static_cast<const typename T::Storage*>(from.data) + at).first();
}

/// Copies the numbers of one row, in the accumulator type; writes whole vectors.
template <class V, class T>
void copy_numbers(const HeadNumbers& from, std::int64_t row, typename T::Accum* to) {
  if (from.length == 1) {
    *to = number_at<V, T>(from, row);
    return;
  }
  const Operand numbers{
      .data = from.data, .is_accum = from.is_accum, .access = {}, .length = from.length};
  for (std::int64_t h = 0; h < from.length; h += V::width) {
    load_operand<V, T>(numbers, row * from.length + h, 1, from.length - h).store_accum(to + h);
  }
}

/// Copies `heads` numbers of the accumulator type; writes whole vectors.
template <class V>
void copy_row(const typename V::Scalar* from, std::int64_t heads, typename V::Scalar* to) {
  if (heads == 1) {
    *to = *from;
    return;
  }
  for (std::int64_t h = 0; h < heads; h += V::width) {
    const std::int64_t left = heads - h;
    const V v = left >= V::width ? V::load_accum(from + h) : V::load_accum(from + h, left);
    v.store_accum(to + h);
  }
}

/// The prefetch distance of numbers in entries, one line each; continues beyond the end of a row.
inline constexpr std::int64_t kNumbersAhead = 64;

/// Prefetches the numbers of the entry kNumbersAhead later.
template <class T>
[[gnu::always_inline]] inline void fetch_numbers(const HeadNumbers& from, const Ids& ids,
                                                 std::int64_t entry, std::int64_t entries_end) {
  if (entry + kNumbersAhead >= entries_end) return;
  const std::int64_t size = from.is_accum ? sizeof(typename T::Accum) : sizeof(typename T::Storage);
  __builtin_prefetch(static_cast<const char*>(from.data) +
                     id_at(ids, entry + kNumbersAhead) * from.length * size);
}

/// Gathers rows of kBytes bytes, one per entry. The first `readable` ids may be read for
/// prefetching.
template <class V, std::int64_t kBytes, class Id>
void gather_bytes(const char* from, const Id* ids, std::int64_t count, std::int64_t readable,
                  char* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (i + kNumbersAhead < readable) __builtin_prefetch(from + ids[i + kNumbersAhead] * kBytes);
    __builtin_memcpy(to + i * kBytes, from + ids[i] * kBytes, kBytes);
  }
}

/// gather_bytes() for common sizes; returns false for other sizes.
template <class V, class Id>
bool gather_few_bytes(const char* from, std::int64_t bytes, const Id* ids, std::int64_t count,
                      std::int64_t readable, char* to) {
  const auto gather = [&]<std::int64_t... kBytes>(std::integer_sequence<std::int64_t, kBytes...>) {
    return ((bytes == kBytes && (gather_bytes<V, kBytes>(from, ids, count, readable, to), true)) ||
            ...);
  };
  return gather(std::integer_sequence<std::int64_t, 2, 4, 8, 16, 32, 64>());
}

/// Gathers the `from.length` numbers of each entry's row in the accumulator type; writes whole
/// vectors. Numbers of a smaller type are first copied to `stored` (room for as many of the
/// accumulator type) and then converted together.
template <class V, class T>
void gather_numbers(const HeadNumbers& from, const Ids& ids, std::int64_t begin, std::int64_t count,
                    std::int64_t entries_end, void* stored, typename T::Accum* to) {
  using Storage = typename T::Storage;
  const auto size =
      static_cast<std::int64_t>(from.is_accum ? sizeof(typename T::Accum) : sizeof(Storage));
  const auto* data = static_cast<const char*>(from.data);
  const std::int64_t bytes = from.length * size, readable = entries_end - begin;
  auto* copied = static_cast<char*>(from.is_accum ? to : stored);
  const bool is_gathered =
      ids.data != nullptr && with_ids(ids, [&](const auto* of) {
        return gather_few_bytes<V>(data, bytes, of + begin, count, readable, copied);
      });
  if (!is_gathered) {
    for (std::int64_t i = 0; i < count; ++i) {
      fetch_numbers<T>(from, ids, begin + i, entries_end);
      copy_numbers<V, T>(from, id_at(ids, begin + i), to + i * from.length);
    }
    return;
  }
  if (from.is_accum) return;
  const Operand stored_numbers{.data = stored, .is_accum = false, .access = {}, .length = {}};
  const std::int64_t total = count * from.length;
  for (std::int64_t i = 0; i < total; i += V::width) {
    load_operand<V, T>(stored_numbers, i, 1, total - i).store_accum(to + i);
  }
}

/// One number per entry.
template <class V, class T, class Id>
void gather_single(const HeadNumbers& from, const Id* ids, std::int64_t count,
                   std::int64_t readable, typename T::Accum* to) {
  const std::int64_t size = from.is_accum ? sizeof(typename T::Accum) : sizeof(typename T::Storage);
  const auto* bytes = static_cast<const char*>(from.data);
  for (std::int64_t i = 0; i < count; ++i) {
    if (i + kNumbersAhead < readable) __builtin_prefetch(bytes + ids[i + kNumbersAhead] * size);
    to[i] = number_at<V, T>(from, ids[i]);
  }
}

/// The weight of each entry and head; weights of length 1 are for all heads. Ids before
/// `entries_end` may be read for prefetching.
template <class V, class T>
void gather_weights(const HeadNumbers& weight, const Ids& edges, std::int64_t heads,
                    std::int64_t begin, std::int64_t count, std::int64_t entries_end,
                    typename T::Accum* to) {
  if (heads == 1 && edges.data != nullptr) {
    with_ids(edges, [&](const auto* ids) {
      gather_single<V, T>(weight, ids + begin, count, entries_end - begin, to);
    });
    return;
  }
  if (edges.data == nullptr && weight.length == heads) {
    const Operand numbers{
        .data = weight.data, .is_accum = weight.is_accum, .access = {}, .length = {}};
    for (std::int64_t i = 0; i < count * heads; i += V::width) {
      load_operand<V, T>(numbers, begin * heads + i, 1, count * heads - i).store_accum(to + i);
    }
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    fetch_numbers<T>(weight, edges, begin + i, entries_end);
    const std::int64_t edge = id_at(edges, begin + i);
    if (weight.length == heads) {
      copy_numbers<V, T>(weight, edge, to + i * heads);
    } else {
      const auto one = number_at<V, T>(weight, edge);
      for (std::int64_t h = 0; h < heads; ++h) to[i * heads + h] = one;
    }
  }
}

/// Numbers per head, repeated to fill whole vectors: vector i of numbers per entry and head matches
/// vector i % (period / width) of the pattern.
template <class V>
class HeadPattern {
 public:
  using Number = typename V::Scalar;
  static std::int64_t period(std::int64_t heads) {
    std::int64_t length = heads;
    while (length % V::width != 0) length += heads;
    return length;
  }
  HeadPattern(std::int64_t heads, Number* memory)
      : heads_(heads), period_(period(heads)), pattern_(memory) {}

  void fill(Number value) {
    for (std::int64_t i = 0; i < period_; i += V::width) V::set(value).store_accum(pattern_ + i);
  }
  void repeat(const Number* by_head) {
    for (std::int64_t i = 0; i < period_; i += heads_) {
      for (std::int64_t h = 0; h < heads_; ++h) pattern_[i + h] = by_head[h];
    }
  }
  void add_to(Number* by_head) const {
    for (std::int64_t h = 0; h < heads_; ++h) {
      Number sum = 0;
      for (std::int64_t i = h; i < period_; i += heads_) sum += pattern_[i];
      by_head[h] = sum;
    }
  }
  void largest_to(Number* by_head) const {
    for (std::int64_t h = 0; h < heads_; ++h) {
      Number top = pattern_[h];
      for (std::int64_t i = h; i < period_; i += heads_)
        top = top < pattern_[i] ? pattern_[i] : top;
      by_head[h] = top;
    }
  }
  Number* data() const { return pattern_; }

 private:
  std::int64_t heads_, period_;
  Number* pattern_;
};

/// Sums per head over the entries of a row, kEntriesApart of them summed separately.
template <class V>
class HeadSums {
 public:
  using Number = typename V::Scalar;
  HeadSums(std::int64_t heads, std::int64_t period, Scratch<V>& scratch)
      : period_(period), part_(heads, scratch.take(period)), sum_(heads, scratch.take(period)) {}

  void clear() {
    part_.fill(0);
    sum_.fill(0);
    entries_ = 0;
  }
  /// The pattern to add a chunk's vectors to.
  Number* data() const { return part_.data(); }
  /// Call after a chunk of `count` entries.
  void close_chunk(std::int64_t count) {
    entries_ += count;
    if (entries_ >= kEntriesApart) join();
  }
  void add_to(Number* by_head) {
    join();
    sum_.add_to(by_head);
  }

 private:
  void join() {
    for (std::int64_t i = 0; i < period_; i += V::width) {
      (V::load_accum(sum_.data() + i) + V::load_accum(part_.data() + i))
          .store_accum(sum_.data() + i);
    }
    part_.fill(0);
    entries_ = 0;
  }

  std::int64_t period_, entries_ = 0;
  HeadPattern<V> part_, sum_;
};

/// Calls f(i, t) for each vector of `count` numbers per entry and head: it begins at number i, and
/// the matching vector of a pattern at t.
template <class V, class F>
void for_vectors(std::int64_t count, std::int64_t period, F f) {
  for (std::int64_t i = 0, t = 0; i < count; i += V::width) {
    f(i, t);
    t += V::width;
    if (t == period) t = 0;
  }
}

/// Sets the numbers from `count` to the end of the last vector.
template <class V>
void pad(typename V::Scalar* numbers, std::int64_t count, typename V::Scalar value) {
  for (; count % V::width != 0; ++count) numbers[count] = value;
}

/// mask[i, h] = 0 if number edge * heads + h is dropped, else 1 / (1 - probability).
template <class V>
void draw_mask(const DropoutLevel& dropout, const Ids& edges, std::int64_t heads,
               std::int64_t begin, std::int64_t count, typename V::Scalar* mask) {
  using Number = typename V::Scalar;
  // A table, because a branch would be mispredicted.
  const Number choice[2] = {
      0, static_cast<Number>(kDropoutLevels / (kDropoutLevels - dropout.threshold))};
  const PhiloxKeys keys(dropout.seed);
  DrawBatch<V> batch{};
  const auto flush = [&] {
    batch.generate(keys);
    for (std::int64_t b = 0; b < batch.size; ++b) {
      const auto& place = batch.places[b];
      for (std::int64_t n = place.begin; n < place.end; ++n) {
        const std::int64_t i = n - place.first;
        const std::uint64_t level = (batch.words[i / 2][b] >> (16 * (i % 2))) & 0xFFFF;
        mask[n] = choice[level >= dropout.threshold ? 1 : 0];
      }
    }
    batch.size = 0;
  };
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t position = id_at(edges, begin + i) * heads;
    const std::int64_t from = i * heads, to = from + heads;
    for (std::int64_t draw = position / kElementsPerDraw;
         draw * kElementsPerDraw < position + heads; ++draw) {
      const std::int64_t first = from + draw * kElementsPerDraw - position;
      const std::int64_t end = first + kElementsPerDraw;
      batch.add(draw, {first, first > from ? first : from, end < to ? end : to});
      if (batch.size == DrawBatch<V>::kSize) flush();
    }
  }
  if (batch.size > 0) flush();
}

}  // namespace mezzo::kernels
