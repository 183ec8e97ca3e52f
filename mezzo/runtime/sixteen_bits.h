#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

// Storage-only 16-bit dtypes, which are not used for sums; internal to the library.

namespace mezzo {

/// Whether the type is bfloat16 or float16. libtorch's isReducedFloatingType() also includes types
/// of 8 bits or fewer.
inline bool is_16_bit(c10::ScalarType type) {
  return type == c10::ScalarType::BFloat16 || type == c10::ScalarType::Half;
}

/// Whether the tensor has such a dtype; false if undefined.
inline bool is_16_bit(const at::Tensor& tensor) {
  return tensor.defined() && is_16_bit(tensor.scalar_type());
}

}  // namespace mezzo
