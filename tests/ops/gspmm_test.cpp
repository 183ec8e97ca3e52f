#include <cmath>
#include <limits>

#include "mezzo/ops/ops.h"

#include "support/reference.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

using mezzo::detail::for_each;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

at::Tensor copy_u(const Topology& topology, ReduceOp reduce_op, const at::Tensor& x) {
  return gspmm(topology, BinaryOp::kCopyLhs, reduce_op, x, std::nullopt);
}

// Four nodes with the edges 0->1, 0->2, 1->2, 3->2.

TEST(Gspmm, nodes_without_in_edges_are_zero_though_all_messages_are_negative) {
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const at::Tensor x = numbers({-1, -2, -3, -4}, dtype.scalar);
    EXPECT_TRUE(exact(copy_u(four_nodes(), ReduceOp::kMax, x), numbers({0, -1, -1, 0})));
    EXPECT_TRUE(exact(copy_u(four_nodes(), ReduceOp::kMin, x), numbers({0, -1, -4, 0})));
  }
}

TEST(Gspmm, edge_ids_of_a_compressed_graph_pick_the_edge_features) {
  // Entry i of the CSR is edge ids[i]: w is in edge-id order, not in CSR order.
  const auto g = Topology::from_csc(ids({0, 0, 1, 4, 4}), ids({0, 0, 1, 3}), 4, ids({3, 1, 0, 2}));
  const at::Tensor w = numbers({10, 20, 30, 40});
  const auto sum = gspmm(g, BinaryOp::kCopyRhs, ReduceOp::kSum, std::nullopt, w);
  EXPECT_TRUE(exact(sum, numbers({0, 40, 60, 0})));
}

TEST(Gspmm, copied_edge_features_are_summed) {
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const at::Tensor w = numbers({10, 20, 30, 40}, dtype.scalar);
    const auto sum = gspmm(four_nodes(), BinaryOp::kCopyRhs, ReduceOp::kSum, std::nullopt, w);
    EXPECT_TRUE(exact(sum, numbers({0, 10, 90, 0})));
    const auto as_lhs =
        gspmm(four_nodes(), BinaryOp::kCopyLhs, ReduceOp::kSum, w, std::nullopt, Target::kEdge);
    EXPECT_TRUE(exact(as_lhs, numbers({0, 10, 90, 0})));
  }
}

TEST(Gspmm, products_with_edge_weights_are_summed) {
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const at::Tensor x = numbers({1, 2, 3, 4}, dtype.scalar);
    const at::Tensor w = numbers({10, 20, 30, 40}, dtype.scalar);
    const auto sum = gspmm(four_nodes(), BinaryOp::kMul, ReduceOp::kSum, x, w);
    EXPECT_TRUE(exact(sum, numbers({0, 10, 240, 0})));
  }
}

struct BroadcastCase {
  std::vector<std::int64_t> lhs, rhs, out;  // trailing dimensions
};

const std::vector<BroadcastCase>& broadcast_cases() {
  static const std::vector<BroadcastCase> all = {
      {{1, 2, 1, 3, 1}, {4, 1, 3, 1, 1}, {4, 2, 3, 3, 1}},
      {{3, 1}, {5, 3, 4}, {5, 3, 4}},
      {{}, {}, {}},
      {{7}, {}, {7}},
      {{}, {7}, {7}},
      {{4, 5}, {4, 1}, {4, 5}},
      {{4, 1}, {4, 5}, {4, 5}},
      {{1, 5}, {4, 1}, {4, 5}},
      {{17}, {17}, {17}},
      {{33}, {1}, {33}},
      {{2, 0}, {2, 1}, {2, 0}},
  };
  return all;
}

TEST(Gspmm, trailing_dimensions_broadcast_from_the_last) {
  const Topology g = random_topology(12, 9, 40, 21);
  for (const DTypeInfo& dtype : dtypes()) {
    for (const BroadcastCase& one : broadcast_cases()) {
      const auto x = integers(with_rows(12, one.lhs), dtype.scalar, 1);
      const auto w = integers(with_rows(40, one.rhs), dtype.scalar, 2);
      SCOPED_TRACE(dtype.name + " " + x.toString() + fmt::format(" {}", fmt::join(one.out, "x")));
      const auto out = gspmm(g, BinaryOp::kMul, ReduceOp::kSum, x, w);
      EXPECT_EQ(out.sizes(), with_rows(9, one.out));
      const auto expected = gspmm_reference(g, BinaryOp::kMul, ReduceOp::kSum, x, w);
      EXPECT_TRUE(exact_rounded(out, expected.value));
    }
  }
}

struct TargetPair {
  Target lhs, rhs;
};

std::vector<TargetPair> target_pairs() {
  std::vector<TargetPair> pairs;
  for_each(Targets{}, [&]<class Lhs>() {
    for_each(Targets{}, [&]<class Rhs>() { pairs.push_back({Lhs::kind, Rhs::kind}); });
  });
  return pairs;
}

template <class Op>
std::string described(const DTypeInfo& dtype, const NamedTopology& g, std::string_view reduce_name,
                      TargetPair targets) {
  return fmt::format("{} {}_{}_{} {} on {}", dtype.name, name_of(Targets{}, targets.lhs), Op::name,
                     name_of(Targets{}, targets.rhs), reduce_name, g.name);
}

/// Integers as lhs and powers of two as rhs: messages and partial sums are multiples of 1/4 that
/// float32 holds exactly, so only the final rounding is inexact. Products of many messages need
/// more digits (behaviours_test.cpp tests them).
template <class Op, class Reduce>
void expect_exact(const NamedTopology& g, const DTypeInfo& dtype, TargetPair targets) {
  SCOPED_TRACE(described<Op>(dtype, g, Reduce::name, targets));
  if (Reduce::multiplies && max_in_degree(g.topology) > 3) return;
  const auto x = integers(shape(g.topology, targets.lhs, {3, 2}), dtype.scalar, 1);
  const auto y = divisors(shape(g.topology, targets.rhs, {1, 2}), dtype.scalar, 2);
  const auto got = gspmm(g.topology, Op::kind, Reduce::kind, x, y, targets.lhs, targets.rhs);
  const auto expected =
      gspmm_reference(g.topology, Op::kind, Reduce::kind, x, y, targets.lhs, targets.rhs);
  EXPECT_EQ(got.scalar_type(), dtype.scalar);
  EXPECT_TRUE(agrees(got, expected, /*exactly=*/!Reduce::divides));
}

TEST(Gspmm, every_message_and_reducer_is_exact_on_small_numbers) {
  for (const NamedTopology& g : topologies()) {
    for (const DTypeInfo& dtype : dtypes()) {
      for (const TargetPair targets : target_pairs()) {
        for_each(BinaryOps{}, [&]<class Op>() {
          for_each(ReduceOps{},
                   [&]<class Reduce>() { expect_exact<Op, Reduce>(g, dtype, targets); });
        });
      }
    }
  }
}

TEST(Gspmm, every_message_and_reducer_is_within_its_bound_on_any_numbers) {
  for (const NamedTopology& g : topologies()) {
    for (const DTypeInfo& dtype : dtypes()) {
      for_each(BinaryOps{}, [&]<class Op>() {
        for_each(ReduceOps{}, [&]<class Reduce>() {
          const TargetPair targets{Target::kSrc, Target::kEdge};
          SCOPED_TRACE(described<Op>(dtype, g, Reduce::name, targets));
          const auto x = uniform(shape(g.topology, targets.lhs, {37}), dtype.scalar, 3);
          const auto y = uniform(shape(g.topology, targets.rhs, {37}), dtype.scalar, 4, 0.5, 2);
          const auto expected = gspmm_reference(g.topology, Op::kind, Reduce::kind, x, y);
          EXPECT_TRUE(
              near(gspmm(g.topology, Op::kind, Reduce::kind, x, y), expected, dtype.scalar));
        });
      });
    }
  }
}

TEST(Gspmm, an_operand_that_the_message_does_not_use_may_be_absent) {
  const Topology g = four_nodes();
  const at::Tensor x = numbers({1, 2, 3, 4}, at::kFloat);
  EXPECT_TRUE(exact(gspmm(g, BinaryOp::kCopyLhs, ReduceOp::kSum, x, std::nullopt),
                    gspmm(g, BinaryOp::kCopyLhs, ReduceOp::kSum, x, x)));
}

TEST(Gspmm, strided_operands_are_read_through_their_strides) {
  const Topology g = random_topology(20, 10, 60, 22);
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const auto transposed = integers({6, 20}, dtype.scalar, 1).t();
    const auto every_other = integers({60, 12}, dtype.scalar, 2).slice(1, 0, 12, 2);
    const auto expanded = integers({60, 1}, dtype.scalar, 3).expand({60, 6});
    for (const at::Tensor& w : {every_other, expanded}) {
      EXPECT_TRUE(same_bits(
          gspmm(g, BinaryOp::kMul, ReduceOp::kSum, transposed, w),
          gspmm(g, BinaryOp::kMul, ReduceOp::kSum, transposed.contiguous(), w.contiguous())));
    }
  }
}

TEST(Gspmm, parallel_edges_and_self_loops_count_each) {
  const Topology twice = topology_of({0, 0}, {1, 1}, 2, 2);
  const Topology loops = topology_of({0, 0, 1}, {0, 0, 0}, 2, 2);
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const at::Tensor x = numbers({3, 5}, dtype.scalar);
    EXPECT_TRUE(exact(copy_u(twice, ReduceOp::kSum, x), numbers({0, 6})));
    EXPECT_TRUE(exact(copy_u(twice, ReduceOp::kMean, x), numbers({0, 3})));
    EXPECT_TRUE(exact(copy_u(loops, ReduceOp::kSum, x), numbers({11, 0})));
  }
}

TEST(Gspmm, a_graph_without_edges_gives_zeros) {
  const Topology g = topology_of({}, {}, 3, 5);
  for (const DTypeInfo& dtype : dtypes()) {
    for_each(ReduceOps{}, [&]<class Reduce>() {
      SCOPED_TRACE(dtype.name + " " + std::string(Reduce::name));
      const auto x = at::full({3, 4}, kInfinity, on_device()).to(dtype.scalar);
      const auto w = at::empty({0, 4}, on_device(dtype.scalar));
      EXPECT_TRUE(exact(copy_u(g, Reduce::kind, x), at::zeros({5, 4})));
      EXPECT_TRUE(exact(gspmm(g, BinaryOp::kMul, Reduce::kind, x, w), at::zeros({5, 4})));
    });
  }
}

TEST(Gspmm, six_thousand_ones_are_rounded_once) {
  const Topology star = in_star(6000);
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const auto ones = at::ones({6000, 3}, on_device(dtype.scalar));
    const auto out = copy_u(star, ReduceOp::kSum, ones);
    // 6000 is halfway between the bfloat16 numbers 5984 and 6016; ties go to even.
    EXPECT_TRUE(exact(out, at::full({1, 3}, dtype.scalar == at::kBFloat16 ? 6016.0 : 6000.0)));
    EXPECT_TRUE(exact(copy_u(star, ReduceOp::kMean, ones), at::ones({1, 3})));
  }
}

TEST(Gspmm, a_hub_of_nine_hundred_sums_to_within_one_rounding) {
  const Topology star = in_star(900);
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const auto x = uniform({900, 19}, dtype.scalar, 5, 0, 1);
    const auto expected =
        gspmm_reference(star, BinaryOp::kCopyLhs, ReduceOp::kSum, x, std::nullopt);
    EXPECT_TRUE(near(copy_u(star, ReduceOp::kSum, x), expected, dtype.scalar));
  }
}

TEST(Gspmm, a_mean_over_seventy_thousand_neighbours_neither_overflows_nor_vanishes) {
  const Topology star = in_star(70000);
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const auto ones = at::ones({70000, 1}, on_device(dtype.scalar));
    EXPECT_TRUE(exact(copy_u(star, ReduceOp::kMean, ones), at::ones({1, 1})));
    const auto tenths = at::full({70000, 1}, 0.1, on_device()).to(dtype.scalar);
    const auto expected =
        gspmm_reference(star, BinaryOp::kCopyLhs, ReduceOp::kMean, tenths, std::nullopt);
    EXPECT_TRUE(near(copy_u(star, ReduceOp::kMean, tenths), expected, dtype.scalar));
  }
}

TEST(Gspmm, a_mean_divides_by_the_exact_count) {
  // bfloat16 cannot represent 257; the test detects a division by 256.
  const Topology star = in_star(257);
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    EXPECT_TRUE(
        exact(copy_u(star, ReduceOp::kMean, at::full({257, 1}, 3, on_device()).to(dtype.scalar)),
              at::full({1, 1}, 3)));
  }
}

TEST(Gspmm, a_mean_of_the_largest_numbers_is_finite_in_sixteen_bits) {
  const Topology star = in_star(16);
  const auto largest = at::full({16, 2}, 65504.0, on_device()).to(at::kHalf);
  EXPECT_TRUE(exact(copy_u(star, ReduceOp::kMean, largest), at::full({1, 2}, 65504.0)));
  EXPECT_TRUE(exact(copy_u(star, ReduceOp::kSum, largest), at::full({1, 2}, kInfinity)));
}

TEST(Gspmm, messages_are_not_rounded_before_they_are_summed) {
  // 300 * 300 overflows float16, the sum of the two products does not.
  const Topology g = topology_of({0, 1}, {0, 0}, 2, 1);
  const at::Tensor x = numbers({300, 300}, at::kHalf), w = numbers({300, -299}, at::kHalf);
  EXPECT_TRUE(exact(gspmm(g, BinaryOp::kMul, ReduceOp::kSum, x, w), numbers({300})));
}

TEST(Gspmm, a_quotient_is_not_a_product_with_a_rounded_reciprocal) {
  // 49 times the nearest bfloat16 (or float16) of 1 / 49 is not 1.
  const Topology g = topology_of({0}, {0}, 1, 1);
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const at::Tensor x = numbers({49}, dtype.scalar);
    EXPECT_TRUE(exact(gspmm(g, BinaryOp::kDiv, ReduceOp::kSum, x, x), numbers({1})));
  }
}

TEST(Gspmm, dots_are_summed_in_the_accumulator) {
  const Topology g = topology_of({0}, {0}, 1, 1);
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const auto ones = at::ones({1, 4096}, on_device(dtype.scalar));
    EXPECT_TRUE(
        exact(gspmm(g, BinaryOp::kDot, ReduceOp::kSum, ones, ones), at::full({1, 1}, 4096)));
  }
}

}  // namespace
}  // namespace mezzo::test
