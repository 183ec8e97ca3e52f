#include <algorithm>

#include "mezzo/core/random.h"
#include "mezzo/sampling/node_flow/flow_samplers.h"

#include "sampling/flow_support.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

const CpuOnlySuite kNeighborSamplerOnCpu("NeighborSampler", "sampling on the CPU");

Ids one_to(std::int64_t last) {
  return values(at::arange(1, last + 1));
}

/// All edges between `n` nodes except self loops.
Graph complete_graph(std::int64_t n) {
  Ids src, dst;
  for (std::int64_t i = 0; i < n * n; ++i) {
    if (i / n == i % n) continue;
    src.push_back(i / n);
    dst.push_back(i % n);
  }
  return graph_of(src, dst, n);
}

TEST(NeighborSampler, cuts_the_seeds_into_batches) {
  const Graph graph = featured_graph();
  NeighborSampler sampler(graph, ids(one_to(10)), {.batch_size = 4});
  EXPECT_EQ(sampler.num_batches(), 3);
  std::vector<Ids> seeds;
  for (NodeFlow& flow : sampler) seeds.push_back(values(flow.layer_parent_nid(-1)));
  EXPECT_EQ(seeds, (std::vector<Ids>{{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10}}));
  EXPECT_EQ(
      NeighborSampler(graph, ids(one_to(10)), {.batch_size = 4, .drop_last = true}).num_batches(),
      2);
  EXPECT_EQ(NeighborSampler(graph, ids(one_to(8)), {.batch_size = 4}).num_batches(), 2);
}

TEST(NeighborSampler, a_seed_that_is_there_twice_stands_once_where_it_was_first) {
  const NeighborSampler sampler(featured_graph(), ids({5, 1, 5, 0, 1}), {});
  EXPECT_EQ(values(sampler.batch(0, 0).layer_parent_nid(-1)), (Ids{5, 1, 0}));
}

TEST(NeighborSampler, takes_seeds_as_a_mask) {
  at::Tensor mask = at::zeros({20}, at::kBool);
  mask[3] = mask[17] = true;
  const NeighborSampler sampler(featured_graph(), mask, {});
  EXPECT_EQ(values(sampler.batch(0, 0).layer_parent_nid(-1)), (Ids{3, 17}));
}

TEST(NeighborSampler, shuffles_anew_each_epoch_and_passes_over_every_seed) {
  NeighborSampler sampler(featured_graph(), at::arange(20), {.batch_size = 3, .shuffle = true});
  std::vector<Ids> epochs(2);
  for (auto& order : epochs) {
    for (NodeFlow& flow : sampler) {
      for (const std::int64_t seed : values(flow.layer_parent_nid(-1))) order.push_back(seed);
    }
  }
  EXPECT_NE(epochs[0], epochs[1]);
  for (auto& order : epochs) {
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, values(at::arange(20)));
  }
}

TEST(NeighborSampler, flows_are_equal_for_equal_seeds_and_any_number_of_workers) {
  const Graph graph = power_law_graph(200, 3000, 8);
  const auto epochs = [&](std::int64_t num_workers, std::uint64_t seed) {
    NeighborSampler sampler(graph, at::arange(200),
                            {.batch_size = 16,
                             .num_neighbors = 3,
                             .num_hops = 2,
                             .shuffle = true,
                             .add_self_loop = true,
                             .num_workers = num_workers,
                             .seed = seed});
    return std::vector{epoch_contents(sampler), epoch_contents(sampler)};
  };
  const auto expected = epochs(0, 7);
  EXPECT_EQ(expected[0].size(), 13U);
  EXPECT_NE(expected[0], expected[1]);
  for (const std::int64_t workers : {0, 1, 2}) {
    SCOPED_TRACE(workers);
    EXPECT_EQ(epochs(workers, 7), expected);
  }
  EXPECT_NE(epochs(0, 8), expected);
}

TEST(NeighborSampler, starts_where_an_interrupted_pass_ended) {
  const Graph graph = power_law_graph(100, 1000, 9);
  const NeighborSamplerOptions options{.batch_size = 10, .num_neighbors = 2, .shuffle = true};
  NeighborSampler whole(graph, at::arange(100), options), resumed(graph, at::arange(100), options);
  epoch_contents(whole);
  const auto second = epoch_contents(whole);
  resumed.start_at(1, 4);
  EXPECT_EQ(epoch_contents(resumed),
            (std::vector<std::vector<Ids>>(second.begin() + 4, second.end())));
  EXPECT_EQ(contents(resumed.batch(1, 2)), second[2]);
}

TEST(NeighborSampler, counts_what_it_drew) {
  const Graph graph = featured_graph();
  NeighborSampler sampler(graph, at::arange(20), {.batch_size = 5});
  std::int64_t edges = 0, inputs = 0;
  for (NodeFlow& flow : sampler) {
    edges += flow.num_edges();
    inputs += flow.layer_size(0);
  }
  EXPECT_EQ(sampler.statistics().batches, 4);
  EXPECT_EQ(sampler.statistics().sampled_edges, edges);
  EXPECT_EQ(edges, graph.num_edges());
  EXPECT_EQ(sampler.statistics().sampled_nodes, inputs);
}

TEST(NeighborSampler, draws_the_fanout_or_every_neighbor) {
  const Graph graph = power_law_graph(60, 900, 3);
  const NeighborSampler sampler(graph, at::arange(0, 60, 3), {.fanouts = {2, 4, kAllNeighbors}});
  const NodeFlow flow = sampler.batch(0, 0);
  EXPECT_EQ(flow.num_blocks(), 3);
  const Ids fanouts = {2, 4, std::numeric_limits<std::int64_t>::max()};
  for (std::int64_t i = 0; i < 3; ++i) {
    expect_edges_of_the_parent(flow, i);
    const at::Tensor degrees = graph.in_degrees().index_select(0, flow.layer_parent_nid(i + 1));
    EXPECT_TRUE(exact(flow.layer_in_degree(i + 1),
                      degrees.clamp_max(fanouts[static_cast<std::size_t>(i)])));
    Ids edges = values(flow.block_parent_eid(i));
    std::sort(edges.begin(), edges.end());
    EXPECT_TRUE(is_ascending(edges)) << "an edge is there twice";
    EXPECT_TRUE((flow.layer_out_degree(i) > 0).all().item<bool>());  // the layer has no other nodes
    EXPECT_TRUE(is_ascending(values(flow.layer_parent_nid(i))));
  }
}

TEST(NeighborSampler, flows_do_not_depend_on_the_width_of_the_ids) {
  const auto drawn = [](IdWidth width) {
    const Graph graph = power_law_graph(60, 900, 3, width);
    const NeighborSampler sampler(graph, at::arange(0, 60, 7),
                                  {.num_neighbors = 3, .num_hops = 2, .add_self_loop = true});
    return contents(sampler.batch(0, 0));
  };
  EXPECT_EQ(drawn(IdWidth::kInt64), drawn(IdWidth::kInt32));
}

TEST(NeighborSampler, draws_with_replacement_exactly_the_fanout) {
  const Graph graph = four_node_graph();
  const NeighborSampler sampler(graph, at::arange(4), {.num_neighbors = 5, .replace = true});
  const NodeFlow flow = sampler.batch(0, 0);
  EXPECT_EQ(values(flow.layer_in_degree(1)), (Ids{0, 5, 5, 0}));
  expect_edges_of_the_parent(flow, 0);
}

TEST(NeighborSampler, a_node_in_two_layers_draws_independently_in_each) {
  const Graph graph = complete_graph(50);
  const NeighborSampler sampler(graph, ids({7}),
                                {.num_neighbors = 3, .num_hops = 2, .add_self_loop = true});
  const auto neighbors_of_7 = [](const NodeFlow& flow, std::int64_t block) {
    const NodeFlow::BlockEdges edges = flow.block_edges(block);
    const at::Tensor mine = flow.map_to_parent_nid(edges.dst) == 7;
    return values(flow.map_to_parent_nid(edges.src).masked_select(mine));
  };
  int equal = 0;
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    const NodeFlow flow = sampler.batch(epoch, 0);
    equal += neighbors_of_7(flow, 0) == neighbors_of_7(flow, 1) ? 1 : 0;
  }
  EXPECT_LE(equal, 1);  // by chance 20 in 18,424
}

TEST(NeighborSampler, out_neighbors_come_as_edges_turned_round) {
  const Graph graph = power_law_graph(40, 300, 5);
  for (const std::int64_t fanout : {kAllNeighbors, std::int64_t{3}}) {
    const NeighborSampler sampler(
        graph, at::arange(40),
        {.num_neighbors = fanout, .num_hops = 2, .neighbor_type = NeighborType::kOut});
    const NodeFlow flow = sampler.batch(0, 0);
    for (std::int64_t i = 0; i < 2; ++i) {
      expect_edges_of_the_parent(flow, i, /*turned=*/true);
      const at::Tensor degrees = graph.out_degrees().index_select(0, flow.layer_parent_nid(i + 1));
      EXPECT_TRUE(
          exact(flow.layer_in_degree(i + 1), fanout < 0 ? degrees : degrees.clamp_max(fanout)));
    }
  }
}

// A path of weight 1 among random edges of weight 0: only edges of the path are drawn.

constexpr std::int64_t kPathNodes = 100;

Graph path_among_others(at::Tensor& weights) {
  Ids src, dst;
  for (std::int64_t i = 0; i + 1 < kPathNodes; ++i) {
    src.push_back(i);
    dst.push_back(i + 1);
  }
  for (std::uint64_t i = 0; i < 1000; ++i) {
    src.push_back(static_cast<std::int64_t>(random_below(kPathNodes, 5, 1, i)));
    dst.push_back(static_cast<std::int64_t>(random_below(kPathNodes, 5, 2, i)));
  }
  weights = at::zeros({static_cast<std::int64_t>(src.size())});
  weights.narrow(0, 0, kPathNodes - 1).fill_(1);
  return graph_of(src, dst, kPathNodes);
}

TEST(NeighborSampler, edges_of_weight_zero_are_never_drawn) {
  at::Tensor weights;
  const Graph graph = path_among_others(weights);
  for (const bool replace : {false, true}) {
    const NeighborSampler sampler(graph, ids({kPathNodes - 1}),
                                  {.num_neighbors = 1,
                                   .num_hops = kPathNodes - 1,
                                   .replace = replace,
                                   .edge_weights = weights});
    const NodeFlow flow = sampler.batch(0, 0);
    for (std::int64_t i = 0; i < kPathNodes; ++i) {
      EXPECT_EQ(values(flow.layer_parent_nid(i)), Ids{i});
    }
    EXPECT_EQ(values(flow.block_parent_eid(40)), Ids{40});
  }
}

TEST(NeighborSampler, edges_of_weight_zero_are_never_drawn_backwards) {
  at::Tensor weights;
  const Graph graph = path_among_others(weights);
  const NeighborSampler sampler(graph, ids({0}),
                                {.num_neighbors = 1,
                                 .num_hops = kPathNodes - 1,
                                 .neighbor_type = NeighborType::kOut,
                                 .edge_weights = weights});
  const NodeFlow flow = sampler.batch(0, 0);
  for (std::int64_t i = 0; i < kPathNodes; ++i) {
    EXPECT_EQ(values(flow.layer_parent_nid(i)), Ids{kPathNodes - 1 - i});
  }
}

TEST(NeighborSampler, added_self_loops_complete_a_complete_graph) {
  const NodeFlow flow = whole_flow(complete_graph(100), {3, 14, 15}, 2, /*add_self_loop=*/true);
  for (std::int64_t i = 1; i < 3; ++i) {
    EXPECT_TRUE(exact(flow.layer_in_degree(i), at::full({flow.layer_size(i)}, 100)));
    const at::Tensor added = flow.block_parent_eid(i - 1) == -1;
    EXPECT_EQ(added.sum().item<std::int64_t>(), flow.layer_size(i));  // one per node
    expect_edges_of_the_parent(flow, i - 1);
  }
}

TEST(NeighborSampler, existing_self_loops_keep_their_id_and_are_never_there_twice) {
  const Graph graph = random_graph(30, 1.0, 6);  // shuffled, with all self loops
  const Topology& topology = graph.topology();
  const at::Tensor loops = (topology.src() == topology.dst()).nonzero().squeeze(1);
  for (const auto type : {NeighborType::kIn, NeighborType::kOut}) {
    for (const std::int64_t fanout : {kAllNeighbors, std::int64_t{4}, std::int64_t{0}}) {
      SCOPED_TRACE(fanout);
      const NeighborSampler sampler(
          graph, at::arange(30),
          {.num_neighbors = fanout, .num_hops = 2, .neighbor_type = type, .add_self_loop = true});
      const NodeFlow flow = sampler.batch(0, 0);
      for (std::int64_t i = 0; i < 2; ++i) {
        expect_edges_of_the_parent(flow, i, type == NeighborType::kOut);
        const at::Tensor edges = flow.block_parent_eid(i);
        EXPECT_GE(edges.min().item<std::int64_t>(), 0);
        Ids sampled_loops = values(edges.masked_select(at::isin(edges, loops)));
        std::sort(sampled_loops.begin(), sampled_loops.end());
        EXPECT_EQ(sampled_loops, values(loops));  // each once
      }
    }
  }
}

TEST(NeighborSampler, self_loops_are_added_where_the_parent_has_none) {
  const Graph graph = self_loop_graph();  // 2->2, 0->0, 1->2, 2->2, 0->1; none at 3
  const NodeFlow flow = whole_flow(graph, {0, 1, 2, 3}, 1, /*add_self_loop=*/true);
  EXPECT_EQ(values(flow.block_parent_eid(0)), (Ids{1, 4, -1, 0, 2, 3, -1}));
  EXPECT_EQ(values(flow.layer_parent_nid(0)), (Ids{0, 1, 2, 3}));
}

TEST(NeighborSampler, the_lowest_loop_stands_for_one_that_was_not_drawn) {
  const NeighborSampler sampler(self_loop_graph(), ids({2}),
                                {.num_neighbors = 0, .add_self_loop = true});
  EXPECT_EQ(values(sampler.batch(0, 0).block_parent_eid(0)), Ids{0});
}

TEST(NeighborSampler, empty_seeds_fanouts_and_graphs_give_the_right_empty_flows) {
  NeighborSampler nothing(featured_graph(), ids({}), {});
  EXPECT_EQ(nothing.num_batches(), 0);
  for (NodeFlow& flow : nothing) FAIL() << flow.num_nodes();
  for (const NeighborSampler& sampler :
       {NeighborSampler(featured_graph(), ids({4, 2}), {.num_neighbors = 0, .num_hops = 2}),
        NeighborSampler(isolated_graph(8), ids({4, 2}), {.num_neighbors = 3, .num_hops = 2})}) {
    const NodeFlow flow = sampler.batch(0, 0);
    EXPECT_EQ(values(flow.layer_parent_nid(-1)), (Ids{4, 2}));
    EXPECT_EQ(flow.num_nodes(), 2);
    EXPECT_EQ(flow.num_edges(), 0);
  }
}

TEST(NeighborSampler, wrong_options_are_errors_that_name_them) {
  const Graph graph = featured_graph();
  const auto error = [&](NeighborSamplerOptions options, const at::Tensor& seeds = ids({1})) {
    return error_of([&] { NeighborSampler(graph, seeds, options); });
  };
  const std::int64_t edges = graph.num_edges();
  EXPECT_TRUE(mentions(error({.batch_size = 0}), "batch_size"));
  EXPECT_TRUE(mentions(error({.num_neighbors = -2}), "num_neighbors"));
  EXPECT_TRUE(mentions(error({.num_hops = 0}), "num_hops"));
  EXPECT_TRUE(mentions(error({.num_hops = 256}), "num_hops"));
  EXPECT_TRUE(mentions(error({.fanouts = {3, -5}}), "got-5"));
  EXPECT_TRUE(mentions(error({.num_neighbors = 3, .fanouts = {3, 5}}), "both"));
  EXPECT_TRUE(mentions(error({.num_hops = 3, .fanouts = {3, 5}}), "num_hops(3),got2"));
  EXPECT_TRUE(mentions(error({.replace = true}), "withreplacement,got-1"));
  EXPECT_TRUE(mentions(error({.num_neighbors = std::int64_t{1} << 31, .replace = true}),
                       "withreplacement,got2147483648"));
  EXPECT_TRUE(mentions(error({.num_workers = -1}), "num_workers"));
  EXPECT_TRUE(mentions(error({.prefetch = 0}), "prefetch"));
  EXPECT_TRUE(mentions(error({}, ids({1, 20})), "20"));
  EXPECT_TRUE(mentions(error({}, ids({-1})), "-1"));
  error({}, at::rand({3}));
  error({.edge_weights = at::ones({edges - 1})});
  for (const double wrong : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    at::Tensor weights = at::ones({edges});
    weights[5] = wrong;
    EXPECT_TRUE(mentions(error({.edge_weights = weights}), "5"));
  }
}

}  // namespace
}  // namespace mezzo::test
