#pragma once

#include <cstdint>

#include "mezzo/kernels/operand.h"
#include "mezzo/kernels/reduce_op.h"

namespace mezzo::kernels {

/// out[r, :] = row_scale[r] * reduce over the entries of r of op(lhs, rhs) * lhs_scale[lhs row],
/// for r in [row_begin, row_end). Computed in the accumulator type, rounded once. Empty rows become
/// 0. Deterministic: entries are reduced in order, whatever the range. Max and min write to `arg`
/// the second id (edge) of the selected entry, -1 for empty rows. Prod writes to `arg` the number
/// of messages that are 0 (2 means two or more) and to `product` the product of the others.
struct SpmmArgs {
  Entries entries;
  std::int64_t row_begin = 0, row_end = 0;
  Operand lhs, rhs;
  Layout layout;
  BinaryOp op = BinaryOp::kCopyLhs;
  ReduceOp reduce = ReduceOp::kSum;
  DType dtype = DType::kFloat32;
  const void* lhs_scale = nullptr;  ///< accumulator type, or null; sum with copy_lhs or mul only
  const void* row_scale = nullptr;  ///< accumulator type [rows], or null; same ops
  void* out = nullptr;              ///< [rows, out_length] of `dtype`
  bool out_is_accum = false;        ///< stored in the accumulator type
  bool out_streams = false;  ///< non-temporal stores on the CPU if rows are whole cache lines
  std::int64_t out_length = 0;
  void* arg = nullptr;        ///< [rows, out_length] ids, or null
  bool arg_is_int64 = false;  ///< int64, else int32
  void* product = nullptr;    ///< accumulator type [rows, out_length]; for prod with arg
};

}  // namespace mezzo::kernels
