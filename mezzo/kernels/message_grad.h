#pragma once

#include <cstdint>

#include "mezzo/kernels/operand.h"

namespace mezzo::kernels {

/// The gradient of one operand of the messages, for both SpmmArgs and SddmmArgs:
///
///     out[t, :] = sum over entries, over elements that broadcast to it, of
///                 grad * grad_scale[grad row] * other_scale[other row] * d op / d operand
///
/// With `arg` alone, only elements whose arg is the edge of the entry count. With `product`, grad
/// is multiplied by the product of the row's other messages. t is the row, or with `per_entry` the
/// second id of the entry. Accumulated in `scratch`, rounded once. Deterministic.
struct MessageGradArgs {
  Entries entries;
  std::int64_t row_begin = 0, row_end = 0;
  Operand lhs, rhs;
  Operand grad;  ///< gradient of the messages; rows as long as the layout's result
  Layout layout;
  BinaryOp op = BinaryOp::kMul;
  bool of_lhs = true;  ///< which operand's gradient
  bool per_entry = false;
  DType dtype = DType::kFloat32;
  const void* arg = nullptr;  ///< ids, with shape and access of grad; or null
  /// Or null. Accumulator type, with shape and access of grad: the product of the nonzero messages;
  /// arg is then the number of zero messages, and both operands must have data.
  const void* product = nullptr;
  bool arg_is_int64 = false;
  Access edge = Access::kSecond;      ///< where the edge id of an entry is, for arg
  const void* grad_scale = nullptr;   ///< accumulator type [rows of grad]; or null
  const void* other_scale = nullptr;  ///< accumulator type [rows of the other operand]; or null
  void* out = nullptr;                ///< rows of the operand's length
  bool out_is_accum = false;          ///< stored in the accumulator type
  bool out_streams = false;           ///< non-temporal stores of edges' rows on the CPU
  void* scratch = nullptr;            ///< accumulator type [2 * operand length], one per thread
};

}  // namespace mezzo::kernels
