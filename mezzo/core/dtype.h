#pragma once

#include <cstdint>
#include <string_view>

#include "mezzo/core/type_list.h"

namespace mezzo {

/// The dtypes of features. float16 and bfloat16 are storage types; arithmetic is in Accum.
enum class DType : std::uint8_t { kFloat32, kFloat64, kBFloat16, kFloat16 };

/// The bits of a bfloat16 number; no arithmetic.
struct BFloat16Bits {
  std::uint16_t bits;
};

/// The bits of an IEEE binary16 number; no arithmetic.
struct Float16Bits {
  std::uint16_t bits;
};

struct Float32 {
  static constexpr DType kind = DType::kFloat32;
  static constexpr std::string_view name = "float32";
  using Storage = float;
  using Accum = float;
  static constexpr double epsilon = 0x1p-23;  ///< gap between 1 and the next number
};

struct Float64 {
  static constexpr DType kind = DType::kFloat64;
  static constexpr std::string_view name = "float64";
  using Storage = double;
  using Accum = double;
  static constexpr double epsilon = 0x1p-52;
};

struct BFloat16 {
  static constexpr DType kind = DType::kBFloat16;
  static constexpr std::string_view name = "bfloat16";
  using Storage = BFloat16Bits;
  using Accum = float;
  static constexpr double epsilon = 0x1p-7;
};

struct Float16 {
  static constexpr DType kind = DType::kFloat16;
  static constexpr std::string_view name = "float16";
  using Storage = Float16Bits;
  using Accum = float;
  static constexpr double epsilon = 0x1p-10;
};

using DTypes = TypeList<Float32, Float64, BFloat16, Float16>;

}  // namespace mezzo
