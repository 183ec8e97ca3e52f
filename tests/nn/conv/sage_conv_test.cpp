

#include "mezzo/nn/conv/aggregation_layers.h"

#include "support/module_gradcheck.h"
#include "support/nn_reference.h"

namespace mezzo::test::sage_conv_test {
namespace {

using nn::Aggregator;
using nn::SAGEConv;
using nn::SAGEConvOptions;

constexpr Aggregator kAggregators[] = {Aggregator::kMean, Aggregator::kGcn, Aggregator::kPool};
constexpr std::pair<int, int> kWidths[] = {{3, 7}, {7, 3}, {4, 4}};

SAGEConv make(std::int64_t in, std::int64_t out, SAGEConvOptions options = {},
              at::ScalarType stored = at::kDouble) {
  SAGEConv layer(in, out, std::move(options));
  randomise(*layer, stored, 1, stored);
  return layer;
}

/// Terms of two products by [in, .] matrices, including pooling, and a sum over the neighbours.
double terms(const Topology& g, std::int64_t in) {
  return (max_in_degree(g) + 1) * static_cast<double>(in * (in + 1) + 4);
}

TEST(SAGEConv, equals_the_dense_definition_for_every_aggregator_in_either_order) {
  const Topology square = random_topology(12, 12, 40, 1),
                 rectangular = random_topology(9, 5, 20, 2);
  for (const Topology& g : {square, rectangular, four_nodes()}) {
    for (const Aggregator aggregator : kAggregators) {
      for (const auto& [in, out] : kWidths) {
        SCOPED_TRACE(testing::Message()
                     << name_of(nn::Aggregators{}, aggregator) << ": " << in << " -> " << out);
        SAGEConv layer = make(in, out, {.aggregator = aggregator});
        const at::Tensor h = uniform({g.num_src(), in}, at::kDouble, 5);
        EXPECT_TRUE(near_terms(layer(g, h), define(layer, g, h), terms(g, in)));
      }
    }
  }
}

TEST(SAGEConv, sixteen_bit_rows_and_modules_stay_within_their_rounding) {
  const Topology g = random_topology(20, 20, 100, 6);
  for (const DTypeInfo& dtype : narrow_dtypes()) {
    for (const Aggregator aggregator : kAggregators) {
      for (const auto& [in, out] : kWidths) {
        SCOPED_TRACE(dtype.name);
        SAGEConv layer = make(in, out, {.aggregator = aggregator}, dtype.scalar);
        const at::Tensor h = uniform({20, in}, dtype.scalar, 7);
        const at::Tensor got = layer(g, h);
        EXPECT_EQ(got.scalar_type(), dtype.scalar);
        // At most four stored intermediates, each rounded by half an epsilon.
        EXPECT_TRUE(near(got, define(layer, g, h),
                         sum_bound(define(layer, g, h, Numbers::kAbsolute), terms(g, in) + 8,
                                   dtype.scalar, 2 * dtype.epsilon)));
      }
    }
  }
}

TEST(SAGEConv, means_of_a_hub_neither_overflow_nor_stall) {
  const std::int64_t num_sources = 70000;
  const Topology g = in_star(num_sources);
  for (const DTypeInfo& dtype : narrow_dtypes()) {
    for (const Aggregator aggregator : {Aggregator::kMean, Aggregator::kGcn}) {
      SAGEConv layer(1, 1, {.aggregator = aggregator, .bias = false});
      for (auto& parameter : layer->parameters()) {
        parameter.set_data(at::ones(parameter.sizes(), on_device(dtype.scalar)));
      }
      const at::Tensor h = at::ones({num_sources, 1}, on_device(dtype.scalar));
      const at::Tensor got = layer(g, h);
      // kMean: the mean and the node itself; kGcn: one mean.
      const double expected = aggregator == Aggregator::kMean ? 2 : 1;
      EXPECT_TRUE(near(got, at::full({1, 1}, expected, on_device(at::kDouble)),
                       sum_bound(at::full({1, 1}, expected, on_device(at::kDouble)), 2,
                                 dtype.scalar, dtype.epsilon)))
          << dtype.name;
    }
  }
}

TEST(SAGEConv, gradients_agree_with_differences) {
  const Topology g = random_topology(6, 4, 9, 8);
  for (const Aggregator aggregator : kAggregators) {
    for (const auto& [in, out] : {std::pair(2, 3), std::pair(3, 2)}) {
      SAGEConv layer = make(in, out, {.aggregator = aggregator});
      EXPECT_TRUE(module_gradcheck(*layer, [&](const auto& inputs) { return layer(g, inputs[0]); },
                                   {uniform({6, in}, at::kDouble, 9)}))
          << name_of(nn::Aggregators{}, aggregator);
    }
  }
}

TEST(SAGEConv, sparse_rows_give_the_values_and_weight_gradients_of_dense_ones) {
  const Topology square = random_topology(10, 10, 30, 13),
                 rectangular = random_topology(10, 6, 30, 14);
  for (const Topology& g : {square, rectangular}) {
    for (const Aggregator aggregator : kAggregators) {
      for (const auto& [in, out] : kWidths) {
        expect_sparse_like_dense(make(in, out, {.aggregator = aggregator}), g, in,
                                 10 * out * terms(g, in));
      }
    }
  }
}

TEST(SAGEConv, runs_without_edges_and_without_nodes) {
  for (const std::int64_t num_nodes : {0, 5}) {
    const Topology g = topology_of({}, {}, num_nodes, num_nodes);
    for (const Aggregator aggregator : kAggregators) {
      for (const auto& [in, out] : kWidths) {
        SAGEConv layer = make(in, out, {.aggregator = aggregator});
        const at::Tensor h = leaf(uniform({num_nodes, in}, at::kDouble, 18));
        const at::Tensor got = layer(g, h);
        EXPECT_TRUE(near_terms(got, define(layer, g, h), terms(g, in)));
        got.sum().backward();
        EXPECT_EQ(h.grad().sizes(), h.sizes());
      }
    }
  }
}

TEST(SAGEConv, drops_features_while_training_only) {
  const Topology g = random_topology(40, 40, 100, 19);
  const at::Tensor h = uniform({40, 8}, at::kDouble, 20);
  SAGEConv dropping = make(8, 8, {.feature_dropout = 0.5});
  SAGEConv plain = make(8, 8);
  EXPECT_FALSE(exact(dropping(g, h), plain(g, h)));
  dropping->eval();
  EXPECT_TRUE(exact(dropping(g, h), plain(g, h)));
}

TEST(SAGEConv, has_the_parameters_of_dgl) {
  using Shapes = std::set<std::string>;
  const auto shapes = [](Aggregator aggregator, bool bias) {
    return parameter_shapes(*SAGEConv(5, 4, {.aggregator = aggregator, .bias = bias}));
  };
  EXPECT_EQ(shapes(Aggregator::kMean, true),
            (Shapes{"fc_self.weight [4, 5]", "fc_self.bias [4]", "fc_neigh.weight [4, 5]"}));
  EXPECT_EQ(shapes(Aggregator::kMean, false),
            (Shapes{"fc_self.weight [4, 5]", "fc_neigh.weight [4, 5]"}));
  EXPECT_EQ(shapes(Aggregator::kGcn, true), (Shapes{"fc_neigh.weight [4, 5]", "bias [4]"}));
  EXPECT_EQ(shapes(Aggregator::kGcn, false), (Shapes{"fc_neigh.weight [4, 5]"}));
  EXPECT_EQ(shapes(Aggregator::kPool, true),
            (Shapes{"fc_self.weight [4, 5]", "fc_self.bias [4]", "fc_neigh.weight [4, 5]",
                    "fc_pool.weight [5, 5]", "fc_pool.bias [5]"}));
}

TEST(SAGEConv, lists_its_parameters_in_the_order_of_dgl) {
  using Names = std::vector<std::string>;
  const auto names = [](Aggregator aggregator) {
    const SAGEConv layer(5, 4, {.aggregator = aggregator});
    return layer->named_parameters().keys();
  };
  EXPECT_EQ(names(Aggregator::kMean), (Names{"fc_neigh.weight", "fc_self.weight", "fc_self.bias"}));
  EXPECT_EQ(names(Aggregator::kGcn), (Names{"bias", "fc_neigh.weight"}));
  EXPECT_EQ(names(Aggregator::kPool), (Names{"fc_pool.weight", "fc_pool.bias", "fc_neigh.weight",
                                             "fc_self.weight", "fc_self.bias"}));
  EXPECT_EQ(names(Aggregator::kLstm),
            (Names{"lstm.weight_ih_l0", "lstm.weight_hh_l0", "lstm.bias_ih_l0", "lstm.bias_hh_l0",
                   "fc_neigh.weight", "fc_self.weight", "fc_self.bias"}));
}

TEST(SAGEConv, starts_as_dgl_does) {
  const SAGEConv layer(30, 20);
  const double bound = std::sqrt(2.0) * std::sqrt(6.0 / (30 + 20));
  for (const at::Tensor& weight : {layer->fc_self->weight, layer->fc_neigh->weight}) {
    const double largest = weight.abs().max().item<double>();
    EXPECT_LE(largest, bound * (1 + Float32::epsilon));
    EXPECT_GT(largest, bound * 0.95);  // 600 draws: all below with probability 0.95^600
  }
  const double own = layer->fc_self->bias.abs().max().item<double>(), most = 1 / std::sqrt(30.0);
  EXPECT_LE(own, most * (1 + Float32::epsilon));
  EXPECT_GT(own, most * 0.5);  // 20 draws: all below with probability 0.5^20
  const SAGEConv gcn(30, 20, {.aggregator = Aggregator::kGcn});
  EXPECT_TRUE(exact(gcn->bias, at::zeros({20})));
}

TEST(SAGEConv, applies_the_activation_last) {
  const Topology g = random_topology(5, 5, 10, 21);
  const at::Tensor h = uniform({5, 3}, at::kDouble, 22);
  const auto negate = [](const at::Tensor& x) { return -x; };
  SAGEConv plain = make(3, 2);
  SAGEConv active = make(3, 2, {.activation = negate});
  EXPECT_TRUE(exact(active(g, h), -plain(g, h)));
}

TEST(SAGEConv, wrong_arguments_are_errors_that_name_them) {
  const auto option_error = [](const SAGEConvOptions& options) {
    return error_of([&] { SAGEConv layer(options); });
  };
  EXPECT_TRUE(mentions(option_error({.in_features = 3}), "out_features"));
  EXPECT_TRUE(mentions(option_error({.in_features = 0, .out_features = 3}), "in_features"));
  for (const double probability : {-0.1, 1.0, std::nan("")}) {
    const SAGEConvOptions options{
        .in_features = 3, .out_features = 3, .feature_dropout = probability};
    EXPECT_TRUE(mentions(option_error(options), "feature_dropout"));
  }
  SAGEConv layer = make(3, 2);
  const Topology g = random_topology(5, 5, 10, 23), wrong_way = random_topology(4, 5, 10, 24);
  EXPECT_ERROR(fragments("SAGEConv", "[5,3]", "gotfloat64[5,4]"),
               layer(g, at::zeros({5, 4}, on_device(at::kDouble))));
  EXPECT_ERROR("prefix", layer(wrong_way, at::zeros({4, 3}, on_device(at::kDouble))));
}

}  // namespace
}  // namespace mezzo::test::sage_conv_test
