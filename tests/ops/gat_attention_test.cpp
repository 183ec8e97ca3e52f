#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "mezzo/ops/ops.h"
#include "mezzo/ops/schema.h"

#include "support/attention_reference.h"
#include "support/gradcheck.h"
#include "support/reference.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using namespace gat;  // NOLINT(google-build-using-namespace): the subject of this file

/// Compares value and gradients with the definition: exactly, or within the bound of the
/// arithmetic.
void expect_right(const Topology& g, const Inputs& in, bool whole) {
  const at::ScalarType dtype = in.z.scalar_type();
  const at::Tensor out = run(g, in);
  ASSERT_EQ(out.scalar_type(), dtype);
  const at::Tensor grad = whole ? integers(out.sizes(), dtype, 9) : uniform(out.sizes(), dtype, 9);
  const Defined expected = define(g, in, grad);
  EXPECT_TRUE(agrees(out, expected.out, whole));
  const auto got = torch::autograd::grad({out}, operands(in), {grad});
  for (std::size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "gradient " << i);
    EXPECT_EQ(got[i].scalar_type(), operands(in)[i].scalar_type());
    const Reference& gradient = expected.gradients[i];
    EXPECT_TRUE(whole ? exact_rounded(got[i], gradient.value)
                      : gradient_near(got[i], gradient, dtype));
  }
}

/// The kind of edge weights.
enum class Weights { kNone, kByEdge, kByHead };

Inputs make_inputs(const Topology& g, std::int64_t heads, std::int64_t features,
                   at::ScalarType dtype, at::ScalarType score_dtype, Weights weights,
                   double dropout, std::uint64_t seed = 1) {
  Inputs in;
  in.z = leaf(uniform({g.num_src(), heads, features}, dtype, seed));
  in.src = leaf(uniform({g.num_src(), heads}, score_dtype, seed + 1, -2, 2));
  in.dst = leaf(uniform({g.num_dst(), heads}, score_dtype, seed + 2, -2, 2));
  if (weights == Weights::kByEdge)
    in.weight = leaf(uniform({g.num_edges()}, score_dtype, seed + 3));
  if (weights == Weights::kByHead) {
    in.weight = leaf(uniform({g.num_edges(), heads}, score_dtype, seed + 3));
  }
  in.dropout = dropout;
  return in;
}

/// Every destination has four in-edges, so equal logits give an attention of exactly 1/4.
Topology four_into_each(std::int64_t num_src, std::int64_t num_dst) {
  std::vector<std::int64_t> src, dst;
  for (std::int64_t e = 0; e < 4 * num_dst; ++e) {
    src.push_back(static_cast<std::int64_t>(
        random_below(static_cast<std::uint64_t>(num_src), 5, 1, static_cast<std::uint64_t>(e))));
    dst.push_back((e * 5) % num_dst);
  }
  return topology_of(src, dst, num_src, num_dst);
}

TEST(GatAttention, of_equal_logits_is_exact_for_whole_numbers_in_every_shape_and_dtype) {
  const Topology g = four_into_each(9, 6);
  for (const DTypeInfo& dtype : dtypes()) {
    for (const std::int64_t heads : {1, 3, 4, 8}) {
      for (const std::int64_t features : {1, 7, 8, 16, 64, 100, 256}) {
        for (const bool by_head : {false, true}) {
          SCOPED_TRACE(testing::Message() << dtype.name << " heads " << heads << " features "
                                          << features << " weights by head " << by_head);
          Inputs in;
          in.z = leaf(integers({9, heads, features}, dtype.scalar, 1));
          in.src = leaf(at::zeros({9, heads}, on_device(dtype.scalar)));
          in.dst = leaf(at::zeros({6, heads}, on_device(dtype.scalar)));
          in.weight = by_head ? leaf(divisors({24, heads}, dtype.scalar, 2))
                              : leaf(divisors({24}, dtype.scalar, 2));
          in.slope = 0.5;
          expect_right(g, in, true);
        }
      }
    }
  }
}

TEST(GatAttention, is_its_definition_on_every_graph) {
  for (const NamedTopology& g : topologies()) {
    if (g.topology.num_src() == 0) continue;
    for (const Weights weights : {Weights::kNone, Weights::kByEdge, Weights::kByHead}) {
      for (const double dropout : {0.0, 0.4}) {
        SCOPED_TRACE(testing::Message() << g.name << " weights " << static_cast<int>(weights)
                                        << " dropout " << dropout);
        expect_right(g.topology,
                     make_inputs(g.topology, 3, 7, at::kDouble, at::kDouble, weights, dropout),
                     false);
      }
    }
  }
}

TEST(GatAttention, stays_within_its_rounding_in_every_shape_and_dtype) {
  const Topology g = random_topology(30, 25, 150, 11, 2.0);
  for (const DTypeInfo& dtype : dtypes()) {
    for (const std::int64_t heads : {1, 3, 8, 17}) {
      for (const std::int64_t features : {1, 8, 33, 64, 100, 300}) {
        SCOPED_TRACE(testing::Message()
                     << dtype.name << " heads " << heads << " features " << features);
        expect_right(
            g, make_inputs(g, heads, features, dtype.scalar, dtype.scalar, Weights::kByEdge, 0.4),
            false);
      }
    }
  }
}

TEST(GatAttention, takes_float32_scores_and_weights_beside_narrow_rows) {
  const Topology g = random_topology(30, 25, 150, 12);
  for (const DTypeInfo& dtype : narrow_dtypes()) {
    for (const Weights weights : {Weights::kNone, Weights::kByEdge, Weights::kByHead}) {
      SCOPED_TRACE(dtype.name);
      expect_right(g, make_inputs(g, 4, 16, dtype.scalar, at::kFloat, weights, 0.3), false);
    }
  }
}

TEST(GatAttention, adds_up_the_thousands_of_edges_of_a_hub_on_either_side) {
  const Topology into = in_star(5000), out_of = into.reverse();
  for (const Topology& g : {into, out_of}) {
    for (const std::int64_t heads : {1, 3, 8}) {
      for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
        expect_right(g, make_inputs(g, heads, 17, dtype, dtype, Weights::kByEdge, 0.5), false);
      }
    }
  }
}

TEST(GatAttention, takes_more_heads_than_a_chunk_has_numbers) {
  const Topology g = random_topology(6, 5, 20, 13);
  for (const std::int64_t heads : {300, 1100}) {
    expect_right(g, make_inputs(g, heads, 2, at::kFloat, at::kFloat, Weights::kByHead, 0.5), false);
  }
}

TEST(GatAttention, takes_negative_zero_and_large_slopes) {
  const Topology g = random_topology(10, 10, 40, 14);
  for (const double slope : {-0.5, 0.0, 1.0, 3.0}) {
    Inputs in = make_inputs(g, 2, 5, at::kDouble, at::kDouble, Weights::kNone, 0);
    in.slope = slope;
    expect_right(g, in, false);
  }
}

TEST(GatAttention, large_scores_neither_overflow_nor_underflow) {
  const Topology g = random_topology(10, 10, 60, 15);
  for (const DTypeInfo& dtype : dtypes()) {
    Inputs in = make_inputs(g, 2, 5, dtype.scalar, dtype.scalar, Weights::kNone, 0);
    in.src = leaf((in.src.detach().to(at::kDouble) * 20000).to(dtype.scalar));
    const at::Tensor out = run(g, in);
    EXPECT_TRUE(at::isfinite(out).all().item<bool>()) << dtype.name;
    const auto grads = torch::autograd::grad({out.sum()}, operands(in));
    for (const at::Tensor& grad : grads) EXPECT_TRUE(at::isfinite(grad).all().item<bool>());
  }
}

TEST(GatAttention, gradients_agree_with_finite_differences) {
  const Topology g = random_topology(6, 5, 17, 16);
  for (const double dropout : {0.0, 0.5}) {
    for (const bool by_head : {false, true}) {
      const auto function = [&](const std::vector<at::Tensor>& inputs) {
        return run(g, {inputs[0], inputs[1], inputs[2], inputs[3], 0.2, dropout});
      };
      std::vector<std::int64_t> weight = {17};
      if (by_head) weight.push_back(3);
      EXPECT_TRUE(
          gradcheck(function, {uniform({6, 3, 4}, at::kDouble, 1), uniform({6, 3}, at::kDouble, 2),
                               uniform({5, 3}, at::kDouble, 3), uniform(weight, at::kDouble, 4)}));
    }
  }
}

/// Attention as a sequence of operators; drops the same edges.
at::Tensor composed(const Topology& g, const Inputs& in) {
  const at::Tensor logits = at::leaky_relu(
      gsddmm(g, BinaryOp::kAdd, in.src.unsqueeze(-1), in.dst.unsqueeze(-1)), in.slope);
  at::manual_seed(kSeed);
  at::Tensor attention = mezzo::feature_dropout(edge_softmax(g, logits), in.dropout, true);
  if (in.weight.defined()) attention = attention * in.weight.reshape({g.num_edges(), -1, 1});
  return gspmm(g, BinaryOp::kMul, ReduceOp::kSum, in.z, attention);
}

TEST(GatAttention, equals_the_operators_it_is_fused_of) {
  const Topology g = large_power_law();
  for (const std::int64_t heads : {1, 3, 8}) {
    const Inputs in = make_inputs(g, heads, 4, at::kDouble, at::kDouble, Weights::kByEdge, 0.4, 20);
    const at::Tensor fused = run(g, in), apart = composed(g, in);
    const at::Tensor grad = uniform(fused.sizes(), at::kDouble, 9);
    const Defined of = define(g, in, grad);
    EXPECT_TRUE(near(fused, apart, sum_bound(of.out.abs_sum, 2 * of.out.terms, at::kDouble)));
    const auto got = torch::autograd::grad({fused}, operands(in), {grad});
    const auto expected = torch::autograd::grad({apart}, operands(in), {grad});
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(near(got[i], expected[i],
                       sum_bound(of.gradients[i].abs_sum, 2 * of.out.terms, at::kDouble)));
    }
  }
}

TEST(GatAttention, infinite_and_undefined_scores_do_what_they_do_to_the_softmax) {
  const Topology g = random_topology(12, 10, 40, 17);
  const Inputs plain = make_inputs(g, 3, 5, at::kFloat, at::kFloat, Weights::kNone, 0);
  for (const double special : {std::nan(""), kInfinity, -kInfinity}) {
    for (const bool everywhere : {false, true}) {
      Inputs in = plain;
      in.src = plain.src.detach().clone();
      at::Tensor head = in.src.select(1, 1);
      (everywhere ? head : head.narrow(0, 0, 2)).fill_(special);
      const at::Tensor fused = run(g, in), apart = composed(g, in);
      EXPECT_TRUE(at::equal(fused.isnan(), apart.isnan())) << special << ' ' << everywhere;
      const at::Tensor others = on_device(at::tensor({0, 2}, at::kLong));
      EXPECT_TRUE(same_bits(fused.index_select(1, others), run(g, plain).index_select(1, others)));
    }
  }
}

TEST(GatAttention, drops_at_the_given_rate_and_keeps_the_mean) {
  // With equal attention and z = 1 a result is the mean of dropout's factors, each with variance
  // p / (1 - p).
  constexpr std::int64_t kEdges = 1 << 15;
  for (const std::int64_t heads : {1, 3, 8}) {
    for (const double p : {0.1, 0.5, 0.9}) {
      const Inputs in = {at::ones({kEdges, heads, 1}, on_device()),
                         at::zeros({kEdges, heads}, on_device()),
                         at::zeros({1, heads}, on_device()),
                         {},
                         0.2,
                         p};
      const double six_sigma = 6 * std::sqrt(p / (1 - p) / static_cast<double>(kEdges));
      EXPECT_LT((run(in_star(kEdges), in) - 1).abs().max().item<double>(), six_sigma);
    }
  }
}

TEST(GatAttention, drops_while_training_only_and_differently_each_time) {
  const Topology g = random_topology(20, 20, 100, 18);
  const Inputs in = make_inputs(g, 2, 3, at::kFloat, at::kFloat, Weights::kNone, 0.5);
  const at::Tensor first = run(g, in);
  const at::Tensor second =
      gat_attention(g, in.z, in.src, in.dst, {.dropout = 0.5, .training = true});
  EXPECT_FALSE(same_bits(first, second));
  EXPECT_TRUE(same_bits(first, run(g, in)));
  EXPECT_TRUE(same_bits(gat_attention(g, in.z, in.src, in.dst, {.dropout = 0.5}),
                        gat_attention(g, in.z, in.src, in.dst)));
  Inputs all = in;
  all.dropout = 1;
  EXPECT_TRUE(exact(run(g, all), at::zeros({20, 2, 3})));
}

TEST(GatAttention, casts_rows_under_autocast_and_leaves_scores) {
  const Topology g = random_topology(12, 9, 50, 19);
  const Inputs in = make_inputs(g, 2, 5, at::kFloat, at::kFloat, Weights::kByEdge, 0);
  at::autocast::set_autocast_enabled(test_device().type(), true);
  at::autocast::set_autocast_dtype(test_device().type(), at::kBFloat16);
  const at::Tensor out = run(g, in);
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(test_device().type(), false);
  Inputs low = in;
  low.z = leaf(in.z.to(at::kBFloat16));
  const at::Tensor expected = run(g, low);
  EXPECT_TRUE(same_bits(out, expected));
  const at::Tensor grad = uniform(out.sizes(), at::kBFloat16, 9);
  const auto got = torch::autograd::grad({out}, operands(in), {grad});
  const auto expected_grads = torch::autograd::grad({expected}, operands(low), {grad});
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(same_bits(got[i], expected_grads[i].to(at::kFloat)));
  }
}

TEST(GatAttention, refuses_what_does_not_fit_and_names_it) {
  const Topology g = topology_of({0, 4, 2}, {6, 0, 0}, 5, 7);
  const at::Tensor z = at::ones({5, 2, 3}, on_device()), src = at::ones({5, 2}, on_device()),
                   dst = at::ones({7, 2}, on_device());
  const auto text = [&](const at::Tensor& rows, const at::Tensor& s, const at::Tensor& d,
                        const AttentionOptions& options = {}) {
    return error_of([&] { gat_attention(g, rows, s, d, options); });
  };
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_TRUE(mentions(message, "gat_attention", part));
  };
  expect(text(at::ones({5, 6}, on_device()), src, dst), "z[5,heads>=1,features>=1]");
  expect(text(at::ones({4, 2, 3}, on_device()), src, dst), "z[5,heads>=1,features>=1]");
  expect(text(at::ones({5, 0, 3}, on_device()), src, dst), "z[5,heads>=1,features>=1]");
  expect(text(z.to(at::kLong), src, dst), "dtypeofz");
  expect(text(z, at::ones({5, 3}, on_device()), dst), "score_src[5,2]");
  expect(text(z, src, at::ones({5, 2}, on_device())), "score_dst[7,2]");
  expect(text(z, src.to(at::kHalf), dst), "score_src");
  expect(text(z.to(at::kHalf), src.to(at::kBFloat16), dst), "score_src");
  expect(text(z, src, dst.to(at::kDouble)), "score_dst");
  expect(text(z, src.to(at::kHalf), dst), "z'sdtypeFloat,gotHalf");
  expect(text(z.to(at::kHalf), src.to(at::kBFloat16), dst), "z'sdtypeHalforFloat,gotBFloat16");
  const std::string shapes = "edge_weight[3],[3,1]or[3,2],onenumberanedge,gotshape";
  expect(text(z, src, dst, {.edge_weight = at::ones({4}, on_device())}), shapes + "[4]");
  expect(text(z, src, dst, {.edge_weight = at::ones({4, 1}, on_device())}), shapes + "[4,1]");
  expect(text(z, src, dst, {.edge_weight = at::ones({3, 3}, on_device())}), shapes + "[3,3]");
  expect(text(z, src, dst, {.edge_weight = at::ones({}, on_device(at::kFloat))}), shapes + "[]");
  expect(text(z, src, dst, {.edge_weight = at::ones({3}, on_device(at::kHalf))}),
         "edge_weightofz'sdtype");
  expect(text(z.to_sparse(), src, dst), "stridedz");
  expect(text(z, src, dst.to_sparse()), "stridedscore_dst");
  expect(text(z, src, dst, {.edge_weight = at::ones({3}, on_device()).to_sparse()}),
         "stridededge_weight");
  expect(text(z, src, dst, {.negative_slope = 1e39}), "negative_slope");
  expect(text(z, src, dst, {.dropout = 1.5}), "1.5");
  expect(text(z, src, dst, {.negative_slope = kInfinity}), "negative_slope");
  expect(text(z, src, at::Tensor()), "undefined");
}

/// The operator by its name.
at::Tensor attended(const Topology& g, const Inputs& in, std::int64_t seed,
                    const std::optional<at::Tensor>& seed_offset) {
  static const auto op = mezzo::detail::handle<at::Tensor(
      const mezzo::detail::TopologyPtr&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
      const std::optional<at::Tensor>&, double, double, std::int64_t,
      const std::optional<at::Tensor>&)>("mezzo::gat_attention");
  return op.call(mezzo::detail::hold(g), in.z, in.src, in.dst,
                 in.weight.defined() ? std::optional(in.weight) : std::nullopt, in.slope,
                 in.dropout, seed, seed_offset);
}

TEST(GatAttention, adds_the_offset_to_the_seed_in_its_gradients_too) {
  const Topology g = four_nodes();
  const Inputs in = make_inputs(g, 8, 3, at::kDouble, at::kDouble, Weights::kByHead, 0.5);
  const auto offset = [](std::int64_t number) {
    return at::full({1}, number, on_device(at::kLong));
  };
  const auto grad = uniform({g.num_dst(), 8, 3}, at::kDouble, 9);
  const auto expected = attended(g, in, 12, std::nullopt), out = attended(g, in, 5, offset(7));
  EXPECT_TRUE(same_bits(out, expected));
  EXPECT_FALSE(same_bits(attended(g, in, 5, offset(8)), expected));
  const auto got = torch::autograd::grad({out}, operands(in), {grad});
  const auto expected_grads = torch::autograd::grad({expected}, operands(in), {grad});
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(same_bits(got[i], expected_grads[i])) << i;
  EXPECT_ERROR("seed_offset", attended(g, in, 5, at::zeros({1}, on_device())));
}

TEST(GatAttention, called_by_name_refuses_what_is_no_probability) {
  const Topology g = four_nodes();
  for (const double dropout : {-0.5, 1.5, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_ERROR(fragments("gat_attention", "probability"),
                 attended(g,
                          {.z = at::ones({4, 1, 2}, on_device()),
                           .src = at::ones({4, 1}, on_device()),
                           .dst = at::ones({4, 1}, on_device()),
                           .weight = {},
                           .dropout = dropout},
                          7, std::nullopt));
  }
}

}  // namespace
}  // namespace mezzo::test
