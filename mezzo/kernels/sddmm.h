#pragma once

#include <cstdint>

#include "mezzo/kernels/operand.h"

namespace mezzo::kernels {

/// out[out_ids[s], :] = op(lhs, rhs) for every entry s of the rows [row_begin, row_end). Computed
/// in the accumulator type, rounded once. Deterministic.
struct SddmmArgs {
  Entries entries;
  std::int64_t row_begin = 0, row_end = 0;
  Operand lhs, rhs;
  Layout layout;
  BinaryOp op = BinaryOp::kAdd;
  DType dtype = DType::kFloat32;
  Ids out_ids;
  void* out = nullptr;        ///< [entries, out_length]
  bool out_is_accum = false;  ///< stored in the accumulator type
  std::int64_t out_length = 0;
};

}  // namespace mezzo::kernels
