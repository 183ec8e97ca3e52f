// The reference backend: vectors of one element, the compiler's baseline instruction set. Like
// every backend it defines its vectors in an unnamed namespace: templates over them have internal
// linkage, so the linker cannot replace them by code for another instruction set.
#include <bit>
#include <cmath>
#include <cstdint>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "mezzo/kernels/cpu/table.h"

namespace mezzo::kernels {
namespace {

float half_to_float(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16, exponent = (bits >> 10) & 31U;
  const std::uint32_t mantissa = bits & 1023U;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000U | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;  // subnormal: exact in float32
  return sign != 0 ? -magnitude : magnitude;
}

std::uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {  // NaN becomes quiet
    return static_cast<std::uint16_t>(sign | 0x7E00U | ((magnitude >> 13) & 0x1FFU));
  }
  if (magnitude >= 0x477FF000U) return static_cast<std::uint16_t>(sign | 0x7C00U);  // >= 65520
  if (magnitude < 0x38800000U) {  // below 2^-14: adding 0.5 shifts the subnormal to the low bits
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000U));
  }
  magnitude += 0xFFFU + ((magnitude >> 13) & 1U) - (112U << 23);  // to nearest, ties to even
  return static_cast<std::uint16_t>(sign | magnitude >> 13);
}

std::uint16_t float_to_bfloat(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>(bits >> 16 | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

/// Vectors of 16 bytes, which the compiler supports on any instruction set.
struct BaselineIntegers {
  static constexpr int kLanes = 2;
  using UInt64s [[gnu::vector_size(16)]] = std::uint64_t;
  using Int32s [[gnu::vector_size(16)]] = std::int32_t;

  static UInt64s counted() { return UInt64s{0, 1}; }
  static Int32s places() { return Int32s{0, 1, 2, 3}; }
  static UInt64s products(UInt64s a, UInt64s b) {
#ifdef __SSE2__
    return reinterpret_cast<UInt64s>(
        _mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#else
    return (a & 0xFFFFFFFF) * (b & 0xFFFFFFFF);
#endif
  }
  static UInt64s exclusive_or(UInt64s a, UInt64s b, UInt64s c) {
    return a ^ b ^ c;
  }
  static void store_in_turn(UInt64s low, UInt64s high, void* to) {
    const UInt64s turns[2] = {{low[0], high[0]}, {low[1], high[1]}};
    __builtin_memcpy(to, turns, sizeof(turns));
  }
  template <int kCapacity>
  static bool sort(const std::int32_t* values, std::int64_t count, std::int32_t* sorted) {
    return rank_sort<BaselineIntegers, kCapacity>(values, count, sorted);
  }
};

template <class Number, class Bits>
struct Lanes {
  using Integers = BaselineIntegers;
  using Scalar = Number;
  static constexpr std::int64_t width = 1;
  static constexpr int max_blocks = 8;
  Number v;

  static Lanes zero() { return {0}; }
  static Lanes set(Number x) { return {x}; }
  static Lanes set_bits(std::int64_t x) { return {std::bit_cast<Number>(static_cast<Bits>(x))}; }
  void store_bits(std::int64_t* p) const { *p = std::bit_cast<Bits>(v); }
  Number first() const { return v; }
  Number sum() const { return v; }
  static Lanes sums(const Number* p) { return {*p}; }
  static void transpose(Lanes* /*rows*/) {}
  static Lanes keep(Lanes x, std::int64_t /*count*/) { return x; }
  static Lanes keep_equal(Lanes x, const std::int32_t* ids, std::int32_t id) {
    return *ids == id ? x : zero();
  }
  static Lanes keep_equal(Lanes x, const std::int32_t* ids, std::int32_t id,
                          std::int64_t /*count*/) {
    return keep_equal(x, ids, id);
  }

  static Lanes load_accum(const Number* p) { return {*p}; }
  static Lanes load_accum(const Number* p, std::int64_t /*count*/) { return {*p}; }
  void store_accum(Number* p) const { *p = v; }
  void store_accum(Number* p, std::int64_t /*count*/) const { *p = v; }

  static Lanes load(Float32 /*t*/, const float* p) { return {*p}; }
  static Lanes load(Float64 /*t*/, const double* p) { return {static_cast<Number>(*p)}; }
  static Lanes load(Float16 /*t*/, const Float16Bits* p) { return {half_to_float(p->bits)}; }
  static Lanes load(BFloat16 /*t*/, const BFloat16Bits* p) {
    return {std::bit_cast<float>(std::uint32_t{p->bits} << 16)};
  }
  template <class T>
  static Lanes load(T t, const typename T::Storage* p, std::int64_t /*count*/) {
    return load(t, p);
  }
  template <class T>
  static Lanes load_one(T t, const typename T::Storage* p) {
    return load(t, p);
  }
  void store(Float32 /*t*/, float* p) const { *p = static_cast<float>(v); }
  void store(Float64 /*t*/, double* p) const { *p = v; }
  void store(Float16 /*t*/, Float16Bits* p) const {
    p->bits = float_to_half(static_cast<float>(v));
  }
  void store(BFloat16 /*t*/, BFloat16Bits* p) const {
    p->bits = float_to_bfloat(static_cast<float>(v));
  }
  template <class T>
  void store(T t, typename T::Storage* p, std::int64_t /*count*/) const {
    store(t, p);
  }
  template <class T>
  void stream(T t, typename T::Storage* p) const {
    store(t, p);
  }
  static void end_streams() {}

  static Lanes fma(Lanes a, Lanes b, Lanes c) { return {a.v * b.v + c.v}; }
  static Lanes exp(Lanes x) { return {std::exp(x.v)}; }
  friend Lanes operator+(Lanes a, Lanes b) { return {a.v + b.v}; }
  friend Lanes operator-(Lanes a, Lanes b) { return {a.v - b.v}; }
  friend Lanes operator*(Lanes a, Lanes b) { return {a.v * b.v}; }
  friend Lanes operator/(Lanes a, Lanes b) { return {a.v / b.v}; }
  friend bool operator<(Lanes a, Lanes b) { return a.v < b.v; }
  /// Whether each of `width` numbers is at least `least`.
  static bool at_least(const std::uint16_t* numbers, std::uint32_t least) {
    return *numbers >= least;
  }
  friend bool is_nan(Lanes a) { return a.v != a.v; }
  friend bool not_nan(Lanes a) { return a.v == a.v; }
  /// Whether `best` is not NaN and `message` is larger or NaN.
  friend bool above(Lanes message, Lanes best) { return not_nan(best) && !(message.v <= best.v); }
  friend bool below(Lanes message, Lanes best) { return not_nan(best) && !(message.v >= best.v); }
  friend Lanes select(bool take, Lanes yes, Lanes no) { return take ? yes : no; }
};

}  // namespace

extern const CpuBackend kScalarBackend;
const CpuBackend kScalarBackend =
    Table<Lanes<float, std::int32_t>, Lanes<double, std::int64_t>>::backend("scalar");

}  // namespace mezzo::kernels
