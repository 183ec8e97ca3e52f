
#include "mezzo/ops/ops.h"

#include "support/gradcheck.h"
#include "support/reference.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

using mezzo::detail::for_each;

/// The gradient of gspmm(copy_u) by x for an output gradient of ones.
at::Tensor copy_u_gradient(const Topology& g, ReduceOp reduce_op, const at::Tensor& x) {
  const at::Tensor input = leaf(x);
  const at::Tensor out = gspmm(g, BinaryOp::kCopyLhs, reduce_op, input, std::nullopt);
  out.backward(at::ones_like(out));
  return input.grad();
}

TEST(GspmmGradient, of_a_mean_keeps_the_inverse_degrees_with_the_graph) {
  const Topology g = random_topology(20, 30, 90, 1);
  copy_u_gradient(g, ReduceOp::kMean, at::ones({20, 2}, on_device(at::kBFloat16)));
  const std::int64_t bytes = g.memory_bytes();
  g.in_degree_factors(DegreePower::kInverse, at::kFloat);
  EXPECT_EQ(g.memory_bytes(), bytes);
}

TEST(GspmmGradient, of_a_tie_goes_to_the_lowest_edge_id) {
  // Edges 1 (0->2) and 2 (1->2) tie at node 2: edge 1, from node 0, gets the whole gradient.
  for (const DTypeInfo& dtype : dtypes()) {
    for (int repeat = 0; repeat < 3; ++repeat) {
      SCOPED_TRACE(dtype.name);
      const at::Tensor x = numbers({5, 5, 1, 1}, dtype.scalar);
      EXPECT_TRUE(exact(copy_u_gradient(four_nodes(), ReduceOp::kMax, x), numbers({2, 0, 0, 0})));
    }
  }
}

TEST(GspmmGradient, of_a_tie_follows_the_edge_ids_and_not_the_order_of_the_row) {
  // CSR order of destination 0: edge 0 from source 2, edge 1 from source 0, edge 2 from source 1.
  const auto g = Topology::from_coo(ids({2, 0, 1}), ids({0, 0, 0}), 3, 1);
  EXPECT_TRUE(exact(copy_u_gradient(g, ReduceOp::kMax, at::ones({3}, on_device(at::kFloat))),
                    numbers({0, 0, 1})));
  const auto reordered = Topology::from_csc(ids({0, 3}), ids({2, 0, 1}), 3, ids({1, 2, 0}));
  EXPECT_TRUE(
      exact(copy_u_gradient(reordered, ReduceOp::kMin, at::ones({3}, on_device(at::kFloat))),
            numbers({0, 1, 0})));
}

TEST(GspmmGradient, of_copied_edge_features_is_one_for_each_edge) {
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const at::Tensor w = leaf(numbers({10, 20, 30, 40}, dtype.scalar));
    gspmm(four_nodes(), BinaryOp::kCopyRhs, ReduceOp::kSum, std::nullopt, w).sum().backward();
    EXPECT_TRUE(exact(w.grad(), numbers({1, 1, 1, 1})));
  }
}

TEST(GspmmGradient, of_weighted_sums_goes_to_nodes_and_edges) {
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const at::Tensor x = leaf(numbers({1, 2, 3, 4}, dtype.scalar));
    const at::Tensor w = leaf(numbers({10, 20, 30, 40}, dtype.scalar));
    gspmm(four_nodes(), BinaryOp::kMul, ReduceOp::kSum, x, w).sum().backward();
    EXPECT_TRUE(exact(x.grad(), numbers({30, 30, 0, 40})));
    EXPECT_TRUE(exact(w.grad(), numbers({1, 1, 2, 4})));
  }
}

TEST(GspmmGradient, of_a_mean_over_seventy_thousand_is_divided_in_the_accumulator) {
  // In float16, 1 / 70000 is subnormal and 70000 overflows.
  const Topology star = in_star(70000);
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const auto got =
        copy_u_gradient(star, ReduceOp::kMean, at::ones({70000, 1}, on_device(dtype.scalar)));
    const auto expected = at::full({70000, 1}, 1.0 / 70000, on_device(at::kDouble));
    EXPECT_TRUE(near(got, expected, sum_bound(expected, 2, dtype.scalar)));
  }
}

struct Setting {
  NamedTopology graph;
  DTypeInfo dtype;
  Target lhs_target, rhs_target;
  std::vector<std::int64_t> lhs, rhs;  // trailing dimensions
};

/// Gradients on numbers for which only the last rounding is inexact: integers, and powers of two as
/// divisors. Products of many messages need more digits.
template <class Op, class Reduce>
void expect_gradients(const Setting& s) {
  SCOPED_TRACE(fmt::format("{} {}_{}_{} {} on {}, [{}] with [{}]", s.dtype.name,
                           name_of(Targets{}, s.lhs_target), Op::name,
                           name_of(Targets{}, s.rhs_target), Reduce::name, s.graph.name,
                           fmt::join(s.lhs, ","), fmt::join(s.rhs, ",")));
  const Topology& g = s.graph.topology;
  if (Reduce::multiplies && max_in_degree(g) > 3) return;
  const auto x = leaf(integers(shape(g, s.lhs_target, s.lhs), s.dtype.scalar, 1));
  const auto y = leaf(divisors(shape(g, s.rhs_target, s.rhs), s.dtype.scalar, 2));
  const auto out = gspmm(g, Op::kind, Reduce::kind, x, y, s.lhs_target, s.rhs_target);
  const auto grad = integers(out.sizes(), s.dtype.scalar, 3);
  out.backward(grad);
  const auto expected =
      gspmm_gradients(g, Op::kind, Reduce::kind, x, y, grad, s.lhs_target, s.rhs_target);
  expect_operand_gradients(x, y, expected, /*exactly=*/!Reduce::divides);
}

void expect_all_gradients(const Setting& s) {
  for_each(BinaryOps{}, [&]<class Op>() {
    for_each(ReduceOps{}, [&]<class Reduce>() { expect_gradients<Op, Reduce>(s); });
  });
}

TEST(GspmmGradient, of_every_message_and_reducer_is_that_of_the_formula) {
  for (const NamedTopology& g : topologies()) {
    for (const DTypeInfo& dtype : dtypes()) {
      expect_all_gradients({g, dtype, Target::kSrc, Target::kEdge, {2, 3}, {2, 3}});
    }
  }
}

TEST(GspmmGradient, of_every_pair_of_targets_is_that_of_the_formula) {
  const std::vector<NamedTopology> graphs = {
      {"self loops", topology_of({0, 1, 2, 0, 2, 2}, {0, 1, 2, 2, 2, 0}, 4, 4)},
      {"bipartite", random_topology(20, 30, 90, 33)}};
  for (const NamedTopology& g : graphs) {
    for (const DTypeInfo& dtype : dtypes()) {
      for_each(Targets{}, [&]<class Lhs>() {
        for_each(Targets{}, [&]<class Rhs>() {
          expect_all_gradients({g, dtype, Lhs::kind, Rhs::kind, {2, 3}, {2, 3}});
        });
      });
    }
  }
}

TEST(GspmmGradient, of_a_broadcast_operand_is_summed_to_its_shape) {
  const NamedTopology g{"bipartite", random_topology(12, 9, 50, 31)};
  const std::vector<std::vector<std::int64_t>> shapes = {{3, 4}, {1, 4}, {3, 1}, {4}, {1}, {1, 1}};
  for (const DTypeInfo& dtype : dtypes()) {
    for (const auto& lhs : shapes) {
      for (const auto& rhs : shapes) {
        const bool same_last = lhs.back() == rhs.back();
        for_each(BinaryOps{}, [&]<class Op>() {
          if (Op::kind == BinaryOp::kDot && !same_last) return;
          expect_gradients<Op, kernels::Sum>({g, dtype, Target::kSrc, Target::kEdge, lhs, rhs});
          expect_gradients<Op, kernels::Max>({g, dtype, Target::kSrc, Target::kEdge, lhs, rhs});
        });
      }
    }
  }
}

TEST(GspmmGradient, of_scalar_features_has_no_trailing_dimension) {
  const NamedTopology g{"four nodes", four_nodes()};
  for (const DTypeInfo& dtype : dtypes()) {
    expect_gradients<kernels::Mul, kernels::Sum>({g, dtype, Target::kSrc, Target::kEdge, {}, {}});
    expect_gradients<kernels::Mul, kernels::Sum>({g, dtype, Target::kSrc, Target::kEdge, {5}, {}});
    expect_gradients<kernels::Div, kernels::Max>({g, dtype, Target::kSrc, Target::kEdge, {}, {5}});
  }
}

TEST(GspmmGradient, agrees_with_finite_differences) {
  const Topology g = random_topology(6, 5, 17, 32);
  for_each(BinaryOps{}, [&]<class Op>() {
    for_each(ReduceOps{}, [&]<class Reduce>() {
      SCOPED_TRACE(std::string(Op::name) + " " + std::string(Reduce::name));
      std::vector<at::Tensor> inputs;
      if (Op::uses_lhs) inputs.push_back(uniform({6, 2, 3}, at::kDouble, 4));
      if (Op::uses_rhs) inputs.push_back(uniform({17, 1, 3}, at::kDouble, 5, 1, 2));
      EXPECT_TRUE(gradcheck(
          [&](const std::vector<at::Tensor>& in) {
            const auto lhs = Op::uses_lhs ? std::optional(in.front()) : std::nullopt;
            const auto rhs = Op::uses_rhs ? std::optional(in.back()) : std::nullopt;
            return gspmm(g, Op::kind, Reduce::kind, lhs, rhs);
          },
          inputs));
    });
  });
}

TEST(GspmmGradient, of_arbitrary_numbers_is_within_its_bound) {
  for (const NamedTopology& g : topologies()) {
    for (const DTypeInfo& dtype : dtypes()) {
      for_each(BinaryOps{}, [&]<class Op>() {
        SCOPED_TRACE(fmt::format("{} {} on {}", dtype.name, Op::name, g.name));
        const auto x = leaf(uniform(shape(g.topology, Target::kSrc, {19}), dtype.scalar, 6));
        const auto w =
            leaf(uniform(shape(g.topology, Target::kEdge, {19}), dtype.scalar, 7, 0.5, 2));
        const auto out = gspmm(g.topology, Op::kind, ReduceOp::kMean, x, w);
        const auto grad = uniform(out.sizes(), dtype.scalar, 8);
        out.backward(grad);
        const auto expected = gspmm_gradients(g.topology, Op::kind, ReduceOp::kMean, x, w, grad);
        expect_operand_gradients(x, w, expected, /*exactly=*/false);
      });
    }
  }
}

TEST(GspmmGradient, is_computed_only_for_the_operands_that_ask) {
  const Topology g = four_nodes();
  for (const bool of_nodes : {true, false}) {
    at::Tensor x = numbers({1, 2, 3, 4}, at::kFloat), w = numbers({10, 20, 30, 40}, at::kFloat);
    (of_nodes ? x : w).set_requires_grad(true);
    gspmm(g, BinaryOp::kMul, ReduceOp::kSum, x, w).sum().backward();
    EXPECT_EQ(x.grad().defined(), of_nodes);
    EXPECT_EQ(w.grad().defined(), !of_nodes);
  }
  const at::Tensor plain = numbers({1, 2, 3, 4}, at::kFloat);
  EXPECT_FALSE(gspmm(g, BinaryOp::kMul, ReduceOp::kSum, plain, plain).requires_grad());
}

TEST(GspmmGradient, does_not_reach_an_operand_that_the_message_does_not_use) {
  const auto none = [](const at::Tensor& t) {
    return !t.grad().defined() || exact(t.grad(), at::zeros_like(t));
  };
  for (const BinaryOp op : {BinaryOp::kCopyLhs, BinaryOp::kCopyRhs}) {
    const auto x = leaf(integers({4, 3}, at::kFloat, 1)), w = leaf(integers({4, 3}, at::kFloat, 2));
    gspmm(four_nodes(), op, ReduceOp::kSum, x, w).sum().backward();
    EXPECT_TRUE(none(op == BinaryOp::kCopyLhs ? w : x));
    const auto a = leaf(integers({4, 3}, at::kFloat, 3)), b = leaf(integers({4, 3}, at::kFloat, 4));
    gsddmm(four_nodes(), op, a, b).sum().backward();
    EXPECT_TRUE(none(op == BinaryOp::kCopyLhs ? b : a));
  }
}

TEST(GspmmGradient, of_one_operand_alone_needs_nothing_of_the_other) {
  const Topology g = random_topology(12, 9, 50, 34);
  for_each(BinaryOps{}, [&]<class Op>() {
    if (!Op::uses_lhs || !Op::uses_rhs) return;
    for_each(ReduceOps{}, [&]<class Reduce>() {
      for (const bool of_lhs : {true, false}) {
        SCOPED_TRACE(fmt::format("{} {} of lhs: {}", Op::name, Reduce::name, of_lhs));
        at::Tensor x = integers({12, 2, 3}, at::kDouble, 1),
                   w = divisors({50, 1, 3}, at::kDouble, 2);
        const at::Tensor& operand = of_lhs ? x : w;
        operand.set_requires_grad(true);
        const auto out = gspmm(g, Op::kind, Reduce::kind, x, w);
        const auto grad = integers(out.sizes(), at::kDouble, 3);
        out.backward(grad);
        const auto both = gspmm_gradients(g, Op::kind, Reduce::kind, x, w, grad);
        const Reference& expected = of_lhs ? both.lhs : both.rhs;
        EXPECT_TRUE(near(operand.grad(), expected, at::kDouble));
      }
    });
  });
}

TEST(GspmmGradient, of_a_tensor_in_both_places_is_the_sum_of_both) {
  const Topology g = topology_of({0, 1}, {1, 0}, 2, 2);
  const at::Tensor x = leaf(numbers({3, 5}, at::kFloat));
  gspmm(g, BinaryOp::kMul, ReduceOp::kSum, x, x, Target::kSrc, Target::kDst).sum().backward();
  EXPECT_TRUE(exact(x.grad(), numbers({10, 6})));
}

TEST(GspmmGradient, of_many_edges_is_stored_past_the_caches_with_the_same_values) {
  const Topology g = random_topology(50, 66'000, 70'000, 90);  // 8 MiB from 32 columns of 32 bits
  for (const DTypeInfo& dtype : dtypes()) {
    for (const std::int64_t width : {64, 67}) {
      SCOPED_TRACE(testing::Message() << dtype.name << " " << width);
      const at::Tensor x = integers({g.num_src(), width}, dtype.scalar, 91);
      const at::Tensor e = leaf(integers({g.num_edges(), width}, dtype.scalar, 92));
      const at::Tensor grad = integers({g.num_dst(), width}, dtype.scalar, 93);
      gspmm(g, BinaryOp::kAddRelu, ReduceOp::kSum, x, e).backward(grad);
      const at::Tensor passes = x.index_select(0, g.src()) + e.detach() > 0;
      EXPECT_TRUE(exact(e.grad(), grad.index_select(0, g.dst()) * passes));
    }
  }
}

TEST(GspmmGradient, takes_strided_and_expanded_gradients) {
  const Topology g = four_nodes();
  const at::Tensor x = leaf(integers({4, 3}, at::kFloat, 1));
  gspmm(g, BinaryOp::kCopyLhs, ReduceOp::kSum, x, std::nullopt).sum().backward();  // stride 0
  EXPECT_TRUE(exact(x.grad(), numbers({2, 1, 0, 1}).reshape({4, 1}).expand({4, 3})));
  const at::Tensor y = leaf(integers({4, 3}, at::kFloat, 1));
  const at::Tensor grad = integers({3, 4}, at::kFloat, 2).t();
  gspmm(g, BinaryOp::kCopyLhs, ReduceOp::kSum, y, std::nullopt).backward(grad);
  const auto expected =
      gspmm_gradients(g, BinaryOp::kCopyLhs, ReduceOp::kSum, y, std::nullopt, grad);
  EXPECT_TRUE(exact(y.grad(), expected.lhs.value));
}

}  // namespace
}  // namespace mezzo::test
