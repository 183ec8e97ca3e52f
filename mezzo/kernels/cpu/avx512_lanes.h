#pragma once

#include <cstdint>

#include <immintrin.h>

#include "mezzo/core/dtype.h"
#include "mezzo/kernels/cpu/avx512_integers.h"

// The vectors of the AVX-512 backends, which differ in one conversion. Only avx512.cpp and
// avx512_bf16.cpp include this file, each with its own flags; the unnamed namespace separates them.

namespace mezzo::kernels {
namespace {

__mmask16 mask16(std::int64_t count) {
  return static_cast<__mmask16>((1U << count) - 1U);
}
__mmask8 mask8(std::int64_t count) {
  return static_cast<__mmask8>((1U << count) - 1U);
}

struct Float64Lanes {
  using Integers = Avx512Integers;
  using Scalar = double;
  static constexpr std::int64_t width = 8;
  static constexpr int max_blocks = 16;
  __m512d v;

  static Float64Lanes zero() { return {_mm512_setzero_pd()}; }
  static Float64Lanes set(double x) { return {_mm512_set1_pd(x)}; }
  static Float64Lanes set_bits(std::int64_t x) {
    return {_mm512_castsi512_pd(_mm512_set1_epi64(x))};
  }
  void store_bits(std::int64_t* p) const { _mm512_storeu_si512(p, _mm512_castpd_si512(v)); }
  double first() const { return _mm512_cvtsd_f64(v); }
  double sum() const { return _mm512_reduce_add_pd(v); }
  /// Element i is the sum of the i-th of `width` contiguous vectors.
  static Float64Lanes sums(const double* p) {
    // Two vectors to one: quarters whose two elements belong to the two vectors.
    const auto quarters = [](const double* q) {
      const __m512d a = _mm512_loadu_pd(q), b = _mm512_loadu_pd(q + 8);
      return _mm512_add_pd(_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b));
    };
    const auto halves = [](__m512d a, __m512d b) {
      return _mm512_add_pd(_mm512_shuffle_f64x2(a, b, 0x44), _mm512_shuffle_f64x2(a, b, 0xEE));
    };
    const __m512d low = halves(quarters(p), quarters(p + 16));
    const __m512d high = halves(quarters(p + 32), quarters(p + 48));
    return {_mm512_add_pd(_mm512_shuffle_f64x2(low, high, 0x88),
                          _mm512_shuffle_f64x2(low, high, 0xDD))};
  }
  static Float64Lanes keep(Float64Lanes x, std::int64_t count) {
    return {_mm512_maskz_mov_pd(mask8(count), x.v)};
  }
  /// The elements whose id is `id`, 0 elsewhere.
  static Float64Lanes keep_equal(Float64Lanes x, const std::int32_t* ids, std::int32_t id) {
    const __m256i own = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(ids));
    return {_mm512_maskz_mov_pd(_mm256_cmpeq_epi32_mask(own, _mm256_set1_epi32(id)), x.v)};
  }
  static Float64Lanes keep_equal(Float64Lanes x, const std::int32_t* ids, std::int32_t id,
                                 std::int64_t count) {
    const __m256i own = _mm256_maskz_loadu_epi32(mask8(count), ids);
    return {_mm512_maskz_mov_pd(
        _mm256_mask_cmpeq_epi32_mask(mask8(count), own, _mm256_set1_epi32(id)), x.v)};
  }
  static Float64Lanes load_accum(const double* p) { return {_mm512_loadu_pd(p)}; }
  static Float64Lanes load_accum(const double* p, std::int64_t count) {
    return {_mm512_maskz_loadu_pd(mask8(count), p)};
  }
  void store_accum(double* p) const { _mm512_storeu_pd(p, v); }
  void store_accum(double* p, std::int64_t count) const {
    _mm512_mask_storeu_pd(p, mask8(count), v);
  }
  static Float64Lanes load(Float64 /*t*/, const double* p) { return load_accum(p); }
  static Float64Lanes load(Float64 /*t*/, const double* p, std::int64_t count) {
    return load_accum(p, count);
  }
  static Float64Lanes load_one(Float64 /*t*/, const double* p) { return set(*p); }
  void store(Float64 /*t*/, double* p) const { store_accum(p); }
  void stream(Float64 /*t*/, double* p) const { _mm512_stream_pd(p, v); }
  static void end_streams() { _mm_sfence(); }
  void store(Float64 /*t*/, double* p, std::int64_t count) const { store_accum(p, count); }

  static Float64Lanes fma(Float64Lanes a, Float64Lanes b, Float64Lanes c) {
    return {_mm512_fmadd_pd(a.v, b.v, c.v)};
  }
  static Float64Lanes exp(Float64Lanes x) {
    alignas(64) double lane[width];
    _mm512_store_pd(lane, x.v);
    for (double& value : lane) value = __builtin_exp(value);
    return {_mm512_load_pd(lane)};
  }
  friend Float64Lanes operator+(Float64Lanes a, Float64Lanes b) {
    return {_mm512_add_pd(a.v, b.v)};
  }
  friend Float64Lanes operator-(Float64Lanes a, Float64Lanes b) {
    return {_mm512_sub_pd(a.v, b.v)};
  }
  friend Float64Lanes operator*(Float64Lanes a, Float64Lanes b) {
    return {_mm512_mul_pd(a.v, b.v)};
  }
  friend Float64Lanes operator/(Float64Lanes a, Float64Lanes b) {
    return {_mm512_div_pd(a.v, b.v)};
  }
  friend __mmask8 operator<(Float64Lanes a, Float64Lanes b) {
    return _mm512_cmp_pd_mask(a.v, b.v, _CMP_LT_OQ);
  }
  /// Whether each of `width` numbers is at least `least`, below 2^16.
  static __mmask8 at_least(const std::uint16_t* numbers, std::uint32_t least) {
    return _mm_cmpge_epu16_mask(_mm_loadu_si128(reinterpret_cast<const __m128i*>(numbers)),
                                _mm_set1_epi16(static_cast<short>(least)));
  }
  friend __mmask8 is_nan(Float64Lanes a) { return _mm512_cmp_pd_mask(a.v, a.v, _CMP_UNORD_Q); }
  friend __mmask8 not_nan(Float64Lanes a) { return _mm512_cmp_pd_mask(a.v, a.v, _CMP_ORD_Q); }
  /// Whether `best` is not NaN and `message` is larger or NaN.
  friend __mmask8 above(Float64Lanes message, Float64Lanes best) {
    return _mm512_mask_cmp_pd_mask(not_nan(best), message.v, best.v, _CMP_NLE_UQ);
  }
  friend __mmask8 below(Float64Lanes message, Float64Lanes best) {
    return _mm512_mask_cmp_pd_mask(not_nan(best), message.v, best.v, _CMP_NGE_UQ);
  }
  friend Float64Lanes select(int take, Float64Lanes yes, Float64Lanes no) {
    return {_mm512_mask_blend_pd(static_cast<__mmask8>(take), no.v, yes.v)};
  }
};

/// Rounds float32 to bfloat16, to nearest, ties to even; NaN becomes quiet. The instruction flushes
/// subnormal numbers to zero, so vectors with one take the slow path: backends agree bit for bit.
template <bool kNative>
__m256i to_bfloat(__m512 v) {
#ifdef __AVX512BF16__
  if constexpr (kNative) {
    constexpr int kSubnormal = 0x20;
    if (_mm512_fpclass_ps_mask(v, kSubnormal) == 0) {
      return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v));
    }
  }
#endif
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_blend_epi32(nan, rounded, quiet), 16));
}

template <bool kNativeBFloat16>
struct Float32Lanes {
  using Integers = Avx512Integers;
  using Scalar = float;
  static constexpr std::int64_t width = 16;
  static constexpr int max_blocks = 16;
  __m512 v;

  static Float32Lanes zero() { return {_mm512_setzero_ps()}; }
  static Float32Lanes set(float x) { return {_mm512_set1_ps(x)}; }
  static Float32Lanes set_bits(std::int64_t x) {
    return {_mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(x)))};
  }
  void store_bits(std::int64_t* p) const {
    const __m512i bits = _mm512_castps_si512(v);
    _mm512_storeu_si512(p, _mm512_cvtepi32_epi64(_mm512_castsi512_si256(bits)));
    _mm512_storeu_si512(p + 8, _mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64(bits, 1)));
  }
  float first() const { return _mm512_cvtss_f32(v); }
  float sum() const { return _mm512_reduce_add_ps(v); }
  /// Element i is the sum of the i-th of `width` contiguous vectors.
  static Float32Lanes sums(const float* p) {
    const auto pairs = [](__m512 a, __m512 b) {
      return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    };
    // Four vectors to one: quarters whose four elements belong to the four vectors.
    const auto quarters = [&](const float* q) {
      const __m512d ab = _mm512_castps_pd(pairs(_mm512_loadu_ps(q), _mm512_loadu_ps(q + 16)));
      const __m512d cd = _mm512_castps_pd(pairs(_mm512_loadu_ps(q + 32), _mm512_loadu_ps(q + 48)));
      return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd)),
                           _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd)));
    };
    const auto halves = [](__m512 a, __m512 b) {
      return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
    };
    const __m512 low = halves(quarters(p), quarters(p + 64));
    const __m512 high = halves(quarters(p + 128), quarters(p + 192));
    return {_mm512_add_ps(_mm512_shuffle_f32x4(low, high, 0x88),
                          _mm512_shuffle_f32x4(low, high, 0xDD))};
  }
  /// Transposes `width` rows.
  static void transpose(Float32Lanes* rows) {
    __m512 quarters[4][4];  // [i][j]: elements i, i + 4, i + 8, i + 12 of the rows from 4 j on
    const auto within = [&](int j) {
      const Float32Lanes* row = rows + 4 * j;
      const __m512d low01 = _mm512_castps_pd(_mm512_unpacklo_ps(row[0].v, row[1].v));
      const __m512d low23 = _mm512_castps_pd(_mm512_unpacklo_ps(row[2].v, row[3].v));
      const __m512d high01 = _mm512_castps_pd(_mm512_unpackhi_ps(row[0].v, row[1].v));
      const __m512d high23 = _mm512_castps_pd(_mm512_unpackhi_ps(row[2].v, row[3].v));
      quarters[0][j] = _mm512_castpd_ps(_mm512_unpacklo_pd(low01, low23));
      quarters[1][j] = _mm512_castpd_ps(_mm512_unpackhi_pd(low01, low23));
      quarters[2][j] = _mm512_castpd_ps(_mm512_unpacklo_pd(high01, high23));
      quarters[3][j] = _mm512_castpd_ps(_mm512_unpackhi_pd(high01, high23));
    };
    const auto across = [&](int i) {
      const __m512* q = quarters[i];
      const __m512 even01 = _mm512_shuffle_f32x4(q[0], q[1], 0x88);
      const __m512 even23 = _mm512_shuffle_f32x4(q[2], q[3], 0x88);
      const __m512 odd01 = _mm512_shuffle_f32x4(q[0], q[1], 0xDD);
      const __m512 odd23 = _mm512_shuffle_f32x4(q[2], q[3], 0xDD);
      rows[i].v = _mm512_shuffle_f32x4(even01, even23, 0x88);
      rows[i + 4].v = _mm512_shuffle_f32x4(odd01, odd23, 0x88);
      rows[i + 8].v = _mm512_shuffle_f32x4(even01, even23, 0xDD);
      rows[i + 12].v = _mm512_shuffle_f32x4(odd01, odd23, 0xDD);
    };
    within(0);
    within(1);
    within(2);
    within(3);
    across(0);
    across(1);
    across(2);
    across(3);
  }
  static Float32Lanes keep(Float32Lanes x, std::int64_t count) {
    return {_mm512_maskz_mov_ps(mask16(count), x.v)};
  }
  /// The elements whose id is `id`, 0 elsewhere.
  static Float32Lanes keep_equal(Float32Lanes x, const std::int32_t* ids, std::int32_t id) {
    const __m512i own = _mm512_loadu_si512(ids);
    return {_mm512_maskz_mov_ps(_mm512_cmpeq_epi32_mask(own, _mm512_set1_epi32(id)), x.v)};
  }
  static Float32Lanes keep_equal(Float32Lanes x, const std::int32_t* ids, std::int32_t id,
                                 std::int64_t count) {
    const __m512i own = _mm512_maskz_loadu_epi32(mask16(count), ids);
    return {_mm512_maskz_mov_ps(
        _mm512_mask_cmpeq_epi32_mask(mask16(count), own, _mm512_set1_epi32(id)), x.v)};
  }
  static Float32Lanes load_accum(const float* p) { return {_mm512_loadu_ps(p)}; }
  static Float32Lanes load_accum(const float* p, std::int64_t count) {
    return {_mm512_maskz_loadu_ps(mask16(count), p)};
  }
  void store_accum(float* p) const { _mm512_storeu_ps(p, v); }
  void store_accum(float* p, std::int64_t count) const {
    _mm512_mask_storeu_ps(p, mask16(count), v);
  }

  static __m512 widen(BFloat16 /*t*/, __m256i bits) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  static __m512 widen(Float16 /*t*/, __m256i bits) { return _mm512_cvtph_ps(bits); }
  static __m256i narrow(BFloat16 /*t*/, __m512 v) { return to_bfloat<kNativeBFloat16>(v); }
  static __m256i narrow(Float16 /*t*/, __m512 v) {
    return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }

  static Float32Lanes load(Float32 /*t*/, const float* p) { return load_accum(p); }
  static Float32Lanes load(Float32 /*t*/, const float* p, std::int64_t count) {
    return load_accum(p, count);
  }
  template <class T>
  static Float32Lanes load(T t, const typename T::Storage* p) {
    return {widen(t, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }
  template <class T>
  static Float32Lanes load(T t, const typename T::Storage* p, std::int64_t count) {
    return {widen(t, _mm256_maskz_loadu_epi16(mask16(count), p))};
  }
  /// The even and the odd of 32 numbers: half the instructions of converting them in order.
  static void load_pair(BFloat16 /*t*/, const BFloat16Bits* p, Float32Lanes& even,
                        Float32Lanes& odd) {
    const __m512i both = _mm512_loadu_si512(p);
    even = {_mm512_castsi512_ps(_mm512_slli_epi32(both, 16))};
    odd = {_mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(-0x10000)))};
  }
  static void put_in_order(BFloat16 /*t*/, Float32Lanes& even, Float32Lanes& odd) {
    const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    const __m512 first = _mm512_permutex2var_ps(even.v, low, odd.v);
    odd = {_mm512_permutex2var_ps(even.v, high, odd.v)};
    even = {first};
  }
  static Float32Lanes load_one(Float32 /*t*/, const float* p) { return set(*p); }
  template <class T>
  static Float32Lanes load_one(T t, const typename T::Storage* p) {
    return {widen(t, _mm256_set1_epi16(static_cast<short>(p->bits)))};
  }
  void store(Float32 /*t*/, float* p) const { store_accum(p); }
  void stream(Float32 /*t*/, float* p) const { _mm512_stream_ps(p, v); }
  template <class T>
  void stream(T t, typename T::Storage* p) const {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(p), narrow(t, v));
  }
  static void end_streams() { _mm_sfence(); }
  void store(Float32 /*t*/, float* p, std::int64_t count) const { store_accum(p, count); }
  template <class T>
  void store(T t, typename T::Storage* p) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(t, v));
  }
  template <class T>
  void store(T t, typename T::Storage* p, std::int64_t count) const {
    _mm256_mask_storeu_epi16(p, mask16(count), narrow(t, v));
  }

  static Float32Lanes fma(Float32Lanes a, Float32Lanes b, Float32Lanes c) {
    return {_mm512_fmadd_ps(a.v, b.v, c.v)};
  }

  /// e^x within 1 unit in the last place of float32: x = n ln 2 + r, a polynomial of degree 7 in r
  /// (Taylor's up to |r| <= ln 2 / 2: the next term is below 2^-27 of the sum), times 2^n.
  static Float32Lanes exp(Float32Lanes x) {
    // min and max return their second operand where one is NaN, so NaN passes.
    const __m512 clamped =
        _mm512_max_ps(_mm512_set1_ps(-110.0F), _mm512_min_ps(_mm512_set1_ps(90.0F), x.v));
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(clamped, _mm512_set1_ps(1.44269504F)),
                                          _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    // ln 2 in two parts: n times the first is exact.
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375F), clamped);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4F), r);
    __m512 p = _mm512_set1_ps(1.0F / 5040);
    for (const float c : {1.0F / 720, 1.0F / 120, 1.0F / 24, 1.0F / 6, 0.5F, 1.0F, 1.0F}) {
      p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
    }
    return {_mm512_scalef_ps(p, n)};
  }
  friend Float32Lanes operator+(Float32Lanes a, Float32Lanes b) {
    return {_mm512_add_ps(a.v, b.v)};
  }
  friend Float32Lanes operator-(Float32Lanes a, Float32Lanes b) {
    return {_mm512_sub_ps(a.v, b.v)};
  }
  friend Float32Lanes operator*(Float32Lanes a, Float32Lanes b) {
    return {_mm512_mul_ps(a.v, b.v)};
  }
  friend Float32Lanes operator/(Float32Lanes a, Float32Lanes b) {
    return {_mm512_div_ps(a.v, b.v)};
  }
  friend __mmask16 operator<(Float32Lanes a, Float32Lanes b) {
    return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ);
  }
  /// Whether each of `width` numbers is at least `least`, below 2^16.
  static __mmask16 at_least(const std::uint16_t* numbers, std::uint32_t least) {
    return _mm256_cmpge_epu16_mask(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(numbers)),
                                   _mm256_set1_epi16(static_cast<short>(least)));
  }
  friend __mmask16 is_nan(Float32Lanes a) { return _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q); }
  friend __mmask16 not_nan(Float32Lanes a) { return _mm512_cmp_ps_mask(a.v, a.v, _CMP_ORD_Q); }
  /// Whether `best` is not NaN and `message` is larger or NaN.
  friend __mmask16 above(Float32Lanes message, Float32Lanes best) {
    return _mm512_mask_cmp_ps_mask(not_nan(best), message.v, best.v, _CMP_NLE_UQ);
  }
  friend __mmask16 below(Float32Lanes message, Float32Lanes best) {
    return _mm512_mask_cmp_ps_mask(not_nan(best), message.v, best.v, _CMP_NGE_UQ);
  }
  friend Float32Lanes select(int take, Float32Lanes yes, Float32Lanes no) {
    return {_mm512_mask_blend_ps(static_cast<__mmask16>(take), no.v, yes.v)};
  }
};

}  // namespace
}  // namespace mezzo::kernels
