// torch::nn::Sequential, and module holders as they are, as the modules that layers take.
#include <set>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "mezzo/amp/autocast/autocast.h"
#include "mezzo/graph/transforms/transforms.h"
#include "mezzo/nn/conv/aggregation_layers.h"
#include "mezzo/nn/layer.h"
#include "mezzo/nn/model/mlp.h"
#include "mezzo/nn/pooling.h"

#include "support/graphs.h"
#include "support/module_gradcheck.h"
#include "support/nn_reference.h"

namespace mezzo::test::sequential_test {
namespace {

using nn::GINConv;
using nn::GINConvOptions;
using nn::GlobalAttentionPooling;
using torch::nn::AnyModule;
using torch::nn::Dropout;
using torch::nn::Linear;
using torch::nn::ReLU;
using torch::nn::Sequential;

/// Linear, ReLU, Linear, with numbers in [-1, 1].
Sequential two_layers(std::int64_t in, std::int64_t out) {
  Sequential module(Linear(in, 4), ReLU(), Linear(4, out));
  randomise(*module, at::kDouble);
  return module;
}

/// The module's definition in float64, by the parameters' names.
at::Tensor define(const Sequential& module, const at::Tensor& x) {
  const auto parameters = module->named_parameters();
  const at::Tensor hidden =
      dense_linear(x, parameters["0.weight"], parameters["0.bias"], Numbers::kGiven);
  return dense_linear(hidden.clamp_min(0), parameters["2.weight"], parameters["2.bias"],
                      Numbers::kGiven);
}

TEST(Sequential, is_the_module_of_a_gin_layer) {
  const Topology g = random_topology(10, 10, 30, 1);
  const at::Tensor h = uniform({10, 3}, at::kDouble, 2);
  const Sequential update = two_layers(3, 2);
  GINConv bare(GINConvOptions{.initial_eps = 0.25}),
      layer(GINConvOptions{.initial_eps = 0.25}, update);
  bare->to(test_device());
  layer->to(test_device());
  EXPECT_TRUE(near_terms(layer(g, h), define(update, bare(g, h)), 1e3));
  GINConv at_once(GINConvOptions{}, Sequential(Linear(3, 4), ReLU(), Linear(4, 2)));
  EXPECT_EQ(placed(at_once)(g, h.to(at::kFloat)).sizes(), at::IntArrayRef({10, 2}));
}

TEST(Sequential, is_the_gate_and_the_features_of_a_pooling) {
  const Graph g = batch({cycle_graph(3), one_node_graph()});
  const at::Tensor h = uniform({4, 3}, at::kDouble, 3);
  const Sequential gate = two_layers(3, 1), feat = two_layers(3, 2);
  GlobalAttentionPooling plain(gate), both(gate, feat);
  const at::Tensor scores = define(gate, h).exp();
  const auto pooled = [&](const at::Tensor& rows) {
    const at::Tensor first = scores.narrow(0, 0, 3) / scores.narrow(0, 0, 3).sum();
    return at::stack({(rows.narrow(0, 0, 3) * first).sum(0), rows[3]});
  };
  EXPECT_TRUE(near_terms(plain(g, h), pooled(h), 1e3));
  EXPECT_TRUE(near_terms(both(g, h), pooled(define(feat, h)), 1e3));
}

TEST(Sequential, has_the_names_of_dgl) {
  using Shapes = std::set<std::string>;
  const GINConv layer(GINConvOptions{.learn_eps = true}, two_layers(3, 2));
  EXPECT_EQ(parameter_shapes(*layer),
            (Shapes{"eps [1]", "apply_func.0.weight [4, 3]", "apply_func.0.bias [4]",
                    "apply_func.2.weight [2, 4]", "apply_func.2.bias [2]"}));
  const GlobalAttentionPooling pool(Sequential(Linear(3, 1)), Sequential(Linear(3, 2)));
  EXPECT_EQ(parameter_shapes(*pool), (Shapes{"gate_nn.0.weight [1, 3]", "gate_nn.0.bias [1]",
                                             "feat_nn.0.weight [2, 3]", "feat_nn.0.bias [2]"}));
  const Sequential named({{"first", Linear(3, 4)}, {"second", Linear(4, 1)}});
  EXPECT_EQ(parameter_shapes(*GlobalAttentionPooling(named)),
            (Shapes{"gate_nn.first.weight [4, 3]", "gate_nn.first.bias [4]",
                    "gate_nn.second.weight [1, 4]", "gate_nn.second.bias [1]"}));
}

TEST(Sequential, follows_its_layer_into_evaluation_and_to_another_dtype) {
  const Linear linear(3, 2);
  const Dropout dropout(0.5);
  const Sequential update(linear, dropout), gate(Linear(3, 1), Dropout(0.5));
  GINConv layer(GINConvOptions{}, update);
  GlobalAttentionPooling pool(gate);
  layer->eval();
  pool->eval();
  EXPECT_FALSE(update->is_training());
  EXPECT_FALSE(dropout->is_training());
  EXPECT_FALSE(gate->is_training());
  layer->train();
  EXPECT_TRUE(dropout->is_training());
  layer->to(at::kDouble);
  pool->to(at::kDouble);
  EXPECT_EQ(linear->weight.scalar_type(), at::kDouble);
  EXPECT_EQ(gate->parameters().front().scalar_type(), at::kDouble);
  EXPECT_TRUE(layer->apply_func.ptr() == update.ptr());
}

TEST(Sequential, drops_while_training_only) {
  const Topology g = random_topology(30, 30, 90, 4);
  const at::Tensor h = uniform({30, 8}, at::kFloat, 5);
  GINConv layer = placed(GINConv(GINConvOptions{}, Sequential(Linear(8, 8), Dropout(0.5))));
  EXPECT_GT(at::eq(layer(g, h), 0).sum().item<std::int64_t>(), 0);
  layer->eval();
  EXPECT_TRUE(same_bits(layer(g, h), layer(g, h)));
  EXPECT_EQ(at::eq(layer(g, h), 0).sum().item<std::int64_t>(), 0);
}

TEST(Sequential, gradients_agree_with_differences) {
  const Topology g = random_topology(6, 6, 12, 6);
  GINConv layer(GINConvOptions{.learn_eps = true}, two_layers(2, 3));
  randomise(*layer, at::kDouble);
  EXPECT_TRUE(module_gradcheck(
      *layer, [&](const std::vector<at::Tensor>& inputs) { return layer(g, inputs[0]); },
      {uniform({6, 2}, at::kDouble, 7)}));
  const Graph graphs = batch({cycle_graph(4), cycle_graph(2)});
  GlobalAttentionPooling pool(two_layers(2, 1), two_layers(2, 3));
  EXPECT_TRUE(module_gradcheck(
      *pool, [&](const std::vector<at::Tensor>& inputs) { return pool(graphs, inputs[0]); },
      {uniform({6, 2}, at::kDouble, 8)}));
}

TEST(Sequential, computes_in_the_dtype_of_a_mixed_precision_region) {
  const Topology g = random_topology(20, 20, 60, 9);
  GINConv layer = placed(GINConv(GINConvOptions{}, Sequential(Linear(3, 4), ReLU(), Linear(4, 2))));
  const amp::Autocast region(test_device().type(), at::kBFloat16);
  EXPECT_EQ(layer(g, uniform({20, 3}, at::kFloat, 10)).scalar_type(), at::kBFloat16);
}

TEST(TensorModule, takes_holders_as_they_are_and_any_modules) {
  const Topology g = random_topology(8, 8, 20, 11);
  const at::Tensor h = uniform({8, 3}, at::kFloat, 12);
  Linear linear(3, 2);
  const nn::MLP mlp(3, 1, {.dropout = 0});
  GINConv holder = placed(GINConv(GINConvOptions{}, linear));
  GINConv any = placed(GINConv(GINConvOptions{}, AnyModule(linear)));
  EXPECT_TRUE(same_bits(holder(g, h), any(g, h)));
  const Graph graph(g);
  GlobalAttentionPooling pool = placed(GlobalAttentionPooling(mlp, linear));
  EXPECT_EQ(pool(graph, h).sizes(), at::IntArrayRef({1, 2}));
}

TEST(TensorModule, of_an_empty_holder_is_none) {
  const Topology g = random_topology(8, 8, 20, 13);
  const at::Tensor h = uniform({8, 3}, at::kFloat, 14);
  GINConv none = placed(GINConv(GINConvOptions{}));
  for (const nn::TensorModule& empty :
       {nn::TensorModule(), nn::TensorModule(AnyModule()), nn::TensorModule(Sequential(nullptr)),
        nn::TensorModule(Linear(nullptr))}) {
    EXPECT_TRUE(empty.is_empty());
    GINConv layer = placed(GINConv(GINConvOptions{}, empty));
    EXPECT_TRUE(same_bits(layer(g, h), none(g, h)));
    EXPECT_ERROR("gate_nn", GlobalAttentionPooling pool(empty));
  }
}

}  // namespace
}  // namespace mezzo::test::sequential_test
