// The definitions of the other tests, compared with results worked out by hand, and their gradients
// with differences of their values.
#include "support/reference.h"

#include <cmath>

#include "support/gradcheck.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

TEST(Reference, reduces_messages_by_hand) {
  const auto x = numbers({1, 2, 3, 4});
  const auto reduced = [&](ReduceOp op) {
    return gspmm_reference(four_nodes(), BinaryOp::kCopyLhs, op, x, std::nullopt);
  };
  EXPECT_TRUE(exact(reduced(ReduceOp::kSum).value, numbers({0, 1, 7, 0})));
  EXPECT_TRUE(exact(reduced(ReduceOp::kMean).value, numbers({0, 1, 7.0 / 3, 0})));
  EXPECT_TRUE(exact(reduced(ReduceOp::kMax).value, numbers({0, 1, 4, 0})));
  EXPECT_TRUE(exact(reduced(ReduceOp::kMin).value, numbers({0, 1, 1, 0})));
  EXPECT_TRUE(exact(reduced(ReduceOp::kMax).winners, numbers({-1, 0, 3, -1})));
}

TEST(Reference, counts_the_size_of_what_cancels) {
  const auto sum = gspmm_reference(in_star(3), BinaryOp::kCopyLhs, ReduceOp::kSum,
                                   numbers({5, -3, -2}), std::nullopt);
  EXPECT_TRUE(exact(sum.value, numbers({0})));
  EXPECT_TRUE(exact(sum.abs_sum, numbers({10})));
}

TEST(Reference, lets_a_nan_win_and_the_lowest_edge_win_ties) {
  const auto nan = std::nan("");
  const auto of = [](const std::vector<double>& x) {
    return gspmm_reference(in_star(3), BinaryOp::kCopyLhs, ReduceOp::kMax, numbers(x),
                           std::nullopt);
  };
  EXPECT_TRUE(exact(of({9, nan, 3}).winners, numbers({1})));
  EXPECT_TRUE(exact(of({9, nan, nan}).winners, numbers({1})));
  EXPECT_TRUE(exact(of({2, 2, 2}).winners, numbers({0})));
}

/// Compares the gradients of the sum of value(operands) with `gradients`.
void expect_derivatives(const TensorFunction& value, const std::vector<at::Tensor>& operands,
                        const at::Tensor& grad, const std::vector<Reference>& gradients) {
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (!gradients[i].value.defined()) continue;
    EXPECT_TRUE(near_difference(gradients[i].value, difference_quotients(value, operands, i, grad)))
        << "operand " << i;
  }
}

TEST(Reference, has_the_gradients_of_its_value_for_every_message_and_reducer) {
  const Topology g = random_topology(6, 5, 17, 21);
  const auto x = uniform({6, 2, 3}, at::kDouble, 1), y = uniform({17, 3}, at::kDouble, 2, 1, 2);
  mezzo::detail::for_each(BinaryOps{}, [&]<class Op>() {
    const TensorFunction edges = [&](const std::vector<at::Tensor>& in) {
      return message(g, Op::kind, in[0], in[1]).value;
    };
    SCOPED_TRACE(Op::name);
    const auto on_edges = uniform(edges({x, y}).sizes(), at::kDouble, 3);
    const auto both = gsddmm_gradients(g, Op::kind, x, y, on_edges, Target::kSrc, Target::kEdge);
    expect_derivatives(edges, {x, y}, on_edges, {both.lhs, both.rhs});
    mezzo::detail::for_each(ReduceOps{}, [&]<class Reduce>() {
      SCOPED_TRACE(Reduce::name);
      const TensorFunction value = [&](const std::vector<at::Tensor>& in) {
        return gspmm_reference(g, Op::kind, Reduce::kind, in[0], in[1]).value;
      };
      const auto grad = uniform(value({x, y}).sizes(), at::kDouble, 4);
      const auto of = gspmm_gradients(g, Op::kind, Reduce::kind, x, y, grad);
      expect_derivatives(value, {x, y}, grad, {of.lhs, of.rhs});
    });
  });
}

TEST(Reference, softmax_sums_to_one_over_the_edges_of_a_node) {
  const Topology g = four_nodes();
  const auto value = softmax_reference(g, numbers({1, 2, 3, 4})).value;
  const auto sums =
      at::zeros({4}, on_device(at::kDouble)).index_add(0, row_ids(g, Target::kDst), value);
  EXPECT_TRUE(
      near(sums, numbers({0, 1, 1, 0}), sum_bound(at::ones({4}, on_device()), 3, at::kDouble)));
}

TEST(Tolerance, sees_one_wrong_rounding_and_no_right_one) {
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const auto one = at::ones({1}, on_device(at::kDouble));
    const auto bound = sum_bound(one, 0, dtype.scalar);
    const auto next = (one * (1 + dtype.epsilon)).to(dtype.scalar);
    EXPECT_TRUE(near(one.to(dtype.scalar), one, bound));
    EXPECT_FALSE(near(next, one, bound));
    EXPECT_FALSE(exact(next, one));
    EXPECT_FALSE(same_bits(next, one.to(dtype.scalar)));
  }
}

TEST(Tolerance, takes_nan_and_infinity_for_themselves_only) {
  const double nan = std::nan(""), inf = HUGE_VAL;
  const auto of = [](double got, double expected) {
    return near(numbers({got}), numbers({expected}),
                sum_bound(at::ones({1}, on_device()), 1, at::kDouble));
  };
  EXPECT_TRUE(of(nan, nan));
  EXPECT_FALSE(of(nan, 1));
  EXPECT_FALSE(of(1, nan));
  EXPECT_TRUE(of(inf, inf));
  EXPECT_FALSE(of(-inf, inf));
  EXPECT_FALSE(of(inf, 1));
  EXPECT_FALSE(of(1, inf));
}

TEST(Tolerance, compares_shapes) {
  EXPECT_FALSE(exact(at::ones({2, 1}), at::ones({2})));
  EXPECT_FALSE(exact(at::Tensor(), at::ones({2})));
}

}  // namespace
}  // namespace mezzo::test
