#include <set>

#include "mezzo/nn/conv/attention_layers.h"

#include "support/edge_attention.h"
#include "support/module_gradcheck.h"
#include "support/nn_reference.h"
#include "support/running_error.h"

namespace mezzo::test::dot_gat_conv_test {
namespace {

using nn::DotGatConv;
using nn::DotGatConvOptions;

DotGatConv make(std::int64_t in, std::int64_t out, DotGatConvOptions options = {},
                at::ScalarType stored = at::kDouble) {
  DotGatConv layer(in, out, std::move(options));
  randomise(*layer, stored, 1, stored);
  return layer;
}

/// Computes edge by edge, on float64 at::Tensor or Rounded numbers. score_factor: 1; with 0 all
/// edges into a node have equal shares.
template <class Number>
Number define(const DotGatConv& layer, const Topology& topology, const Number& h,
              double score_factor = 1) {
  const std::int64_t heads = layer->options.num_heads, out = layer->options.out_features;
  const Number rows = applied(h, layer->fc->weight, {});
  const Number own = rows.narrow(0, 0, topology.num_dst()) / std::sqrt(static_cast<double>(out));
  const Number sent = rows.index_select(0, topology.src().to(at::kLong));
  const Number received = own.index_select(0, topology.dst().to(at::kLong));
  const at::Tensor sums = weight_of_heads(at::ones({heads, out}, on_device(at::kDouble)));
  const Number scores = applied(sent * received, sums, {});
  return attended(topology, score_factor * scores, sent);
}

/// A logit has out products of rows, each of in products; its rounding error becomes a relative one
/// of the attention, which multiplies rows of size in.
double terms(const Topology& g, const DotGatConv& layer) {
  const auto in = static_cast<double>(layer->options.in_features);
  return 2 * in * in * in * static_cast<double>(layer->options.out_features) + max_in_degree(g) + 8;
}

TEST(DotGatConv, equals_the_definition_for_heads_and_widths) {
  const Topology square = connected(12, 12, 40, 1), rectangular = connected(9, 5, 20, 2);
  for (const Topology& g : {square, rectangular}) {
    for (const std::int64_t heads : {1, 3, 4}) {
      for (const std::int64_t out : {1, 2, 7}) {
        SCOPED_TRACE(testing::Message() << heads << " heads of " << out);
        DotGatConv layer = make(4, out, {.num_heads = heads});
        const at::Tensor h = uniform({g.num_src(), 4}, at::kDouble, 5);
        EXPECT_TRUE(near_terms(layer(g, h), define(layer, g, h), terms(g, layer)));
      }
    }
  }
}

TEST(DotGatConv, stays_within_its_rounding_in_every_dtype) {
  const Topology g = connected(20, 20, 100, 6);
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    DotGatConv layer = make(4, 3, {.num_heads = 2}, dtype.scalar);
    const at::Tensor h = uniform({20, 4}, dtype.scalar, 7), in_float64 = take(h, Numbers::kGiven);
    const at::Tensor got = layer(g, h);
    const Rounded expected = define(layer, g, exactly(h));
    EXPECT_EQ(got.scalar_type(), dtype.scalar);
    EXPECT_TRUE(near(got, expected));
    // Wrong definitions: equal shares, and negated scores.
    EXPECT_FALSE(near(define(layer, g, in_float64, 0), expected));
    EXPECT_FALSE(near(define(layer, g, in_float64, -1), expected));
  }
}

TEST(DotGatConv, products_beyond_the_range_of_float16_are_divided_before) {
  // Rows of 64 numbers 40: their product is 102400, an eighth of it 12800.
  DotGatConv layer = make(1, 64, {}, at::kHalf);
  layer->fc->weight.set_data(at::full({64, 1}, 40, on_device()).to(at::kHalf));
  const at::Tensor out = layer(connected(5, 5, 10, 8), at::ones({5, 1}, on_device(at::kHalf)));
  EXPECT_TRUE(out.isfinite().all().item<bool>());
  EXPECT_GT(out.min().item<double>(), 39);
}

TEST(DotGatConv, gradients_agree_with_differences) {
  const Topology g = connected(6, 4, 9, 8);
  DotGatConv layer = make(3, 2, {.num_heads = 2});
  EXPECT_TRUE(module_gradcheck(*layer, [&](const auto& inputs) { return layer(g, inputs[0]); },
                               {uniform({6, 3}, at::kDouble, 9)}));
}

TEST(DotGatConv, sparse_rows_give_the_values_and_weight_gradients_of_dense_ones) {
  const Topology square = connected(10, 10, 30, 15), rectangular = connected(10, 6, 30, 16);
  DotGatConv layer = make(4, 2, {.num_heads = 2});
  for (const Topology& g : {square, rectangular}) {
    expect_sparse_like_dense(layer, g, 4, 40 * terms(g, layer));
  }
}

TEST(DotGatConv, in_a_sixteen_bit_region_gives_sixteen_bits_and_float32_gradients) {
  expect_sixteen_bit_region(make(4, 3, {.num_heads = 2}, at::kFloat), connected(20, 20, 60, 4), 4);
}

TEST(DotGatConv, nodes_without_in_edges_are_an_error_unless_allowed) {
  const at::Tensor h = uniform({4, 2}, at::kDouble, 19);
  DotGatConv strict = make(2, 3);
  EXPECT_ERROR(fragments("DotGatConv", "allow_zero_in_degree"), strict(four_nodes(), h));
  DotGatConv layer = make(2, 3, {.allow_zero_in_degree = true});
  const at::Tensor got = layer(four_nodes(), h);
  EXPECT_TRUE(exact(got[0], at::zeros({1, 3})));
  EXPECT_TRUE(exact(got[3], at::zeros({1, 3})));
  EXPECT_TRUE(near_terms(got, define(layer, four_nodes(), h), terms(four_nodes(), layer)));
}

TEST(DotGatConv, runs_without_edges_and_without_nodes_in_every_dtype) {
  for_each_bare_graph([](const Topology& g, at::ScalarType dtype) {
    DotGatConv layer = make(3, 2, {.num_heads = 2, .allow_zero_in_degree = true}, dtype);
    const at::Tensor h = leaf(uniform({g.num_src(), 3}, dtype, 21));
    const at::Tensor got = layer(g, h);
    EXPECT_EQ(got.scalar_type(), dtype);
    EXPECT_TRUE(exact(got, at::zeros({g.num_dst(), 2, 2})));
    got.sum().backward();
    EXPECT_EQ(h.grad().sizes(), h.sizes());
  });
}

TEST(DotGatConv, has_the_parameters_of_dgl_and_starts_as_a_linear_layer) {
  DotGatConv layer(16, 40, {.num_heads = 3});
  EXPECT_EQ(parameter_shapes(*layer), (std::set<std::string>{"fc.weight [120, 16]"}));
  const at::Tensor first = layer->fc->weight.detach().clone();
  layer->reset_parameters();
  EXPECT_FALSE(exact(layer->fc->weight, first));
  // Uniform in +-1 / sqrt(in): of 1920 numbers some come near the ends.
  const double largest = layer->fc->weight.abs().max().item<double>();
  EXPECT_LE(largest, 0.25);
  EXPECT_GT(largest, 0.2);
}

TEST(DotGatConv, wrong_arguments_are_errors_that_name_them) {
  const auto expect_option_error = [](const DotGatConvOptions& options, const std::string& name) {
    EXPECT_ERROR(fragments(name, "DotGatConv"), DotGatConv layer(options));
  };
  expect_option_error({.in_features = 3, .out_features = 0}, "out_features");
  expect_option_error({.in_features = -1, .out_features = 2}, "in_features");
  expect_option_error({.in_features = 3, .out_features = 2, .num_heads = 0}, "num_heads");
  DotGatConv layer = make(3, 2);
  const Topology g = connected(5, 5, 10, 26), wrong_way = random_topology(4, 5, 10, 27);
  EXPECT_ERROR(fragments("DotGatConv", "[5,3]", "gotfloat64[4,3]"),
               layer(g, at::zeros({4, 3}, on_device(at::kDouble))));
  EXPECT_ERROR("prefix", layer(wrong_way, at::zeros({4, 3}, on_device(at::kDouble))));
}

}  // namespace
}  // namespace mezzo::test::dot_gat_conv_test
