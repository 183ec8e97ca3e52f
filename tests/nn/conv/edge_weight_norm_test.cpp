

#include "mezzo/amp/autocast/autocast.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/conv/graph_conv.h"

#include "support/gradcheck.h"
#include "support/nn_reference.h"

namespace mezzo::test::edge_weight_norm_test {
namespace {

using nn::DegreeNorm;
using nn::EdgeWeightNorm;
using nn::EdgeWeightNormOptions;

constexpr DegreeNorm kNorms[] = {DegreeNorm::kBoth, DegreeNorm::kRight, DegreeNorm::kLeft,
                                 DegreeNorm::kNone};

/// Edge by edge, with the sums of plain loops.
at::Tensor define(const Topology& g, const at::Tensor& weight, DegreeNorm norm, double eps) {
  const at::Tensor w = weight.to(at::kCPU, at::kDouble).reshape(-1).contiguous();
  const at::Tensor from = g.src().to(at::kCPU, at::kLong).contiguous();
  const at::Tensor to = g.dst().to(at::kCPU, at::kLong).contiguous();
  std::vector<double> out(static_cast<std::size_t>(g.num_src()), eps);
  std::vector<double> in(static_cast<std::size_t>(g.num_dst()), eps);
  const auto source = [&](std::int64_t e) -> double& {
    return out[static_cast<std::size_t>(from.const_data_ptr<std::int64_t>()[e])];
  };
  const auto destination = [&](std::int64_t e) -> double& {
    return in[static_cast<std::size_t>(to.const_data_ptr<std::int64_t>()[e])];
  };
  for (std::int64_t e = 0; e < g.num_edges(); ++e) {
    source(e) += w.const_data_ptr<double>()[e];
    destination(e) += w.const_data_ptr<double>()[e];
  }
  at::Tensor result = at::empty_like(w);
  for (std::int64_t e = 0; e < g.num_edges(); ++e) {
    const double divisor = norm == DegreeNorm::kBoth    ? std::sqrt(source(e) * destination(e))
                           : norm == DegreeNorm::kRight ? destination(e)
                           : norm == DegreeNorm::kLeft  ? source(e)
                                                        : 1;
    result.mutable_data_ptr<double>()[e] = w.const_data_ptr<double>()[e] / divisor;
  }
  return result.to(g.device());
}

std::vector<Topology> graphs() {
  return {random_topology(12, 12, 40, 1), random_topology(9, 5, 30, 2, 3.0), four_nodes()};
}

TEST(EdgeWeightNorm, equals_the_definition_in_every_dtype) {
  for (const Topology& g : graphs()) {
    for (const DTypeInfo& dtype : dtypes()) {
      const at::Tensor weight = uniform({g.num_edges()}, dtype.scalar, 5, 0.25, 1.5);
      for (const DegreeNorm norm : kNorms) {
        for (const double eps : {0.0, 0.5}) {
          SCOPED_TRACE(testing::Message() << dtype.name << ", norm " << static_cast<int>(norm));
          EdgeWeightNorm layer(EdgeWeightNormOptions{.norm = norm, .eps = eps});
          const at::Tensor got = layer(g, weight), expected = define(g, weight, norm, eps);
          EXPECT_EQ(got.scalar_type(), dtype.scalar);
          EXPECT_TRUE(near(got, expected,
                           {.abs_sum = expected,
                            .terms = static_cast<double>(g.num_edges()) + 8,
                            .storage = dtype.scalar}));
          EXPECT_TRUE(same_bits(layer(g, weight.unsqueeze(1)), got));
        }
      }
    }
  }
}

TEST(EdgeWeightNorm, gradients_are_difference_quotients) {
  for (const Topology& g : graphs()) {
    for (const DegreeNorm norm : kNorms) {
      EdgeWeightNorm layer(EdgeWeightNormOptions{.norm = norm, .eps = 0.125});
      EXPECT_TRUE(gradcheck([&](const auto& inputs) { return layer(g, inputs[0]); },
                            {uniform({g.num_edges()}, at::kDouble, 7, 0.5, 1.5)}));
    }
  }
}

TEST(EdgeWeightNorm, weights_that_are_all_zero_stay_zero) {
  const Topology g = random_topology(6, 6, 15, 3);
  const at::Tensor weight = leaf(at::zeros({g.num_edges()}, on_device()));
  for (const DegreeNorm norm : {DegreeNorm::kRight, DegreeNorm::kLeft}) {
    EdgeWeightNorm layer(EdgeWeightNormOptions{.norm = norm});
    const at::Tensor got = layer(g, weight);
    EXPECT_TRUE(exact(got, at::zeros_like(got)));
    got.sum().backward();
    EXPECT_TRUE(at::isfinite(weight.grad()).all().item<bool>());
  }
}

TEST(EdgeWeightNorm, a_graph_without_edges_has_no_weights) {
  const Topology g = random_topology(3, 3, 0, 4);
  EdgeWeightNorm layer;
  EXPECT_EQ(layer(g, at::empty({0}, on_device())).sizes(), at::IntArrayRef({0}));
}

TEST(EdgeWeightNorm, autocast_changes_nothing) {
  const Topology g = random_topology(12, 12, 40, 1);
  const at::Tensor weight = uniform({g.num_edges()}, at::kFloat, 5, 0.25, 1.5);
  EdgeWeightNorm layer;
  const at::Tensor expected = layer(g, weight);
  const amp::Autocast region(test_device().type(), at::kBFloat16);
  EXPECT_TRUE(same_bits(layer(g, weight), expected));
}

TEST(EdgeWeightNorm, with_graph_conv_it_is_the_weighted_propagation) {
  const Topology g = connected(12, 12, 40, 1);
  const at::Tensor weight = uniform({g.num_edges()}, at::kDouble, 5, 0.25, 1.5);
  const at::Tensor h = uniform({12, 3}, at::kDouble, 6);
  nn::GraphConv layer(3, 4, {.norm = DegreeNorm::kNone, .bias = false});
  randomise(*layer, at::kDouble);
  EdgeWeightNorm norm;
  const at::Tensor matrix = adjacency(g, define(g, weight, DegreeNorm::kBoth, 0));
  EXPECT_TRUE(near_terms(layer(g, h, norm(g, weight)),
                         at::matmul(at::matmul(matrix, h), layer->weight.detach()), 200));
}

TEST(EdgeWeightNorm, wrong_options_and_arguments_are_errors_that_name_them) {
  for (const double eps : {-1.0, std::nan(""), static_cast<double>(INFINITY)}) {
    EXPECT_ERROR("EdgeWeightNorm:expectedepsfinite",
                 EdgeWeightNorm(EdgeWeightNormOptions{.eps = eps}));
  }
  const Topology g = random_topology(6, 6, 15, 3);
  const auto error = [&](const at::Tensor& weight, DegreeNorm norm = DegreeNorm::kBoth) {
    EdgeWeightNorm layer(EdgeWeightNormOptions{.norm = norm});
    return error_of([&] { layer(g, weight); });
  };
  const auto count = std::to_string(g.num_edges());
  EXPECT_TRUE(mentions(error({}), "edge_weight[" + count + "]"));
  EXPECT_TRUE(
      mentions(error(at::ones({g.num_edges() + 1}, on_device())), "edge_weight[" + count + "]"));
  EXPECT_TRUE(mentions(error(at::ones({g.num_edges()}, on_device(at::kLong))), "int64"));
  EXPECT_TRUE(mentions(error(at::zeros({g.num_edges()}, on_device())), "positive"));
  const at::Tensor negative = at::full({g.num_edges()}, -1.0, on_device());
  EXPECT_TRUE(mentions(error(negative, DegreeNorm::kRight), "non-negative"));
  EXPECT_TRUE(mentions(error(negative, DegreeNorm::kLeft), "non-negative"));
  EdgeWeightNorm none(EdgeWeightNormOptions{.norm = DegreeNorm::kNone});
  EXPECT_TRUE(exact(none(g, negative), negative));
}

}  // namespace
}  // namespace mezzo::test::edge_weight_norm_test
