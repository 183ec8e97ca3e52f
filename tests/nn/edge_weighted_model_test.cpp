
#include <c10/core/GradMode.h>

#include "mezzo/nn/conv/aggregation_layers.h"
#include "mezzo/nn/conv/graph_conv.h"
#include "mezzo/nn/model/model.h"
#include "mezzo/sampling/blocks/block_loader.h"

#include "sampling/flow_support.h"
#include "support/graphs.h"
#include "support/nn_reference.h"

/// Weights of the edges in SAGEConv and in models on blocks.
namespace mezzo::test::edge_weighted_model_test {
namespace {

using nn::Aggregator;
using nn::Model;
using nn::ModelInput;
using nn::ModelKind;
using nn::SAGEConv;

at::Tensor define_weighted(const SAGEConv& layer, const Topology& g, const at::Tensor& h,
                           const at::Tensor& weight) {
  const at::Tensor own = h.slice(0, 0, g.num_dst());
  const at::Tensor degrees = adjacency(g).sum(1).unsqueeze(1), matrix = adjacency(g, weight);
  const at::Tensor& neigh = layer->fc_neigh->weight;
  const auto apply = [](const at::Tensor& x, const at::Tensor& matrix_of, const at::Tensor& bias) {
    return dense_linear(x, matrix_of, bias, Numbers::kGiven);
  };
  if (layer->options.aggregator == Aggregator::kGcn) {
    return apply((at::matmul(matrix, h) + own) / (degrees + 1), neigh, layer->bias);
  }
  at::Tensor received = at::matmul(matrix, h) / degrees.clamp_min(1);
  if (layer->options.aggregator == Aggregator::kPool) {
    const at::Tensor sent = apply(h, layer->fc_pool->weight, layer->fc_pool->bias).clamp_min(0);
    const at::Tensor messages = sent.index_select(0, g.src().to(at::kLong)) * weight.unsqueeze(1);
    received = at::zeros_like(received);
    for (std::int64_t v = 0; v < g.num_dst(); ++v) {
      const at::Tensor edges = (g.dst() == v).nonzero().squeeze(1);
      if (edges.numel() > 0) received[v] = messages.index_select(0, edges).amax(0);
    }
  }
  return apply(received, neigh, {}) + apply(own, layer->fc_self->weight, layer->fc_self->bias);
}

TEST(EdgeWeightedModel, sage_multiplies_the_messages_for_every_aggregator_in_either_order) {
  const c10::NoGradGuard no_grad;
  const Topology g = random_topology(9, 5, 20, 2);
  const at::Tensor weight = uniform({20}, at::kDouble, 8, 0.25, 1.0);
  for (const Aggregator aggregator : {Aggregator::kMean, Aggregator::kGcn, Aggregator::kPool}) {
    for (const auto& [in, out] : {std::pair<int, int>{3, 7}, {7, 3}}) {
      SCOPED_TRACE(testing::Message() << name_of(nn::Aggregators{}, aggregator) << " " << in);
      SAGEConv layer(in, out, {.aggregator = aggregator});
      randomise(*layer, at::kDouble);
      const at::Tensor h = uniform({9, in}, at::kDouble, 5);
      const double terms = (max_in_degree(g) + 1) * static_cast<double>(in * (in + 1) + 4);
      EXPECT_TRUE(near_terms(layer(g, h, weight), define_weighted(layer, g, h, weight), terms));
      EXPECT_TRUE(near_terms(layer(g, h, at::ones_like(weight)), layer(g, h), terms));
    }
  }
}

TEST(EdgeWeightedModel, sage_refuses_weights_of_another_shape) {
  const Topology g = random_topology(9, 5, 20, 2);
  SAGEConv layer(3, 2);
  const at::Tensor h = at::zeros({9, 3}, on_device(at::kFloat));
  const at::Tensor short_weight = at::ones({19}, on_device(at::kFloat));
  EXPECT_ERROR("edge_weight[20]", layer(g, h, short_weight));
}

Model model_of(ModelKind kind, std::int64_t num_layers) {
  Model model(5, 3,
              {.kind = kind,
               .hidden_features = 4,
               .num_layers = num_layers,
               .num_heads = 2,
               .dropout = 0,
               .allow_zero_in_degree = true});
  randomise(*model, at::kDouble);
  return model;
}

Batch layer_batch(const Graph& graph, std::vector<std::int64_t> layer_sizes, std::int64_t epoch) {
  const BlockLoader loader(graph, at::arange(12),
                           {.parent_degrees = true, .layer_sizes = std::move(layer_sizes)});
  return loader.batch(epoch, 0);
}

TEST(EdgeWeightedModel, a_model_reads_the_column_that_the_input_names) {
  if (!on_cpu()) GTEST_SKIP() << "layers are drawn on the CPU";
  const Graph graph = random_graph(40, 0.2, 12);
  const at::Tensor x = uniform({40, 5}, at::kDouble, 3);
  const Batch batch = layer_batch(graph, {9, 7}, 0);
  const at::Tensor rows = x.index_select(0, batch.input_nodes);
  for (const ModelKind kind : {ModelKind::kGcn, ModelKind::kSage}) {
    SCOPED_TRACE(name_of(nn::ModelKinds{}, kind));
    Model model = model_of(kind, 2);
    at::Tensor h = rows;
    for (std::int64_t i = 0; i < 2; ++i) {
      const Block& block = batch.blocks[static_cast<std::size_t>(i)];
      h = model->forward_layer(i, block, h, block.edata().at("edge_weights"));
    }
    EXPECT_TRUE(at::equal(model->forward(ModelInput(batch.blocks, "edge_weights"), rows), h));
    EXPECT_FALSE(at::equal(model->forward(batch.blocks, rows), h));
    EXPECT_ERROR("absent", model->forward(ModelInput(batch.blocks, "absent"), rows));
  }
  for (const ModelKind kind : {ModelKind::kGat, ModelKind::kGin, ModelKind::kMlp}) {
    Model model = model_of(kind, 2);
    EXPECT_ERROR("edgeweights", model->forward(ModelInput(batch.blocks, "edge_weights"), rows));
  }
}

TEST(EdgeWeightedModel, weights_of_blocks_are_refused_beside_other_aggregators_than_mean) {
  if (!on_cpu()) GTEST_SKIP() << "layers are drawn on the CPU";
  const Batch batch = layer_batch(random_graph(40, 0.2, 12), {9}, 0);
  const at::Tensor rows = uniform({batch.input_nodes.size(0), 5}, at::kDouble, 3);
  for (const Aggregator aggregator : {Aggregator::kGcn, Aggregator::kPool, Aggregator::kLstm}) {
    SCOPED_TRACE(name_of(nn::Aggregators{}, aggregator));
    Model model(
        5, 3, {.kind = ModelKind::kSage, .num_layers = 1, .dropout = 0, .aggregator = aggregator});
    randomise(*model, at::kDouble);
    EXPECT_ERROR(
        fragments("aggregatormean", "got" + std::string(name_of(nn::Aggregators{}, aggregator))),
        model->forward(ModelInput(batch.blocks, "edge_weights"), rows));
    EXPECT_EQ(model->forward(batch.blocks, rows).size(0), 12);
  }
}

TEST(EdgeWeightedModel, one_layer_on_drawn_layers_estimates_the_whole_graph) {
  if (!on_cpu()) GTEST_SKIP() << "layers are drawn on the CPU";
  const c10::NoGradGuard no_grad;
  const Graph graph = random_graph(40, 0.2, 12);
  const at::Tensor x = uniform({40, 5}, at::kDouble, 3);
  for (const ModelKind kind : {ModelKind::kGcn, ModelKind::kSage}) {
    SCOPED_TRACE(name_of(nn::ModelKinds{}, kind));
    Model model = model_of(kind, 1);
    std::vector<at::Tensor> samples;
    for (std::int64_t epoch = 0; epoch < 1000; ++epoch) {
      const Batch batch = layer_batch(graph, {9}, epoch);
      samples.push_back(model->forward(ModelInput(batch.blocks, "edge_weights"),
                                       x.index_select(0, batch.input_nodes)));
    }
    EXPECT_TRUE(is_unbiased(at::stack(samples), model->forward(graph, x).narrow(0, 0, 12)));
  }
}

}  // namespace
}  // namespace mezzo::test::edge_weighted_model_test
