#pragma once

#include <optional>
#include <stdexcept>
#include <string>

#include <ATen/ATen.h>

#include "mezzo/graph/topology.h"
#include "mezzo/kernels/binary_op.h"

#include "fuzz/random_case.h"
#include "support/draw.h"
#include "support/reference.h"
#include "support/tensors.h"
#include "support/tolerance.h"

/// The checks of the fuzzer: each draws one case and throws Failure where the library is not what
/// the definition says.
namespace mezzo::test {

void check_reduction(Draw& draw);          ///< gspmm, and update_all on frames
void check_some_edges(Draw& draw);         ///< send_and_recv, pull and push
void check_apply_edges(Draw& draw);        ///< apply_edges, of all edges and of some
void check_apply_nodes(Draw& draw);        ///< apply_nodes, of all nodes and of some
void check_edge_message(Draw& draw);       ///< gsddmm
void check_softmax(Draw& draw);            ///< edge_softmax, of all edges and of some
void check_gat_attention(Draw& draw);      ///< gat_attention
void check_gatv2_scores(Draw& draw);       ///< gatv2_scores
void check_scaled_sum(Draw& draw);         ///< scaled_sum
void check_segment_reduce(Draw& draw);     ///< segment_reduce
void check_segment_softmax(Draw& draw);    ///< segment_softmax
void check_products(Draw& draw);           ///< segment_mm and gather_mm
void check_refused_operands(Draw& draw);   ///< what gspmm and gsddmm must refuse
void check_refused_structure(Draw& draw);  ///< what a Topology must refuse

/// What a case that went wrong throws.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline void require(const testing::AssertionResult& result, const std::string& what) {
  if (!result) throw Failure(what + ": " + result.message());
}

/// Within the arithmetic of one operator or, where results that are stored lie between operands and
/// result, within that of two of them and `operand_epsilon`, the relative error of what is stored.
inline void require_near(const at::Tensor& got, const Reference& expected, const std::string& what,
                         double operand_epsilon = 0) {
  SumBound bound = sum_bound(expected.abs_sum, (operand_epsilon > 0 ? 2 : 1) * expected.terms,
                             got.scalar_type());
  bound.operand_epsilon = operand_epsilon;
  require(near(got, expected.value, bound), what);
}

/// A gradient that was asked for is right; one that was not, or that has nothing to come from, is
/// absent (or zero, where libtorch fills it in).
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

/// A softmax of `logits`, which span `range`, over the edges of each node at the `side` ends: its
/// value `out` and the gradient that reaches the logits, a leaf.
void require_softmax(Draw& draw, const Topology& graph, Target side, const at::Tensor& logits,
                     const at::Tensor& out, double range, const std::string& what);

/// An operand of the definition: absent unless the op uses it.
inline Operand64 given(const std::optional<at::Tensor>& operand, bool used) {
  return used ? Operand64(operand->detach().to(at::kDouble)) : std::nullopt;
}

/// These numbers in some layout, three times of four with a gradient.
inline at::Tensor random_leaf(Draw& draw, const at::Tensor& values) {
  return in_some_layout(draw, values).detach().set_requires_grad(draw.below(4) != 0);
}

/// A gradient for `out`.
inline at::Tensor random_gradient(Draw& draw, const at::Tensor& out, Values values = Values::kAny) {
  return in_some_layout(draw, values == Values::kWhole
                                  ? integers(out.sizes(), out.scalar_type(), draw.seed())
                                  : uniform(out.sizes(), out.scalar_type(), draw.seed()));
}

/// The output's gradient if there is anything to differentiate.
inline std::optional<at::Tensor> backward(Draw& draw, const at::Tensor& out, Values values) {
  if (!out.requires_grad()) return std::nullopt;
  const at::Tensor grad = random_gradient(draw, out, values);
  out.backward(grad);
  return grad;
}

/// Of features, or of what stands beside them: 16-bit rows may have float32 scores and weights.
inline at::ScalarType dtype_beside(Draw& draw, at::ScalarType dtype) {
  const bool narrow = dtype == at::kHalf || dtype == at::kBFloat16;
  return narrow && draw.coin() ? at::kFloat : dtype;
}

}  // namespace mezzo::test
