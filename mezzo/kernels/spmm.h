#pragma once

#include <cstdint>

#include "mezzo/kernels/operand.h"
#include "mezzo/kernels/reduce_op.h"

namespace mezzo::kernels {

/// out[r, :] = row_scale[r] * reduce over the slots of r of op(lhs, rhs) * lhs_scale[lhs row], for
/// r in [row_begin, row_end). Messages and their reduction are in the accumulator type; one
/// rounding, at the store. Rows without slots become 0. Deterministic: slots are taken in order,
/// whatever the range. Max and min record in `arg` the second id (the edge) of the chosen slot, -1
/// in empty rows; prod the number of messages that are 0 (2 stands for more) and in `product` the
/// product of the others.
struct SpmmArgs {
  Slots slots;
  std::int64_t row_begin = 0, row_end = 0;
  Operand lhs, rhs;
  Layout layout;
  BinaryOp op = BinaryOp::kCopyLhs;
  ReduceOp reduce = ReduceOp::kSum;
  DType dtype = DType::kFloat32;
  const void* lhs_scale = nullptr;  ///< accumulator type, or null; sum with copy_lhs or mul only
  const void* row_scale = nullptr;  ///< accumulator type [rows], or null; likewise
  void* out = nullptr;              ///< [rows, out_length] of `dtype`
  bool out_wide = false;            ///< stored in the accumulator's type
  bool out_streams = false;         ///< past the CPU's caches, where rows are whole lines
  std::int64_t out_length = 0;
  void* arg = nullptr;      ///< [rows, out_length] ids, or null
  bool arg_wide = false;    ///< int64 rather than int32
  void* product = nullptr;  ///< accumulator type [rows, out_length], where prod has an arg
};

}  // namespace mezzo::kernels
