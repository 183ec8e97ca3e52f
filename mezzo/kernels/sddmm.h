#pragma once

#include <cstdint>

#include "mezzo/kernels/operand.h"

namespace mezzo::kernels {

/// out[id of s in out_ids, :] = op(lhs, rhs) for every slot s of the rows [row_begin, row_end), or
/// out[s, :] without out_ids. Computed in the accumulator type, rounded once. Deterministic.
struct SddmmArgs {
  Slots slots;
  std::int64_t row_begin = 0, row_end = 0;
  Operand lhs, rhs;
  Layout layout;
  BinaryOp op = BinaryOp::kAdd;
  DType dtype = DType::kFloat32;
  Ids out_ids;
  void* out = nullptr;    ///< [slots, out_length]
  bool out_wide = false;  ///< stored in the accumulator's type
  std::int64_t out_length = 0;
};

}  // namespace mezzo::kernels
