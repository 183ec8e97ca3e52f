#include <cmath>
#include <functional>

#include "mezzo/amp/precision.h"
#include "mezzo/ops/ops.h"
#include "mezzo/runtime/memory.h"

#include "support/gatv2_reference.h"
#include "support/gradcheck.h"
#include "support/reference.h"
#include "support/special_numbers.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

using namespace gatv2;  // NOLINT(google-build-using-namespace): the subject of this file

Operands made_of(const std::function<at::Tensor(at::IntArrayRef, std::uint64_t)>& numbers_of,
                 const Topology& g, std::int64_t heads, std::int64_t features) {
  return {leaf(numbers_of({g.num_src(), heads, features}, 1)),
          leaf(numbers_of({g.num_dst(), heads, features}, 2)),
          leaf(numbers_of({1, heads, features}, 3))};
}

Operands integer_operands(const Topology& g, std::int64_t heads, std::int64_t features,
                          at::ScalarType dtype) {
  return made_of([=](auto sizes, auto seed) { return integers(sizes, dtype, seed); }, g, heads,
                 features);
}

Operands random_operands(const Topology& g, std::int64_t heads, std::int64_t features,
                         at::ScalarType dtype) {
  return made_of([=](auto sizes, auto seed) { return uniform(sizes, dtype, seed); }, g, heads,
                 features);
}

at::ScalarType accumulator(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

/// The scores and the gradients of the operands.
std::vector<at::Tensor> run(const Topology& g, const Operands& in, const at::Tensor& grad,
                            double slope) {
  for (const at::Tensor& one : {in.src, in.dst, in.attn}) one.mutable_grad() = at::Tensor();
  const at::Tensor scores = gatv2_scores(g, in.src, in.dst, in.attn, slope);
  scores.backward(grad);
  return {scores, in.src.grad(), in.dst.grad(), in.attn.grad()};
}

/// Compares what run() computes.
void expect_agree(const at::Tensor& scores, const Operands& in, const Defined& expected,
                  bool exactly) {
  EXPECT_EQ(scores.scalar_type(), accumulator(in.src.scalar_type()));
  expect_defined(scores, {in.src, in.dst, in.attn}, expected, exactly);
}

void expect_exact(const Topology& g, std::int64_t heads, std::int64_t features,
                  at::ScalarType dtype) {
  SCOPED_TRACE(fmt::format("{} heads of {}, {}", heads, features, c10::toString(dtype)));
  const Operands in = integer_operands(g, heads, features, dtype);
  const at::Tensor grad = integers({g.num_edges(), heads}, accumulator(dtype), 4);
  constexpr double slope = 0.25;
  const auto got = run(g, in, grad, slope);
  expect_agree(got[0], in, define(g, in, grad, slope), /*exactly=*/true);
}

TEST(GATv2Scores, of_integers_are_exact_and_so_are_the_gradients) {
  for (const NamedTopology& g : topologies()) {
    SCOPED_TRACE(g.name);
    for (const DTypeInfo& dtype : dtypes()) {
      for (const std::int64_t heads : {1, 3, 4}) {
        for (const std::int64_t features : {1, 7, 8, 16, 64, 100}) {
          expect_exact(g.topology, heads, features, dtype.scalar);
        }
      }
    }
  }
}

TEST(GATv2Scores, of_hubs_are_exact_and_so_are_the_gradients) {
  for (const DTypeInfo& dtype : dtypes()) {
    for (const Topology& g : {in_star(5000), in_star(5000).reverse()}) {
      expect_exact(g, 4, 8, dtype.scalar);
      expect_exact(g, 1, 21, dtype.scalar);
    }
  }
}

TEST(GATv2Scores, of_many_heads_are_exact_and_so_are_the_gradients) {
  const Topology g = random_topology(20, 15, 120, 31, 3.0);
  for (const DTypeInfo& dtype : dtypes()) {
    for (const std::int64_t heads : {16, 17, 40, 200}) expect_exact(g, heads, 3, dtype.scalar);
  }
}

TEST(GATv2Scores, stay_within_the_rounding_of_their_sums) {
  for (const NamedTopology& g : topologies()) {
    for (const DTypeInfo& dtype : dtypes()) {
      for (const double slope : {0.2, 0.0, 1.5, -0.5}) {
        SCOPED_TRACE(fmt::format("{} on {}, slope {}", dtype.name, g.name, slope));
        const Operands in = random_operands(g.topology, 3, 41, dtype.scalar);
        const at::Tensor grad = uniform({g.topology.num_edges(), 3}, accumulator(dtype.scalar), 4);
        const auto got = run(g.topology, in, grad, slope);
        expect_agree(got[0], in, define(g.topology, in, grad, slope), /*exactly=*/false);
      }
    }
  }
}

TEST(GATv2Scores, of_sixteen_bit_rows_are_not_rounded_to_sixteen_bits) {
  const Topology g = topology_of({0}, {0}, 1, 1);
  for (const DTypeInfo& dtype : narrow_dtypes()) {
    SCOPED_TRACE(dtype.name);
    const auto of = [&](double value) {
      return at::full({1, 1, 1}, value, on_device()).to(dtype.scalar);
    };
    const at::Tensor scores = gatv2_scores(g, of(1), of(dtype.epsilon / 4), of(3));
    EXPECT_EQ(scores.scalar_type(), at::kFloat);
    EXPECT_TRUE(exact(scores, at::full({1, 1}, 3 * (1 + dtype.epsilon / 4), at::kDouble)));
  }
}

TEST(GATv2Scores, take_attention_vectors_with_and_without_a_first_dimension) {
  const Topology g = four_nodes();
  const Operands in = random_operands(g, 2, 5, at::kFloat);
  const at::Tensor flat = leaf(in.attn[0]);
  const at::Tensor grad = uniform({4, 2}, at::kFloat, 4);
  const auto with = run(g, in, grad, 0.2), without = run(g, {in.src, in.dst, flat}, grad, 0.2);
  EXPECT_TRUE(same_bits(with[0], without[0]));
  EXPECT_TRUE(same_bits(with[3][0], without[3]));
}

TEST(GATv2Scores, take_operands_that_are_not_contiguous) {
  const Topology g = four_nodes();
  const Operands in = random_operands(g, 3, 5, at::kDouble);
  const auto strided = [](const at::Tensor& t) {
    return leaf(t.transpose(1, 2).contiguous()).transpose(1, 2);
  };
  const at::Tensor expected = gatv2_scores(g, in.src, in.dst, in.attn);
  EXPECT_TRUE(
      same_bits(gatv2_scores(g, strided(in.src), strided(in.dst), strided(in.attn)), expected));
}

TEST(GATv2Scores, pass_nan_and_infinity_to_the_edges_they_belong_to) {
  // Edges 0->1, 0->2, 1->2, 3->2.
  for (const DTypeInfo& dtype : dtypes()) {
    for (const std::int64_t features : {1, 40}) {
      SCOPED_TRACE(fmt::format("{} {}", dtype.name, features));
      const auto ones = [&](std::int64_t rows) {
        return at::ones({rows, 1, features}, on_device(dtype.scalar));
      };
      for (const double value : {std::nan(""), kInf}) {
        const at::Tensor src = ones(4);
        src[1][0][features - 1] = value;
        const auto count = static_cast<double>(features);
        const at::Tensor expected = numbers({2 * count, 2 * count, value, 2 * count}).view({4, 1});
        EXPECT_TRUE(exact(gatv2_scores(four_nodes(), src, ones(4), ones(1)), expected));
      }
    }
  }
}

TEST(GATv2ScoresGradient, agrees_with_differences_for_all_three_operands) {
  const Topology g = random_topology(5, 4, 12, 45);
  for (const double slope : {0.2, -0.5}) {
    EXPECT_TRUE(gradcheck(
        [&](const std::vector<at::Tensor>& in) {
          return gatv2_scores(g, in[0], in[1], in[2], slope);
        },
        {uniform({5, 2, 3}, at::kDouble, 5), uniform({4, 2, 3}, at::kDouble, 6),
         uniform({1, 2, 3}, at::kDouble, 7)}));
  }
}

TEST(GATv2ScoresGradient, of_one_operand_alone_has_the_bits_of_that_of_all) {
  const Topology g = random_topology(30, 40, 300, 46);
  const Operands all = random_operands(g, 2, 9, at::kFloat);
  const at::Tensor grad = uniform({300, 2}, at::kFloat, 4);
  const auto together = run(g, all, grad, 0.2);
  for (std::size_t which = 0; which < 3; ++which) {
    std::vector<at::Tensor> in = {all.src.detach(), all.dst.detach(), all.attn.detach()};
    in[which] = leaf(in[which]);
    gatv2_scores(g, in[0], in[1], in[2]).backward(grad);
    EXPECT_TRUE(same_bits(in[which].grad(), together[which + 1])) << which;
  }
}

TEST(GATv2ScoresGradient, of_nodes_without_edges_is_zero_even_where_attn_is_infinite) {
  const Topology g = four_nodes();  // 2 has no out-edges, 0 and 3 have no in-edges
  for (const DTypeInfo& dtype : dtypes()) {
    Operands in = integer_operands(g, 1, 3, dtype.scalar);
    in.attn = leaf(at::full({1, 1, 3}, kInf, on_device()).to(dtype.scalar));
    const auto got = run(g, in, at::ones({4, 1}, on_device(accumulator(dtype.scalar))), 0.25);
    EXPECT_TRUE(exact(got[1][2], at::zeros({1, 3}))) << dtype.name;
    EXPECT_TRUE(exact(got[1][0], at::full({1, 3}, kInf))) << dtype.name;
    EXPECT_TRUE(exact(got[2][0], at::zeros({1, 3}))) << dtype.name;
    EXPECT_TRUE(exact(got[2][3], at::zeros({1, 3}))) << dtype.name;
  }
}

TEST(GATv2ScoresMemory, forward_and_backward_keep_nothing_for_each_edge_and_feature) {
  constexpr std::int64_t num_edges = 20000, heads = 4, features = 64;
  const Topology g = random_topology(50, 50, num_edges, 82);
  g.csr();
  g.csc();
  const ThreadCount threads(2);
  for (const DTypeInfo& dtype : dtypes()) {
    const Operands in = random_operands(g, heads, features, dtype.scalar);
    const at::Tensor grad = uniform({num_edges, heads}, accumulator(dtype.scalar), 4);
    reset_peak_memory(test_device());
    const std::int64_t before = peak_memory_bytes(test_device());
    run(g, in, grad, 0.2);
    const auto messages = num_edges * heads * features * in.src.element_size();
    EXPECT_LT(peak_memory_bytes(test_device()) - before, static_cast<std::int64_t>(messages) / 8)
        << dtype.name;
  }
}

TEST(GATv2ScoresAutocast, casts_all_operands_and_gives_gradients_to_the_leaves) {
  const Topology g = random_topology(12, 9, 50, 91);
  for (const auto& [precision, dtype] : {std::pair(amp::Precision::kBFloat16, at::kBFloat16),
                                         std::pair(amp::Precision::kFloat16, at::kHalf)}) {
    const Operands in = random_operands(g, 2, 5, at::kFloat);
    const Operands low = {leaf(in.src.to(dtype)), leaf(in.dst.to(dtype)), leaf(in.attn.to(dtype))};
    const at::Tensor grad = uniform({50, 2}, at::kFloat, 4);
    at::Tensor scores;
    {
      const amp::PrecisionScope scope(precision, test_device());
      scores = gatv2_scores(g, in.src, in.dst, in.attn);
    }
    scores.backward(grad);
    const auto expected = run(g, low, grad, 0.2);
    EXPECT_TRUE(same_bits(scores, expected[0]));
    EXPECT_TRUE(same_bits(in.src.grad(), expected[1].to(at::kFloat)));
    EXPECT_TRUE(same_bits(in.dst.grad(), expected[2].to(at::kFloat)));
    EXPECT_TRUE(same_bits(in.attn.grad(), expected[3].to(at::kFloat)));
  }
}

TEST(GATv2ScoresErrors, name_the_operand_and_what_was_expected) {
  const Topology g = random_topology(6, 4, 10, 92);
  const auto zeros = [](at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
    return at::zeros(sizes, on_device(dtype));
  };
  const auto expect_error = [&](const at::Tensor& src, const at::Tensor& dst,
                                const at::Tensor& attn, const std::vector<std::string>& parts,
                                double slope = 0.2) {
    const std::string text = error_of([&] { gatv2_scores(g, src, dst, attn, slope); });
    for (const std::string& part : parts) EXPECT_TRUE(mentions(text, part, "gatv2_scores"));
  };
  const at::Tensor src = zeros({6, 2, 3}), dst = zeros({4, 2, 3}), attn = zeros({2, 3});
  expect_error(zeros({5, 2, 3}), dst, attn, {"src[6,heads,features]", "got[5,2,3]"});
  expect_error(zeros({6, 6}), dst, attn, {"src[6,heads,features]", "got[6,6]"});
  expect_error(src, zeros({6, 2, 3}), attn, {"dst[4,2,3]", "got[6,2,3]"});
  expect_error(src, zeros({4, 3, 2}), attn, {"dst[4,2,3]", "got[4,3,2]"});
  expect_error(src, dst, zeros({3, 2}), {"attn[2,3]or[1,2,3]", "got[3,2]"});
  expect_error(src, dst, zeros({2, 2, 3}), {"attn[2,3]or[1,2,3]", "got[2,2,3]"});
  expect_error(src, dst, zeros({2, 3}, at::kBFloat16), {"onedtype", "BFloat16"});
  expect_error(src, zeros({4, 2, 3}, at::kDouble), attn, {"onedtype", "Double"});
  expect_error(zeros({6, 2, 3}, at::kLong), dst, attn, {"dtypeofsrc", "float32", "Long"});
  expect_error(src, dst, attn.to_sparse(), {"stridedattn"});
  expect_error(src, {}, attn, {"expecteddst", "undefined"});
  expect_error(src, dst, attn, {"negative_slope", "inf"}, kInf);
  expect_error(src, dst, attn, {"negative_slope", "Float", "1e+39"}, 1e39);
}

}  // namespace
}  // namespace mezzo::test
