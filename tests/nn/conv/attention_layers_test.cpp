// GATConv and GATv2Conv; dot_gat_conv_test.cpp tests DotGatConv.
#include "mezzo/nn/conv/attention_layers.h"

#include <algorithm>
#include <set>
#include <type_traits>

#include "mezzo/ops/ops.h"

#include "support/edge_attention.h"
#include "support/module_gradcheck.h"
#include "support/nn_reference.h"
#include "support/running_error.h"

namespace mezzo::test::attention_layers_test {
namespace {

using nn::GATConv;
using nn::GATv2Conv;
using nn::GATv2ConvOptions;
using test::define;  // of GATConv

template <class Layer>
Layer make(std::int64_t in, std::int64_t out, typename Layer::Options options = {},
           at::ScalarType stored = at::kDouble) {
  Layer layer(in, out, std::move(options));
  randomise(*layer, stored, 1, stored);
  return layer;
}

/// A score has in * out products; its rounding error becomes a relative one of the attention,
/// which multiplies rows of size in.
double terms(const Topology& g, const GATConv& layer) {
  const auto in = static_cast<double>(layer->options.in_features);
  return 2 * in * in * static_cast<double>(layer->options.out_features) + max_in_degree(g) + 8;
}

at::Tensor leaky(const at::Tensor& x, double slope) {
  return at::where(x > 0, x, x * slope);
}

Rounded leaky(const Rounded& x, double slope) {
  const double steepest = std::max(1.0, std::abs(slope));
  return rounded(leaky(x.value, slope), steepest * x.error, x.storage);
}

/// Edge by edge, of at::Tensor in float64 or of Rounded numbers. score_factor: 1; with 0 all edges
/// into a node share alike.
template <class Number>
Number define(const GATv2Conv& layer, const Topology& topology, const Number& h,
              double score_factor = 1) {
  const auto& options = layer->options;
  const std::int64_t heads = options.num_heads, out = options.out_features;
  const Number own = h.narrow(0, 0, topology.num_dst());
  const auto part = [](const torch::nn::Linear& linear, const Number& rows) {
    return applied(rows, linear->weight, linear->bias);
  };
  const Number sent = part(layer->fc_src, h).index_select(0, topology.src().to(at::kLong));
  const Number received = part(layer->fc_dst, own).index_select(0, topology.dst().to(at::kLong));
  const at::Tensor weight = weight_of_heads(layer->attn.detach().view({heads, out}));
  const Number scores = applied(leaky(sent + received, options.negative_slope), weight, {});
  const Number sum = attended(topology, score_factor * scores, sent);
  if (!options.residual) return sum;
  const Number residual = layer->res_fc.is_empty() ? own : part(layer->res_fc, own);
  return sum + residual.reshape({topology.num_dst(), heads, out});
}

/// A logit has out products of sums of two rows, each of in products; its rounding error becomes a
/// relative one of the attention, which multiplies rows of size in + 1.
double terms(const Topology& g, const GATv2Conv& layer) {
  const double rows = static_cast<double>(layer->options.in_features) + 1;
  return 2 * rows * rows * static_cast<double>(layer->options.out_features) + max_in_degree(g) + 8;
}

/// Glorot normal with gain sqrt(2). fans: the sum of both.
void expect_glorot_normal(const at::Tensor& weight, double fans) {
  // The squares of n normal numbers have a mean with the relative deviation sqrt(2 / n).
  const double expected = 2.0 * 2.0 / fans,
               deviation = std::sqrt(2.0 / static_cast<double>(weight.numel()));
  EXPECT_NEAR(weight.pow(2).mean().item<double>() / expected, 1, 6 * deviation);
}

template <class Layer>
std::string layer_name() {
  return std::is_same_v<Layer, GATConv> ? "GATConv" : "GATv2Conv";
}

/// What both layers do alike.
template <class Layer>
class GraphAttention : public testing::Test {};
using GraphAttentionLayers = testing::Types<GATConv, GATv2Conv>;
TYPED_TEST_SUITE(GraphAttention, GraphAttentionLayers);

TYPED_TEST(GraphAttention, equals_the_definition_for_heads_residuals_and_slopes) {
  const Topology square = connected(12, 12, 40, 1), rectangular = connected(9, 5, 20, 2);
  for (const Topology& g : {square, rectangular}) {
    for (const std::int64_t heads : {1, 3}) {
      for (const bool residual : {false, true}) {
        for (const std::int64_t in : {4, 6}) {  // 3 heads of 2: the residual of 6 is the identity
          for (const double slope : {0.2, 1.5, -0.5}) {
            SCOPED_TRACE(testing::Message() << heads << " heads, residual " << residual << ", in "
                                            << in << ", slope " << slope);
            TypeParam layer = make<TypeParam>(
                in, 2, {.num_heads = heads, .negative_slope = slope, .residual = residual});
            EXPECT_EQ(layer->res_fc.is_empty(), !residual || in == heads * 2);
            const at::Tensor h = uniform({g.num_src(), in}, at::kDouble, 5);
            EXPECT_TRUE(near_terms(layer(g, h), define(layer, g, h), terms(g, layer)));
          }
        }
      }
    }
  }
}

TYPED_TEST(GraphAttention, sparse_rows_give_the_values_and_weight_gradients_of_dense_ones) {
  const Topology square = connected(10, 10, 30, 15), rectangular = connected(10, 6, 30, 16);
  for (const Topology& g : {square, rectangular}) {
    for (const std::int64_t in : {4, 5}) {
      TypeParam layer = make<TypeParam>(in, 2, {.num_heads = 2, .residual = true});
      expect_sparse_like_dense(layer, g, in, 40 * terms(g, layer));
    }
  }
}

TYPED_TEST(GraphAttention, gradients_agree_with_differences) {
  const Topology g = connected(6, 4, 9, 8);
  for (const std::int64_t in : {3, 4}) {  // 4: the residual is the identity
    TypeParam layer = make<TypeParam>(in, 2, {.num_heads = 2, .residual = true});
    EXPECT_TRUE(module_gradcheck(*layer, [&](const auto& inputs) { return layer(g, inputs[0]); },
                                 {uniform({6, in}, at::kDouble, 9)}));
  }
}

TYPED_TEST(GraphAttention, nodes_without_in_edges_are_an_error_that_says_what_to_do) {
  TypeParam layer = make<TypeParam>(2, 3);
  EXPECT_ERROR(fragments(layer_name<TypeParam>(), "add_self_loop", "allow_zero_in_degree"),
               layer(four_nodes(), uniform({4, 2}, at::kDouble, 19)));
}

TYPED_TEST(GraphAttention, drops_features_and_attention_while_training_only) {
  const Topology g = connected(40, 40, 100, 22);
  const at::Tensor h = uniform({40, 8}, at::kDouble, 23);
  TypeParam plain = make<TypeParam>(8, 4);
  for (const bool attention : {false, true}) {
    TypeParam dropping = make<TypeParam>(
        8, 4, {.feature_dropout = attention ? 0 : 0.5, .attention_dropout = attention ? 0.5 : 0});
    EXPECT_FALSE(exact(dropping(g, h), plain(g, h)));
    dropping->eval();
    EXPECT_TRUE(exact(dropping(g, h), plain(g, h)));
  }
}

TYPED_TEST(GraphAttention, applies_the_activation_last_on_heads) {
  const Topology g = connected(5, 5, 10, 24);
  const at::Tensor h = uniform({5, 3}, at::kDouble, 25);
  const auto flip = [](const at::Tensor& x) { return x.flip({1}); };
  for (const bool residual : {false, true}) {
    TypeParam plain = make<TypeParam>(3, 2, {.num_heads = 2, .residual = residual});
    TypeParam active =
        make<TypeParam>(3, 2, {.num_heads = 2, .residual = residual, .activation = flip});
    EXPECT_TRUE(exact(active(g, h), plain(g, h).flip({1})));
  }
}

TYPED_TEST(GraphAttention, wrong_arguments_are_errors_that_name_them) {
  const auto expect_option_error = [](const typename TypeParam::Options& options,
                                      const std::string& name) {
    EXPECT_ERROR(fragments(name, layer_name<TypeParam>()), TypeParam layer(options));
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
  TypeParam layer = make<TypeParam>(3, 2);
  const Topology g = connected(5, 5, 10, 26), wrong_way = random_topology(4, 5, 10, 27);
  EXPECT_ERROR(fragments(layer_name<TypeParam>(), "[5,3]", "gotfloat64[4,3]"),
               layer(g, at::zeros({4, 3}, on_device(at::kDouble))));
  EXPECT_ERROR("prefix", layer(wrong_way, at::zeros({4, 3}, on_device(at::kDouble))));
}

TEST(GATConv, sixteen_bit_rows_and_modules_stay_within_their_rounding) {
  const Topology g = connected(20, 20, 100, 6);
  for (const DTypeInfo& dtype : narrow_dtypes()) {
    SCOPED_TRACE(dtype.name);
    GATConv layer = make<GATConv>(4, 3, {.num_heads = 2, .residual = true}, dtype.scalar);
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
                     sum_bound(define(layer, g, h, Numbers::kAbsolute), terms(g, layer),
                               dtype.scalar, (3 + 6 * range) * dtype.epsilon)));
  }
}

TEST(GATConv, allowed_nodes_without_in_edges_get_the_bias) {
  GATConv layer = make<GATConv>(2, 3, {.num_heads = 2, .allow_zero_in_degree = true});
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
      GATConv layer =
          make<GATConv>(3, 2, {.num_heads = 2, .residual = residual, .allow_zero_in_degree = true});
      const at::Tensor h = leaf(uniform({num_nodes, 3}, at::kDouble, 21));
      const at::Tensor got = layer(g, h);
      EXPECT_TRUE(near_terms(got, define(layer, g, h), terms(g, layer)));
      got.sum().backward();
      EXPECT_EQ(h.grad().sizes(), h.sizes());
    }
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
  const Topology square = connected(12, 12, 40, 28), rectangular = connected(9, 5, 20, 29);
  for (const Topology& g : {square, rectangular}) {
    for (const double dropout : {0.0, 0.5}) {
      GATConv layer =
          make<GATConv>(4, 3, {.num_heads = 2, .attention_dropout = dropout, .bias = false});
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
  GATConv layer = make<GATConv>(3, 2, {.num_heads = 2});
  EXPECT_TRUE(gradcheck(
      [&](const std::vector<at::Tensor>& values) { return layer(g, values[0], values[1]); },
      {uniform({6, 3}, at::kDouble, 33), uniform({g.num_edges()}, at::kDouble, 34)}));
}

TEST(GATConv, has_the_parameters_of_dgl) {
  using Shapes = std::set<std::string>;
  const auto shapes = [](std::int64_t in, bool residual, bool bias) {
    return parameter_shapes(*GATConv(in, 4, {.num_heads = 3, .residual = residual, .bias = bias}));
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
  const GATConv layer(40, 10, {.num_heads = 8});
  expect_glorot_normal(layer->fc->weight, 40 + 80);
  expect_glorot_normal(layer->attn_l, 8 * 10 + 10);
  expect_glorot_normal(layer->attn_r, 8 * 10 + 10);
  EXPECT_TRUE(exact(layer->bias, at::zeros({80})));
}

TEST(GATConv, wrong_edge_weights_are_errors_that_name_them) {
  GATConv layer = make<GATConv>(3, 2);
  const Topology g = connected(5, 5, 10, 26);
  EXPECT_ERROR("edge_weight[15]", layer(g, at::zeros({5, 3}, on_device(at::kDouble)),
                                        at::zeros({3}, on_device(at::kDouble))));
  EXPECT_ERROR("edge_weight[15]", layer(g, at::zeros({5, 3}, on_device(at::kDouble)),
                                        at::zeros({15}, on_device(at::kLong))));
}

TEST(GATv2Conv, equals_the_definition_with_shared_weights_and_without_bias) {
  const Topology square = connected(12, 12, 40, 1), rectangular = connected(9, 5, 20, 2);
  for (const Topology& g : {square, rectangular}) {
    for (const bool share : {false, true}) {
      for (const bool bias : {false, true}) {
        GATv2Conv layer = make<GATv2Conv>(
            3, 2, {.num_heads = 2, .residual = true, .bias = bias, .share_weights = share});
        const at::Tensor h = uniform({g.num_src(), 3}, at::kDouble, 6);
        EXPECT_TRUE(near_terms(layer(g, h), define(layer, g, h), terms(g, layer)));
      }
    }
  }
}

TEST(GATv2Conv, stays_within_its_rounding_in_every_dtype) {
  const Topology g = connected(20, 20, 100, 6);
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    GATv2Conv layer = make<GATv2Conv>(4, 3, {.num_heads = 2, .residual = true}, dtype.scalar);
    const at::Tensor h = uniform({20, 4}, dtype.scalar, 7), in_float64 = take(h, Numbers::kGiven);
    const at::Tensor got = layer(g, h);
    const Rounded expected = define(layer, g, exactly(h));
    EXPECT_EQ(got.scalar_type(), dtype.scalar);
    EXPECT_TRUE(near(got, expected));
    // Edges that share alike, and negated scores.
    EXPECT_FALSE(near(define(layer, g, in_float64, 0), expected));
    EXPECT_FALSE(near(define(layer, g, in_float64, -1), expected));
  }
}

TEST(GATv2Conv, gradients_of_shared_weights_agree_with_differences) {
  const Topology g = connected(6, 4, 9, 8);
  for (const std::int64_t in : {3, 4}) {
    GATv2Conv layer =
        make<GATv2Conv>(in, 2, {.num_heads = 2, .residual = true, .share_weights = true});
    EXPECT_TRUE(module_gradcheck(*layer, [&](const auto& inputs) { return layer(g, inputs[0]); },
                                 {uniform({6, in}, at::kDouble, 9)}));
  }
}

TEST(GATv2Conv, in_a_sixteen_bit_region_gives_sixteen_bits_and_float32_gradients) {
  const GATv2Conv layer = make<GATv2Conv>(
      4, 3, {.num_heads = 2, .attention_dropout = 0.2, .residual = true}, at::kFloat);
  expect_sixteen_bit_region(layer, connected(20, 20, 60, 4), 4);
}

TEST(GATv2Conv, allowed_nodes_without_in_edges_get_zero_or_their_residual) {
  const at::Tensor h = uniform({4, 6}, at::kDouble, 20);
  for (const bool residual : {false, true}) {
    GATv2Conv layer =
        make<GATv2Conv>(6, 3, {.num_heads = 2, .residual = residual, .allow_zero_in_degree = true});
    const at::Tensor got = layer(four_nodes(), h);
    const at::Tensor expected =
        residual ? h.view({4, 2, 3}) : at::zeros({4, 2, 3}, on_device(at::kDouble));
    EXPECT_TRUE(exact(got[0], expected[0]));
    EXPECT_TRUE(exact(got[3], expected[3]));
    EXPECT_TRUE(near_terms(got, define(layer, four_nodes(), h), terms(four_nodes(), layer)));
  }
}

TEST(GATv2Conv, runs_without_edges_and_without_nodes_in_every_dtype) {
  for_each_bare_graph([](const Topology& g, at::ScalarType dtype) {
    for (const bool residual : {false, true}) {
      GATv2Conv layer = make<GATv2Conv>(
          3, 2, {.num_heads = 2, .residual = residual, .allow_zero_in_degree = true}, dtype);
      const at::Tensor h = leaf(uniform({g.num_src(), 3}, dtype, 21));
      const at::Tensor got = layer(g, h);
      EXPECT_EQ(got.scalar_type(), dtype);
      EXPECT_TRUE(near(got, define(layer, g, exactly(h))));
      got.sum().backward();
      EXPECT_EQ(h.grad().sizes(), h.sizes());
    }
  });
}

TEST(GATv2Conv, has_the_parameters_of_dgl) {
  using Shapes = std::set<std::string>;
  const auto shapes = [](const GATv2ConvOptions& options) {
    return parameter_shapes(*GATv2Conv(options));
  };
  const Shapes common = {"fc_src.weight [12, 5]", "fc_dst.weight [12, 5]", "attn [1, 3, 4]"};
  EXPECT_EQ(shapes({.in_features = 5, .out_features = 4, .num_heads = 3, .bias = false}), common);
  Shapes all = common;
  all.insert({"fc_src.bias [12]", "fc_dst.bias [12]", "res_fc.weight [12, 5]", "res_fc.bias [12]"});
  EXPECT_EQ(shapes({.in_features = 5, .out_features = 4, .num_heads = 3, .residual = true}), all);
  EXPECT_EQ(shapes({.in_features = 12,
                    .out_features = 4,
                    .num_heads = 3,
                    .residual = true,
                    .share_weights = true}),
            (Shapes{"fc_src.weight [12, 12]", "fc_src.bias [12]", "attn [1, 3, 4]"}));
}

TEST(GATv2Conv, lists_shared_weights_once) {
  const GATv2Conv layer(5, 4, {.share_weights = true});
  EXPECT_EQ(layer->fc_src.get(), layer->fc_dst.get());
  EXPECT_EQ(layer->parameters().size(), 3U);
}

TEST(GATv2Conv, starts_from_glorot_normal_numbers_with_the_gain_of_relu) {
  const GATv2Conv layer(40, 10, {.num_heads = 8, .residual = true});
  expect_glorot_normal(layer->attn, 8 * 10 + 10);
  for (const torch::nn::Linear& linear : {layer->fc_src, layer->fc_dst, layer->res_fc}) {
    expect_glorot_normal(linear->weight, 40 + 80);
    EXPECT_TRUE(exact(linear->bias, at::zeros({80})));
  }
}

}  // namespace
}  // namespace mezzo::test::attention_layers_test
