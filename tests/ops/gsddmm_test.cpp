
#include "mezzo/ops/ops.h"

#include "support/gradcheck.h"
#include "support/reference.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

using mezzo::detail::for_each;

TEST(Gsddmm, combines_the_ends_of_each_edge) {
  for (const DTypeInfo& dtype : dtypes()) {
    for (const IdWidth width : {IdWidth::kInt32, IdWidth::kInt64}) {
      SCOPED_TRACE(dtype.name);
      const Topology g = four_nodes(width);
      const at::Tensor x = numbers({1, 2, 3, 4}, dtype.scalar);
      EXPECT_TRUE(exact(gsddmm(g, BinaryOp::kSub, x, x), numbers({-1, -2, -1, 1})));
      EXPECT_TRUE(exact(gsddmm(g, BinaryOp::kAdd, x, x), numbers({3, 4, 5, 7})));
      EXPECT_TRUE(exact(gsddmm(g, BinaryOp::kMul, x, x), numbers({2, 3, 6, 12})));
      EXPECT_TRUE(exact_rounded(gsddmm(g, BinaryOp::kDiv, x, x),
                                numbers({1.0 / 2, 1.0 / 3, 2.0 / 3, 4.0 / 3})));
      EXPECT_EQ(gsddmm(g, BinaryOp::kSub, x, x).scalar_type(), dtype.scalar);
    }
  }
}

TEST(Gsddmm, copies_either_end_to_the_edges) {
  const at::Tensor x = numbers({1, 2, 3, 4}, at::kHalf);
  const Topology g = four_nodes();
  EXPECT_TRUE(exact(gsddmm(g, BinaryOp::kCopyLhs, x, std::nullopt), numbers({1, 1, 2, 4})));
  EXPECT_TRUE(exact(gsddmm(g, BinaryOp::kCopyRhs, std::nullopt, x), numbers({2, 3, 3, 3})));
}

TEST(Gsddmm, writes_in_the_order_of_the_edges_whatever_the_stored_form) {
  const auto coo = topology_of({3, 0, 1, 0}, {2, 2, 2, 1}, 4, 4);
  const auto csc =
      Topology::from_csc(ids({0, 0, 1, 4, 4}), ids({0, 0, 1, 3}), 4, ids({3, 1, 2, 0}));
  const at::Tensor x = numbers({1, 2, 3, 4}, at::kFloat);
  for (const Topology& g : {coo, csc}) {
    EXPECT_TRUE(exact(gsddmm(g, BinaryOp::kSub, x, x), numbers({1, -2, -1, -1})));
  }
}

TEST(Gsddmm, dots_sum_the_last_dimension_and_broadcast_the_others) {
  const Topology g = random_topology(10, 8, 30, 41);
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const auto x = integers({10, 1, 3, 3}, dtype.scalar, 1),
               y = integers({8, 4, 1, 3}, dtype.scalar, 2);
    const auto out = gsddmm(g, BinaryOp::kDot, x, y);
    EXPECT_EQ(out.sizes(), (std::vector<std::int64_t>{30, 4, 3, 1}));
    const auto expected = message(g, BinaryOp::kDot, x, y, Target::kSrc, Target::kDst);
    EXPECT_TRUE(exact_rounded(out, expected.value));
  }
}

TEST(Gsddmm, long_dots_are_summed_in_the_accumulator) {
  const Topology g = topology_of({0, 1}, {1, 0}, 2, 2);
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const auto ones = at::ones({2, 4096}, on_device(dtype.scalar));
    EXPECT_TRUE(exact(gsddmm(g, BinaryOp::kDot, ones, ones), at::full({2, 1}, 4096)));
    const auto large =
        at::full({2, 2}, 300, on_device()).to(dtype.scalar);  // 300 * 300 exceeds float16
    const auto signs = numbers({300, -300, 300, -300}, dtype.scalar).reshape({2, 2});
    EXPECT_TRUE(exact(gsddmm(g, BinaryOp::kDot, large, signs), at::zeros({2, 1})));
    for (const std::int64_t width : {1, 2, 15, 16, 17, 63, 64, 65, 600}) {
      const auto x = uniform({2, width}, dtype.scalar, 3), y = uniform({2, width}, dtype.scalar, 4);
      const auto expected = message(g, BinaryOp::kDot, x, y, Target::kSrc, Target::kDst);
      EXPECT_TRUE(near(gsddmm(g, BinaryOp::kDot, x, y), expected, dtype.scalar))
          << "width " << width;
    }
  }
}

TEST(Gsddmm, a_dot_of_no_features_is_zero) {
  const Topology g = four_nodes();
  const auto none = at::empty({4, 0}, on_device(at::kFloat));
  EXPECT_TRUE(exact(gsddmm(g, BinaryOp::kDot, none, none), at::zeros({4, 1})));
}

/// Value and gradients of one op on numbers for which only the last rounding is inexact.
template <class Op>
void expect_op(const NamedTopology& g, const DTypeInfo& dtype, Target lhs_target, Target rhs_target,
               const std::vector<std::int64_t>& lhs, const std::vector<std::int64_t>& rhs) {
  SCOPED_TRACE(fmt::format("{} {}_{}_{} on {}, [{}] with [{}]", dtype.name,
                           name_of(Targets{}, lhs_target), Op::name, name_of(Targets{}, rhs_target),
                           g.name, fmt::join(lhs, ","), fmt::join(rhs, ",")));
  const auto x = leaf(integers(shape(g.topology, lhs_target, lhs), dtype.scalar, 1));
  const auto y = leaf(divisors(shape(g.topology, rhs_target, rhs), dtype.scalar, 2));
  const auto out = gsddmm(g.topology, Op::kind, x, y, lhs_target, rhs_target);
  EXPECT_EQ(out.scalar_type(), dtype.scalar);
  const auto expected = message(g.topology, Op::kind, x, y, lhs_target, rhs_target);
  ASSERT_TRUE(exact_rounded(out, expected.value));

  const auto grad = integers(out.sizes(), dtype.scalar, 3);
  out.backward(grad);
  const auto gradients = gsddmm_gradients(g.topology, Op::kind, x, y, grad, lhs_target, rhs_target);
  expect_operand_gradients(x, y, gradients, /*exactly=*/true);
}

TEST(Gsddmm, every_op_on_every_pair_of_targets_is_the_indexed_formula) {
  for (const NamedTopology& g : topologies()) {
    for (const DTypeInfo& dtype : dtypes()) {
      for_each(Targets{}, [&]<class Lhs>() {
        for_each(Targets{}, [&]<class Rhs>() {
          for_each(BinaryOps{},
                   [&]<class Op>() { expect_op<Op>(g, dtype, Lhs::kind, Rhs::kind, {5}, {5}); });
        });
      });
    }
  }
}

TEST(Gsddmm, broadcasts_and_sums_gradients_back_to_the_operands_shapes) {
  const NamedTopology g{"bipartite", random_topology(11, 7, 40, 42)};
  const std::vector<std::vector<std::int64_t>> shapes = {{2, 3, 4}, {2, 1, 4}, {3, 1}, {4}, {1}};
  for (const DTypeInfo& dtype : dtypes()) {
    for (const auto& lhs : shapes) {
      for (const auto& rhs : shapes) {
        for_each(BinaryOps{}, [&]<class Op>() {
          if (Op::kind == BinaryOp::kDot && lhs.back() != rhs.back()) return;
          expect_op<Op>(g, dtype, Target::kSrc, Target::kDst, lhs, rhs);
        });
      }
    }
  }
}

TEST(Gsddmm, takes_and_gives_scalar_features) {
  const NamedTopology g{"four nodes", four_nodes()};
  for (const DTypeInfo& dtype : dtypes()) {
    for_each(BinaryOps{}, [&]<class Op>() {
      if (Op::kind == BinaryOp::kDot) return;
      expect_op<Op>(g, dtype, Target::kSrc, Target::kEdge, {}, {});
      expect_op<Op>(g, dtype, Target::kSrc, Target::kDst, {3}, {});
    });
  }
}

TEST(Gsddmm, arbitrary_numbers_are_rounded_once) {
  for (const NamedTopology& g : topologies()) {
    for (const DTypeInfo& dtype : dtypes()) {
      for_each(BinaryOps{}, [&]<class Op>() {
        SCOPED_TRACE(fmt::format("{} {} on {}", dtype.name, Op::name, g.name));
        const auto x = leaf(uniform(shape(g.topology, Target::kSrc, {21}), dtype.scalar, 5));
        const auto y =
            leaf(uniform(shape(g.topology, Target::kDst, {21}), dtype.scalar, 6, 0.5, 2));
        const auto out = gsddmm(g.topology, Op::kind, x, y);
        const auto expected = message(g.topology, Op::kind, x, y, Target::kSrc, Target::kDst);
        EXPECT_TRUE(near(out, expected, dtype.scalar));
        const auto grad = uniform(out.sizes(), dtype.scalar, 7);
        out.backward(grad);
        const auto gradients =
            gsddmm_gradients(g.topology, Op::kind, x, y, grad, Target::kSrc, Target::kDst);
        expect_operand_gradients(x, y, gradients, /*exactly=*/false);
      });
    }
  }
}

TEST(Gsddmm, gradients_agree_with_finite_differences) {
  const Topology g = random_topology(5, 6, 15, 43);
  for_each(BinaryOps{}, [&]<class Op>() {
    SCOPED_TRACE(Op::name);
    if (!Op::uses_lhs || !Op::uses_rhs) return;
    EXPECT_TRUE(gradcheck(
        [&](const std::vector<at::Tensor>& in) { return gsddmm(g, Op::kind, in[0], in[1]); },
        {uniform({5, 2, 3}, at::kDouble, 8), uniform({6, 1, 3}, at::kDouble, 9, 1, 2)}));
  });
}

}  // namespace
}  // namespace mezzo::test
