#pragma once

#include <ATen/ATen.h>

#include "support/reference.h"
#include "tests/definitions/gatv2_scores.h"

/// The definition of gatv2_scores for tensors.
namespace mezzo::test::gatv2 {

struct Operands {
  at::Tensor src, dst, attn;
};

/// The scores and the gradients of the operands for the output gradient `grad`.
inline Defined define(const Topology& g, const Operands& in, const at::Tensor& grad, double slope) {
  using definition::array_of;
  return definition::gatv2_scores(definition::edges_of(g), array_of(in.src), array_of(in.dst),
                                  array_of(in.attn), slope, array_of(grad));
}

}  // namespace mezzo::test::gatv2
