#pragma once

#include <bit>
#include <cstdint>

// Replaces CUDA's header of this name; see cuda_runtime.h.

struct __nv_bfloat16 {
  unsigned short bits;
};

inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  return {bits};
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) {
  return x.bits;
}

inline float __bfloat162float(__nv_bfloat16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}

/// To nearest, ties to even; a NaN becomes 0x7FFF, as on the device.
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  if (x != x) return {0x7FFF};
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return {static_cast<unsigned short>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)};
}
