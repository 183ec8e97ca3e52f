// The layers that multiply rows by the normalised adjacency matrix: SGConv, APPNPConv, TAGConv and
// ChebConv.

#include <type_traits>

#include <c10/core/InferenceMode.h>

#include "mezzo/amp/precision.h"
#include "mezzo/graph/graph.h"

#include "support/module_gradcheck.h"
#include "support/propagation_reference.h"

namespace mezzo::test::propagation_layers_test {
namespace {

using nn::APPNPConv;
using nn::APPNPConvOptions;
using nn::ChebConv;
using nn::SGConv;
using nn::SGConvOptions;
using nn::TAGConv;
using nn::TAGConvOptions;

/// Widths for either order of product and propagation.
constexpr std::pair<std::int64_t, std::int64_t> kWidths[] = {{3, 7}, {7, 3}};

template <class Layer>
Layer make(std::int64_t in, std::int64_t out, typename Layer::Options options = {},
           at::ScalarType dtype = at::kDouble) {
  Layer layer(in, out, std::move(options));
  randomise(*layer, dtype, 1, dtype);
  return layer;
}

/// Terms of `hops` sums over the neighbours and a product with `count` blocks [in, .].
double terms(const Topology& g, std::int64_t hops, std::int64_t in) {
  return static_cast<double>(hops) * (max_in_degree(g) + 8) + static_cast<double>(in * (hops + 1)) +
         16;
}

at::Tensor weights_of(const Topology& g, at::ScalarType dtype, std::uint64_t seed = 5) {
  return uniform({g.num_edges()}, dtype, seed, 0.25, 1.5);
}

/// Graphs of one set of nodes, some of them without in-edges.
std::vector<Topology> graphs() {
  return {random_topology(12, 12, 40, 1), random_topology(20, 20, 150, 2, 3.0), four_nodes()};
}

/// check(graph, dtype, edge weights or undefined).
template <class Check>
void for_each_case(Check check) {
  for (const Topology& g : graphs()) {
    for (const DTypeInfo& dtype : dtypes()) {
      for (const at::Tensor& weight : {at::Tensor(), weights_of(g, dtype.scalar)}) {
        SCOPED_TRACE(testing::Message() << dtype.name << " on " << g.num_src() << " nodes"
                                        << (weight.defined() ? " with weights" : ""));
        check(g, dtype.scalar, weight);
      }
    }
  }
}

TEST(SGConv, equals_the_dense_definition_in_every_dtype_and_order) {
  for_each_case([](const Topology& g, at::ScalarType dtype, const at::Tensor& weight) {
    for (const auto& [in, out] : kWidths) {
      for (const std::int64_t k : {0, 1, 3}) {
        SGConv layer = make<SGConv>(in, out, {.k = k, .allow_zero_in_degree = true}, dtype);
        const at::Tensor h = uniform({g.num_src(), in}, dtype, 3);
        const at::Tensor got = layer(g, h, weight);
        EXPECT_EQ(got.scalar_type(), dtype);
        // Stored: each hop, the product, the bias.
        EXPECT_TRUE(near_definition(
            got, expected_of(layer, g, h, weight, terms(g, k, in), static_cast<double>(k + 2))));
      }
    }
  });
}

TEST(TAGConv, equals_the_dense_definition_in_every_dtype_and_order) {
  for_each_case([](const Topology& g, at::ScalarType dtype, const at::Tensor& weight) {
    for (const auto& [in, out] : kWidths) {
      for (const std::int64_t k : {0, 1, 3}) {
        TAGConv layer = make<TAGConv>(in, out, {.k = k}, dtype);
        const at::Tensor h = uniform({g.num_src(), in}, dtype, 3);
        const at::Tensor got = layer(g, h, weight);
        EXPECT_EQ(got.scalar_type(), dtype);
        // Stored: each hop and its sum, the product, the bias.
        EXPECT_TRUE(near_definition(
            got, expected_of(layer, g, h, weight, terms(g, k, in), static_cast<double>(k + 2))));
      }
    }
  });
}

TEST(APPNPConv, equals_the_dense_definition_in_every_dtype) {
  for_each_case([](const Topology& g, at::ScalarType dtype, const at::Tensor& weight) {
    for (const std::int64_t k : {0, 1, 5}) {
      for (const double alpha : {0.0, 0.25, 1.0}) {
        APPNPConv layer(APPNPConvOptions{.k = k, .alpha = alpha});
        const at::Tensor h = uniform({g.num_src(), 6}, dtype, 3);
        const at::Tensor got = layer(g, h, weight);
        EXPECT_EQ(got.scalar_type(), dtype);
        // Stored: each step's sum and its addend.
        EXPECT_TRUE(near_definition(
            got, expected_of(layer, g, h, weight, terms(g, k, 1), static_cast<double>(k + 1))));
        EXPECT_TRUE(same_bits(layer(g, h.view({g.num_src(), 2, 3}), weight).flatten(1), got));
      }
    }
  });
}

TEST(ChebConv, equals_the_dense_definition_in_every_dtype_and_order) {
  for (const Topology& g : graphs()) {
    const std::int64_t num_nodes = g.num_src();
    const at::Tensor of_nodes = uniform({num_nodes}, at::kFloat, 4, 1.0, 2.0);
    const at::Tensor one = numbers({1.5}, at::kFloat);
    const std::vector<std::pair<at::Tensor, at::Tensor>> argument_and_of_nodes = {
        {at::Tensor(), at::Tensor()},
        {of_nodes, of_nodes},
        {one, one.expand({num_nodes})},
        {one.squeeze(0), one.expand({num_nodes})}};
    for (const DTypeInfo& dtype : dtypes()) {
      for (const auto& [in, out] : kWidths) {
        for (const std::int64_t k : {1, 2, 4}) {
          for (const auto& [argument, lambda_max] : argument_and_of_nodes) {
            SCOPED_TRACE(testing::Message() << dtype.name << " k " << k << " in " << in);
            ChebConv layer = make<ChebConv>(in, out, {.k = k, .activation = {}}, dtype.scalar);
            const at::Tensor h = uniform({num_nodes, in}, dtype.scalar, 3);
            const at::Tensor got = layer(g, h, argument);
            EXPECT_EQ(got.scalar_type(), dtype.scalar);
            // Stored for each term: the sum over the neighbours, the two additions to it, the
            // product's part; and the rounded shift.
            EXPECT_TRUE(near_definition(got, expected_of(layer, g, h, lambda_max, terms(g, k, in),
                                                         static_cast<double>(3 * k + 2))));
          }
        }
      }
    }
  }
}

TEST(Propagation, gradients_agree_with_differences) {
  const Topology g = random_topology(6, 6, 12, 6);
  const at::Tensor weight = weights_of(g, at::kDouble),
                   lambda_max = uniform({6}, at::kDouble, 10, 0.5, 2.0);
  const auto expect_gradients = [&](auto layer, std::int64_t in) {
    const at::Tensor h = uniform({6, in}, at::kDouble, 7);
    const auto check = [&](auto function, const std::vector<at::Tensor>& inputs) {
      EXPECT_TRUE(module_gradcheck(*layer, function, inputs));
    };
    check([&](const auto& inputs) { return layer(g, inputs[0]); }, {h});
    if constexpr (std::is_same_v<decltype(layer), ChebConv>) {
      check([&](const auto& inputs) { return layer(g, inputs[0], lambda_max); }, {h});
    } else {
      check([&](const auto& inputs) { return layer(g, inputs[0], inputs[1]); }, {h, weight});
    }
  };
  for (const auto& [in, out] : {std::pair(2, 3), std::pair(3, 2)}) {
    expect_gradients(make<SGConv>(in, out, {.k = 2, .allow_zero_in_degree = true}), in);
    expect_gradients(make<TAGConv>(in, out), in);
    expect_gradients(make<ChebConv>(in, out, {.k = 3, .activation = {}}), in);
  }
  expect_gradients(APPNPConv(APPNPConvOptions{.k = 3, .alpha = 0.25}), 3);
}

TEST(Propagation, sparse_rows_give_the_values_and_weight_gradients_of_dense_ones) {
  const Topology g = connected(10, 10, 30, 13);
  const at::Tensor weight = weights_of(g, at::kDouble);
  const auto negate = [](const at::Tensor& x) { return -x; };
  for (const auto& [in, out] : kWidths) {
    const double bound = 10 * 10 * terms(g, 3, in);
    for (const nn::Activation& norm : {nn::Activation(), nn::Activation(negate)}) {
      expect_sparse_like_dense(make<SGConv>(in, out, {.k = 2, .norm = norm}), g, in, bound, weight);
    }
    expect_sparse_like_dense(make<TAGConv>(in, out), g, in, bound, weight);
    expect_sparse_like_dense(make<ChebConv>(in, out, {.k = 3, .activation = {}}), g, in, bound,
                             numbers({1.5}));
  }
}

/// run(h) inside a bfloat16 region, of float32, sparse and bfloat16 rows.
template <class Run>
void expect_narrow_in_region(Run run, std::int64_t in, bool sparse = true) {
  const at::Tensor h = uniform({20, in}, at::kFloat, 14);
  const amp::PrecisionScope scope(amp::Precision::kBFloat16, test_device());
  const at::Tensor got = run(h);
  EXPECT_EQ(got.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(same_bits(got, run(h.to(at::kBFloat16))));
  if (sparse) {
    EXPECT_EQ(run(h.to_sparse_csr()).scalar_type(), at::kBFloat16);
  }
}

TEST(Propagation, a_mixed_precision_region_computes_in_its_dtype) {
  const Topology g = connected(20, 20, 60, 15);
  const at::Tensor weight = weights_of(g, at::kFloat), lambda_max = numbers({1.5}, at::kFloat);
  for (const auto& [in, out] : kWidths) {
    SGConv sgc(in, out, {.k = 2});
    TAGConv tag(in, out);
    ChebConv cheb(in, out, {.k = 3});
    sgc->to(test_device());
    tag->to(test_device());
    cheb->to(test_device());
    for (const at::Tensor& edge_weight : {at::Tensor(), weight}) {
      expect_narrow_in_region([&](const at::Tensor& h) { return sgc(g, h, edge_weight); }, in);
      expect_narrow_in_region([&](const at::Tensor& h) { return tag(g, h, edge_weight); }, in);
    }
    for (const at::Tensor& maximum : {at::Tensor(), lambda_max}) {
      expect_narrow_in_region([&](const at::Tensor& h) { return cheb(g, h, maximum); }, in);
    }
  }
  for (const double edge_drop : {0.0, 0.5}) {
    APPNPConv appnp(APPNPConvOptions{.edge_drop = edge_drop});
    for (const at::Tensor& edge_weight : {at::Tensor(), weight}) {
      const auto run = [&](const at::Tensor& h) {
        at::manual_seed(1);
        return appnp(g, h, edge_weight);
      };
      expect_narrow_in_region(run, 4, /*sparse=*/false);
    }
  }
}

TEST(Propagation, weights_in_a_region_are_normalised_as_outside) {
  // Each edge's factor is 1 / 3; from bfloat16 numbers per node it would be 0.3346, the sum 772.
  const Topology g = topology_of({0, 1, 2, 0, 1, 2, 0, 1, 2}, {0, 0, 0, 1, 1, 1, 2, 2, 2}, 3, 3);
  const at::Tensor h = at::full({3, 1}, 768, on_device(at::kFloat)),
                   weight = at::full({9}, 3, on_device(at::kFloat));
  APPNPConv layer(APPNPConvOptions{.k = 1, .alpha = 0});
  const amp::PrecisionScope scope(amp::Precision::kBFloat16, test_device());
  EXPECT_TRUE(exact(layer(g, h, weight), h));
}

TEST(SGConv, norm_is_applied_to_the_rows_after_the_hops) {
  const Topology g = connected(8, 8, 20, 17);
  const at::Tensor h = uniform({8, 5}, at::kDouble, 18);
  const auto cube = [](const at::Tensor& x) { return x.pow(3); };
  for (const bool cached : {false, true}) {
    SGConv layer = make<SGConv>(5, 2, {.k = 2, .cached = cached, .norm = cube});
    const at::Tensor matrix = propagation_matrix(g);
    const at::Tensor rows = at::matmul(matrix, at::matmul(matrix, h)).pow(3);
    const at::Tensor expected =
        dense_linear(rows, layer->fc->weight, layer->fc->bias, Numbers::kGiven);
    EXPECT_TRUE(near_terms(layer(g, h), expected, 100 * terms(g, 2, 5)));
  }
}

TEST(SGConv, cached_rows_serve_every_call_with_the_same_arguments) {
  const Topology g = connected(8, 8, 20, 19);
  const at::Tensor weight = weights_of(g, at::kDouble);
  for (const at::Tensor& h :
       {uniform({8, 5}, at::kDouble, 20), uniform({8, 5}, at::kDouble, 20).to_sparse_csr()}) {
    for (const at::Tensor& edge_weight : {at::Tensor(), weight}) {
      SGConv layer = make<SGConv>(5, 2, {.k = 2, .cached = true});
      const at::Tensor first = layer(g, h, edge_weight);
      EXPECT_TRUE(same_bits(layer(g, h, edge_weight), first));
      randomise(*layer, at::kDouble, 50);  // the cache does not depend on the parameters
      const at::Tensor dense = h.layout() == at::kSparseCsr ? h.to_dense() : h;
      const at::Tensor got = layer(g, h, edge_weight);
      EXPECT_TRUE(near_definition(
          got, expected_of(layer, g, dense, edge_weight, terms(g, 2, 5), /*roundings=*/4)));
      got.sum().backward();
      layer(g, h, edge_weight).sum().backward();  // a second backward through the cache
      EXPECT_TRUE(layer->fc->weight.grad().defined());
    }
  }
}

TEST(SGConv, cached_refuses_other_arguments_until_it_is_cleared) {
  const Topology g = connected(8, 8, 20, 21), other = connected(8, 8, 20, 22);
  const at::Tensor h = uniform({8, 3}, at::kDouble, 23);
  const at::Tensor weight = weights_of(g, at::kDouble);
  SGConv layer = make<SGConv>(3, 2, {.cached = true});
  const auto error = [&](const Topology& topology, const at::Tensor& rows,
                         const at::Tensor& edge_weight) {
    return error_of([&] { layer(topology, rows, edge_weight); });
  };
  layer(g, h, weight);
  EXPECT_TRUE(mentions(error(other, h, weight), "graph"));
  EXPECT_TRUE(mentions(error(g, h.clone(), weight), "tensorh"));
  EXPECT_TRUE(mentions(error(g, h, weight.clone()), "edge_weight"));
  EXPECT_TRUE(mentions(error(g, h, {}), "edge_weight"));
  EXPECT_TRUE(mentions(error(g, uniform({7, 3}, at::kDouble, 24), weight), "[8,3]"));
  h.mul_(2);
  EXPECT_TRUE(mentions(error(g, h, weight), "clear_cache"));
  layer->clear_cache();
  EXPECT_TRUE(
      near_definition(layer(g, h, weight), expected_of(layer, g, h, weight, terms(g, 1, 3), 3)));
  weight.mul_(2);
  EXPECT_TRUE(mentions(error(g, h, weight), "edge_weight"));
  layer->clear_cache();
  EXPECT_TRUE(mentions(error(g, leaf(h), weight), "withoutgradients"));
  EXPECT_TRUE(mentions(error(g, h, leaf(weight)), "withoutgradients"));
}

TEST(SGConv, rows_that_count_no_changes_are_not_kept) {
  const Topology g = connected(6, 6, 12, 3);
  SGConv layer = make<SGConv>(3, 2, {.cached = true});
  const c10::InferenceMode inference;
  const at::Tensor h = uniform({6, 3}, at::kDouble, 4);
  layer(g, h);
  h.mul_(2);
  layer->clear_cache();
  const at::Tensor expected = layer(g, h);
  h.mul_(0.5);
  layer(g, h);
  h.mul_(2);
  EXPECT_TRUE(same_bits(layer(g, h), expected));
}

TEST(SGConv, cached_rows_follow_the_precision) {
  const Topology g = connected(8, 8, 20, 25);
  const at::Tensor h = uniform({8, 5}, at::kFloat, 26);
  SGConv layer = make<SGConv>(5, 2, {.k = 2, .cached = true}, at::kFloat);
  const at::Tensor outside = layer(g, h);
  {
    const amp::PrecisionScope scope(amp::Precision::kBFloat16, test_device());
    const at::Tensor inside = layer(g, h);
    EXPECT_EQ(inside.scalar_type(), at::kBFloat16);
    EXPECT_TRUE(same_bits(layer(g, h), inside));
  }
  EXPECT_TRUE(same_bits(layer(g, h), outside));
}

TEST(SGConv, cached_rows_of_inference_mode_serve_training) {
  const Topology g = connected(8, 8, 20, 51);
  const at::Tensor h = uniform({8, 5}, at::kDouble, 52);
  SGConv layer = make<SGConv>(5, 2, {.k = 2, .cached = true});
  at::Tensor evaluated;
  {
    const c10::InferenceMode inference;
    evaluated = layer(g, h);
  }
  const at::Tensor trained = layer(g, h);
  EXPECT_TRUE(same_bits(trained, evaluated.clone()));
  trained.sum().backward();
  EXPECT_TRUE(layer->fc->weight.grad().defined());
}

TEST(APPNPConv, drops_edges_while_training_only) {
  const Topology g = connected(30, 30, 100, 27);
  const at::Tensor h = uniform({30, 4}, at::kDouble, 28);
  for (const at::Tensor& weight : {at::Tensor(), weights_of(g, at::kDouble)}) {
    APPNPConv dropping(APPNPConvOptions{.edge_drop = 0.5}), plain(APPNPConvOptions{});
    at::manual_seed(3);
    const at::Tensor first = dropping(g, h, weight);
    EXPECT_FALSE(exact(first, plain(g, h, weight)));
    EXPECT_FALSE(exact(dropping(g, h, weight), first));
    at::manual_seed(3);
    EXPECT_TRUE(same_bits(dropping(g, h, weight), first));
    dropping->eval();
    EXPECT_TRUE(same_bits(dropping(g, h, weight), plain(g, h, weight)));
  }
}

TEST(APPNPConv, drops_other_edges_in_each_step_and_scales_the_rest) {
  const std::int64_t num_nodes = 4000;
  const at::Tensor nodes = at::arange(num_nodes, on_device());
  const Topology loops = Topology::from_coo(nodes, nodes, num_nodes, num_nodes);
  APPNPConv layer(APPNPConvOptions{.k = 2, .alpha = 0, .edge_drop = 0.5});
  at::manual_seed(4);
  const at::Tensor got = layer(loops, at::ones({num_nodes, 1}, on_device()));
  const at::Tensor stays = at::eq(got, 4);
  EXPECT_TRUE(at::logical_or(stays, at::eq(got, 0)).all().item<bool>());
  // A quarter stays twice; six standard deviations of the binomial distribution either way.
  const auto count = static_cast<double>(stays.sum().item<std::int64_t>());
  const auto trials = static_cast<double>(num_nodes);
  EXPECT_LE(std::abs(count - trials / 4), 6 * std::sqrt(trials * 0.25 * 0.75));
}

TEST(Propagation, parameters_have_the_names_and_shapes_of_dgl) {
  using Shapes = std::set<std::string>;
  const SGConv sgc(30, 20);
  EXPECT_EQ(parameter_shapes(*sgc), (Shapes{"fc.weight [20, 30]", "fc.bias [20]"}));
  const double bound = std::sqrt(6.0 / (30 + 20));
  const double largest = sgc->fc->weight.abs().max().item<double>();
  EXPECT_LE(largest, bound * (1 + Float32::epsilon));
  EXPECT_GT(largest, bound * 0.95);  // 600 draws: all below with probability 0.95^600
  EXPECT_TRUE(exact(sgc->fc->bias, at::zeros({20})));

  const TAGConv tag(30, 20);
  EXPECT_EQ(parameter_shapes(*tag), (Shapes{"lin.weight [20, 90]", "lin.bias [20]"}));
  const double variance = 2 * 2.0 / (90 + 20), draws = 20 * 90;
  const double mean_square = tag->lin->weight.pow(2).mean().item<double>();
  // Six standard deviations of the mean of squares of normal numbers.
  EXPECT_LE(std::abs(mean_square / variance - 1), 6 * std::sqrt(2 / draws));

  const ChebConv cheb(5, 4, {.k = 3});
  EXPECT_EQ(parameter_shapes(*cheb), (Shapes{"linear.weight [4, 15]", "linear.bias [4]"}));
  EXPECT_LE(cheb->linear->weight.abs().max().item<double>(),
            (1 + Float32::epsilon) / std::sqrt(15.0));
  const ChebConv bare(5, 4, {.k = 1, .bias = false});
  EXPECT_EQ(parameter_shapes(*bare), (Shapes{"linear.weight [4, 5]"}));
  EXPECT_TRUE(parameter_shapes(*APPNPConv(APPNPConvOptions{})).empty());
}

TEST(Propagation, activations_come_last_and_that_of_chebconv_is_relu) {
  const Graph g(connected(6, 6, 12, 29));
  const at::Tensor h = uniform({6, 3}, at::kDouble, 30);
  const auto negate = [](const at::Tensor& x) { return -x; };
  TAGConv negated = make<TAGConv>(3, 2, {.activation = negate});
  EXPECT_TRUE(exact(negated(g, h), -make<TAGConv>(3, 2)(g, h)));
  ChebConv plain = make<ChebConv>(3, 2, {.k = 2, .activation = {}});
  EXPECT_TRUE(exact(make<ChebConv>(3, 2, {.k = 2})(g, h), plain(g, h).relu()));
}

TEST(SGConv, nodes_without_in_edges_are_an_error_unless_allowed) {
  const at::Tensor h = uniform({4, 2}, at::kDouble, 31);
  SGConv strict = make<SGConv>(2, 3);
  EXPECT_ERROR(fragments("SGConv", "allow_zero_in_degree"), strict(four_nodes(), h));
  SGConv layer = make<SGConv>(2, 3, {.allow_zero_in_degree = true});
  const at::Tensor got = layer(four_nodes(), h);
  EXPECT_TRUE(exact(got[0], layer->fc->bias));
  EXPECT_TRUE(exact(got[3], layer->fc->bias));
}

TEST(Propagation, runs_without_edges_and_without_nodes) {
  for (const std::int64_t num_nodes : {0, 5}) {
    const Topology g = topology_of({}, {}, num_nodes, num_nodes);
    for (const at::Tensor& weight : {at::Tensor(), at::zeros({0}, on_device(at::kDouble))}) {
      for (const auto& [in, out] : kWidths) {
        const at::Tensor h = leaf(uniform({num_nodes, in}, at::kDouble, 32));
        SGConv sgc = make<SGConv>(in, out, {.allow_zero_in_degree = true});
        TAGConv tag = make<TAGConv>(in, out);
        ChebConv cheb = make<ChebConv>(in, out, {.k = 3, .activation = {}});
        APPNPConv appnp(APPNPConvOptions{.k = 2, .alpha = 0.5});
        EXPECT_TRUE(near_terms(sgc(g, h, weight), define(sgc, g, h, weight), terms(g, 1, in)));
        EXPECT_TRUE(near_terms(tag(g, h, weight), define(tag, g, h, weight), terms(g, 2, in)));
        EXPECT_TRUE(near_terms(cheb(g, h), define(cheb, g, h), terms(g, 2, in)));
        EXPECT_TRUE(exact(appnp(g, h, weight), 0.5 * h));
        (sgc(g, h, weight).sum() + tag(g, h, weight).sum() + cheb(g, h).sum() +
         appnp(g, h, weight).sum())
            .backward();
        EXPECT_EQ(h.grad().sizes(), h.sizes());
      }
    }
  }
}

TEST(Propagation, wrong_options_are_errors_that_name_them) {
  const auto error = [](auto make_layer) { return error_of([&] { make_layer(); }); };
  EXPECT_TRUE(mentions(error([] { SGConv(SGConvOptions{.in_features = 3}); }), "out_features"));
  EXPECT_TRUE(mentions(error([] { TAGConv(TAGConvOptions{.out_features = 3}); }), "in_features"));
  EXPECT_TRUE(mentions(error([] { SGConv(3, 2, {.k = -1}); }), "expectedkof"));
  EXPECT_TRUE(mentions(error([] { ChebConv(3, 2); }), "expectedkof"));
  EXPECT_TRUE(mentions(error([] { APPNPConv(APPNPConvOptions{.k = -1}); }), "expectedkof"));
  for (const double share : {-0.1, 1.1, std::nan("")}) {
    EXPECT_TRUE(mentions(error([&] { APPNPConv(APPNPConvOptions{.alpha = share}); }), "alpha"));
    EXPECT_TRUE(
        mentions(error([&] { APPNPConv(APPNPConvOptions{.edge_drop = share}); }), "edge_drop"));
  }
}

TEST(Propagation, wrong_arguments_are_errors_that_name_them) {
  const Topology g = connected(5, 5, 10, 33), rectangular = connected(6, 5, 10, 34);
  SGConv sgc = make<SGConv>(3, 2);
  TAGConv tag = make<TAGConv>(3, 2);
  ChebConv cheb = make<ChebConv>(3, 2, {.k = 2});
  APPNPConv appnp(APPNPConvOptions{});
  const at::Tensor h = at::zeros({5, 3}, on_device(at::kDouble)),
                   six_rows = at::zeros({6, 3}, on_device(at::kDouble));
  const auto expect_errors = [&](auto& layer, const std::string& name) {
    const auto error = [&layer, name](const Topology& topology, const at::Tensor& rows,
                                      const at::Tensor& last = {}) {
      const std::string text = error_of([&] { layer(topology, rows, last); });
      EXPECT_TRUE(mentions(text, name + ":"));
      return text;
    };
    EXPECT_TRUE(mentions(error(g, six_rows), "gotfloat64[6,3]"));
    EXPECT_TRUE(mentions(error(g, h.to(at::kLong)), "int64"));
    EXPECT_TRUE(mentions(error(g, {}), "undefined"));
    EXPECT_TRUE(mentions(error(rectangular, six_rows), "onesetofnodes"));
    return error;
  };
  const auto expect_weight_errors = [&](auto error) {
    EXPECT_TRUE(mentions(error(g, h, at::ones({14}, on_device(at::kDouble))), "edge_weight[15]"));
    EXPECT_TRUE(
        mentions(error(g, h, at::ones({15, 2}, on_device(at::kDouble))), "edge_weight[15]"));
    EXPECT_TRUE(mentions(error(g, h, at::ones({15}, on_device(at::kLong))), "edge_weight[15]"));
    EXPECT_TRUE(mentions(error(g, h, at::zeros({15}, on_device(at::kDouble))), "positive"));
  };
  expect_weight_errors(expect_errors(sgc, "SGConv"));
  expect_weight_errors(expect_errors(tag, "TAGConv"));
  expect_weight_errors(expect_errors(appnp, "APPNPConv"));
  EXPECT_ERROR("strided", appnp(g, h.to_sparse_csr()));
  const auto cheb_error = expect_errors(cheb, "ChebConv");
  EXPECT_TRUE(mentions(cheb_error(g, h, at::ones({4}, on_device())), "lambda_max[],[1]or[5]"));
  EXPECT_TRUE(mentions(cheb_error(g, h, at::ones({5, 1}, on_device())), "lambda_max"));
  EXPECT_TRUE(mentions(cheb_error(g, h, at::ones({1}, on_device(at::kLong))), "lambda_max"));
  EXPECT_TRUE(mentions(cheb_error(g, h, leaf(at::ones({1}, on_device()))), "withoutgradient"));
  for (const double value : {0.0, -1.0, std::nan("")}) {
    EXPECT_TRUE(mentions(cheb_error(g, h, numbers({value})), "positive"));
  }
}

}  // namespace
}  // namespace mezzo::test::propagation_layers_test
