#pragma once

#include <cstdint>

#include "mezzo/kernels/operand.h"

namespace mezzo::kernels {

/// Softmax over the entries of each row in [row_begin, row_end), per element of `length`. The
/// logits of an entry are at its second id; its result goes to out_ids[entry] (null: to the entry).
/// Computed in the accumulator type, rounded once. Deterministic.
struct SoftmaxArgs {
  Entries entries;
  std::int64_t row_begin = 0, row_end = 0;
  DType dtype = DType::kFloat32;
  std::int64_t length = 0;
  const void* logits = nullptr;
  Ids out_ids;
  void* out = nullptr;
};

/// The gradient of the logits: out = value * (grad - sum over the row of value * grad).
struct SoftmaxGradArgs {
  Entries entries;
  std::int64_t row_begin = 0, row_end = 0;
  DType dtype = DType::kFloat32;
  std::int64_t length = 0;
  const void* value = nullptr;  ///< the forward's result
  const void* grad = nullptr;
  Ids out_ids;
  void* out = nullptr;
};

}  // namespace mezzo::kernels
