#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "mezzo/graph/topology.h"
#include "mezzo/kernels/binary_op.h"

#include "fuzz/random_case.h"
#include "support/draw.h"
#include "support/reference.h"
#include "support/tensors.h"
#include "support/tolerance.h"

/// The checks of the fuzzer: each draws one case and throws Failure if the library differs from the
/// definition.
namespace mezzo::test {

void check_reduction(Draw& draw);          ///< gspmm and update_all
void check_some_edges(Draw& draw);         ///< send_and_recv, pull and push
void check_apply_edges(Draw& draw);        ///< apply_edges, all or selected edges
void check_apply_nodes(Draw& draw);        ///< apply_nodes, all or selected nodes
void check_edge_message(Draw& draw);       ///< gsddmm
void check_softmax(Draw& draw);            ///< edge_softmax, all or selected edges
void check_gat_attention(Draw& draw);      ///< gat_attention
void check_gatv2_scores(Draw& draw);       ///< gatv2_scores
void check_scaled_sum(Draw& draw);         ///< scaled_sum
void check_segment_reduce(Draw& draw);     ///< segment_reduce
void check_segment_softmax(Draw& draw);    ///< segment_softmax
void check_products(Draw& draw);           ///< segment_mm and gather_mm
void check_refused_operands(Draw& draw);   ///< invalid operands of gspmm and gsddmm
void check_refused_structure(Draw& draw);  ///< invalid structures of a Topology

/// Thrown by a failed case.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline void require(const testing::AssertionResult& result, const std::string& what) {
  if (!result) throw Failure(what + ": " + result.message());
}

/// Requires the error bound of one operator or, with stored intermediates, that of two operators
/// plus `operand_epsilon`, the relative error of the intermediates.
inline void require_near(const at::Tensor& got, const Reference& expected, const std::string& what,
                         double operand_epsilon = 0) {
  SumBound bound = sum_bound(expected.abs_sum, (operand_epsilon > 0 ? 2 : 1) * expected.terms,
                             got.scalar_type());
  bound.operand_epsilon = operand_epsilon;
  require(near(got, expected.value, bound), what);
}

/// Requires a correct gradient if the operand requires one and is used; otherwise no gradient (or
/// zero if libtorch fills it in).
inline void require_gradient(const std::optional<at::Tensor>& operand, bool used,
                             const Reference& expected, const std::string& what,
                             double operand_epsilon = 0) {
  if (!operand) return;
  const at::Tensor& grad = operand->grad();
  if (operand->requires_grad() && used) {
    if (!grad.defined()) throw Failure(what + ": no gradient");
    if (grad.scalar_type() != operand->scalar_type()) throw Failure(what + ": another dtype");
    require_near(grad, expected, what, operand_epsilon);
  } else if (grad.defined()) {
    require(exact(grad, at::zeros_like(grad)), what + ", which is not due");
  }
}

/// Checks a softmax of the leaf `logits`, which span `range`, over the edges of each node at the
/// `side` ends: its value `out` and the gradient of the logits.
void require_softmax(Draw& draw, const Topology& graph, Target side, const at::Tensor& logits,
                     const at::Tensor& out, double range, const std::string& what);

/// An operand of the definition: absent unless the op uses it.
inline Operand64 given(const std::optional<at::Tensor>& operand, bool used) {
  return used ? Operand64(operand->detach().to(at::kDouble)) : std::nullopt;
}

/// A leaf with these numbers in a random layout; requires a gradient with probability 3/4.
inline at::Tensor random_leaf(Draw& draw, const at::Tensor& values) {
  return in_some_layout(draw, values).detach().set_requires_grad(draw.below(4) != 0);
}

/// A gradient for `out`.
inline at::Tensor random_gradient(Draw& draw, const at::Tensor& out, Values values = Values::kAny) {
  return in_some_layout(draw, values == Values::kWhole
                                  ? integers(out.sizes(), out.scalar_type(), draw.seed())
                                  : uniform(out.sizes(), out.scalar_type(), draw.seed()));
}

/// Runs backward if `out` requires a gradient. Returns the output's gradient.
inline std::optional<at::Tensor> backward(Draw& draw, const at::Tensor& out, Values values) {
  if (!out.requires_grad()) return std::nullopt;
  const at::Tensor grad = random_gradient(draw, out, values);
  out.backward(grad);
  return grad;
}

/// Requires a result of `dtype` as defined and, for a random gradient of it, those of the operands.
/// define(grad): the definition.
template <class Define>
void require_defined(Draw& draw, const at::Tensor& out, at::ScalarType dtype,
                     const std::vector<at::Tensor>& operands, Define define,
                     const std::string& what) {
  if (out.scalar_type() != dtype) throw Failure(what + ": result of another dtype");
  const at::Tensor grad = random_gradient(draw, out);
  const Defined expected = define(grad);
  require_near(out, expected.out, what);
  if (!out.requires_grad()) return;
  out.backward(grad);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i].defined()) continue;
    require_gradient(operands[i], true, expected.gradients[i],
                     fmt::format("gradient {} of the {}", i, what));
  }
}

/// The dtype of scores and weights: 16-bit rows may have float32 ones.
inline at::ScalarType dtype_beside(Draw& draw, at::ScalarType dtype) {
  const bool narrow = dtype == at::kHalf || dtype == at::kBFloat16;
  return narrow && draw.coin() ? at::kFloat : dtype;
}

}  // namespace mezzo::test
