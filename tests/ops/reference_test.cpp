// The reference of the other tests, compared with results worked out by hand and with the indexed
// formula.
#include "support/reference.h"

#include <cmath>

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

TEST(Reference, agrees_with_the_indexed_formula) {
  for (const NamedTopology& g : topologies()) {
    mezzo::detail::for_each(BinaryOps{}, [&]<class Op>() {
      mezzo::detail::for_each(ReduceOps{}, [&]<class Reduce>() {
        SCOPED_TRACE(fmt::format("{} {} on {}", Op::name, Reduce::name, g.name));
        const auto x = integers(shape(g.topology, Target::kSrc, {2, 3}), at::kDouble, 1);
        const auto y = divisors(shape(g.topology, Target::kEdge, {3}), at::kDouble, 2);
        const auto reference = gspmm_reference(g.topology, Op::kind, Reduce::kind, x, y);
        const auto messages =
            message_formula(g.topology, Op::kind, x, y, Target::kSrc, Target::kEdge);
        EXPECT_TRUE(exact(message(g.topology, Op::kind, x, y).value, messages));
        EXPECT_TRUE(
            exact(reduce_formula(g.topology, Reduce::kind, messages.cpu(), reference.winners.cpu()),
                  reference.value));
      });
    });
  }
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
