#pragma once

#include <cstdint>

#include "mezzo/kernels/operand.h"

namespace mezzo::kernels {

/// Softmax over the slots of each row in [row_begin, row_end), per element of `length`; a slot's
/// logits stand at its second id, its result goes to its id in `out_ids` (null: to the slot).
/// Maximum, exponentials and their sum in the accumulator type, rounded once. Deterministic.
struct SoftmaxArgs {
  Slots slots;
  std::int64_t row_begin = 0, row_end = 0;
  DType dtype = DType::kFloat32;
  std::int64_t length = 0;
  const void* logits = nullptr;
  Ids out_ids;
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
  Ids out_ids;
  void* out = nullptr;
};

}  // namespace mezzo::kernels
