#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

// Replaces CUDA's header of this name; see cuda_runtime.h.

struct __half {
  unsigned short bits;
};

inline __half __ushort_as_half(unsigned short bits) {
  return {bits};
}
inline unsigned short __half_as_ushort(__half x) {
  return x.bits;
}

inline float __half2float(__half x) {
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000) << 16;
  const std::uint32_t exponent = (x.bits >> 10) & 0x1F, mantissa = x.bits & 0x3FF;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000 | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float small = std::ldexp(static_cast<float>(mantissa), -24);
  return sign != 0 ? -small : small;
}

/// To nearest, ties to even; a NaN becomes 0x7FFF, as on the device.
inline __half __float2half_rn(float x) {
  if (x != x) return {0x7FFF};
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<unsigned short>(bits >> 16 & 0x8000);
  const float size = std::fabs(x);
  if (size >= 65520.0f) return {static_cast<unsigned short>(sign | 0x7C00)};
  // Steps of the result: 2^-24 below 2^-14, else 2^-10 of the power of 2 below. An integer of steps
  // is what nearbyint rounds to, ties to even; one step too many carries into the exponent.
  const int exponent = size < 0x1p-14f ? -14 : std::ilogb(size);
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(size, 10 - exponent)));
  return {static_cast<unsigned short>(sign | (((exponent + 14) << 10) + steps))};
}
