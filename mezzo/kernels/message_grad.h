#pragma once

#include <cstdint>

#include "mezzo/kernels/operand.h"

namespace mezzo::kernels {

/// The gradient of one operand of the messages, for spmm and sddmm alike:
///
///     out[t, :] = sum over slots, over elements that broadcast to it, of
///                 grad * grad_scale[grad row] * other_scale[other row] * d op / d operand
///
/// where only those elements count whose `arg` entry (if arg is given) is the slot's edge; with
/// `product` instead grad is multiplied by the product of the row's other messages. t is the
/// row, or with `per_slot` the second id of the slot. Accumulated in `scratch`, rounded once.
/// Deterministic.
struct MessageGradArgs {
  Slots slots;
  std::int64_t row_begin = 0, row_end = 0;
  Operand lhs, rhs;
  Operand grad;  ///< gradient of the messages; rows of layout.out length
  Layout layout;
  BinaryOp op = BinaryOp::kMul;
  bool of_lhs = true;  ///< which operand's gradient
  bool per_slot = false;
  DType dtype = DType::kFloat32;
  const void* arg = nullptr;  ///< ids, shaped and accessed as grad; or null
  /// Accumulator type, shaped and accessed as grad: the product of the messages that are not 0, arg
  /// being the number of those that are; or null. Both operands must be given then.
  const void* product = nullptr;
  bool arg_wide = false;
  Access edge = Access::kSecond;      ///< where a slot's edge id is found, for arg
  const void* grad_scale = nullptr;   ///< accumulator type, by grad's row; or null
  const void* other_scale = nullptr;  ///< accumulator type, by the other operand's row; or null
  void* out = nullptr;                ///< rows of the operand's length
  bool out_wide = false;              ///< stored in the accumulator's type
  void* scratch = nullptr;            ///< accumulator type [2 * operand length], one a thread
};

}  // namespace mezzo::kernels
