#include <algorithm>

#include "mezzo/message_passing/fn.h"
#include "mezzo/sampling/node_flow/flow_samplers.h"

#include "sampling/flow_support.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

const CpuOnlySuite kLayerSamplerOnCpu("LayerSampler", "sampling on the CPU");

/// The weighted sum of "x" over the block into the last layer.
at::Tensor weighted_sums(NodeFlow& flow) {
  flow.copy_from_parent({"x"});
  flow.block_compute(-1, fn::u_mul_e("x", "edge_weights", "m"), fn::sum("m", "sum"));
  return flow.layers(-1).data()["sum"];
}

Graph graph_with_numbers() {
  Graph graph = power_law_graph(80, 1200, 12);
  graph.ndata()["x"] = uniform({80}, at::kFloat, 3);
  return graph;
}

TEST(LayerSampler, layers_are_distinct_ascending_and_never_larger_than_asked) {
  const Graph graph = graph_with_numbers();
  LayerSampler sampler(graph, at::arange(80), {.batch_size = 16, .layer_sizes = {5, 9, 12}});
  EXPECT_EQ(sampler.num_batches(), 5);
  std::int64_t batches = 0;
  for (NodeFlow& flow : sampler) {
    EXPECT_TRUE(exact(flow.layer_parent_nid(-1), at::arange(16 * batches, 16 * batches + 16)));
    ++batches;
    EXPECT_EQ(flow.num_layers(), 4);
    const Ids sizes = {5, 9, 12};
    for (std::int64_t i = 0; i < 3; ++i) {
      EXPECT_LE(flow.layer_size(i), sizes[static_cast<std::size_t>(i)]);
      EXPECT_GT(flow.layer_size(i), 0);
      EXPECT_TRUE(is_ascending(values(flow.layer_parent_nid(i))));
    }
  }
  EXPECT_EQ(batches, 5);
}

TEST(LayerSampler, blocks_hold_every_edge_between_their_layers) {
  const Graph graph = graph_with_numbers();
  for (const auto type : {NeighborType::kIn, NeighborType::kOut}) {
    const bool turned = type == NeighborType::kOut;
    const LayerSampler sampler(graph, at::arange(10),
                               {.layer_sizes = {7, 6}, .neighbor_type = type});
    const NodeFlow flow = sampler.batch(3, 0);
    for (std::int64_t i = 0; i < 2; ++i) {
      expect_edges_of_the_parent(flow, i, turned);
      const Topology& parent = graph.topology();
      const at::Tensor from = turned ? parent.dst() : parent.src();
      const at::Tensor to = turned ? parent.src() : parent.dst();
      const at::Tensor between = at::logical_and(at::isin(from, flow.layer_parent_nid(i)),
                                                 at::isin(to, flow.layer_parent_nid(i + 1)));
      Ids edges = values(flow.block_parent_eid(i));
      std::sort(edges.begin(), edges.end());
      EXPECT_EQ(edges, values(between.nonzero().squeeze(1)));
    }
  }
}

TEST(LayerSampler, takes_all_candidates_with_weight_one_where_they_are_few) {
  Graph graph = graph_with_numbers();
  const LayerSampler sampler(graph, at::arange(80), {.layer_sizes = {80}});
  NodeFlow flow = sampler.batch(0, 0);
  EXPECT_TRUE(exact(flow.blocks(0).data()["edge_weights"], at::ones({graph.num_edges()})));
  graph.update_all(fn::copy_u("x", "m"), fn::sum("m", "sum"));
  EXPECT_TRUE(near(weighted_sums(flow), graph.ndata()["sum"],
                   sum_bound(at::full({80}, 1200.0, at::kDouble), 1200, at::kFloat)));
}

TEST(LayerSampler, the_weighted_sum_estimates_the_sum_over_all_neighbors) {
  Graph graph = random_graph(80, 0.2, 12);
  graph.ndata()["x"] = uniform({80}, at::kFloat, 3);
  Graph own = graph.local_var();
  own.update_all(fn::copy_u("x", "m"), fn::sum("m", "sum"));
  const LayerSampler sampler(graph, at::arange(12), {.layer_sizes = {10}, .seed = 5});
  std::vector<at::Tensor> samples;
  for (std::int64_t epoch = 0; epoch < 2000; ++epoch) {
    NodeFlow flow = sampler.batch(epoch, 0);
    EXPECT_LE(flow.layer_size(0), 10);
    samples.push_back(weighted_sums(flow));
  }
  EXPECT_TRUE(is_unbiased(at::stack(samples), own.ndata()["sum"].narrow(0, 0, 12).to(at::kDouble)));
}

TEST(LayerSampler, draws_in_proportion_to_the_squared_norms_of_the_columns) {
  // Seed 0 has in-edges from 2, 3 and twice from 4, seed 1 from 4 and 5.
  const Graph graph = graph_of({2, 3, 4, 4, 4, 5}, {0, 0, 0, 0, 1, 1}, 6);
  const std::vector<double> norms = {1 / 16.0, 1 / 16.0, 2 / 16.0 + 1 / 4.0, 1 / 4.0};
  const double total = 0.75;
  constexpr std::int64_t kDraws = 3;
  const LayerSampler sampler(graph, ids({0, 1}), {.layer_sizes = {kDraws}});
  std::vector<at::Tensor> samples;
  for (std::int64_t epoch = 0; epoch < 2000; ++epoch) {
    NodeFlow flow = sampler.batch(epoch, 0);
    const NodeFlow::BlockEdges edges = flow.block_edges(0);
    const auto node = values(flow.map_to_parent_nid(edges.src));
    const at::Tensor weights = flow.blocks(0).data()["edge_weights"];
    std::vector<double> draws(norms.size(), 0.0);
    for (std::size_t e = 0; e < node.size(); ++e) {
      const auto u = static_cast<std::size_t>(node[e] - 2);
      const double weight = weights[static_cast<std::int64_t>(e)].item<double>();
      draws[u] = weight * kDraws * norms[u] / total;  // the number of draws of u
    }
    double drawn = 0;
    for (double& count : draws) {
      EXPECT_TRUE(near(numbers({count}, at::kFloat), numbers({std::round(count)}),
                       sum_bound(numbers({4.0}), 4, at::kFloat)));
      drawn += count = std::round(count);
    }
    EXPECT_EQ(drawn, kDraws);
    samples.push_back(numbers(draws));
  }
  const at::Tensor expected = numbers(norms) * (kDraws / total);
  EXPECT_TRUE(is_unbiased(at::stack(samples), expected));
}

TEST(LayerSampler, flows_are_equal_for_equal_seeds_and_any_number_of_workers) {
  const Graph graph = graph_with_numbers();
  const auto epochs = [&](std::int64_t num_workers, std::uint64_t seed) {
    LayerSampler sampler(graph, at::arange(80),
                         {.batch_size = 8,
                          .layer_sizes = {6, 6},
                          .shuffle = true,
                          .num_workers = num_workers,
                          .seed = seed});
    return std::vector{epoch_contents(sampler), epoch_contents(sampler)};
  };
  const auto expected = epochs(0, 7);
  EXPECT_NE(expected[0], expected[1]);
  for (const std::int64_t workers : {0, 1, 2}) EXPECT_EQ(epochs(workers, 7), expected);
  EXPECT_NE(epochs(0, 8), expected);
}

TEST(LayerSampler, flows_do_not_depend_on_the_width_of_the_ids) {
  const auto drawn = [](IdWidth width) {
    const Graph graph = power_law_graph(60, 900, 3, width);
    return contents(LayerSampler(graph, at::arange(9), {.layer_sizes = {4, 5}}).batch(0, 0));
  };
  EXPECT_EQ(drawn(IdWidth::kInt64), drawn(IdWidth::kInt32));
}

TEST(LayerSampler, works_without_candidates) {
  const LayerSampler sampler(isolated_graph(6), ids({3, 1}), {.layer_sizes = {4, 4}});
  NodeFlow flow = sampler.batch(0, 0);
  EXPECT_EQ(values(flow.layer_parent_nid(-1)), (Ids{3, 1}));
  EXPECT_EQ(flow.num_nodes(), 2);
  EXPECT_EQ(flow.blocks(0).data()["edge_weights"].sizes(), Ids{0});
  LayerSampler nothing(isolated_graph(6), ids({}), {.layer_sizes = {4}});
  EXPECT_EQ(nothing.num_batches(), 0);
}

TEST(LayerSampler, wrong_options_are_errors_that_name_them) {
  const Graph graph = graph_with_numbers();
  const auto attempt = [&](LayerSamplerOptions options, const at::Tensor& seeds = ids({1})) {
    LayerSampler(graph, seeds, options);
  };
  EXPECT_ERROR("layer_sizes", attempt({.layer_sizes = {}}));
  EXPECT_ERROR("layer_sizes", attempt({.layer_sizes = {4, 0}}));
  EXPECT_ERROR("got256", attempt({.layer_sizes = Ids(256, 4)}));
  EXPECT_ERROR("batch_size", attempt({.batch_size = 0, .layer_sizes = {4}}));
  EXPECT_ERROR("prefetch", attempt({.layer_sizes = {4}, .prefetch = 0}));
  EXPECT_ERROR("80", attempt({.layer_sizes = {4}}, ids({80})));
}

}  // namespace
}  // namespace mezzo::test
