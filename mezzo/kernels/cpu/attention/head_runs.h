#pragma once

#include <cstdint>

#include "mezzo/core/dtype.h"
#include "mezzo/kernels/cpu/access.h"
#include "mezzo/kernels/cpu/scratch.h"

// The inner loop of the attention, of its gradient and of the gradient of weighted sums: over
// gathered rows of heads, the sum weighted by entry and head, the dot products with one row, or
// both in one pass.

namespace mezzo::kernels {

/// One chunk of the entries of a row.
template <class V, class T>
struct HeadChunk {
  using Accum = typename T::Accum;
  using Storage = typename T::Storage;

  std::int64_t heads, features;
  const Storage* x;           ///< gathered rows [.., heads, features]
  Ids ids;                    ///< the row of x of each entry
  std::int64_t begin, count;  ///< the entries of the chunk
  std::int64_t entries_end;   ///< ids before it may be read for prefetching

  const Accum* weight = nullptr;   ///< sum: [count, heads]
  bool first = true, last = true;  ///< chunk of the row
  /// sum: sum the chunk separately first. One float32 sum of a million numbers of similar size is
  /// 1 % off.
  bool apart = false;
  Accum* running = nullptr;  ///< sum: [heads, features], between chunks of the row, as loaded
  bool streams = false;      ///< sum: non-temporal stores; heads are whole cache lines
  Storage* out = nullptr;  ///< sum: [heads, features]; the last chunk writes sum / divisor * factor
  const Accum* divisor = nullptr;  ///< [heads]; null means 1
  Accum factor = 1;

  const Storage* own = nullptr;  ///< dot: [heads, features]
  Accum* partial = nullptr;      ///< dot: [count, heads] vectors whose elements sum to the products
};

/// Stores the sums of head_block(): to c.running between chunks of a row, to c.out after the last.
template <class V, class T, int G, int K, bool kPartial>
[[gnu::always_inline]] inline void put_sums(const HeadChunk<V, T>& c, std::int64_t head,
                                            std::int64_t f, V* sum) {
  const std::int64_t left = c.features - f;
#pragma GCC unroll 16
  for (int g = 0; g < G; ++g) {
    const std::int64_t at = (head + g) * c.features + f;
#pragma GCC unroll 16
    for (int k = 0; k < K; ++k) {
      V& v = sum[g * K + k];
      auto* running = c.running + at + k * V::width;
      if (c.apart && !c.first) {
        v = v + (kPartial ? V::load_accum(running, left) : V::load_accum(running));
      }
      if (c.last) continue;
      kPartial ? v.store_accum(running, left) : v.store_accum(running);
    }
    if (!c.last) continue;
    put_in_order<T, K>(sum + std::int64_t{g} * K);
#pragma GCC unroll 16
    for (int k = 0; k < K; ++k) {
      V v = sum[g * K + k];
      auto* out = c.out + at + k * V::width;
      if (c.divisor != nullptr) v = v / V::set(c.divisor[head + g]);
      v = v * V::set(c.factor);
      if constexpr (kPartial) {
        v.store(T{}, out, left);
      } else {
        c.streams ? v.stream(T{}, out) : v.store(T{}, out);
      }
    }
  }
}

/// Elements [f, f + K vectors) of the heads [head, head + G): G * K accumulators stay in registers
/// over the entries of the chunk. With kPartial, K is 1 and the vector is the incomplete last
/// vector of a head. Members of the chunk that the loop reads are copied one by one first: stores
/// of vectors may alias the chunk, and copying all of it would stall on its recent stores.
template <class V, class T, bool kSum, bool kDot, int G, int K, bool kPartial, class Rows>
// NOLINTNEXTLINE(readability-function-cognitive-complexity): the branches are of compile time
void head_block(const HeadChunk<V, T>& c, Rows rows, std::int64_t head, std::int64_t f) {
  using Accum = typename T::Accum;
  using Storage = typename T::Storage;
  const std::int64_t heads = c.heads, features = c.features;
  const std::int64_t row_length = heads * features, at = head * features + f;
  const std::int64_t left = features - f;
  const std::int64_t span = (G - 1) * features + (kPartial ? left : K * V::width);
  const Storage* x = c.x + at;
  const auto span_bytes = span * static_cast<std::int64_t>(sizeof(Storage));
  const std::int64_t ahead = prefetch_distance(span_bytes), fetch_end = c.entries_end - ahead;
  const auto load = [&](const Storage* from, V* to) {
    if constexpr (kPartial) {
      to[0] = V::load(T{}, from, left);
    } else {
      load_together<T, K>(from, to);
    }
  };
  const auto place = [&](int g, int k) { return g * features + k * V::width; };
  V sum[G * K], own[G * K];
#pragma GCC unroll 16
  for (int g = 0; g < G; ++g) {
#pragma GCC unroll 16
    for (int k = 0; k < K; ++k) {
      [[maybe_unused]] const std::int64_t from = at + place(g, k);
      if constexpr (kDot) {
        if (k % kTogether<K> == 0) load(c.own + from, own + g * K + k);
      }
      if constexpr (kSum) {
        sum[g * K + k] = c.first || c.apart ? V::zero()
                         : kPartial         ? V::load_accum(c.running + from, left)
                                            : V::load_accum(c.running + from);
      }
    }
  }
  [[maybe_unused]] const Accum* weights = kSum ? c.weight + head : nullptr;
  [[maybe_unused]] Accum* lanes = kDot ? c.partial + head * V::width : nullptr;
  const std::int64_t end = c.begin + c.count;
  for (std::int64_t entry = c.begin; entry < end; ++entry) {
    if (entry < fetch_end) {
      const Storage* coming = x + rows.at(0, entry + ahead) * row_length;
      if constexpr (G == 1 && !kPartial) {
        prefetch_row<static_cast<std::int64_t>(K * V::width * sizeof(Storage))>(coming);
      } else {
        prefetch(coming, span_bytes);
      }
    }
    const Storage* p = x + rows.at(0, entry) * row_length;
#pragma GCC unroll 16
    for (int g = 0; g < G; ++g) {
      [[maybe_unused]] const V weight = kSum ? V::set(weights[g]) : V::zero();
      [[maybe_unused]] V dot = V::zero();
      V v[kTogether<K>];
#pragma GCC unroll 16
      for (int k = 0; k < K; ++k) {
        if (k % kTogether<K> == 0) load(p + place(g, k), v);
        const V one = v[k % kTogether<K>];
        if constexpr (kSum) sum[g * K + k] = V::fma(weight, one, sum[g * K + k]);
        if constexpr (kDot) {
          const V o = own[g * K + k];
          dot = k == 0 ? one * o : V::fma(one, o, dot);
        }
      }
      if constexpr (kDot) {
        if (f > 0) dot = dot + V::load_accum(lanes + g * V::width);
        dot.store_accum(lanes + g * V::width);
      }
    }
    if constexpr (kSum) weights += heads;
    if constexpr (kDot) lanes += heads * V::width;
  }
  if constexpr (kSum) put_sums<V, T, G, K, kPartial>(c, head, f, sum);
}

/// K vectors of every head, several heads at a time if the registers suffice.
template <class V, class T, bool kSum, bool kDot, int K, bool kPartial, class Rows>
void head_blocks(const HeadChunk<V, T>& c, const Rows& rows, std::int64_t f) {
  constexpr int kFit = V::max_blocks / K, kMany = kFit < 4 ? kFit : 4;
  std::int64_t head = 0;
  if constexpr (kMany > 1) {
    for (; c.heads - head >= kMany; head += kMany) {
      head_block<V, T, kSum, kDot, kMany, K, kPartial>(c, rows, head, f);
    }
  }
  for (; head < c.heads; ++head) head_block<V, T, kSum, kDot, 1, K, kPartial>(c, rows, head, f);
}

template <class V, class T, bool kSum, bool kDot, class Rows>
void run_heads(const HeadChunk<V, T>& c, const Rows& rows) {
  std::int64_t f = 0;
  const auto run = [&]<int K>() {
    for (; c.features - f >= K * V::width; f += K * V::width) {
      head_blocks<V, T, kSum, kDot, K, false>(c, rows, f);
    }
  };
  if constexpr (V::max_blocks >= 16) run.template operator()<16>();
  run.template operator()<8>();
  run.template operator()<4>();
  run.template operator()<2>();
  run.template operator()<1>();
  if (f < c.features) head_blocks<V, T, kSum, kDot, 1, true>(c, rows, f);
}

/// The sums and products of the chunk, over all heads and features.
template <class V, class T, bool kSum, bool kDot>
void run_heads(const HeadChunk<V, T>& c) {
  const RowPicker rows = row_picker(c.ids);
  if (rows.int32_ids != nullptr) {
    run_heads<V, T, kSum, kDot>(c, Int32Rows{rows.int32_ids});
  } else {
    run_heads<V, T, kSum, kDot>(c, rows);
  }
}

/// The running sum of a row in chunks. If chunks are summed separately, it is added to a total and
/// restarted after kEntriesApart entries, because a sum of thousands of chunks is a long sum too.
template <class V, class T>
class RunningRow {
 public:
  using Number = typename V::Scalar;
  RunningRow(std::int64_t length, Scratch<V>& scratch)
      : length_(length), running_(scratch.take(length)), total_(scratch.take(length)) {}

  void begin_row() { entries_ = 0, has_total_ = false; }
  /// Call before run_heads() with c.count and c.last set.
  void open(HeadChunk<V, T>& c) {
    c.running = running_;
    c.first = entries_ == 0;
    if (!c.last || !has_total_) return;
    add(running_, total_, c.first ? nullptr : running_);
    c.first = false;
  }
  /// Call after run_heads().
  void close(const HeadChunk<V, T>& c) {
    entries_ += c.count;
    if (entries_ < kEntriesApart || !c.apart || c.last) return;
    add(total_, running_, has_total_ ? total_ : nullptr);
    entries_ = 0, has_total_ = true;
  }

 private:
  void add(Number* to, const Number* one, const Number* other) const {
    for (std::int64_t i = 0; i < length_; i += V::width) {
      V v = V::load_accum(one + i);
      if (other != nullptr) v = V::load_accum(other + i) + v;
      v.store_accum(to + i);
    }
  }

  std::int64_t length_, entries_ = 0;
  bool has_total_ = false;
  Number *running_, *total_;
};

/// Sums the elements of `count` vectors to the products of a chunk; writes whole vectors, whose
/// numbers from `count` on are undefined.
template <class V>
void add_lanes(const typename V::Scalar* partial, std::int64_t count,
               typename V::Scalar* products) {
  for (std::int64_t i = 0; i < count; i += V::width) {
    V::sums(partial + i * V::width).store_accum(products + i);
  }
}

}  // namespace mezzo::kernels
