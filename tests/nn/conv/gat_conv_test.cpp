#include <cmath>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "mezzo/core/error.h"
#include "mezzo/nn/conv/attention_layers.h"
#include "mezzo/ops/ops.h"

#include "support/gradcheck.h"
#include "support/nn_reference.h"

namespace mezzo::test::gat_conv_test {
namespace {

using nn::GATConv;
using nn::GATConvOptions;

GATConv make(GATConvOptions options, at::ScalarType stored = at::kDouble) {
  GATConv layer(std::move(options));
  randomise(*layer, stored, 1, stored);
  return layer;
}

/// A score has in * out products; its rounding error becomes a relative one of the attention,
/// which multiplies rows of size in.
double terms(const Topology& g, const GATConv& layer) {
  const auto in = static_cast<double>(layer->options.in_features);
  return 2 * in * in * static_cast<double>(layer->options.out_features) + max_in_degree(g) + 8;
}

TEST(GATConv, equals_the_definition_for_heads_residuals_and_slopes) {
  const Topology square = connected(12, 12, 40, 1), wide = connected(9, 5, 20, 2);
  for (const Topology& g : {square, wide}) {
    for (const std::int64_t heads : {1, 3}) {
      for (const bool residual : {false, true}) {
        for (const std::int64_t in : {4, 6}) {  // 3 heads of 2: the residual of 6 is the identity
          for (const double slope : {0.2, 1.5, -0.5}) {
            SCOPED_TRACE(testing::Message() << heads << " heads, residual " << residual << ", in "
                                            << in << ", slope " << slope);
            GATConv layer = make({.in_features = in,
                                  .out_features = 2,
                                  .num_heads = heads,
                                  .negative_slope = slope,
                                  .residual = residual});
            EXPECT_EQ(layer->res_fc.is_empty(), !residual || in == heads * 2);
            const at::Tensor h = uniform({g.num_src(), in}, at::kDouble, 5);
            EXPECT_TRUE(near_terms(layer(g, h), define(layer, g, h), terms(g, layer)));
          }
        }
      }
    }
  }
}

TEST(GATConv, sixteen_bit_rows_and_modules_stay_within_their_rounding) {
  const Topology g = connected(20, 20, 100, 6);
  for (const DTypeInfo& dtype : narrow_dtypes()) {
    SCOPED_TRACE(dtype.name);
    GATConv layer =
        make({.in_features = 4, .out_features = 3, .num_heads = 2, .residual = true}, dtype.scalar);
    const at::Tensor h = uniform({20, 4}, dtype.scalar, 7);
    const at::Tensor got = layer(g, h);
    EXPECT_EQ(got.scalar_type(), dtype.scalar);
    // The roundings of z, of both scores, of their sum and of the leaky ReLU move a logit by at
    // most three epsilons of its terms, and the logit moves the attention twice: in its own
    // exponential and in the sum. The rows, the attention and three sums are rounded once each.
    const auto size = [&](const at::Tensor& attn) {
      return attention_scores(layer, h, attn, Numbers::kAbsolute).max().item<double>();
    };
    const double range = size(layer->attn_l) + size(layer->attn_r);
    EXPECT_TRUE(near(got, define(layer, g, h),
                     {.abs_sum = define(layer, g, h, Numbers::kAbsolute),
                      .terms = terms(g, layer),
                      .storage = dtype.scalar,
                      .operand_epsilon = (3 + 6 * range) * dtype.epsilon}));
  }
}

TEST(GATConv, gradients_agree_with_differences) {
  const Topology g = connected(6, 4, 9, 8);
  for (const std::int64_t in : {3, 4}) {  // 4: the residual is the identity
    GATConv layer = make({.in_features = in, .out_features = 2, .num_heads = 2, .residual = true});
    std::vector<at::Tensor> inputs = {
        uniform({6, in}, at::kDouble, 9), uniform({4, in}, at::kDouble, 10),
        uniform({1, 2, 2}, at::kDouble, 11), uniform({1, 2, 2}, at::kDouble, 12),
        uniform({4}, at::kDouble, 13)};
    if (in == 3) inputs.push_back(uniform({4, in}, at::kDouble, 14));
    const auto function = [&](const std::vector<at::Tensor>& given) {
      layer->fc->weight = given[1];
      layer->attn_l = given[2];
      layer->attn_r = given[3];
      (in == 3 ? layer->res_fc->bias : layer->bias) = given[4];
      if (in == 3) layer->res_fc->weight = given[5];
      return layer(g, given[0]);
    };
    EXPECT_TRUE(gradcheck(function, inputs));
  }
}

TEST(GATConv, sparse_rows_give_the_values_and_weight_gradients_of_dense_ones) {
  const Topology square = connected(10, 10, 30, 15), wide = connected(10, 6, 30, 16);
  for (const Topology& g : {square, wide}) {
    for (const std::int64_t in : {4, 5}) {
      GATConv layer =
          make({.in_features = in, .out_features = 2, .num_heads = 2, .residual = true});
      const at::Tensor h = sparse_numbers({10, in}, 17);
      const at::Tensor upstream = uniform({g.num_dst(), 2, 2}, at::kDouble, 18);
      const auto run = [&](const at::Tensor& rows) {
        std::vector<at::Tensor> results = {layer(g, rows)};
        const auto gradients = torch::autograd::grad({results[0]}, layer->parameters(), {upstream});
        results.insert(results.end(), gradients.begin(), gradients.end());
        return results;
      };
      const auto dense = run(h), sparse = run(h.to_sparse_csr());
      for (std::size_t i = 0; i < dense.size(); ++i) {
        EXPECT_TRUE(near_terms(sparse[i], dense[i], 40 * terms(g, layer)));
      }
    }
  }
}

TEST(GATConv, nodes_without_in_edges_are_an_error_that_says_what_to_do) {
  GATConv layer = make({.in_features = 2, .out_features = 3});
  const std::string text = error_of([&] { layer(four_nodes(), uniform({4, 2}, at::kDouble, 19)); });
  EXPECT_TRUE(mentions(text, "GATConv"));
  EXPECT_TRUE(mentions(text, "add_self_loop"));
  EXPECT_TRUE(mentions(text, "allow_zero_in_degree"));
}

TEST(GATConv, allowed_nodes_without_in_edges_get_the_bias) {
  GATConv layer =
      make({.in_features = 2, .out_features = 3, .num_heads = 2, .allow_zero_in_degree = true});
  const at::Tensor h = uniform({4, 2}, at::kDouble, 20);
  const at::Tensor got = layer(four_nodes(), h);
  EXPECT_TRUE(exact(got[0], layer->bias.view({2, 3})));
  EXPECT_TRUE(exact(got[3], layer->bias.view({2, 3})));
  EXPECT_TRUE(near_terms(got, define(layer, four_nodes(), h), terms(four_nodes(), layer)));
}

TEST(GATConv, runs_without_edges_and_without_nodes) {
  for (const std::int64_t num_nodes : {0, 5}) {
    const Topology g = topology_of({}, {}, num_nodes, num_nodes);
    for (const bool residual : {false, true}) {
      GATConv layer = make({.in_features = 3,
                            .out_features = 2,
                            .num_heads = 2,
                            .residual = residual,
                            .allow_zero_in_degree = true});
      const at::Tensor h = leaf(uniform({num_nodes, 3}, at::kDouble, 21));
      const at::Tensor got = layer(g, h);
      EXPECT_TRUE(near_terms(got, define(layer, g, h), terms(g, layer)));
      got.sum().backward();
      EXPECT_EQ(h.grad().sizes(), h.sizes());
    }
  }
}

TEST(GATConv, drops_features_and_attention_while_training_only) {
  const Topology g = connected(40, 40, 100, 22);
  const at::Tensor h = uniform({40, 8}, at::kDouble, 23);
  GATConv plain = make({.in_features = 8, .out_features = 4});
  for (const bool attention : {false, true}) {
    GATConv dropping = make({.in_features = 8,
                             .out_features = 4,
                             .feature_dropout = attention ? 0 : 0.5,
                             .attention_dropout = attention ? 0.5 : 0});
    EXPECT_FALSE(exact(dropping(g, h), plain(g, h)));
    dropping->eval();
    EXPECT_TRUE(exact(dropping(g, h), plain(g, h)));
  }
}

/// The layer without residual and bias, by one operator after another.
at::Tensor composed(const GATConv& layer, const Topology& g, const at::Tensor& h,
                    const at::Tensor& edge_weight) {
  const std::int64_t heads = layer->options.num_heads, width = layer->options.out_features;
  const at::Tensor z = at::matmul(h, layer->fc->weight.t()).view({h.size(0), heads, width});
  const at::Tensor sent = (z * layer->attn_l).sum(-1, true);
  const at::Tensor received = (z * layer->attn_r).sum(-1, true);
  const at::Tensor logits =
      at::leaky_relu(gsddmm(g, BinaryOp::kAdd, sent, received.slice(0, 0, g.num_dst())), 0.2);
  const at::Tensor attention =
      mezzo::feature_dropout(edge_softmax(g, logits), layer->options.attention_dropout, true);
  return gspmm(g, BinaryOp::kMul, ReduceOp::kSum, z, attention * edge_weight.view({-1, 1, 1}));
}

TEST(GATConv, edge_weights_multiply_the_attention_after_its_dropout) {
  const Topology square = connected(12, 12, 40, 28), wide = connected(9, 5, 20, 29);
  for (const Topology& g : {square, wide}) {
    for (const double dropout : {0.0, 0.5}) {
      GATConv layer = make({.in_features = 4,
                            .out_features = 3,
                            .num_heads = 2,
                            .attention_dropout = dropout,
                            .bias = false});
      const at::Tensor h = uniform({g.num_src(), 4}, at::kDouble, 30);
      const at::Tensor weight = uniform({g.num_edges()}, at::kDouble, 31);
      at::manual_seed(3);
      const at::Tensor got = layer(g, h, weight);
      at::manual_seed(3);
      EXPECT_TRUE(near_terms(got, composed(layer, g, h, weight), 2 * terms(g, layer)));
      at::manual_seed(3);
      const at::Tensor ones = layer(g, h, at::ones({g.num_edges()}, on_device(at::kDouble)));
      at::manual_seed(3);
      EXPECT_TRUE(exact(ones, layer(g, h)));
    }
  }
}

TEST(GATConv, gradients_of_edge_weights_agree_with_differences) {
  const Topology g = connected(6, 4, 9, 32);
  GATConv layer = make({.in_features = 3, .out_features = 2, .num_heads = 2});
  EXPECT_TRUE(
      gradcheck([&](const std::vector<at::Tensor>& given) { return layer(g, given[0], given[1]); },
                {uniform({6, 3}, at::kDouble, 33), uniform({g.num_edges()}, at::kDouble, 34)}));
}

TEST(GATConv, has_the_parameters_of_dgl) {
  using Shapes = std::set<std::string>;
  const auto shapes = [](std::int64_t in, bool residual, bool bias) {
    return parameter_shapes(*GATConv(GATConvOptions{
        .in_features = in, .out_features = 4, .num_heads = 3, .residual = residual, .bias = bias}));
  };
  const Shapes common = {"fc.weight [12, 5]", "attn_l [1, 3, 4]", "attn_r [1, 3, 4]"};
  EXPECT_EQ(shapes(5, false, false), common);
  Shapes all = common;
  all.insert({"res_fc.bias [12]", "res_fc.weight [12, 5]"});
  EXPECT_EQ(shapes(5, true, true), all);
  all.erase("res_fc.bias [12]");
  EXPECT_EQ(shapes(5, true, false), all);
  all = common;
  all.insert("bias [12]");
  EXPECT_EQ(shapes(5, false, true), all);
  EXPECT_EQ(shapes(12, true, false),
            (Shapes{"fc.weight [12, 12]", "attn_l [1, 3, 4]", "attn_r [1, 3, 4]"}));
}

TEST(GATConv, starts_from_glorot_normal_numbers_with_the_gain_of_relu) {
  const GATConv layer(GATConvOptions{.in_features = 40, .out_features = 10, .num_heads = 8});
  const auto expect_deviation = [](const at::Tensor& weight, double fans) {
    // The squares of n normal numbers have a mean with the relative deviation sqrt(2 / n).
    const double expected = 2.0 * 2.0 / fans,
                 deviation = std::sqrt(2.0 / static_cast<double>(weight.numel()));
    EXPECT_NEAR(weight.pow(2).mean().item<double>() / expected, 1, 6 * deviation);
  };
  expect_deviation(layer->fc->weight, 40 + 80);
  expect_deviation(layer->attn_l, 8 * 10 + 10);
  expect_deviation(layer->attn_r, 8 * 10 + 10);
  EXPECT_TRUE(exact(layer->bias, at::zeros({80})));
}

TEST(GATConv, applies_the_activation_last_on_heads) {
  const Topology g = connected(5, 5, 10, 24);
  const at::Tensor h = uniform({5, 3}, at::kDouble, 25);
  const auto flip = [](const at::Tensor& x) { return x.flip({1}); };
  GATConv plain = make({.in_features = 3, .out_features = 2, .num_heads = 2});
  GATConv active = make({.in_features = 3, .out_features = 2, .num_heads = 2, .activation = flip});
  EXPECT_TRUE(exact(active(g, h), plain(g, h).flip({1})));
}

TEST(GATConv, wrong_arguments_are_errors_that_name_them) {
  const auto expect_option_error = [](const GATConvOptions& options, const std::string& name) {
    EXPECT_TRUE(mentions(error_of([&] { GATConv layer(options); }), name));
  };
  expect_option_error({.in_features = 3, .out_features = 0}, "out_features");
  expect_option_error({.in_features = -1, .out_features = 2}, "in_features");
  expect_option_error({.in_features = 3, .out_features = 2, .num_heads = 0}, "num_heads");
  expect_option_error({.in_features = 3, .out_features = 2, .feature_dropout = 1},
                      "feature_dropout");
  expect_option_error({.in_features = 3, .out_features = 2, .attention_dropout = -0.5},
                      "attention_dropout");
  expect_option_error({.in_features = 3, .out_features = 2, .negative_slope = HUGE_VAL},
                      "negative_slope");
  GATConv layer = make({.in_features = 3, .out_features = 2});
  const Topology g = connected(5, 5, 10, 26), wrong_way = random_topology(4, 5, 10, 27);
  const std::string text = error_of([&] { layer(g, at::zeros({4, 3}, on_device(at::kDouble))); });
  EXPECT_TRUE(mentions(text, "GATConv"));
  EXPECT_TRUE(mentions(text, "[5,3]"));
  EXPECT_TRUE(mentions(text, "gotfloat64[4,3]"));
  EXPECT_TRUE(mentions(error_of([&] {
                         layer(wrong_way, at::zeros({4, 3}, on_device(at::kDouble)));
                       }),
                       "prefix"));
  EXPECT_TRUE(mentions(
      error_of([&] {
        layer(g, at::zeros({5, 3}, on_device(at::kDouble)), at::zeros({3}, on_device(at::kDouble)));
      }),
      "edge_weight[15]"));
  EXPECT_TRUE(mentions(
      error_of([&] {
        layer(g, at::zeros({5, 3}, on_device(at::kDouble)), at::zeros({15}, on_device(at::kLong)));
      }),
      "edge_weight[15]"));
}

}  // namespace
}  // namespace mezzo::test::gat_conv_test
