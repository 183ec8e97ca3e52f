#pragma once

#include <cstdint>

#include "mezzo/kernels/cpu/access.h"
#include "mezzo/kernels/cpu/attention/head_numbers.h"
#include "mezzo/kernels/gatv2_scores.h"

namespace mezzo::kernels {

/// K vectors of each of G heads, from element f on, in a row [heads, features]. With kPartial, K is
/// 1 and the vector is the incomplete last vector of a head.
template <class V, class T, int G, int K, bool kPartial>
struct HeadBlock {
  using Accum = typename T::Accum;
  using Storage = typename T::Storage;

  HeadBlock(std::int64_t num_features, std::int64_t head, std::int64_t f)
      : features(num_features), at(head * num_features + f), left(num_features - f) {}

  std::int64_t place(int g, int k) const { return at + g * features + k * V::width; }
  V load(const Storage* row, int g, int k) const {
    const Storage* p = row + place(g, k);
    return kPartial ? V::load(T{}, p, left) : V::load(T{}, p);
  }
  V load_accum(const Accum* row, int g, int k) const {
    const Accum* p = row + place(g, k);
    return kPartial ? V::load_accum(p, left) : V::load_accum(p);
  }
  void store(V v, Storage* row, int g, int k) const {
    Storage* p = row + place(g, k);
    kPartial ? v.store(T{}, p, left) : v.store(T{}, p);
  }
  void store_accum(V v, Accum* row, int g, int k) const {
    Accum* p = row + place(g, k);
    kPartial ? v.store_accum(p, left) : v.store_accum(p);
  }
  [[gnu::always_inline]] void fetch(const Storage* row) const {
    const std::int64_t span = (G - 1) * features + (kPartial ? left : K * V::width);
    prefetch(row + at, span * static_cast<std::int64_t>(sizeof(Storage)));
  }

  std::int64_t features, at, left;
};

/// Vectors of a block: own rows and attn take half of the registers, and a pass reads at most two
/// cache lines of each gathered row. With more lines, demand misses crowd out the prefetches
/// (measured with rows of 1 KiB beyond the cache: 100 instead of 50 ns per entry).
template <class V, class T>
constexpr int block_vectors() {
  constexpr int kBytes = static_cast<int>(V::width * sizeof(typename T::Storage));
  constexpr int kOfLines = 2 * 64 / kBytes, kOfRegisters = V::max_blocks / 2;
  return kOfLines < kOfRegisters ? kOfLines : kOfRegisters;
}

/// Calls run.operator()<G, K, kPartial>(head, f) for blocks of at most kRoom vectors that cover
/// `heads` rows of `features` elements; short heads share a block.
template <class V, int kRoom, class Run>
void for_head_blocks(std::int64_t heads, std::int64_t features, Run run) {
  const auto columns = [&]<int K, bool kPartial>(std::int64_t f) {
    constexpr int kMany = kRoom / K < 4 ? kRoom / K : 4;
    std::int64_t head = 0;
    if constexpr (kMany > 1) {
      for (; heads - head >= kMany; head += kMany) {
        run.template operator()<kMany, K, kPartial>(head, f);
      }
    }
    for (; head < heads; ++head) run.template operator()<1, K, kPartial>(head, f);
  };
  std::int64_t f = 0;
  const auto whole = [&]<int K>() {
    if constexpr (K <= kRoom) {
      for (; features - f >= K * V::width; f += K * V::width) {
        columns.template operator()<K, false>(f);
      }
    }
  };
  whole.template operator()<8>();
  whole.template operator()<4>();
  whole.template operator()<2>();
  whole.template operator()<1>();
  if (f < features) columns.template operator()<1, true>(f);
}

/// The gathered rows of the entries; prefetching continues beyond the end of a row.
template <class V, class T>
class GatheredRows {
 public:
  using Storage = typename T::Storage;

  GatheredRows(const GATv2Pairs& pairs, const Entries& entries, std::int64_t row_end)
      : rows_(static_cast<const Storage*>(pairs.other)),
        length_(pairs.heads * pairs.features),
        ids_(entries.first),
        entries_end_(last_entry(entries, row_end)),
        ahead_(prefetch_distance(length_ * static_cast<std::int64_t>(sizeof(Storage)))) {}

  template <class Block>
  const Storage* at(std::int64_t entry, const Block& block) const {
    if (entry + ahead_ < entries_end_) block.fetch(rows_ + id_at(ids_, entry + ahead_) * length_);
    return rows_ + id_at(ids_, entry) * length_;
  }

 private:
  const Storage* rows_;
  std::int64_t length_;
  Ids ids_;
  std::int64_t entries_end_, ahead_;
};

/// Vectors whose elements sum to one score each, collected to sum many at once: at most 8 KiB.
inline constexpr std::int64_t kScoreVectors = 128;
/// The most heads of these vectors: at least 8 entries per load of a head's own row.
inline constexpr std::int64_t kScoreHeads = 16;

/// Some entries and heads of one row: vector i * num_heads + h belongs to entry begin + i.
struct ScoreChunk {
  std::int64_t row, begin, count;
  std::int64_t head, num_heads;
};

/// Adds the block's elements to the vectors of the chunk; f = 0 overwrites them. `rows` is a copy,
/// so that stores cannot alias it and force reloads.
template <class V, class T, int G, int K, bool kPartial>
void score_block(const GATv2Pairs& pairs, const GatheredRows<V, T> rows, const ScoreChunk& chunk,
                 std::int64_t head, std::int64_t f, typename T::Accum* vectors) {
  using Accum = typename T::Accum;
  const HeadBlock<V, T, G, K, kPartial> block(pairs.features, chunk.head + head, f);
  const auto* own_row =
      static_cast<const typename T::Storage*>(pairs.own) + chunk.row * pairs.heads * pairs.features;
  V own[G * K], weight[G * K];
#pragma GCC unroll 16
  for (int i = 0; i < G * K; ++i) {
    own[i] = block.load(own_row, i / K, i % K);
    weight[i] = block.load_accum(static_cast<const Accum*>(pairs.attn), i / K, i % K);
  }
  const V slope = V::set(static_cast<Accum>(pairs.negative_slope));
  const std::int64_t begin = chunk.begin, count = chunk.count;
  const std::int64_t step = chunk.num_heads * V::width;
  Accum* lanes = vectors + head * V::width;
  for (std::int64_t i = 0; i < count; ++i, lanes += step) {
    const auto* other = rows.at(begin + i, block);
#pragma GCC unroll 16
    for (int g = 0; g < G; ++g) {
      V sum = f == 0 ? V::zero() : V::load_accum(lanes + g * V::width);
#pragma GCC unroll 16
      for (int k = 0; k < K; ++k) {
        const V x = own[g * K + k] + block.load(other, g, k);
        sum = V::fma(weight[g * K + k], leaky_relu(x, slope), sum);
      }
      sum.store_accum(lanes + g * V::width);
    }
  }
}

/// Sums the elements of each vector and stores the scores at their edges.
template <class V>
void store_scores(const GATv2ScoresArgs& a, const ScoreChunk& chunk,
                  const typename V::Scalar* vectors) {
  static_assert(kScoreVectors % V::width == 0);
  typename V::Scalar sums[kScoreVectors];
  for (std::int64_t i = 0; i < chunk.count * chunk.num_heads; i += V::width) {
    V::sums(vectors + i * V::width).store_accum(sums + i);
  }
  for (std::int64_t i = 0; i < chunk.count; ++i) {
    auto* scores = static_cast<typename V::Scalar*>(a.scores) +
                   id_at(a.entries.second, chunk.begin + i) * a.pairs.heads + chunk.head;
    for (std::int64_t h = 0; h < chunk.num_heads; ++h) scores[h] = sums[i * chunk.num_heads + h];
  }
}

template <class V, class T>
void compute(const GATv2ScoresArgs& a) {
  const GatheredRows<V, T> rows(a.pairs, a.entries, a.row_end);
  const std::int64_t heads = a.pairs.heads;
  alignas(64) typename T::Accum vectors[kScoreVectors * V::width] = {};
  for (std::int64_t row = a.row_begin; row < a.row_end; ++row) {
    const EntryRange range = entries_of(a.entries, row);
    for (std::int64_t head = 0; head < heads; head += kScoreHeads) {
      const std::int64_t num_heads = heads - head < kScoreHeads ? heads - head : kScoreHeads;
      const std::int64_t most = kScoreVectors / num_heads;
      for (std::int64_t begin = range.begin; begin < range.end; begin += most) {
        const std::int64_t count = range.end - begin < most ? range.end - begin : most;
        const ScoreChunk chunk{row, begin, count, head, num_heads};
        for_head_blocks<V, block_vectors<V, T>()>(
            num_heads, a.pairs.features,
            [&]<int G, int K, bool kPartial>(std::int64_t h, std::int64_t f) {
              score_block<V, T, G, K, kPartial>(a.pairs, rows, chunk, h, f, vectors);
            });
        store_scores<V>(a, chunk, vectors);
      }
    }
  }
}

/// The gradients of one block of one row. attn is a factor of every term of the own gradient, so it
/// multiplies their sum.
template <class V, class T, bool kOfAttn, int G, int K, bool kPartial>
void score_grad_block(const GATv2ScoresGradArgs& a, const GatheredRows<V, T>& rows,
                      std::int64_t row, std::int64_t head, std::int64_t f) {
  using Accum = typename T::Accum;
  using Storage = typename T::Storage;
  const HeadBlock<V, T, G, K, kPartial> block(a.pairs.features, head, f);
  const std::int64_t own_at = row * a.pairs.heads * a.pairs.features;
  const EntryRange range = entries_of(a.entries, row);
  V own[G * K], own_sum[G * K];
  [[maybe_unused]] V attn_sum[G * K];
#pragma GCC unroll 16
  for (int i = 0; i < G * K; ++i) {
    own[i] = block.load(static_cast<const Storage*>(a.pairs.own) + own_at, i / K, i % K);
    own_sum[i] = V::zero();
    if constexpr (kOfAttn) attn_sum[i] = V::zero();
  }
  const auto slope = static_cast<Accum>(a.pairs.negative_slope);
  for (std::int64_t begin = range.begin; begin < range.end; begin += kEntriesApart) {
    const EntryRange apart = entries_apart(range, begin);
    V own_part[G * K];
    [[maybe_unused]] V attn_part[G * K];
#pragma GCC unroll 16
    for (int i = 0; i < G * K; ++i) {
      own_part[i] = V::zero();
      if constexpr (kOfAttn) attn_part[i] = V::zero();
    }
    for (std::int64_t entry = apart.begin; entry < apart.end; ++entry) {
      const Storage* other = rows.at(entry, block);
      const Accum* grads =
          static_cast<const Accum*>(a.grad) + id_at(a.entries.second, entry) * a.pairs.heads + head;
#pragma GCC unroll 16
      for (int g = 0; g < G; ++g) {
        const V above = V::set(grads[g]), below = V::set(grads[g] * slope);
#pragma GCC unroll 16
        for (int k = 0; k < K; ++k) {
          const int i = g * K + k;
          const V x = own[i] + block.load(other, g, k);
          const V share = select(V::zero() < x, above, below);
          own_part[i] = own_part[i] + share;
          if constexpr (kOfAttn) attn_part[i] = V::fma(share, x, attn_part[i]);
        }
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < G * K; ++i) {
      own_sum[i] = own_sum[i] + own_part[i];
      if constexpr (kOfAttn) attn_sum[i] = attn_sum[i] + attn_part[i];
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < G * K; ++i) {
    if (a.own_grad != nullptr) {
      const V weight = block.load_accum(static_cast<const Accum*>(a.pairs.attn), i / K, i % K);
      // Not 0 * weight, which is NaN where the weight is not finite.
      const V grad = range.begin == range.end ? V::zero() : weight * own_sum[i];
      block.store(grad, static_cast<Storage*>(a.own_grad) + own_at, i / K, i % K);
    }
    if constexpr (kOfAttn) {
      auto* attn_grad = static_cast<Accum*>(a.attn_grad);
      const V before = block.load_accum(attn_grad, i / K, i % K);
      block.store_accum(before + attn_sum[i], attn_grad, i / K, i % K);
    }
  }
}

template <class V, class T, bool kOfAttn>
void score_grad_rows(const GATv2ScoresGradArgs& a) {
  const GatheredRows<V, T> rows(a.pairs, a.entries, a.row_end);
  for (std::int64_t row = a.row_begin; row < a.row_end; ++row) {
    for_head_blocks<V, block_vectors<V, T>()>(
        a.pairs.heads, a.pairs.features,
        [&]<int G, int K, bool kPartial>(std::int64_t head, std::int64_t f) {
          score_grad_block<V, T, kOfAttn, G, K, kPartial>(a, rows, row, head, f);
        });
  }
}

template <class V, class T>
void compute(const GATv2ScoresGradArgs& a) {
  a.attn_grad != nullptr ? score_grad_rows<V, T, true>(a) : score_grad_rows<V, T, false>(a);
}

}  // namespace mezzo::kernels
