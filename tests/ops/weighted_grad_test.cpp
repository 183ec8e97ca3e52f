// The gradients of sums of rows weighted by edge, or by edge and head: one pass for both, dot
// products if only the weight's is needed.
#include <limits>

#include <torch/csrc/autograd/autograd.h>

#include "mezzo/ops/ops.h"

#include "support/gradcheck.h"
#include "support/scaled_sum_reference.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace mezzo::test::weighted_grad_test {
namespace {

/// Trailing shapes of rows and weights.
struct Shapes {
  std::vector<std::int64_t> x, weight;
};

/// Shapes of the one-pass kernel; the last two need the general kernel.
std::vector<Shapes> all_shapes() {
  return {{{}, {}},
          {{1}, {1}},
          {{5}, {1}},
          {{16}, {1}},
          {{100}, {1}},
          {{257}, {1}},
          {{1, 5}, {1, 1}},
          {{3, 7}, {3, 1}},
          {{4, 16}, {4, 1}},
          {{8, 8}, {8, 1}},
          {{5, 33}, {5, 1}},
          {{2, 3, 4}, {2, 1, 1}},
          {{2, 3, 4}, {2, 3, 1}},
          {{4, 64}, {1}},
          {{300, 2}, {300, 1}},
          {{6}, {6}},
          {{1, 5}, {3, 1}}};
}

std::string described(const Shapes& shapes) {
  return fmt::format("x [{}] weight [{}]", fmt::join(shapes.x, ","), fmt::join(shapes.weight, ","));
}

struct Operands {
  at::Tensor x, weight;
};

Operands make(const Topology& g, const Shapes& shapes, at::ScalarType dtype,
              at::ScalarType weight_dtype, bool whole) {
  const auto x = with_rows(g.num_src(), shapes.x), w = with_rows(g.num_edges(), shapes.weight);
  if (whole) return {leaf(integers(x, dtype, 1)), leaf(divisors(w, weight_dtype, 2))};
  return {leaf(uniform(x, dtype, 1)), leaf(uniform(w, weight_dtype, 2))};
}

/// The gradients to compute.
enum class Gradients { kBoth, kWeight };

/// Compares gspmm's gradients with the definition, with x as lhs and as rhs.
void expect_right(const Topology& g, const Operands& in, ReduceOp reduce, bool x_first,
                  Gradients gradients, bool whole) {
  const at::Tensor x = gradients == Gradients::kBoth ? in.x : in.x.detach();
  const at::Tensor& lhs = x_first ? x : in.weight;
  const at::Tensor& rhs = x_first ? in.weight : x;
  const Target l = x_first ? Target::kSrc : Target::kEdge,
               r = x_first ? Target::kEdge : Target::kSrc;
  const at::Tensor out = gspmm(g, BinaryOp::kMul, reduce, lhs, rhs, l, r);
  const at::Tensor grad = whole ? integers(out.sizes(), out.scalar_type(), 9)
                                : uniform(out.sizes(), out.scalar_type(), 9);
  std::vector<at::Tensor> of = {in.weight};
  if (gradients == Gradients::kBoth) of.push_back(in.x);
  const auto got = torch::autograd::grad({out}, of, {grad});
  const GradientReference all =
      gspmm_gradients(g, BinaryOp::kMul, reduce, lhs.detach(), rhs.detach(), grad, l, r);
  const std::vector<Reference> expected = {x_first ? all.rhs : all.lhs,
                                           x_first ? all.lhs : all.rhs};
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].scalar_type(), of[i].scalar_type());
    EXPECT_TRUE(agrees(got[i], expected[i], whole));
  }
}

TEST(WeightedGrad, is_exact_for_whole_numbers_in_every_shape_and_dtype) {
  const Topology g = random_topology(9, 8, 40, 61);
  for (const DTypeInfo& dtype : dtypes()) {
    for (const Shapes& shapes : all_shapes()) {
      for (const bool x_first : {true, false}) {
        for (const Gradients gradients : {Gradients::kBoth, Gradients::kWeight}) {
          SCOPED_TRACE(testing::Message() << dtype.name << ' ' << described(shapes)
                                          << (x_first ? " x first" : " weight first"));
          expect_right(g, make(g, shapes, dtype.scalar, dtype.scalar, true), ReduceOp::kSum,
                       x_first, gradients, true);
        }
      }
    }
  }
}

TEST(WeightedGrad, stays_within_its_rounding_for_sums_and_means_on_every_graph) {
  for (const NamedTopology& g : topologies()) {
    if (g.topology.num_src() == 0) continue;
    for (const DTypeInfo& dtype : dtypes()) {
      for (const ReduceOp reduce : {ReduceOp::kSum, ReduceOp::kMean}) {
        for (const Gradients gradients : {Gradients::kBoth, Gradients::kWeight}) {
          SCOPED_TRACE(g.name + " " + dtype.name);
          const Operands in =
              make(g.topology, {{3, 21}, {3, 1}}, dtype.scalar, dtype.scalar, false);
          expect_right(g.topology, in, reduce, true, gradients, false);
        }
      }
    }
  }
}

TEST(WeightedGrad, takes_float32_weights_beside_narrow_rows) {
  const Topology g = random_topology(30, 25, 150, 62);
  for (const DTypeInfo& dtype : narrow_dtypes()) {
    for (const bool whole : {true, false}) {
      for (const Shapes& shapes : {Shapes{{40}, {1}}, Shapes{{4, 16}, {4, 1}}}) {
        expect_right(g, make(g, shapes, dtype.scalar, at::kFloat, whole), ReduceOp::kSum, true,
                     Gradients::kBoth, whole);
      }
    }
  }
}

TEST(WeightedGrad, adds_up_the_thousands_of_edges_of_a_hub_on_either_side) {
  const Topology into = in_star(5000), out_of = into.reverse();
  for (const Topology& g : {into, out_of}) {
    for (const Gradients gradients : {Gradients::kBoth, Gradients::kWeight}) {
      const Operands in = make(g, {{4, 19}, {4, 1}}, at::kFloat, at::kFloat, false);
      expect_right(g, in, ReduceOp::kSum, true, gradients, false);
    }
  }
}

TEST(WeightedGrad, infinities_and_undefined_numbers_reach_both_gradients) {
  const Topology g = four_nodes();
  const Operands in = {leaf(at::ones({4, 3}, on_device())), leaf(at::ones({4, 1}, on_device()))};
  const at::Tensor out = gspmm(g, BinaryOp::kMul, ReduceOp::kSum, in.x, in.weight);
  at::Tensor grad = at::ones({4, 3}, on_device());
  grad[1][0] = std::numeric_limits<float>::infinity();
  grad[2][1] = std::numeric_limits<float>::quiet_NaN();
  const auto got = torch::autograd::grad({out}, {in.x, in.weight}, {grad});
  EXPECT_TRUE(got[0][0][0].isinf().item<bool>());
  EXPECT_TRUE(got[0][1][1].isnan().item<bool>());
  EXPECT_TRUE(got[1][0][0].isinf().item<bool>());
  EXPECT_TRUE(got[1][2][0].isnan().item<bool>());
}

TEST(WeightedGrad, same_bits_for_one_and_two_threads) {
  const Topology& g = large_power_law();
  const Operands in = make(g, {{4, 24}, {4, 1}}, at::kBFloat16, at::kFloat, false);
  const at::Tensor grad = uniform({g.num_dst(), 4, 24}, at::kBFloat16, 9);
  const auto gradients = [&](int threads) {
    const ThreadCount count(threads);
    return torch::autograd::grad({gspmm(g, BinaryOp::kMul, ReduceOp::kMean, in.x, in.weight)},
                                 {in.x, in.weight}, {grad});
  };
  const auto one = gradients(1), two = gradients(2);
  EXPECT_TRUE(same_bits(one[0], two[0]));
  EXPECT_TRUE(same_bits(one[1], two[1]));
}

TEST(WeightedGrad, gradients_agree_with_finite_differences) {
  const Topology g = random_topology(6, 5, 17, 63);
  for (const ReduceOp reduce : {ReduceOp::kSum, ReduceOp::kMean}) {
    EXPECT_TRUE(gradcheck(
        [&](const std::vector<at::Tensor>& inputs) {
          return gspmm(g, BinaryOp::kMul, reduce, inputs[0], inputs[1]);
        },
        {uniform({6, 3, 4}, at::kDouble, 1), uniform({17, 3, 1}, at::kDouble, 2)}));
  }
}

TEST(WeightedGrad, of_a_scaled_sum_has_both_scales_for_the_weight_alone_too) {
  const Topology g = random_topology(9, 8, 40, 64);
  for (const DTypeInfo& dtype : dtypes()) {
    const at::ScalarType scale = dtype.scalar == at::kDouble ? at::kDouble : at::kFloat;
    const Operands in = make(g, {{21}, {}}, dtype.scalar, dtype.scalar, true);
    const at::Tensor src = divisors({9}, scale, 3), dst = divisors({8}, scale, 4);
    const at::Tensor grad = integers({8, 21}, dtype.scalar, 9);
    const auto both = torch::autograd::grad({scaled_sum(g, in.x, in.weight, src, dst)},
                                            {in.x, in.weight}, {grad});
    const auto weight = torch::autograd::grad({scaled_sum(g, in.x.detach(), in.weight, src, dst)},
                                              {in.weight}, {grad});
    const Reference expected = scaled::define(g, {in.x, in.weight, src, dst}, grad).gradients[1];
    EXPECT_TRUE(agrees(both[1], expected, /*exactly=*/true)) << dtype.name;
    EXPECT_TRUE(agrees(weight[0], expected, /*exactly=*/true)) << dtype.name;
  }
}

/// So many edges that their weights are first reordered into CSR order, and rows that are one block
/// of the kernel.
TEST(WeightedGrad, weights_of_many_edges_in_any_order_go_with_their_edges) {
  constexpr std::int64_t kNodes = 20000, kEdges = 600000, kWidth = 32;
  const at::Tensor ends = integers({2, kEdges}, at::kLong, 1, 0, kNodes - 1);
  const at::Tensor src = ends[0], dst = ends[1];
  const Topology g = Topology::from_coo(src, dst, kNodes, kNodes);
  const auto sums = [&](const at::Tensor& into, const at::Tensor& rows) {
    return at::zeros({kNodes, kWidth}, on_device(at::kDouble)).index_add_(0, into, rows);
  };
  for (const DTypeInfo& dtype : dtypes()) {
    for (const bool is_wide : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, {}", dtype.name, is_wide ? "wide weights" : "weights"));
      const at::ScalarType accumulator = dtype.scalar == at::kDouble ? at::kDouble : at::kFloat;
      const at::Tensor x = leaf(integers({kNodes, kWidth}, dtype.scalar, 2, -2, 2));
      const at::Tensor weight =
          leaf(integers({kEdges, 1}, is_wide ? accumulator : dtype.scalar, 3, -1, 1));
      const at::Tensor grad = integers({kNodes, kWidth}, dtype.scalar, 4, -1, 1);
      const at::Tensor x64 = x.detach().to(at::kDouble), grad64 = grad.to(at::kDouble);
      const at::Tensor weight64 = weight.detach().to(at::kDouble);
      const at::Tensor x_of_edges = x64.index_select(0, src);
      const at::Tensor grad_of_edges = grad64.index_select(0, dst);

      const at::Tensor out = gspmm(g, BinaryOp::kMul, ReduceOp::kSum, x, weight);
      EXPECT_TRUE(exact(out, sums(dst, x_of_edges * weight64)));
      const auto both = torch::autograd::grad({out}, {x, weight}, {grad}, /*retain_graph=*/true);
      EXPECT_TRUE(exact(both[0], sums(src, grad_of_edges * weight64)));
      EXPECT_TRUE(exact(both[1], (x_of_edges * grad_of_edges).sum(1, true)));
      const auto of_x = torch::autograd::grad({out}, {x}, {grad});
      EXPECT_TRUE(same_bits(of_x[0], both[0]));
      EXPECT_TRUE(exact(scaled_sum(g, x.detach(), weight.detach(), {}, {}), out.detach()));
    }
  }
}

}  // namespace
}  // namespace mezzo::test::weighted_grad_test
