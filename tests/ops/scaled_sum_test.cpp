#include <limits>
#include <optional>

#include <torch/csrc/autograd/autograd.h>

#include "mezzo/ops/ops.h"

#include "support/gradcheck.h"
#include "support/scaled_sum_reference.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace mezzo::test::scaled_sum_test {
namespace {

using scaled::define, scaled::Inputs, scaled::run;

at::ScalarType scale_dtype(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

/// The factors of scaled_sum that are present.
struct Factors {
  bool weight, src_scale, dst_scale;
};

std::vector<Factors> all_factors() {
  std::vector<Factors> all;
  for (int bits = 0; bits < 8; ++bits)
    all.push_back({(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0});
  return all;
}

std::string described(const Inputs& in) {
  return fmt::format("{}{}{}{}", c10::toString(in.x.scalar_type()), in.weight ? " weight" : "",
                     in.src_scale ? " src_scale" : "", in.dst_scale ? " dst_scale" : "");
}

/// Compares value and gradients with the definition; exactly for integers and powers of two.
void expect_right(const Topology& g, const Inputs& in, bool whole) {
  SCOPED_TRACE(described(in));
  const at::ScalarType dtype = in.x.scalar_type();
  const at::Tensor out = run(g, in);
  EXPECT_EQ(out.scalar_type(), dtype);
  const auto grad = whole ? integers(out.sizes(), dtype, 9) : uniform(out.sizes(), dtype, 9);
  out.backward(grad);
  expect_defined(out, {in.x, in.weight.value_or(at::Tensor())}, define(g, in, grad), whole);
}

Inputs make_inputs(const Topology& g, const Factors& factors, at::ScalarType dtype,
                   at::ScalarType weight_dtype, bool whole,
                   const std::vector<std::int64_t>& trailing,
                   const std::vector<std::int64_t>& weight_trailing) {
  const auto sizes = [&](Target target, const std::vector<std::int64_t>& rest) {
    auto all = shape(g, target, {});
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
  };
  const auto make = [&](Target target, const std::vector<std::int64_t>& rest, at::ScalarType type,
                        std::uint64_t seed) {
    return whole ? divisors(sizes(target, rest), type, seed)
                 : uniform(sizes(target, rest), type, seed);
  };
  Inputs in;
  in.x = leaf(whole ? integers(sizes(Target::kSrc, trailing), dtype, 1)
                    : uniform(sizes(Target::kSrc, trailing), dtype, 1));
  if (factors.weight) in.weight = leaf(make(Target::kEdge, weight_trailing, weight_dtype, 2));
  if (factors.src_scale) in.src_scale = make(Target::kSrc, {}, scale_dtype(dtype), 3);
  if (factors.dst_scale) in.dst_scale = make(Target::kDst, {}, scale_dtype(dtype), 4);
  return in;
}

TEST(ScaledSum, is_its_definition_with_every_combination_of_factors) {
  for (const NamedTopology& g : topologies()) {
    if (g.topology.num_src() == 0) continue;  // no row to get the width from
    for (const DTypeInfo& dtype : dtypes()) {
      for (const Factors& factors : all_factors()) {
        for (const bool whole : {true, false}) {
          SCOPED_TRACE("on " + g.name);
          expect_right(
              g.topology,
              make_inputs(g.topology, factors, dtype.scalar, dtype.scalar, whole, {21}, {}), whole);
        }
      }
    }
  }
}

TEST(ScaledSum, takes_a_float32_weight_beside_narrow_features) {
  const Topology g = random_topology(20, 15, 90, 51);
  for (const DTypeInfo& dtype : narrow_dtypes()) {
    for (const Factors& factors : all_factors()) {
      if (!factors.weight) continue;
      for (const bool whole : {true, false}) {
        expect_right(g, make_inputs(g, factors, dtype.scalar, at::kFloat, whole, {7}, {}), whole);
      }
    }
  }
}

TEST(ScaledSum, takes_features_of_any_rank_and_weights_with_trailing_ones) {
  const Topology g = random_topology(20, 15, 90, 52);
  for (const DTypeInfo& dtype : dtypes()) {
    const auto check = [&](const std::vector<std::int64_t>& x, const std::vector<std::int64_t>& w) {
      SCOPED_TRACE(fmt::format("x [{}] weight [{}]", fmt::join(x, ","), fmt::join(w, ",")));
      expect_right(g, make_inputs(g, {true, true, true}, dtype.scalar, dtype.scalar, true, x, w),
                   true);
    };
    check({}, {});
    check({1}, {1});
    check({5}, {1});
    check({2, 3}, {});
    check({2, 3}, {1, 1});
  }
}

TEST(ScaledSum, without_factors_is_the_plain_sum) {
  const Topology g = random_topology(20, 15, 90, 53);
  for (const DTypeInfo& dtype : dtypes()) {
    const auto x = uniform({20, 33}, dtype.scalar, 1);
    EXPECT_TRUE(same_bits(scaled_sum(g, x, {}, {}, {}),
                          gspmm(g, BinaryOp::kCopyLhs, ReduceOp::kSum, x, std::nullopt)))
        << dtype.name;
  }
}

TEST(ScaledSum, applies_the_scales_before_the_one_rounding) {
  // The sum, 120000, overflows float16; a thousandth of it does not.
  const Topology star = in_star(4);
  const auto x = at::full({4, 1}, 30000, on_device()).to(at::kHalf);
  const auto out = scaled_sum(star, x, {}, {}, at::full({1}, 0.125F, on_device()));
  EXPECT_TRUE(exact(out, at::full({1, 1}, 15000)));
}

TEST(ScaledSum, of_nodes_without_edges_is_zero_even_where_their_scale_is_infinite) {
  const Topology g = topology_of({0, 4, 2}, {6, 0, 0}, 5, 7);
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const auto results = [&](double of_bare_nodes, bool weighted) {
      const at::TensorOptions options = on_device(scale_dtype(dtype.scalar));
      at::Tensor src = at::full({5}, of_bare_nodes, options);
      at::Tensor dst = at::full({7}, of_bare_nodes, options);
      for (const int u : {0, 2, 4}) src[u].fill_(2);
      for (const int v : {0, 6}) dst[v].fill_(0.5);
      const at::Tensor x = leaf(integers({5, 33}, dtype.scalar, 1));
      const at::Tensor weight = leaf(integers({3}, dtype.scalar, 2));
      const at::Tensor out =
          scaled_sum(g, x, weighted ? std::optional(weight) : std::nullopt, src, dst);
      std::vector<at::Tensor> of = {x};
      if (weighted) of.push_back(weight);
      auto all = torch::autograd::grad({out}, of, {integers(out.sizes(), dtype.scalar, 3)});
      all.push_back(out);
      return all;
    };
    for (const bool weighted : {false, true}) {
      const auto got = results(std::numeric_limits<double>::infinity(), weighted);
      const auto expected = results(1, weighted);
      for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], expected[i])) << i;
      EXPECT_TRUE(exact(got.front()[1], at::zeros({33}))) << "x's gradient";
      EXPECT_TRUE(exact(got.back()[1], at::zeros({33}))) << "value";
    }
  }
}

TEST(ScaledSum, gradients_agree_with_finite_differences) {
  const Topology g = random_topology(6, 5, 17, 54);
  const auto src = uniform({6}, at::kDouble, 3), dst = uniform({5}, at::kDouble, 4);
  EXPECT_TRUE(gradcheck(
      [&](const std::vector<at::Tensor>& in) { return scaled_sum(g, in[0], in[1], src, dst); },
      {uniform({6, 4}, at::kDouble, 1), uniform({17}, at::kDouble, 2)}));
}

TEST(ScaledSum, refuses_what_does_not_fit_and_names_it) {
  const Topology g = four_nodes();
  const at::Tensor x = at::ones({4, 2}, on_device(at::kFloat)),
                   edge = at::ones({4}, on_device(at::kFloat));
  const at::Tensor seven = at::ones({7}, on_device(at::kFloat));
  const auto attempt = [&](const at::Tensor& in, const std::optional<at::Tensor>& weight,
                           const std::optional<at::Tensor>& src,
                           const std::optional<at::Tensor>& dst) {
    scaled_sum(g, in, weight, src, dst);
  };
  EXPECT_ERROR("7", attempt(at::ones({7, 2}, on_device()), {}, {}, {}));
  EXPECT_ERROR("weight", attempt(x, seven, {}, {}));
  EXPECT_ERROR("src_scale", attempt(x, {}, seven, {}));
  EXPECT_ERROR("dst_scale", attempt(x, {}, {}, seven));
  EXPECT_ERROR("weight", attempt(x, at::ones({4, 2}, on_device()), {}, {}));
  EXPECT_ERROR("src_scale", attempt(x, {}, edge.to(at::kHalf), {}));
  EXPECT_ERROR("scaled_sum", attempt(x.to(at::kLong), {}, {}, {}));
  EXPECT_ERROR("expectedastridedsrc_scale,gotSparse", attempt(x, {}, edge.to_sparse(), {}));
  EXPECT_ERROR("expectedastrideddst_scale,gotSparse", attempt(x, {}, {}, edge.to_sparse()));
}

TEST(ScaledSum, takes_a_trained_scale_where_no_gradient_is_asked_for) {
  const at::Tensor x = numbers({1, 2, 3, 4}), scale = leaf(numbers({5, 6, 7, 8}));
  EXPECT_ERROR("constants", scaled_sum(four_nodes(), x, {}, scale, {}));
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(same_bits(scaled_sum(four_nodes(), x, {}, scale, {}),
                        scaled_sum(four_nodes(), x, {}, scale.detach(), {})));
}

TEST(ScaledSum, keeps_the_weight_for_the_gradient_of_the_features_alone) {
  const at::Tensor w = leaf(numbers({5, 6, 7, 8})), x = numbers({1, 2, 3, 4});
  const auto gradient = [&](bool write) {
    const at::Tensor weight = w * 1;
    const at::Tensor out = scaled_sum(four_nodes(), x, weight, {}, {});
    if (write) weight.add_(1);
    return torch::autograd::grad({out.sum()}, {w}).front();
  };
  EXPECT_TRUE(same_bits(gradient(true), gradient(false)));
}

}  // namespace
}  // namespace mezzo::test::scaled_sum_test
