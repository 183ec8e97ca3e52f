#pragma once

#include <cstdint>
#include <vector>

#include <c10/util/ArrayRef.h>

#include "mezzo/kernels/binary_op.h"
#include "mezzo/kernels/operand.h"

namespace mezzo::detail {

/// The broadcasting of two operands' trailing dimensions, as a Layout over merged dimensions.
class Broadcast {
 public:
  /// lhs, rhs: the operands' shapes without the row dimension, aligned at the last dimension. A
  /// size of 1 repeats. For kDot the last dimensions must be equal, and the result's is 1. Throws
  /// InvalidArgument, which starts with `what` and shows both shapes, if they do not broadcast.
  Broadcast(const char* what, BinaryOp op, c10::IntArrayRef lhs, c10::IntArrayRef rhs);

  const std::vector<std::int64_t>& out_shape() const { return out_shape_; }
  std::int64_t out_length() const { return out_length_; }
  /// The op of the kernel: a dot over one element is kMul.
  BinaryOp op() const { return op_; }
  /// Points into this object.
  kernels::Layout layout() const;

 private:
  struct Dimension {
    std::int64_t size, lhs, rhs, out;  // strides, 0 if the operand repeats
  };
  void merge(std::vector<Dimension> dimensions);
  void tabulate(const std::vector<Dimension>& outer);

  BinaryOp op_;
  std::vector<std::int64_t> out_shape_;
  std::int64_t out_length_ = 1;
  std::int64_t inner_ = 1, lhs_step_ = 1, rhs_step_ = 1, out_step_ = 1;
  std::vector<std::int64_t> lhs_offset_, rhs_offset_, out_offset_;
};

}  // namespace mezzo::detail
