#pragma once

#include <ATen/ATen.h>

#include "mezzo/kernels/binary_op.h"

namespace mezzo::test {

/// A message in libtorch operations; the rows must already broadcast.
inline at::Tensor combined(BinaryOp op, const at::Tensor& a, const at::Tensor& b) {
  switch (op) {
    case BinaryOp::kAdd:
      return a + b;
    case BinaryOp::kSub:
      return a - b;
    case BinaryOp::kMul:
      return a * b;
    case BinaryOp::kDiv:
      return a / b;
    case BinaryOp::kDot:
      return (a * b).sum(-1, true);
    case BinaryOp::kCopyLhs:
      return a;
    case BinaryOp::kCopyRhs:
      return b;
  }
  return {};
}

}  // namespace mezzo::test
