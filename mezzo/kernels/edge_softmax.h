#pragma once

#include <cstdint>

#include "mezzo/kernels/operand.h"

namespace mezzo {

/// Softmax over the slots of each row in [row_begin, row_end), per element of `length`; a slot's
/// data stand at its second id. Maximum, exponentials and their sum in the accumulator type,
/// rounded once. Deterministic.
struct SoftmaxArgs {
  Slots slots;
  std::int64_t row_begin = 0, row_end = 0;
  DType dtype = DType::kFloat32;
  std::int64_t length = 0;
  const void* logits = nullptr;
  void* out = nullptr;
};

/// out = value * (grad - sum over the row of value * grad): the gradient of the logits.
struct SoftmaxGradArgs {
  Slots slots;
  std::int64_t row_begin = 0, row_end = 0;
  DType dtype = DType::kFloat32;
  std::int64_t length = 0;
  const void* value = nullptr;  ///< the forward's result
  const void* grad = nullptr;
  void* out = nullptr;
};

}  // namespace mezzo
