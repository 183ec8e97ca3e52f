
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/linear.h>

#include "mezzo/amp/precision.h"
#include "mezzo/nn/conv/aggregation_layers.h"
#include "mezzo/nn/model/mlp.h"
#include "mezzo/runtime/memory.h"

#include "support/edge_layer_reference.h"
#include "support/propagation_reference.h"

namespace mezzo::test::gin_conv_test {
namespace {

using nn::Aggregator;
using nn::GINConv;
using nn::GINConvOptions;
using nn::GINEConv;
using nn::GINEConvOptions;
using torch::nn::AnyModule;
using torch::nn::Linear;

constexpr Aggregator kAggregators[] = {Aggregator::kSum, Aggregator::kMean, Aggregator::kMax};

double terms(const Topology& g) {
  return max_in_degree(g) + 8;
}

/// A layer of `dtype` with an eps that is exact in it.
GINConv make(GINConvOptions options, at::ScalarType dtype = at::kDouble) {
  options.initial_eps = -0.375;
  GINConv layer(std::move(options));
  layer->to(test_device(), dtype);
  return layer;
}

TEST(GINConv, equals_the_definition_for_every_aggregator_and_dtype) {
  const Topology square = random_topology(20, 20, 90, 1),
                 rectangular = random_topology(15, 9, 40, 2);
  for (const Topology& g : {square, rectangular, four_nodes()}) {
    for (const DTypeInfo& dtype : dtypes()) {
      const at::Tensor h = uniform({g.num_src(), 5}, dtype.scalar, 3);
      const at::Tensor factors = uniform({g.num_edges()}, dtype.scalar, 4);
      for (const Aggregator aggregator : kAggregators) {
        for (const bool learn_eps : {false, true}) {
          for (const at::Tensor& weight : {at::Tensor(), factors}) {
            SCOPED_TRACE(dtype.name + " " + std::string(name_of(nn::Aggregators{}, aggregator)));
            GINConv layer = make({.aggregator = aggregator, .learn_eps = learn_eps}, dtype.scalar);
            const at::Tensor got = layer(g, h, weight);
            EXPECT_EQ(got.scalar_type(), dtype.scalar);
            // Stored: what is received, the node's own part, their sum.
            EXPECT_TRUE(near_definition(got, expected_of(layer, g, h, weight, terms(g), 2)));
          }
        }
      }
    }
  }
}

TEST(GINConv, takes_float32_weights_beside_sixteen_bit_rows_and_rows_of_any_rank) {
  const Topology g = random_topology(12, 12, 40, 5);
  const at::Tensor weight = integers({40}, at::kFloat, 6);
  for (const DTypeInfo& dtype : narrow_dtypes()) {
    const at::Tensor h = integers({12, 6}, dtype.scalar, 7);
    GINConv layer = placed(GINConv(GINConvOptions{}));
    const at::Tensor got = layer(g, h, weight);
    EXPECT_TRUE(exact_rounded(got, define(layer, g, h, weight)));
    EXPECT_TRUE(same_bits(layer(g, h.view({12, 2, 3}), weight).flatten(1), got));
  }
}

TEST(GINConv, applies_the_module_and_then_the_activation) {
  const Topology g = random_topology(8, 8, 20, 8);
  const at::Tensor h = uniform({8, 3}, at::kDouble, 9);
  const auto negate = [](const at::Tensor& x) { return -x; };
  Linear update(3, 4);
  randomise(*update, at::kDouble);
  GINConv plain = make({}),
          full(GINConvOptions{.initial_eps = -0.375, .activation = negate}, AnyModule(update));
  full->to(test_device());
  const at::Tensor expected = -at::linear(plain(g, h), update->weight, update->bias);
  EXPECT_TRUE(near_terms(full(g, h), expected, 4 * terms(g)));
}

TEST(GINConv, gradients_agree_with_differences) {
  const Topology g = random_topology(6, 4, 11, 10);
  for (const Aggregator aggregator : kAggregators) {
    GINConv layer = make({.aggregator = aggregator, .learn_eps = true});
    EXPECT_TRUE(
        module_gradcheck(*layer, [&](const auto& inputs) { return layer(g, inputs[0], inputs[1]); },
                         {uniform({6, 3}, at::kDouble, 11), uniform({11}, at::kDouble, 12)}));
  }
}

TEST(GINConv, a_module_gets_its_gradients) {
  const Topology g = random_topology(10, 10, 30, 13);
  const nn::MLP update(3, 2, {.hidden_features = 8, .dropout = 0});
  GINConv layer(GINConvOptions{.learn_eps = true}, AnyModule(update));
  layer->to(test_device());
  layer(g, uniform({10, 3}, at::kFloat, 14)).pow(2).sum().backward();
  for (const auto& parameter : layer->named_parameters()) {
    ASSERT_TRUE(parameter.value().grad().defined()) << parameter.key();
    EXPECT_GT(parameter.value().grad().abs().sum().item<double>(), 0) << parameter.key();
  }
}

TEST(GINConv, has_the_names_of_dgl) {
  using Shapes = std::set<std::string>;
  const GINConv learnt(GINConvOptions{.initial_eps = 0.5, .learn_eps = true},
                       AnyModule(Linear(3, 4)));
  EXPECT_EQ(parameter_shapes(*learnt),
            (Shapes{"eps [1]", "apply_func.weight [4, 3]", "apply_func.bias [4]"}));
  EXPECT_EQ(learnt->named_buffers().size(), 0U);
  EXPECT_TRUE(exact(learnt->eps, numbers({0.5})));

  GINConv fixed(GINConvOptions{});
  EXPECT_TRUE(parameter_shapes(*fixed).empty());
  EXPECT_TRUE(exact(fixed->named_buffers()["eps"], numbers({0})));
  fixed->eps.fill_(3);
  fixed->reset_parameters();
  EXPECT_TRUE(exact(fixed->eps, numbers({0})));
}

TEST(GINConv, a_small_eps_survives_sixteen_bits) {
  // 1.003 is 1 in bfloat16, but 1.003 * 200 is 201.
  const Topology g = topology_of({}, {}, 1, 1);
  GINConv layer = placed(GINConv(GINConvOptions{.initial_eps = 0.003}));
  const at::Tensor h = at::full({1, 1}, 200, on_device(at::kBFloat16));
  EXPECT_TRUE(exact_rounded(layer(g, h), at::full({1, 1}, 1.003 * 200, at::kDouble)));
}

TEST(GINConv, the_gradient_of_eps_outgrows_float16) {
  const Topology g = topology_of({}, {}, 70000, 70000);
  GINConv layer = placed(GINConv(GINConvOptions{.learn_eps = true}));
  const at::Tensor h = at::ones({70000, 4}, on_device(at::kHalf));
  layer(g, h).backward(h);
  EXPECT_TRUE(exact(layer->eps.grad(), numbers({280000})));
}

TEST(GINConv, a_mixed_precision_region_computes_in_its_dtype) {
  const Topology g = random_topology(20, 12, 60, 15);
  const nn::MLP update(3, 2, {.dropout = 0});
  const at::Tensor h = uniform({20, 3}, at::kFloat, 16), weight = uniform({60}, at::kFloat, 17);
  for (const Aggregator aggregator : kAggregators) {
    GINConv bare(GINConvOptions{.aggregator = aggregator}),
        layer(GINConvOptions{.aggregator = aggregator}, AnyModule(update));
    bare->to(test_device());
    layer->to(test_device());
    const amp::PrecisionScope scope(amp::Precision::kBFloat16, test_device());
    EXPECT_EQ(layer(g, h).scalar_type(), at::kBFloat16);
    EXPECT_EQ(layer(g, h.to_sparse_csr(), weight).scalar_type(), at::kBFloat16);
    EXPECT_TRUE(same_bits(bare(g, h, weight), bare(g, h.to(at::kBFloat16), weight)));
  }
}

TEST(GINConv, sparse_rows_give_the_values_of_dense_ones) {
  const Topology g = random_topology(10, 7, 30, 18);
  const at::Tensor h = sparse_numbers({10, 4}, 19);
  for (const Aggregator aggregator : kAggregators) {
    GINConv layer = make({.aggregator = aggregator});
    EXPECT_TRUE(same_bits(layer(g, h.to_sparse_csr()), layer(g, h)));
  }
}

TEST(GINConv, nodes_without_in_edges_keep_their_own_part_in_every_dtype) {
  for_each_bare_graph([](const Topology& g, at::ScalarType dtype) {
    for (const Aggregator aggregator : kAggregators) {
      GINConv layer = make({.aggregator = aggregator}, dtype);
      const at::Tensor h = leaf(uniform({g.num_src(), 3}, dtype, 20));
      const at::Tensor got = layer(g, h);
      EXPECT_EQ(got.scalar_type(), dtype);
      EXPECT_TRUE(exact_rounded(got, 0.625 * take(h, Numbers::kGiven)));
      got.sum().backward();
      EXPECT_TRUE(exact(h.grad(), at::full({g.num_src(), 3}, 0.625, at::kDouble)));
    }
  });
}

TEST(GINConv, wrong_arguments_are_errors_that_name_them) {
  for (const Aggregator aggregator : {Aggregator::kGcn, Aggregator::kPool}) {
    EXPECT_ERROR("GINConv:expectedaggregatortobeoneofsum,mean,max,got",
                 GINConv layer(GINConvOptions{.aggregator = aggregator}));
  }
  EXPECT_ERROR("initial_eps", GINConv layer(GINConvOptions{.initial_eps = std::nan("")}));
  GINConv layer = make({});
  const Topology g = random_topology(5, 5, 10, 21), wrong_way = random_topology(4, 5, 10, 22);
  const at::Tensor h = at::zeros({5, 3}, on_device(at::kDouble));
  const auto error = [&](const Topology& topology, const at::Tensor& rows,
                         const at::Tensor& weight = {}) {
    return error_of([&] { layer(topology, rows, weight); });
  };
  EXPECT_TRUE(mentions(error(g, at::zeros({4, 3}, on_device(at::kDouble))),
                       "GINConv:expectedfloatingh[5,...]"));
  EXPECT_TRUE(mentions(error(g, at::zeros({5, 3}, on_device(at::kLong))), "int64"));
  EXPECT_TRUE(mentions(error(g, {}), "undefined"));
  EXPECT_TRUE(mentions(error(wrong_way, at::zeros({4, 3}, on_device(at::kDouble))), "prefix"));
  for (const at::Tensor& weight :
       {at::zeros({9}, on_device(at::kDouble)), at::zeros({10, 2}, on_device(at::kDouble)),
        at::zeros({10}, on_device(at::kLong))}) {
    EXPECT_TRUE(mentions(error(g, h, weight), "edge_weight[10]"));
  }
}

/// A layer with an eps of 0.25 and no apply_func, of `dtype`.
GINEConv make_gine(at::ScalarType dtype, bool learn_eps = true) {
  GINEConv layer(GINEConvOptions{.initial_eps = 0.25, .learn_eps = learn_eps});
  layer->to(test_device(), dtype);
  return layer;
}

at::Tensor define_gine(const Topology& g, const at::Tensor& src, const at::Tensor& dst,
                       const at::Tensor& edges) {
  const at::Tensor messages =
      (rows_of_sources(g, take(src, Numbers::kGiven)) + take(edges, Numbers::kGiven)).relu();
  return 1.25 * take(dst, Numbers::kGiven) + sums_of_messages(g, messages);
}

TEST(GINEConv, is_exact_on_small_integers_in_every_dtype) {
  const Topology g = random_topology(15, 9, 40, 2);
  for (const DTypeInfo& dtype : dtypes()) {
    for (const at::ScalarType of_edges : {dtype.scalar, at::kFloat}) {
      if (of_edges == at::kFloat && dtype.scalar == at::kDouble) continue;
      SCOPED_TRACE(testing::Message() << dtype.name << ", edges of " << of_edges);
      const at::Tensor src = integers({15, 5}, dtype.scalar, 3),
                       dst = integers({9, 5}, dtype.scalar, 4),
                       edges = integers({40, 5}, of_edges, 5);
      GINEConv layer = make_gine(dtype.scalar);
      const at::Tensor one = layer(g, src, edges), pair = layer(g, std::pair(src, dst), edges);
      EXPECT_EQ(one.scalar_type(), dtype.scalar);
      EXPECT_TRUE(exact_rounded(one, define_gine(g, src, src.slice(0, 0, 9), edges)));
      EXPECT_TRUE(exact_rounded(pair, define_gine(g, src, dst, edges)));
    }
  }
}

TEST(GINEConv, gradients_agree_with_differences_and_rows_have_any_rank) {
  const Topology g = random_topology(6, 4, 11, 10);
  GINEConv layer = make_gine(at::kDouble);
  EXPECT_TRUE(edge_gradcheck(
      *layer, [&](const auto& x) { return outputs_of(layer(g, std::pair(x[0], x[1]), x[2])); },
      {uniform({6, 2, 3}, at::kDouble, 11), uniform({4, 2, 3}, at::kDouble, 12),
       uniform({11, 2, 3}, at::kDouble, 13)}));
}

TEST(GINEConv, a_region_keeps_its_dtype_and_makes_no_tensor_of_the_edges) {
  constexpr std::int64_t kEdges = 40000;  // more than the scratch memory of a product
  const Topology g = random_topology(50, 50, kEdges, 7);
  const at::Tensor h = uniform({50, 32}, at::kFloat, 8),
                   edges = uniform({kEdges, 32}, at::kFloat, 9);
  for (const auto& [precision, dtype] : {std::pair(amp::Precision::kBFloat16, at::kBFloat16),
                                         std::pair(amp::Precision::kFloat16, at::kHalf)}) {
    const nn::MLP update(32, 4, {.dropout = 0});
    GINEConv layer(GINEConvOptions{.learn_eps = true}, AnyModule(update));
    layer->to(test_device());
    const auto step = [&] {
      const amp::PrecisionScope scope(precision, test_device());
      const at::Tensor out = layer(g, h, edges);
      EXPECT_EQ(out.scalar_type(), dtype);
      out.sum().backward();
    };
    step();  // orders the edges and chooses the product, once
    reset_peak_memory(test_device());
    const std::int64_t before = peak_memory_bytes(test_device());
    step();
    EXPECT_LT(peak_memory_bytes(test_device()) - before, edges.numel() * 2);
    for (const auto& parameter : layer->named_parameters()) {
      ASSERT_TRUE(parameter.value().grad().defined()) << parameter.key();
      EXPECT_TRUE(parameter.value().grad().isfinite().all().item<bool>()) << parameter.key();
    }
  }
}

TEST(GINEConv, wrong_arguments_are_errors_that_name_them) {
  EXPECT_ERROR("GINEConv:expectedafiniteinitial_eps",
               GINEConv layer(GINEConvOptions{.initial_eps = std::nan("")}));
  EXPECT_EQ(GINEConv(GINEConvOptions{})->named_buffers().size(), 1U);
  GINEConv layer = make_gine(at::kFloat);
  const Topology g = random_topology(5, 5, 10, 21);
  const at::Tensor h = at::zeros({5, 3}, on_device(at::kFloat));
  for (const at::Tensor& edges :
       {at::Tensor(), at::zeros({10, 4}, on_device(at::kFloat)),
        at::zeros({9, 3}, on_device(at::kFloat)), at::zeros({10, 3}, on_device(at::kLong))}) {
    EXPECT_ERROR("GINEConv:expectedfloating,stridededge_features[10,3]", layer(g, h, edges));
  }
  EXPECT_ERROR("GINEConv:expectedfloatingh[5,...]", layer(g, h.narrow(0, 0, 4), h));
}

TEST(SAGEConv, refuses_the_aggregators_that_only_others_have) {
  for (const Aggregator aggregator : {Aggregator::kSum, Aggregator::kMax}) {
    const nn::SAGEConvOptions options{
        .in_features = 3, .out_features = 2, .aggregator = aggregator};
    EXPECT_ERROR("SAGEConv:expectedaggregatortobeoneofmean,gcn,pool,lstm,got",
                 nn::SAGEConv layer(options));
  }
}

}  // namespace
}  // namespace mezzo::test::gin_conv_test
