#pragma once

#include <ATen/ATen.h>

#include "mezzo/graph/functions.h"
#include "mezzo/kernels/binary_op.h"
#include "mezzo/kernels/reduce_op.h"

#include "tests/definitions/gsddmm.h"

namespace mezzo::test {

/// A message in libtorch operations; the rows must already broadcast.
inline at::Tensor combined(BinaryOp op, const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor message = definition::combined(op, a, b);
  return op == BinaryOp::kDot ? message.sum(-1, true) : message;
}

/// The user-defined form of a built-in reduction of "m" into "out". Chooses the first of equal
/// messages, as the built-in functions do.
inline ReduceFunction custom_reduce(ReduceOp op) {
  return [op](const NodeBatch& nodes) -> Columns {
    const at::Tensor& m = nodes.mailbox("m");
    const auto chosen = [&](const at::Tensor& place) { return m.gather(1, place).squeeze(1); };
    switch (op) {
      case ReduceOp::kSum:
        return {{"out", m.sum(1)}};
      case ReduceOp::kMean:
        return {{"out", m.mean(1)}};
      case ReduceOp::kMax:
        return {{"out", chosen(m.argmax(1, /*keepdim=*/true))}};
      case ReduceOp::kMin:
        return {{"out", chosen(m.argmin(1, /*keepdim=*/true))}};
      case ReduceOp::kProd:
        return {{"out", m.prod(1)}};
    }
    return {};
  };
}

}  // namespace mezzo::test
