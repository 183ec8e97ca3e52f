#pragma once

#include "mezzo/graph/topology.h"

#include "support/nn_reference.h"
#include "support/running_error.h"

/// References for multi-head attention layers, as products with dense matrices of at::Tensor or
/// Rounded. Rows concatenate the heads.
namespace mezzo::test {

/// [num_dst, E]: 1 if the edge runs into the node.
inline at::Tensor edges_into_nodes(const Topology& topology) {
  const at::Tensor nodes = at::arange(topology.num_dst(), on_device(at::kLong)).unsqueeze(1);
  return nodes.eq(topology.dst().to(at::kLong)).to(at::kDouble);
}

/// [heads, heads * F] from [heads, F]: a block-diagonal weight that computes one score per head.
inline at::Tensor weight_of_heads(const at::Tensor& numbers_of_heads) {
  return at::block_diag(numbers_of_heads.unsqueeze(1).unbind(0));
}

/// The sum into each destination of the messages [E, heads * F] by the softmax of `scores`
/// [E, heads] over the edges into it: [num_dst, heads, F].
template <class Number>
Number attended(const Topology& topology, const Number& scores, const Number& messages) {
  const at::Tensor into = edges_into_nodes(topology);
  const Number share = softmax_by(scores, [&](const at::Tensor& powers) {
    return at::matmul(into.t(), at::matmul(into, powers));
  });
  const std::int64_t heads = scores.size(1), width = messages.size(1) / heads;
  const at::Tensor head_of_column =
      at::arange(heads, on_device(at::kLong)).repeat_interleave(width);
  return matmul(into, share.index_select(1, head_of_column) * messages)
      .reshape({topology.num_dst(), heads, width});
}

}  // namespace mezzo::test
