#pragma once

#include <cstdint>

#include <immintrin.h>

// Integer vectors of the AVX-512 backends; see avx512_lanes.h and integer_lanes.h.

namespace mezzo::kernels {
namespace {

/// Exchanges element i with element i ^ kDistance.
template <int kDistance>
__m512i exchanged(__m512i v) {
  if constexpr (kDistance == 1) return _mm512_shuffle_epi32(v, _MM_PERM_CDAB);
  if constexpr (kDistance == 2) return _mm512_shuffle_epi32(v, _MM_PERM_BADC);
  if constexpr (kDistance == 4) return _mm512_shuffle_i32x4(v, v, 0xB1);
  if constexpr (kDistance == 8) return _mm512_shuffle_i32x4(v, v, 0x4E);
}

/// One step of a bitonic sorter (Batcher, 1968): sorts pairs of elements kDistance apart, in a
/// direction that changes every kRun elements.
template <int kRun, int kDistance>
__m512i compare_lanes(__m512i v) {
  constexpr auto kTakesLarger = [] {
    unsigned mask = 0;
    for (unsigned lane = 0; lane < 16; ++lane) {
      const bool is_upper = (lane & kDistance) != 0, descends = (lane & kRun) != 0;
      if (is_upper != descends) mask |= 1U << lane;
    }
    return static_cast<__mmask16>(mask);
  }();
  const __m512i other = exchanged<kDistance>(v);
  return _mm512_mask_max_epi32(_mm512_min_epi32(v, other), kTakesLarger, v, other);
}

/// Sorts bitonic runs of kRun elements.
template <int kRun>
__m512i merged(__m512i v) {
  if constexpr (kRun >= 16) v = compare_lanes<kRun, 8>(v);
  if constexpr (kRun >= 8) v = compare_lanes<kRun, 4>(v);
  if constexpr (kRun >= 4) v = compare_lanes<kRun, 2>(v);
  return compare_lanes<kRun, 1>(v);
}

/// Sorts the first kCount elements, 8 or 16.
template <int kCount>
__m512i in_order(__m512i v) {
  v = merged<8>(merged<4>(merged<2>(v)));
  if constexpr (kCount == 16) v = merged<16>(v);
  return v;
}

struct Avx512Integers {
  static constexpr int kLanes = 8;
  using UInt64s [[gnu::vector_size(64)]] = std::uint64_t;
  using Int32s [[gnu::vector_size(64)]] = std::int32_t;

  static UInt64s counted() { return UInt64s{0, 1, 2, 3, 4, 5, 6, 7}; }
  static Int32s places() { return Int32s{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; }
  static UInt64s products(UInt64s a, UInt64s b) {
    return reinterpret_cast<UInt64s>(
        _mm512_mul_epu32(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
  }
  static UInt64s exclusive_or(UInt64s a, UInt64s b, UInt64s c) {
    constexpr int kOddOnes = 0x96;
    return reinterpret_cast<UInt64s>(
        _mm512_ternarylogic_epi64(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b),
                                  reinterpret_cast<__m512i>(c), kOddOnes));
  }
  static void store_in_turn(UInt64s low, UInt64s high, void* to) {
    const UInt64s turns[2] = {__builtin_shufflevector(low, high, 0, 8, 1, 9, 2, 10, 3, 11),
                              __builtin_shufflevector(low, high, 4, 12, 5, 13, 6, 14, 7, 15)};
    __builtin_memcpy(to, turns, sizeof(turns));
  }

  template <int kCapacity>
  static bool sort(const std::int32_t* values, std::int64_t count, std::int32_t* sorted) {
    const auto are_equal = [](__m512i v, __m512i after) {
      return _mm512_cmpeq_epi32_mask(v, _mm512_alignr_epi32(after, v, 1));
    };
    const auto pairs = static_cast<std::uint32_t>(((std::uint64_t{1} << count) - 1) >> 1);
    if constexpr (kCapacity <= 16) {
      const __m512i v = in_order<kCapacity>(_mm512_loadu_si512(values));
      _mm512_storeu_si512(sorted, v);
      return (are_equal(v, v) & pairs) == 0;
    } else {
      const __m512i a = in_order<16>(_mm512_loadu_si512(values));
      const __m512i b = in_order<16>(_mm512_loadu_si512(values + 16));
      const __m512i turned = _mm512_permutexvar_epi32(
          _mm512_set_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), b);
      const __m512i low = merged<16>(_mm512_min_epi32(a, turned));
      const __m512i high = merged<16>(_mm512_max_epi32(a, turned));
      _mm512_storeu_si512(sorted, low);
      _mm512_storeu_si512(sorted + 16, high);
      const std::uint32_t equal = are_equal(low, high) | (are_equal(high, high) << 16U);
      return (equal & pairs) == 0;
    }
  }
};

}  // namespace
}  // namespace mezzo::kernels
