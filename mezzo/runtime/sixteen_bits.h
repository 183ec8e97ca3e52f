#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

// The dtypes in which rows are stored and not summed; internal to the library.

namespace mezzo {

/// Whether the type is bfloat16 or float16. libtorch's isReducedFloatingType() also has those of 8
/// bits and fewer.
inline bool is_16_bit(c10::ScalarType type) {
  return type == c10::ScalarType::BFloat16 || type == c10::ScalarType::Half;
}

/// The same of the numbers of a tensor; false for an undefined one.
inline bool is_16_bit(const at::Tensor& tensor) {
  return tensor.defined() && is_16_bit(tensor.scalar_type());
}

}  // namespace mezzo
