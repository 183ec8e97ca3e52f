#pragma once

#include <cstdint>
#include <optional>

#include <ATen/ATen.h>

#include "mezzo/graph/topology.h"
#include "mezzo/kernels/binary_op.h"
#include "mezzo/kernels/reduce_op.h"

#include "support/tensors.h"
#include "support/tolerance.h"
#include "tests/definitions/edge_softmax.h"
#include "tests/definitions/gsddmm.h"
#include "tests/definitions/gspmm.h"
#include "tests/definitions/tensors.h"

/// The definitions (definitions/) for tensors on any device; they return tensors on the test
/// device.
namespace mezzo::test {

/// A result in float64 and, per element, the sum of its absolute terms. Undefined if absent.
struct Reference {
  at::Tensor value;
  at::Tensor abs_sum;
  double terms = 1;         ///< an upper bound of the number of terms of any element
  at::Tensor winners = {};  ///< int64, of max and min: the chosen edge, -1 without in-edges

  Reference() = default;
  Reference(const definition::Sums& sums)  // NOLINT(google-explicit-constructor)
      : value(definition::tensor_of(sums.value)),
        abs_sum(definition::tensor_of(sums.size)),
        terms(sums.terms) {
    if (!value.defined()) return;
    value = on_device(value);
    abs_sum = on_device(abs_sum);
  }
};

/// A result and the gradients of the operands.
struct Defined {
  Reference out;
  std::vector<Reference> gradients;

  Defined(const definition::Result& result)  // NOLINT(google-explicit-constructor)
      : out(result.out), gradients(result.gradients.begin(), result.gradients.end()) {}
};

/// Within the bound of the definition's sums, stored as `storage`.
inline testing::AssertionResult near(const at::Tensor& got, const Reference& reference,
                                     at::ScalarType storage) {
  return near(got, reference.value, sum_bound(reference.abs_sum, reference.terms, storage));
}

/// The definition rounded once if `exactly`, or else within the bound of its sums.
inline testing::AssertionResult agrees(const at::Tensor& got, const Reference& reference,
                                       bool exactly) {
  if (!got.defined()) return testing::AssertionFailure() << "got an undefined tensor";
  if (exactly) return exact_rounded(got, reference.value);
  return near(got, reference, got.scalar_type());
}

using Operand64 = std::optional<at::Tensor>;

/// The ids of the rows that the edges read from an operand of `target`: int64 [E], on the graph's
/// device.
inline at::Tensor row_ids(const Topology& topology, Target target) {
  switch (target) {
    case Target::kSrc:
      return topology.src().to(at::kLong);
    case Target::kDst:
      return topology.dst().to(at::kLong);
    case Target::kEdge:
      return at::arange(topology.num_edges(),
                        at::TensorOptions(at::kLong).device(topology.device()));
  }
  return {};
}

namespace internal {

inline double max_degree(const Topology& topology) {
  return definition::edges_of(topology).max_degree();
}

/// define(message) of these arguments.
template <class Define>
auto defined(const Topology& topology, BinaryOp op, const Operand64& lhs, const Operand64& rhs,
             Target lhs_target, Target rhs_target, Define define) {
  const definition::Edges edges = definition::edges_of(topology);
  const definition::Array a = definition::array_of(lhs.value_or(at::Tensor())),
                          b = definition::array_of(rhs.value_or(at::Tensor()));
  return define(definition::Message{.edges = edges,
                                    .op = op,
                                    .lhs = a,
                                    .rhs = b,
                                    .lhs_target = lhs_target,
                                    .rhs_target = rhs_target});
}

}  // namespace internal

/// The message of every edge: [E, trailing], for dot the last dimension summed to 1.
inline Reference message(const Topology& topology, BinaryOp op, const Operand64& lhs,
                         const Operand64& rhs, Target lhs_target = Target::kSrc,
                         Target rhs_target = Target::kEdge) {
  return internal::defined(topology, op, lhs, rhs, lhs_target, rhs_target,
                           [](const definition::Message& m) { return definition::gsddmm(m); });
}

/// Whether a reduction of whole numbers rounds before the store: the mean divides, and a product of
/// many leaves the whole numbers that float32 holds.
inline bool rounds_between(ReduceOp reduce) {
  return reduce == ReduceOp::kMean || reduce == ReduceOp::kProd;
}

/// Message and reduction.
inline Reference gspmm_reference(const Topology& topology, BinaryOp op, ReduceOp reduce,
                                 const Operand64& lhs, const Operand64& rhs,
                                 Target lhs_target = Target::kSrc,
                                 Target rhs_target = Target::kEdge) {
  return internal::defined(topology, op, lhs, rhs, lhs_target, rhs_target,
                           [reduce](const definition::Message& m) {
                             const definition::Reduced reduced = definition::gspmm(m, reduce);
                             Reference out = reduced.out;
                             out.winners = ids(reduced.winners).view(out.value.sizes());
                             return out;
                           });
}

/// The gradients of both operands (undefined for one that the op does not use).
struct GradientReference {
  Reference lhs, rhs;
};

/// Expects that the leaf has this gradient, if one is defined, of its own dtype.
inline void expect_gradient(const at::Tensor& leaf, const Reference& gradient, bool exactly) {
  if (!gradient.value.defined()) return;
  EXPECT_TRUE(agrees(leaf.grad(), gradient, exactly));
  EXPECT_EQ(leaf.grad().scalar_type(), leaf.scalar_type());
}

inline void expect_operand_gradients(const at::Tensor& lhs, const at::Tensor& rhs,
                                     const GradientReference& expected, bool exactly) {
  SCOPED_TRACE("gradients of lhs and rhs");
  expect_gradient(lhs, expected.lhs, exactly);
  expect_gradient(rhs, expected.rhs, exactly);
}

/// Compares the result of an operator and the gradients of its operands.
inline void expect_defined(const at::Tensor& out, const std::vector<at::Tensor>& leaves,
                           const Defined& expected, bool exactly) {
  EXPECT_TRUE(agrees(out, expected.out, exactly));
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    SCOPED_TRACE(fmt::format("gradient of operand {}", i));
    expect_gradient(leaves[i], expected.gradients[i], exactly);
  }
}

/// Of gspmm.
inline GradientReference gspmm_gradients(const Topology& topology, BinaryOp op, ReduceOp reduce,
                                         const Operand64& lhs, const Operand64& rhs,
                                         const at::Tensor& grad, Target lhs_target = Target::kSrc,
                                         Target rhs_target = Target::kEdge) {
  return internal::defined(topology, op, lhs, rhs, lhs_target, rhs_target,
                           [&](const definition::Message& m) -> GradientReference {
                             const definition::Gradients both = definition::gspmm_gradients(
                                 m, reduce, definition::gspmm(m, reduce),
                                 definition::array_of(grad));
                             return {both.lhs, both.rhs};
                           });
}

/// Of gsddmm.
inline GradientReference gsddmm_gradients(const Topology& topology, BinaryOp op,
                                          const Operand64& lhs, const Operand64& rhs,
                                          const at::Tensor& grad, Target lhs_target,
                                          Target rhs_target) {
  return internal::defined(topology, op, lhs, rhs, lhs_target, rhs_target,
                           [&](const definition::Message& m) -> GradientReference {
                             const definition::Gradients both =
                                 definition::gsddmm_gradients(m, definition::array_of(grad));
                             return {both.lhs, both.rhs};
                           });
}

/// Softmax over the edges of each node at the `side` ends. abs_sum is the value itself.
inline Reference softmax_reference(const Topology& topology, const at::Tensor& logits,
                                   Target side = Target::kDst) {
  return definition::edge_softmax(definition::edges_of(topology), definition::array_of(logits),
                                  side);
}

/// The gradient of the logits, from that of the softmax.
inline Reference softmax_gradient(const Topology& topology, const at::Tensor& logits,
                                  const at::Tensor& grad, Target side = Target::kDst) {
  const definition::Edges edges = definition::edges_of(topology);
  const auto p = definition::edge_softmax(edges, definition::array_of(logits), side);
  return definition::edge_softmax_gradient(edges, p.value, definition::array_of(grad), side);
}

}  // namespace mezzo::test
