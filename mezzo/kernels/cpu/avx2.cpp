// AVX2 with FMA and F16C. Apart from templates over the vectors, include no inline function that
// another file also compiles: the linker keeps one copy, and if it is this one, the other file
// crashes on older machines.
#include <cstdint>

#include <immintrin.h>

#include "mezzo/kernels/cpu/table.h"

namespace mezzo::kernels {
namespace {

// The result of a comparison: elements of all ones or all zeros.
struct Mask32 {
  __m256 m;
  friend Mask32 operator|(Mask32 a, Mask32 b) { return {_mm256_or_ps(a.m, b.m)}; }
  friend Mask32 operator&(Mask32 a, Mask32 b) { return {_mm256_and_ps(a.m, b.m)}; }
};

struct Mask64 {
  __m256d m;
  friend Mask64 operator|(Mask64 a, Mask64 b) { return {_mm256_or_pd(a.m, b.m)}; }
  friend Mask64 operator&(Mask64 a, Mask64 b) { return {_mm256_and_pd(a.m, b.m)}; }
};

__m256i first32(std::int64_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

__m256i first64(std::int64_t count) {
  return _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), _mm256_setr_epi64x(0, 1, 2, 3));
}

struct Avx2Integers {
  static constexpr int kLanes = 4;
  using UInt64s [[gnu::vector_size(32)]] = std::uint64_t;
  using Int32s [[gnu::vector_size(32)]] = std::int32_t;

  static UInt64s counted() { return UInt64s{0, 1, 2, 3}; }
  static Int32s places() { return Int32s{0, 1, 2, 3, 4, 5, 6, 7}; }
  static UInt64s products(UInt64s a, UInt64s b) {
    return reinterpret_cast<UInt64s>(
        _mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
  }
  static UInt64s exclusive_or(UInt64s a, UInt64s b, UInt64s c) { return a ^ b ^ c; }
  static void store_in_turn(UInt64s low, UInt64s high, void* to) {
    const UInt64s turns[2] = {__builtin_shufflevector(low, high, 0, 4, 1, 5),
                              __builtin_shufflevector(low, high, 2, 6, 3, 7)};
    __builtin_memcpy(to, turns, sizeof(turns));
  }
  template <int kCapacity>
  static bool sort(const std::int32_t* values, std::int64_t count, std::int32_t* sorted) {
    return rank_sort<Avx2Integers, kCapacity>(values, count, sorted);
  }
};

struct Float64Lanes {
  using Integers = Avx2Integers;
  using Scalar = double;
  static constexpr std::int64_t width = 4;
  static constexpr int max_blocks = 8;
  __m256d v;

  static Float64Lanes zero() { return {_mm256_setzero_pd()}; }
  static Float64Lanes set(double x) { return {_mm256_set1_pd(x)}; }
  static Float64Lanes set_bits(std::int64_t x) {
    return {_mm256_castsi256_pd(_mm256_set1_epi64x(x))};
  }
  void store_bits(std::int64_t* p) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_castpd_si256(v));
  }
  double first() const { return _mm256_cvtsd_f64(v); }
  double sum() const {
    const __m128d half = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
    return _mm_cvtsd_f64(_mm_add_sd(half, _mm_unpackhi_pd(half, half)));
  }
  /// Element i is the sum of the i-th of `width` contiguous vectors.
  static Float64Lanes sums(const double* p) {
    const __m256d ab = _mm256_hadd_pd(_mm256_loadu_pd(p), _mm256_loadu_pd(p + 4));
    const __m256d cd = _mm256_hadd_pd(_mm256_loadu_pd(p + 8), _mm256_loadu_pd(p + 12));
    return {
        _mm256_add_pd(_mm256_permute2f128_pd(ab, cd, 0x20), _mm256_permute2f128_pd(ab, cd, 0x31))};
  }
  static Float64Lanes keep(Float64Lanes x, std::int64_t count) {
    return {_mm256_and_pd(x.v, _mm256_castsi256_pd(first64(count)))};
  }
  /// The elements whose id is `id`, 0 elsewhere.
  static Float64Lanes keep_equal(Float64Lanes x, const std::int32_t* ids, std::int32_t id) {
    const __m128i own = _mm_loadu_si128(reinterpret_cast<const __m128i*>(ids));
    const __m256i equal = _mm256_cvtepi32_epi64(_mm_cmpeq_epi32(own, _mm_set1_epi32(id)));
    return {_mm256_and_pd(x.v, _mm256_castsi256_pd(equal))};
  }
  static Float64Lanes keep_equal(Float64Lanes x, const std::int32_t* ids, std::int32_t id,
                                 std::int64_t count) {
    alignas(16) std::int32_t own[width] = {};
    for (std::int64_t i = 0; i < count; ++i) own[i] = ids[i];
    return keep_equal(keep(x, count), own, id);
  }
  static Float64Lanes load_accum(const double* p) { return {_mm256_loadu_pd(p)}; }
  static Float64Lanes load_accum(const double* p, std::int64_t count) {
    return {_mm256_maskload_pd(p, first64(count))};
  }
  void store_accum(double* p) const { _mm256_storeu_pd(p, v); }
  void store_accum(double* p, std::int64_t count) const {
    _mm256_maskstore_pd(p, first64(count), v);
  }
  static Float64Lanes load(Float64 /*t*/, const double* p) { return load_accum(p); }
  static Float64Lanes load(Float64 /*t*/, const double* p, std::int64_t count) {
    return load_accum(p, count);
  }
  static Float64Lanes load_one(Float64 /*t*/, const double* p) { return set(*p); }
  void store(Float64 /*t*/, double* p) const { store_accum(p); }
  void stream(Float64 /*t*/, double* p) const { _mm256_stream_pd(p, v); }
  static void end_streams() { _mm_sfence(); }
  void store(Float64 /*t*/, double* p, std::int64_t count) const { store_accum(p, count); }

  static Float64Lanes fma(Float64Lanes a, Float64Lanes b, Float64Lanes c) {
    return {_mm256_fmadd_pd(a.v, b.v, c.v)};
  }
  static Float64Lanes exp(Float64Lanes x) {
    alignas(32) double lane[width];
    _mm256_store_pd(lane, x.v);
    for (double& value : lane) value = __builtin_exp(value);
    return {_mm256_load_pd(lane)};
  }
  friend Float64Lanes operator+(Float64Lanes a, Float64Lanes b) {
    return {_mm256_add_pd(a.v, b.v)};
  }
  friend Float64Lanes operator-(Float64Lanes a, Float64Lanes b) {
    return {_mm256_sub_pd(a.v, b.v)};
  }
  friend Float64Lanes operator*(Float64Lanes a, Float64Lanes b) {
    return {_mm256_mul_pd(a.v, b.v)};
  }
  friend Float64Lanes operator/(Float64Lanes a, Float64Lanes b) {
    return {_mm256_div_pd(a.v, b.v)};
  }
  friend Mask64 operator<(Float64Lanes a, Float64Lanes b) {
    return {_mm256_cmp_pd(a.v, b.v, _CMP_LT_OQ)};
  }
  /// Whether each of `width` numbers is at least `least`.
  static Mask64 at_least(const std::uint16_t* numbers, std::uint32_t least) {
    const __m128i four = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(numbers));
    return {_mm256_castsi256_pd(_mm256_cmpgt_epi64(_mm256_cvtepu16_epi64(four),
                                                   _mm256_set1_epi64x(std::int64_t{least} - 1)))};
  }
  friend Mask64 is_nan(Float64Lanes a) { return {_mm256_cmp_pd(a.v, a.v, _CMP_UNORD_Q)}; }
  friend Mask64 not_nan(Float64Lanes a) { return {_mm256_cmp_pd(a.v, a.v, _CMP_ORD_Q)}; }
  /// Whether `best` is not NaN and `message` is larger or NaN.
  friend Mask64 above(Float64Lanes message, Float64Lanes best) {
    return Mask64{_mm256_cmp_pd(message.v, best.v, _CMP_NLE_UQ)} & not_nan(best);
  }
  friend Mask64 below(Float64Lanes message, Float64Lanes best) {
    return Mask64{_mm256_cmp_pd(message.v, best.v, _CMP_NGE_UQ)} & not_nan(best);
  }
  friend Float64Lanes select(Mask64 take, Float64Lanes yes, Float64Lanes no) {
    return {_mm256_blendv_pd(no.v, yes.v, take.m)};
  }
};

struct Float32Lanes {
  using Integers = Avx2Integers;
  using Scalar = float;
  static constexpr std::int64_t width = 8;
  static constexpr int max_blocks = 8;
  __m256 v;

  static Float32Lanes zero() { return {_mm256_setzero_ps()}; }
  static Float32Lanes set(float x) { return {_mm256_set1_ps(x)}; }
  static Float32Lanes set_bits(std::int64_t x) {
    return {_mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(x)))};
  }
  void store_bits(std::int64_t* p) const {
    alignas(32) std::int32_t lane[width];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lane), _mm256_castps_si256(v));
    for (std::int64_t i = 0; i < width; ++i) p[i] = lane[i];
  }
  float first() const { return _mm256_cvtss_f32(v); }
  float sum() const {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
  }
  /// Element i is the sum of the i-th of `width` contiguous vectors.
  static Float32Lanes sums(const float* p) {
    // Four vectors to one: element i of each half is the sum of that half of vector i.
    const auto halves = [](const float* q) {
      return _mm256_hadd_ps(_mm256_hadd_ps(_mm256_loadu_ps(q), _mm256_loadu_ps(q + 8)),
                            _mm256_hadd_ps(_mm256_loadu_ps(q + 16), _mm256_loadu_ps(q + 24)));
    };
    const __m256 low = halves(p), high = halves(p + 32);
    return {_mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20),
                          _mm256_permute2f128_ps(low, high, 0x31))};
  }
  /// Transposes `width` rows.
  static void transpose(Float32Lanes* rows) {
    __m256 halves[4][2];  // [i][j]: elements i and i + 4 of the rows from 4 j on
    const auto within = [&](int j) {
      const Float32Lanes* row = rows + 4 * j;
      const __m256d low01 = _mm256_castps_pd(_mm256_unpacklo_ps(row[0].v, row[1].v));
      const __m256d low23 = _mm256_castps_pd(_mm256_unpacklo_ps(row[2].v, row[3].v));
      const __m256d high01 = _mm256_castps_pd(_mm256_unpackhi_ps(row[0].v, row[1].v));
      const __m256d high23 = _mm256_castps_pd(_mm256_unpackhi_ps(row[2].v, row[3].v));
      halves[0][j] = _mm256_castpd_ps(_mm256_unpacklo_pd(low01, low23));
      halves[1][j] = _mm256_castpd_ps(_mm256_unpackhi_pd(low01, low23));
      halves[2][j] = _mm256_castpd_ps(_mm256_unpacklo_pd(high01, high23));
      halves[3][j] = _mm256_castpd_ps(_mm256_unpackhi_pd(high01, high23));
    };
    const auto across = [&](int i) {
      rows[i].v = _mm256_permute2f128_ps(halves[i][0], halves[i][1], 0x20);
      rows[i + 4].v = _mm256_permute2f128_ps(halves[i][0], halves[i][1], 0x31);
    };
    within(0);
    within(1);
    across(0);
    across(1);
    across(2);
    across(3);
  }
  static Float32Lanes keep(Float32Lanes x, std::int64_t count) {
    return {_mm256_and_ps(x.v, _mm256_castsi256_ps(first32(count)))};
  }
  /// The elements whose id is `id`, 0 elsewhere.
  static Float32Lanes keep_equal(Float32Lanes x, const std::int32_t* ids, std::int32_t id) {
    const __m256i own = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(ids));
    const __m256i equal = _mm256_cmpeq_epi32(own, _mm256_set1_epi32(id));
    return {_mm256_and_ps(x.v, _mm256_castsi256_ps(equal))};
  }
  static Float32Lanes keep_equal(Float32Lanes x, const std::int32_t* ids, std::int32_t id,
                                 std::int64_t count) {
    alignas(32) std::int32_t own[width] = {};
    for (std::int64_t i = 0; i < count; ++i) own[i] = ids[i];
    return keep_equal(keep(x, count), own, id);
  }
  static Float32Lanes load_accum(const float* p) { return {_mm256_loadu_ps(p)}; }
  static Float32Lanes load_accum(const float* p, std::int64_t count) {
    return {_mm256_maskload_ps(p, first32(count))};
  }
  void store_accum(float* p) const { _mm256_storeu_ps(p, v); }
  void store_accum(float* p, std::int64_t count) const {
    _mm256_maskstore_ps(p, first32(count), v);
  }

  static __m256 widen(BFloat16 /*t*/, __m128i bits) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  static __m256 widen(Float16 /*t*/, __m128i bits) { return _mm256_cvtph_ps(bits); }
  /// Rounds to nearest, ties to even; NaN becomes quiet.
  static __m128i narrow(BFloat16 /*t*/, __m256 v) {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256 nan = _mm256_cmp_ps(v, v, _CMP_UNORD_Q);
    const __m256i chosen =
        _mm256_srli_epi32(_mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(rounded),
                                                               _mm256_castsi256_ps(quiet), nan)),
                          16);
    return _mm_packus_epi32(_mm256_castsi256_si128(chosen), _mm256_extracti128_si256(chosen, 1));
  }
  static __m128i narrow(Float16 /*t*/, __m256 v) {
    return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }

  static Float32Lanes load(Float32 /*t*/, const float* p) { return load_accum(p); }
  static Float32Lanes load(Float32 /*t*/, const float* p, std::int64_t count) {
    return load_accum(p, count);
  }
  template <class T>
  static Float32Lanes load(T t, const typename T::Storage* p) {
    return {widen(t, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
  }
  template <class T>
  static Float32Lanes load(T t, const typename T::Storage* p, std::int64_t count) {
    alignas(16) std::uint16_t lane[width] = {};
    for (std::int64_t i = 0; i < count; ++i) lane[i] = p[i].bits;
    return {widen(t, _mm_load_si128(reinterpret_cast<const __m128i*>(lane)))};
  }
  /// The even and the odd of 16 numbers: half the instructions of converting them in order.
  static void load_pair(BFloat16 /*t*/, const BFloat16Bits* p, Float32Lanes& even,
                        Float32Lanes& odd) {
    const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    even = {_mm256_castsi256_ps(_mm256_slli_epi32(both, 16))};
    odd = {_mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32(-0x10000)))};
  }
  static void put_in_order(BFloat16 /*t*/, Float32Lanes& even, Float32Lanes& odd) {
    const __m256 low = _mm256_unpacklo_ps(even.v, odd.v);
    const __m256 high = _mm256_unpackhi_ps(even.v, odd.v);
    even = {_mm256_permute2f128_ps(low, high, 0x20)};
    odd = {_mm256_permute2f128_ps(low, high, 0x31)};
  }
  static Float32Lanes load_one(Float32 /*t*/, const float* p) { return set(*p); }
  template <class T>
  static Float32Lanes load_one(T t, const typename T::Storage* p) {
    return {widen(t, _mm_set1_epi16(static_cast<short>(p->bits)))};
  }
  void store(Float32 /*t*/, float* p) const { store_accum(p); }
  void stream(Float32 /*t*/, float* p) const { _mm256_stream_ps(p, v); }
  template <class T>
  void stream(T t, typename T::Storage* p) const {
    _mm_stream_si128(reinterpret_cast<__m128i*>(p), narrow(t, v));
  }
  static void end_streams() { _mm_sfence(); }
  void store(Float32 /*t*/, float* p, std::int64_t count) const { store_accum(p, count); }
  template <class T>
  void store(T t, typename T::Storage* p) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow(t, v));
  }
  template <class T>
  void store(T t, typename T::Storage* p, std::int64_t count) const {
    alignas(16) std::uint16_t lane[width];
    _mm_store_si128(reinterpret_cast<__m128i*>(lane), narrow(t, v));
    for (std::int64_t i = 0; i < count; ++i) p[i].bits = lane[i];
  }

  static Float32Lanes fma(Float32Lanes a, Float32Lanes b, Float32Lanes c) {
    return {_mm256_fmadd_ps(a.v, b.v, c.v)};
  }

  /// 2^n for integers n in [-252, 254], as the product of two powers in the range of the exponent:
  /// subnormal results are right.
  static __m256 times_power(__m256 p, __m256i n) {
    const __m256i low = _mm256_srai_epi32(n, 1), high = _mm256_sub_epi32(n, low);
    const auto power = [](__m256i e) {
      return _mm256_castsi256_ps(
          _mm256_slli_epi32(_mm256_add_epi32(e, _mm256_set1_epi32(127)), 23));
    };
    return _mm256_mul_ps(_mm256_mul_ps(p, power(low)), power(high));
  }

  /// e^x within 1 unit in the last place of float32: x = n ln 2 + r, a polynomial of degree 7 in r
  /// (Taylor's up to |r| <= ln 2 / 2: the next term is below 2^-27 of the sum), times 2^n.
  static Float32Lanes exp(Float32Lanes x) {
    // min and max return their second operand if one is NaN, so NaN passes.
    const __m256 clamped =
        _mm256_max_ps(_mm256_set1_ps(-110.0F), _mm256_min_ps(_mm256_set1_ps(90.0F), x.v));
    const __m256 n = _mm256_round_ps(_mm256_mul_ps(clamped, _mm256_set1_ps(1.44269504F)),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    // ln 2 in two parts: n times the first is exact.
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375F), clamped);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4F), r);
    __m256 p = _mm256_set1_ps(1.0F / 5040);
    for (const float c : {1.0F / 720, 1.0F / 120, 1.0F / 24, 1.0F / 6, 0.5F, 1.0F, 1.0F}) {
      p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(c));
    }
    return {times_power(p, _mm256_cvtps_epi32(n))};
  }
  friend Float32Lanes operator+(Float32Lanes a, Float32Lanes b) {
    return {_mm256_add_ps(a.v, b.v)};
  }
  friend Float32Lanes operator-(Float32Lanes a, Float32Lanes b) {
    return {_mm256_sub_ps(a.v, b.v)};
  }
  friend Float32Lanes operator*(Float32Lanes a, Float32Lanes b) {
    return {_mm256_mul_ps(a.v, b.v)};
  }
  friend Float32Lanes operator/(Float32Lanes a, Float32Lanes b) {
    return {_mm256_div_ps(a.v, b.v)};
  }
  friend Mask32 operator<(Float32Lanes a, Float32Lanes b) {
    return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)};
  }
  /// Whether each of `width` numbers is at least `least`.
  static Mask32 at_least(const std::uint16_t* numbers, std::uint32_t least) {
    const __m128i eight = _mm_loadu_si128(reinterpret_cast<const __m128i*>(numbers));
    return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(
        _mm256_cvtepu16_epi32(eight), _mm256_set1_epi32(static_cast<int>(least) - 1)))};
  }
  friend Mask32 is_nan(Float32Lanes a) { return {_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q)}; }
  friend Mask32 not_nan(Float32Lanes a) { return {_mm256_cmp_ps(a.v, a.v, _CMP_ORD_Q)}; }
  /// Whether `best` is not NaN and `message` is larger or NaN.
  friend Mask32 above(Float32Lanes message, Float32Lanes best) {
    return Mask32{_mm256_cmp_ps(message.v, best.v, _CMP_NLE_UQ)} & not_nan(best);
  }
  friend Mask32 below(Float32Lanes message, Float32Lanes best) {
    return Mask32{_mm256_cmp_ps(message.v, best.v, _CMP_NGE_UQ)} & not_nan(best);
  }
  friend Float32Lanes select(Mask32 take, Float32Lanes yes, Float32Lanes no) {
    return {_mm256_blendv_ps(no.v, yes.v, take.m)};
  }
};

}  // namespace

extern const CpuBackend kAvx2Backend;
const CpuBackend kAvx2Backend = Table<Float32Lanes, Float64Lanes>::backend("avx2");

}  // namespace mezzo::kernels
