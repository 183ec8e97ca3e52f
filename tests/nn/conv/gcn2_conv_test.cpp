#include "mezzo/nn/conv/gcn2_conv.h"

#include <set>
#include <tuple>

#include "mezzo/amp/autocast/autocast.h"
#include "mezzo/graph/graph.h"

#include "support/module_gradcheck.h"
#include "support/propagation_reference.h"

namespace mezzo::test::gcn2_conv_test {
namespace {

using nn::GCN2Conv;
using nn::GCN2ConvOptions;

/// Stored: the two sums, the scaled weight, the product; rounded: alpha and 1 - beta.
constexpr double kRoundings = 6;

GCN2Conv make(GCN2ConvOptions options, at::ScalarType stored = at::kDouble,
              at::ScalarType dtype = at::kDouble) {
  GCN2Conv layer(std::move(options));
  randomise(*layer, stored, 1, dtype);
  return layer;
}

/// The output before the activation, or the sum of the sizes of all terms.
at::Tensor define(const GCN2Conv& layer, const Topology& g, const at::Tensor& h,
                  const at::Tensor& initial, const at::Tensor& edge_weight, Numbers numbers) {
  const GCN2ConvOptions& options = layer->options;
  const double beta = std::log(options.lambda / static_cast<double>(options.layer) + 1);
  const auto factor = [&](double value) {
    return numbers == Numbers::kAbsolute ? std::abs(value) : value;
  };
  const at::Tensor& second = options.project_initial_features ? layer->weight1 : layer->weight2;
  const at::Tensor received =
      (1 - options.alpha) * at::matmul(propagation_matrix(g, edge_weight), take(h, numbers));
  const at::Tensor own = options.alpha * take(initial, numbers);
  const at::Tensor product =
      at::matmul(received, take(layer->weight1, numbers)) + at::matmul(own, take(second, numbers));
  const at::Tensor out = factor(1 - beta) * (received + own) + factor(beta) * product;
  return layer->bias.defined() ? out + take(layer->bias, numbers) : out;
}

Expected expected_of(const GCN2Conv& layer, const Topology& g, const at::Tensor& h,
                     const at::Tensor& initial, const at::Tensor& edge_weight) {
  return {.value = define(layer, g, h, initial, edge_weight, Numbers::kGiven),
          .abs_sum = define(layer, g, h, initial, edge_weight, Numbers::kAbsolute),
          .terms = max_in_degree(g) + 24 + 2 * static_cast<double>(layer->options.in_features),
          .roundings = kRoundings};
}

at::Tensor weights_of(const Topology& g, at::ScalarType dtype) {
  return uniform({g.num_edges()}, dtype, 5, 0.25, 1.5);
}

/// Graphs of one set of nodes, some of them without in-edges.
std::vector<Topology> graphs() {
  return {random_topology(12, 12, 40, 1), random_topology(20, 20, 150, 2, 3.0), four_nodes()};
}

/// Every combination of weights and bias, each with other factors.
std::vector<GCN2ConvOptions> all_options() {
  std::vector<GCN2ConvOptions> all;
  for (const auto& [layer, alpha, lambda] :
       {std::tuple(1, 0.1, 1.0), std::tuple(2, 0.5, 0.5), std::tuple(4, 0.0, -2.0),
        std::tuple(1, 1.0, 4.0), std::tuple(8, 0.3, 0.0)}) {
    for (const bool project : {true, false}) {
      for (const bool bias : {true, false}) {
        all.push_back({.in_features = 5,
                       .layer = layer,
                       .alpha = alpha,
                       .lambda = lambda,
                       .project_initial_features = project,
                       .bias = bias,
                       .allow_zero_in_degree = true});
      }
    }
  }
  return all;
}

TEST(GCN2Conv, equals_the_definition_for_every_choice_of_options_and_dtype) {
  for (const Topology& g : graphs()) {
    for (const DTypeInfo& dtype : dtypes()) {
      const at::Tensor h = uniform({g.num_src(), 5}, dtype.scalar, 3);
      const at::Tensor initial = uniform({g.num_src(), 5}, dtype.scalar, 4);
      for (const GCN2ConvOptions& options : all_options()) {
        for (const at::Tensor& weight : {at::Tensor(), weights_of(g, dtype.scalar)}) {
          SCOPED_TRACE(testing::Message()
                       << dtype.name << ", layer " << options.layer << ", weight2 "
                       << !options.project_initial_features << ", weights " << weight.defined());
          GCN2Conv layer = make(options, dtype.scalar, dtype.scalar);
          const at::Tensor got = layer(g, h, initial, weight);
          EXPECT_EQ(got.scalar_type(), dtype.scalar);
          EXPECT_TRUE(near_definition(got, expected_of(layer, g, h, initial, weight)));
        }
      }
    }
  }
}

TEST(GCN2Conv, stays_within_its_rounding_under_autocast) {
  const Topology g = random_topology(20, 20, 100, 6);
  for (const DTypeInfo& dtype : narrow_dtypes()) {
    const at::Tensor h = uniform({20, 5}, dtype.scalar, 7).to(at::kFloat);
    const at::Tensor initial = uniform({20, 5}, dtype.scalar, 8).to(at::kFloat);
    for (const GCN2ConvOptions& options : all_options()) {
      for (const at::Tensor& weight : {at::Tensor(), weights_of(g, at::kFloat)}) {
        SCOPED_TRACE(testing::Message() << dtype.name << ", layer " << options.layer << ", weights "
                                        << weight.defined());
        GCN2Conv layer = make(options, at::kFloat, dtype.scalar);
        at::Tensor got, from_16_bits;
        {
          const amp::Autocast region(test_device().type(), dtype.scalar);
          got = layer(g, h, initial, weight);
          from_16_bits = layer(g, h.to(dtype.scalar), initial.to(dtype.scalar), weight);
        }
        EXPECT_EQ(got.scalar_type(), dtype.scalar);
        EXPECT_TRUE(near_definition(got, expected_of(layer, g, h, initial, weight)));
        EXPECT_TRUE(same_bits(from_16_bits, got));
        got.to(at::kFloat).sum().backward();
        for (const auto& parameter : layer->named_parameters()) {
          EXPECT_TRUE(parameter.value().grad().isfinite().all().item<bool>()) << parameter.key();
        }
      }
    }
  }
}

TEST(GCN2Conv, gradients_agree_with_differences) {
  const Topology g = random_topology(6, 6, 12, 9);
  for (const bool project : {true, false}) {
    GCN2Conv layer = make({.in_features = 3,
                           .layer = 2,
                           .alpha = 0.25,
                           .project_initial_features = project,
                           .allow_zero_in_degree = true});
    const auto function = [&](const std::vector<at::Tensor>& inputs) {
      return layer(g, inputs[0], inputs[1], inputs.size() > 2 ? inputs[2] : at::Tensor());
    };
    std::vector<at::Tensor> inputs = {uniform({6, 3}, at::kDouble, 10),
                                      uniform({6, 3}, at::kDouble, 11)};
    EXPECT_TRUE(module_gradcheck(*layer, function, inputs));
    inputs.push_back(weights_of(g, at::kDouble));
    EXPECT_TRUE(module_gradcheck(*layer, function, inputs));
  }
}

TEST(GCN2Conv, takes_initial_rows_of_another_dtype_and_edge_weights_as_a_column) {
  const Topology g = connected(10, 10, 30, 12);
  GCN2Conv layer = make({.in_features = 4, .layer = 1});
  const at::Tensor h = uniform({10, 4}, at::kDouble, 13);
  const at::Tensor initial = uniform({10, 4}, at::kFloat, 14), weight = weights_of(g, at::kDouble);
  EXPECT_TRUE(same_bits(layer(g, h, initial), layer(g, h, initial.to(at::kDouble))));
  EXPECT_TRUE(same_bits(layer(g, h, initial, weight.unsqueeze(1)), layer(g, h, initial, weight)));
}

TEST(GCN2Conv, has_the_parameters_of_dgl) {
  using Shapes = std::set<std::string>;
  const GCN2Conv shared(GCN2ConvOptions{.in_features = 30, .layer = 1});
  EXPECT_EQ(parameter_shapes(*shared), (Shapes{"weight1 [30, 30]", "bias [30]"}));
  const GCN2Conv two(
      GCN2ConvOptions{.in_features = 30, .layer = 1, .project_initial_features = false});
  EXPECT_EQ(parameter_shapes(*two), (Shapes{"weight1 [30, 30]", "weight2 [30, 30]", "bias [30]"}));
  const GCN2Conv bare(GCN2ConvOptions{.in_features = 30, .layer = 1, .bias = false});
  EXPECT_EQ(parameter_shapes(*bare), (Shapes{"weight1 [30, 30]"}));
  for (const at::Tensor& weight : {shared->weight1, two->weight1, two->weight2}) {
    // Six standard deviations of the mean of squares of normal numbers.
    EXPECT_LE(std::abs(weight.pow(2).mean().item<double>() - 1), 6 * std::sqrt(2 / 900.0));
  }
  EXPECT_TRUE(exact(shared->bias, at::zeros({30})));
}

TEST(GCN2Conv, applies_the_activation_last_and_takes_a_graph) {
  const Graph g(connected(5, 5, 10, 15));
  const at::Tensor h = uniform({5, 3}, at::kDouble, 16), initial = uniform({5, 3}, at::kDouble, 17);
  const auto negate = [](const at::Tensor& x) { return -x; };
  GCN2Conv plain = make({.in_features = 3, .layer = 1});
  GCN2Conv active = make({.in_features = 3, .layer = 1, .activation = negate});
  EXPECT_TRUE(exact(active(g, h, initial), -plain(g, h, initial)));
}

TEST(GCN2Conv, nodes_without_in_edges_are_an_error_unless_allowed) {
  const at::Tensor h = uniform({4, 2}, at::kDouble, 18), initial = uniform({4, 2}, at::kDouble, 19);
  GCN2Conv strict = make({.in_features = 2, .layer = 1});
  EXPECT_ERROR(fragments("GCN2Conv", "add_self_loop", "allow_zero_in_degree"),
               strict(four_nodes(), h, initial));
  GCN2Conv layer = make({.in_features = 2, .layer = 1, .allow_zero_in_degree = true});
  EXPECT_TRUE(near_definition(layer(four_nodes(), h, initial),
                              expected_of(layer, four_nodes(), h, initial, {})));
}

TEST(GCN2Conv, runs_without_edges_and_without_nodes) {
  for (const std::int64_t num_nodes : {0, 5}) {
    const Topology g = topology_of({}, {}, num_nodes, num_nodes);
    for (const at::Tensor& weight : {at::Tensor(), at::zeros({0}, on_device(at::kDouble))}) {
      for (const bool project : {true, false}) {
        GCN2Conv layer = make({.in_features = 3,
                               .layer = 1,
                               .project_initial_features = project,
                               .allow_zero_in_degree = true});
        const at::Tensor h = leaf(uniform({num_nodes, 3}, at::kDouble, 20));
        const at::Tensor initial = leaf(uniform({num_nodes, 3}, at::kDouble, 21));
        const at::Tensor got = layer(g, h, initial, weight);
        EXPECT_TRUE(near_definition(got, expected_of(layer, g, h, initial, weight)));
        got.sum().backward();
        EXPECT_TRUE(exact(h.grad(), at::zeros({num_nodes, 3})));
        EXPECT_EQ(initial.grad().sizes(), initial.sizes());
      }
    }
  }
}

TEST(GCN2Conv, wrong_options_are_errors_that_name_them) {
  const auto error = [](GCN2ConvOptions options) {
    return error_of([&] { GCN2Conv layer(options); });
  };
  EXPECT_TRUE(mentions(error({.layer = 1}), "GCN2Conv:expectedin_featuresofatleast1"));
  EXPECT_TRUE(mentions(error({.in_features = 3}), "GCN2Conv:expectedlayerofatleast1"));
  for (const double alpha : {-0.1, 1.1, std::nan("")}) {
    EXPECT_TRUE(mentions(error({.in_features = 3, .layer = 1, .alpha = alpha}), "alphain[0,1]"));
  }
  for (const double lambda : {-2.0, -3.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_TRUE(
        mentions(error({.in_features = 3, .layer = 2, .lambda = lambda}), "finitelambdaabove-2,"));
  }
}

TEST(GCN2Conv, wrong_arguments_are_errors_that_name_them) {
  const Topology g = connected(5, 5, 10, 22), rectangular = connected(6, 5, 10, 23);
  GCN2Conv layer = make({.in_features = 3, .layer = 1});
  const at::Tensor h = at::zeros({5, 3}, on_device(at::kDouble));
  const at::Tensor six_rows = at::zeros({6, 3}, on_device(at::kDouble));
  const auto error = [&](const Topology& topology, const at::Tensor& rows,
                         const at::Tensor& initial, const at::Tensor& weight = {}) {
    const std::string text = error_of([&] { layer(topology, rows, initial, weight); });
    EXPECT_TRUE(mentions(text, "GCN2Conv:"));
    return text;
  };
  EXPECT_TRUE(mentions(error(g, six_rows, h), "gotfloat64[6,3]"));
  EXPECT_TRUE(mentions(error(g, h.to(at::kLong), h), "int64"));
  EXPECT_TRUE(mentions(error(g, {}, h), "undefined"));
  EXPECT_TRUE(mentions(error(g, h.to_sparse_csr(), h), "expectedhstrided"));
  EXPECT_TRUE(mentions(error(rectangular, six_rows, six_rows), "onesetofnodes"));
  for (const at::Tensor& initial :
       {six_rows, h.to(at::kLong), h.to_sparse_csr(), at::Tensor(), h.narrow(1, 0, 2)}) {
    EXPECT_TRUE(mentions(error(g, h, initial), "initial_h[5,3],theshapeofh,got"));
  }
  EXPECT_TRUE(mentions(error(g, h, h, at::ones({14}, on_device(at::kDouble))), "edge_weight[15]"));
  EXPECT_TRUE(mentions(error(g, h, h, at::zeros({15}, on_device(at::kDouble))), "positive"));
}

}  // namespace
}  // namespace mezzo::test::gcn2_conv_test
