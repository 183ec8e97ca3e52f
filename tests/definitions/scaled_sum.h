#pragma once

#include <cstdint>

#include "mezzo/kernels/reduce_op.h"

#include "tests/definitions/gspmm.h"

namespace mezzo::definition {

/// The sum of the sources' rows times src_scale and the weight of the edge, times dst_scale, and
/// the gradients of x and of the weight. x: [num_src, ...]; the factors, one number per row, may be
/// absent; grad: of the sum.
inline Result scaled_sum(const Edges& edges, const Array& x, const Array& weight,
                         const Array& src_scale, const Array& dst_scale, const Array& grad) {
  Array column = weight;  // a trailing 1 for each of x's dimensions
  if (weight.is_present()) column.sizes.assign(x.sizes.size(), 1);
  if (weight.is_present()) column.sizes[0] = edges.count();
  const Array rows = scaled_rows(x, src_scale);
  const Message message{.edges = edges,
                        .op = weight.is_present() ? BinaryOp::kMul : BinaryOp::kCopyLhs,
                        .lhs = rows,
                        .rhs = column};
  const Reduced sum = gspmm(message, ReduceOp::kSum);
  Gradients of = gspmm_gradients(message, ReduceOp::kSum, sum, scaled_rows(grad, dst_scale));
  of.rhs.value.sizes = of.rhs.size.sizes = weight.sizes;
  Result all{scaled_rows(sum.out, dst_scale), {scaled_rows(of.lhs, src_scale), of.rhs}};
  // The edges of a node times the elements of a row (in the weight's gradient), plus the factors.
  all.out.terms = all.gradients[0].terms = all.gradients[1].terms =
      edges.max_degree() * static_cast<double>(x.row_length()) + 6;
  return all;
}

}  // namespace mezzo::definition
