#pragma once

#include <cstdint>

/// Integers in a backend's vectors: vectorized philox(), and sorts of a few numbers. A backend's
/// `Integers`, `I` in the templates, has
///
///   kLanes                          64-bit elements of a vector
///   UInt64s, Int32s                    the compiler's vectors of uint64 and int32, of that size
///   counted(), places()             0, 1, 2, ... as UInt64s, as Int32s
///   products(a, b)                  products of the lower halves of 64-bit elements
///   exclusive_or(a, b, c)           a ^ b ^ c
///   store_in_turn(low, high, to)    stores low[0], high[0], low[1], ...
///   sort<kCapacity>(values, count, sorted)
///
/// sort() takes kCapacity numbers (8, 16 or 32; at least a vector): `count` below the largest
/// int32, the rest equal to it. It sorts the first `count` and returns whether they are distinct;
/// if not, `sorted` is unspecified.
namespace mezzo::kernels {

template <class I>
typename I::UInt64s all_lanes(std::uint64_t word) {
  return typename I::UInt64s{} + word;
}

/// The keys of the ten rounds of philox().
struct PhiloxKeys {
  std::uint64_t first[10], second[10];  ///< 32 bits each

  [[gnu::always_inline]] explicit PhiloxKeys(std::uint64_t seed) {
    auto k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      first[round] = k0;
      second[round] = k1;
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
  }
};

/// The four words of philox() of core/random.h, one call per element. (That function is inline in
/// all files, so it must not be called here.) The upper 32 bits of an element are unspecified.
template <class I>
struct PhiloxLanes {
  using UInt64s = typename I::UInt64s;
  UInt64s words[4];

  [[gnu::always_inline]] void generate(const PhiloxKeys& keys, std::uint64_t stream,
                                       UInt64s indices) {
    const UInt64s m0 = all_lanes<I>(0xD2511F53), m1 = all_lanes<I>(0xCD9E8D57);
    UInt64s c0 = indices, c1 = indices >> 32;
    UInt64s c2 = all_lanes<I>(stream), c3 = all_lanes<I>(stream >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
      const UInt64s p0 = I::products(c0, m0), p1 = I::products(c2, m1);
      c0 = I::exclusive_or(p1 >> 32, c1, all_lanes<I>(keys.first[round]));
      c2 = I::exclusive_or(p0 >> 32, c3, all_lanes<I>(keys.second[round]));
      c1 = p1;
      c3 = p0;
    }
    words[0] = c0, words[1] = c1, words[2] = c2, words[3] = c3;
  }

  /// Words 2 * half (lower 32 bits) and 2 * half + 1 (upper 32 bits) of each call.
  [[gnu::always_inline]] UInt64s pairs(int half) const {
    return (words[2 * half] & 0xFFFFFFFF) | (words[2 * half + 1] << 32);
  }
};

/// Integers::sort() without branches: counts the smaller numbers of each. Unrolled, because -O2
/// alone leaves both arrays of vectors in memory.
template <class I, int kCapacity>
[[gnu::always_inline]] inline bool rank_sort(const std::int32_t* values, std::int64_t count,
                                             std::int32_t* sorted) {
  using Int32s = typename I::Int32s;
  constexpr int kWidth = 2 * I::kLanes, kVectors = kCapacity / kWidth;
  static_assert(kVectors >= 1 && kVectors <= 8);
  Int32s all[kVectors], ranks[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    __builtin_memcpy(&all[v], values + std::int64_t{kWidth} * v, sizeof(Int32s));
    ranks[v] = Int32s{};
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const Int32s one = Int32s{} + values[i];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) ranks[v] -= all[v] > one;  // true is -1
  }
  std::int32_t rank[kCapacity];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    __builtin_memcpy(rank + std::int64_t{kWidth} * v, &ranks[v], sizeof(Int32s));
  }
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    sum += rank[i];
    sorted[rank[i]] = values[i];
  }
  return sum == count * (count - 1) / 2;
}

}  // namespace mezzo::kernels
