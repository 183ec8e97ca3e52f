#include "mezzo/sampling/blocks/block_sampler.h"

#include <algorithm>
#include <set>
#include <thread>

#include "mezzo/sampling/workspace_state.h"

#include "support/graphs.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

const CpuOnlySuite kBlockSamplerOnCpu("BlockSampler", "sampling on the CPU");
const CpuOnlySuite kLaborSamplerOnCpu("LaborSampler", "sampling on the CPU");

constexpr BatchKey kSampleKey{.seed = 7, .epoch = 1, .batch = 2};

Blocks sample_seeds(const BlockSampler& sampler, const Ids& seeds,
                    const BatchKey& key = kSampleKey) {
  Workspace workspace;
  return sampler.sample(ids(seeds), key, workspace);
}

testing::AssertionResult same_blocks(const Blocks& a, const Blocks& b) {
  if (a.size() != b.size()) return testing::AssertionFailure() << "another number of blocks";
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (const auto& [x, y] :
         {std::pair{a[i].src_nodes(), b[i].src_nodes()},
          std::pair{a[i].parent_edges(), b[i].parent_edges()},
          std::pair{a[i].topology().csc().indptr, b[i].topology().csc().indptr},
          std::pair{a[i].topology().src(), b[i].topology().src()}}) {
      if (auto same = same_bits(x, y); !same) return same << " in block " << i;
    }
  }
  return testing::AssertionSuccess();
}

/// Expects consecutive blocks to connect and every edge to be the parent's.
void check_blocks(const Topology& topology, const Blocks& blocks, const Ids& seeds) {
  EXPECT_EQ(values(blocks.back().dst_nodes()), seeds);
  const Ids src = values(topology.src()), dst = values(topology.dst());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Block& block = blocks[i];
    if (i + 1 < blocks.size()) {
      EXPECT_EQ(values(block.dst_nodes()), values(blocks[i + 1].src_nodes()));
    }
    const Ids nodes = values(block.src_nodes());
    EXPECT_EQ(std::set<std::int64_t>(nodes.begin(), nodes.end()).size(), nodes.size());
    const Ids edges = values(block.parent_edges()), from = values(block.topology().src()),
              to = values(block.topology().dst());
    std::int64_t next = block.num_dst();  // new sources are in the order of their first edge
    for (std::size_t e = 0; e < edges.size(); ++e) {
      const auto edge = static_cast<std::size_t>(edges[e]);
      ASSERT_EQ(nodes[static_cast<std::size_t>(from[e])], src[edge]);
      ASSERT_EQ(nodes[static_cast<std::size_t>(to[e])], dst[edge]);
      ASSERT_LE(from[e], next);
      if (from[e] == next) ++next;
    }
    EXPECT_EQ(next, block.num_src());
    EXPECT_EQ(block.topology().id_dtype(), topology.id_dtype());
  }
}

TEST(BlockSampler, blocks_chain_and_hold_edges_of_the_graph) {
  for (const IdWidth width : {IdWidth::kInt32, IdWidth::kInt64}) {
    for (const std::int64_t num_edges : {0, 500, 8000}) {
      const Topology topology = power_law_graph(800, num_edges, 3, width).topology();
      const Ids seeds = {700, 3, 0, 799, 41};
      for (const NeighborDraw draw : {NeighborDraw::kNeighbor, NeighborDraw::kLabor}) {
        const BlockSampler sampler(topology, {.fanouts = {4, 3, kAllNeighbors}, .draw = draw});
        const Blocks blocks = sample_seeds(sampler, seeds);
        ASSERT_EQ(blocks.size(), 3U);
        check_blocks(topology, blocks, seeds);
      }
    }
  }
}

TEST(BlockSampler, fanouts_name_the_input_layer_first) {
  const Topology topology = random_graph(30, 1.0, 4).topology();
  const Blocks blocks = sample_seeds(BlockSampler(topology, {.fanouts = {4, 2}}), {5, 6, 7});
  EXPECT_EQ(blocks[1].num_edges(), 3 * 2);
  EXPECT_EQ(blocks[0].num_edges(), blocks[0].num_dst() * 4);
}

TEST(BlockSampler, all_neighbors_give_the_whole_neighbourhood) {
  const Blocks blocks =
      sample_seeds(BlockSampler(four_nodes(), {.fanouts = {kAllNeighbors, kAllNeighbors}}), {2});
  EXPECT_EQ(values(blocks[1].src_nodes()), (Ids{2, 0, 1, 3}));
  EXPECT_EQ(values(blocks[1].parent_edges()), (Ids{1, 2, 3}));
  EXPECT_EQ(values(blocks[0].src_nodes()), (Ids{2, 0, 1, 3}));
  EXPECT_EQ(values(blocks[0].parent_edges()), (Ids{1, 2, 3, 0}));
  EXPECT_EQ(values(blocks[0].topology().dst()), (Ids{0, 0, 0, 2}));
}

TEST(BlockSampler, blocks_have_the_degrees_of_the_graph_on_request) {
  for (const IdWidth width : {IdWidth::kInt32, IdWidth::kInt64}) {
    const Topology topology = power_law_graph(300, 3000, 8, width).topology();
    const Blocks blocks = sample_seeds(
        BlockSampler(topology, {.fanouts = {2, 2}, .parent_degrees = true}), {9, 250, 0});
    for (const Block& block : blocks) {
      ASSERT_NE(block.topology().parent_in_degrees(), nullptr);
      EXPECT_TRUE(exact(*block.topology().parent_in_degrees(),
                        topology.in_degrees().index_select(0, block.dst_nodes())));
      EXPECT_TRUE(exact(*block.topology().parent_out_degrees(),
                        topology.out_degrees().index_select(0, block.src_nodes())));
    }
  }
  const BlockSampler without(four_nodes(), {.fanouts = {1}});
  EXPECT_EQ(sample_seeds(without, {2})[0].topology().parent_in_degrees(), nullptr);
}

TEST(BlockSampler, samples_do_not_depend_on_threads_or_what_came_before) {
  const Topology topology = power_law_graph(20000, 200000, 3).topology();
  const BlockSampler sampler(topology, {.fanouts = {10, 10, 5}});
  Ids seeds;
  for (std::int64_t i = 0; i < 2000; ++i) seeds.push_back(i * 7);
  Blocks one;
  {
    const ThreadCount threads(1);
    one = sample_seeds(sampler, seeds);
  }
  const ThreadCount threads(2);
  EXPECT_TRUE(same_blocks(sample_seeds(sampler, seeds), one));
  Workspace used;
  sampler.sample(ids({1, 5, 9}), {.seed = 1}, used);
  BlockSampler(four_nodes(), {.fanouts = {1}}).sample(ids({2}), {}, used);
  EXPECT_TRUE(same_blocks(sampler.sample(ids(seeds), kSampleKey, used), one));
  Blocks other;
  std::thread([&] { other = sample_seeds(sampler, seeds); }).join();
  EXPECT_TRUE(same_blocks(other, one));
  EXPECT_FALSE(same_blocks(sample_seeds(sampler, seeds, {.seed = 7, .epoch = 1, .batch = 3}), one));
}

TEST(BlockSampler, the_table_of_numbers_may_run_out_at_any_place) {
  const Topology topology = power_law_graph(300, 3000, 8).topology();
  const BlockSampler sampler(topology, {.fanouts = {4, 4}});
  const Ids seeds = {9, 250, 0, 17};
  const Blocks expected = sample_seeds(sampler, seeds);
  Workspace workspace;
  for (const std::int64_t left : {0, 1, 3, 4, 5, 19, 20, 21, 100, 299, 300, 301, 600}) {
    SCOPED_TRACE(left);
    sampler.sample(ids({1, 2, 3, 4, 5}), {.seed = 3}, workspace);
    workspace.state().numbers.set_left(left);
    EXPECT_TRUE(same_blocks(sampler.sample(ids(seeds), kSampleKey, workspace), expected));
    EXPECT_TRUE(same_blocks(sampler.sample(ids(seeds), kSampleKey, workspace), expected));
  }
}

TEST(BlockSampler, a_workspace_has_four_bytes_for_each_node) {
  const BlockSampler sampler(isolated_graph(100000).topology(), {.fanouts = {3}});
  Workspace workspace;
  EXPECT_EQ(workspace.table_bytes(), 0);
  sampler.sample(ids({1, 2}), {}, workspace);
  EXPECT_GE(workspace.table_bytes(), 400000);
  EXPECT_LT(workspace.table_bytes(), 400000 + 64);
  EXPECT_LT(workspace.buffer_bytes(), 10000);
}

TEST(BlockSampler, draws_of_equal_batches_grow_no_buffer) {
  const ThreadCount threads(1);
  const Topology topology = power_law_graph(2000, 20000, 8).topology();
  for (const BlockSampler::Options& options :
       {BlockSampler::Options{.fanouts = {5, 5}},
        BlockSampler::Options{.fanouts = {5, 5}, .replace = true},
        BlockSampler::Options{.fanouts = {5, 5}, .draw = NeighborDraw::kLabor}}) {
    const BlockSampler sampler(topology, options);
    Workspace workspace;
    sampler.sample(at::arange(100), kSampleKey, workspace);
    const std::int64_t table = workspace.table_bytes(), buffers = workspace.buffer_bytes();
    EXPECT_GT(buffers, 0);
    for (int repeat = 0; repeat < 3; ++repeat) {
      sampler.sample(at::arange(100), kSampleKey, workspace);
      EXPECT_EQ(workspace.table_bytes(), table);
      EXPECT_EQ(workspace.buffer_bytes(), buffers);
    }
    sampler.sample(at::arange(5), kSampleKey, workspace);
    EXPECT_EQ(workspace.buffer_bytes(), buffers) << "a smaller batch";
  }
}

TEST(BlockSampler, weighted_edges_of_weight_zero_are_never_sampled) {
  const Topology topology = power_law_graph(200, 4000, 8).topology();
  const at::Tensor weights = integers({4000}, at::kFloat, 2, 0, 3);
  for (const bool replace : {false, true}) {
    const BlockSampler sampler(topology,
                               {.fanouts = {6, 6}, .replace = replace, .edge_weights = weights});
    const Ids seeds = {4, 8, 100};
    const Blocks blocks = sample_seeds(sampler, seeds);
    check_blocks(topology, blocks, seeds);
    for (const Block& block : blocks) {
      EXPECT_GT(block.num_edges(), 0);
      EXPECT_TRUE((weights.index_select(0, block.parent_edges()) > 0).all().item<bool>());
    }
  }
}

TEST(BlockSampler, labor_needs_fewer_nodes_and_brings_its_weights) {
  const Topology topology = power_law_graph(3000, 60000, 3).topology();
  Ids seeds;
  for (std::int64_t i = 0; i < 300; ++i) seeds.push_back(i * 3);
  const auto inputs = [&](NeighborDraw draw, bool layer_dependency) {
    const BlockSampler sampler(
        topology, {.fanouts = {5, 5}, .draw = draw, .layer_dependency = layer_dependency});
    const Blocks blocks = sample_seeds(sampler, seeds);
    for (const Block& block : blocks) {
      EXPECT_EQ(block.edata().contains("edge_weights"), draw == NeighborDraw::kLabor);
    }
    return blocks[0].num_src();
  };
  const std::int64_t independent = inputs(NeighborDraw::kNeighbor, false);
  const std::int64_t labor = inputs(NeighborDraw::kLabor, false);
  EXPECT_LT(labor, independent);
  EXPECT_LT(inputs(NeighborDraw::kLabor, true), labor);
}

TEST(BlockSampler, without_a_key_draws_from_the_generator_of_libtorch) {
  const Topology topology = power_law_graph(300, 3000, 8).topology();
  const BlockSampler sampler(topology, {.fanouts = {2, 2}});
  const at::Tensor seeds = ids({9, 250, 0});
  EXPECT_TRUE(same_blocks(sampler.sample(seeds, kSampleKey), sample_seeds(sampler, {9, 250, 0})));
  at::manual_seed(3);
  const Blocks first = sampler.sample(seeds), second = sampler.sample(seeds);
  EXPECT_FALSE(same_blocks(first, second));
  at::manual_seed(3);
  EXPECT_TRUE(same_blocks(sampler.sample(seeds), first));
}

TEST(LaborSampler, is_a_block_sampler_that_draws_by_labor) {
  const Topology topology = power_law_graph(500, 6000, 3).topology();
  const at::Tensor weights = uniform({6000}, at::kFloat, 4, 0.5, 2.0);
  const BlockSampler expected(topology, {.fanouts = {4, 3},
                                         .draw = NeighborDraw::kLabor,
                                         .layer_dependency = true,
                                         .edge_weights = weights});
  const LaborSampler sampler(
      topology, {.fanouts = {4, 3}, .layer_dependency = true, .edge_weights = weights});
  EXPECT_TRUE(same_blocks(sample_seeds(sampler, {1, 40}), sample_seeds(expected, {1, 40})));
  const LaborSampler with_degrees(topology, {.fanouts = {4}, .parent_degrees = true});
  EXPECT_NE(sample_seeds(with_degrees, {1})[0].topology().parent_in_degrees(), nullptr);
}

TEST(BlockSampler, labor_weights_are_inverse_probabilities) {
  const Topology topology = random_graph(40, 1.0, 4).topology();  // every node has 40 in-edges
  const BlockSampler sampler(topology, {.fanouts = {10}, .draw = NeighborDraw::kLabor});
  const Blocks blocks = sample_seeds(sampler, {3, 5});
  const at::Tensor& weights = blocks[0].edata().at("edge_weights");
  EXPECT_TRUE(same_bits(weights, at::full({blocks[0].num_edges()}, 4.0, at::kFloat)));
}

TEST(BlockSampler, fanout_zero_and_no_seeds_give_blocks_without_edges) {
  const Topology topology = power_law_graph(100, 900, 8).topology();
  const Blocks none = sample_seeds(BlockSampler(topology, {.fanouts = {0, 0}}), {5, 6});
  for (const Block& block : none) {
    EXPECT_EQ(block.num_edges(), 0);
    EXPECT_EQ(values(block.src_nodes()), (Ids{5, 6}));
  }
  const Blocks empty = sample_seeds(BlockSampler(topology, {.fanouts = {2, 3}}), {});
  for (const Block& block : empty) {
    EXPECT_EQ(block.num_src(), 0);
    EXPECT_EQ(block.num_edges(), 0);
    EXPECT_EQ(block.parent_edges().numel(), 0);
  }
}

TEST(BlockSampler, every_kind_of_draw_takes_fanout_zero_and_graphs_without_edges) {
  const Topology topology = power_law_graph(100, 900, 8).topology();
  const Topology isolated = isolated_graph(100).topology();
  struct Kind {
    NeighborDraw draw;
    bool replace, weighted;
  };
  for (const Kind& kind :
       {Kind{NeighborDraw::kNeighbor, false, true}, Kind{NeighborDraw::kNeighbor, true, false},
        Kind{NeighborDraw::kNeighbor, true, true}, Kind{NeighborDraw::kLabor, false, false},
        Kind{NeighborDraw::kLabor, false, true}}) {
    for (const auto& [graph, fanout] :
         {std::pair{topology, 0}, std::pair{isolated, 3}, std::pair{isolated, 0}}) {
      const BlockSampler sampler(
          graph, {.fanouts = {fanout, fanout},
                  .draw = kind.draw,
                  .replace = kind.replace,
                  .edge_weights = kind.weighted ? at::ones({graph.num_edges()}) : at::Tensor()});
      Workspace workspace;
      for (const Block& block : sampler.sample(ids({5, 6}), {.seed = 7}, workspace)) {
        EXPECT_EQ(block.num_edges(), 0);
        EXPECT_EQ(values(block.src_nodes()), (Ids{5, 6}));
        EXPECT_EQ(block.edata().contains("edge_weights"), kind.draw == NeighborDraw::kLabor);
      }
    }
  }
}

TEST(BlockSampler, unfit_seeds_are_named) {
  const BlockSampler sampler(four_nodes(), {.fanouts = {2}});
  Workspace workspace;
  const auto attempt = [&](const at::Tensor& seeds) {
    sampler.sample(seeds, kSampleKey, workspace);
  };
  EXPECT_ERROR("4", attempt(ids({0, 4})));
  EXPECT_ERROR("-1", attempt(ids({0, -1})));
  EXPECT_ERROR("got2morethanonce", attempt(ids({3, 2, 0, 2, 3})));
  EXPECT_ERROR("seeds", attempt(at::rand({3})));
  EXPECT_ERROR("seeds", attempt(ids({0, 1}).reshape({1, 2})));
  // A failed batch leaves no state.
  EXPECT_TRUE(same_blocks(sampler.sample(ids({3, 2}), kSampleKey, workspace),
                          sample_seeds(sampler, {3, 2})));
}

TEST(BlockSampler, contradictory_options_are_errors) {
  const auto attempt = [&](BlockSampler::Options options) {
    BlockSampler(four_nodes(), std::move(options));
  };
  EXPECT_ERROR("fanouts", attempt({.fanouts = {}}));
  EXPECT_ERROR("-2", attempt({.fanouts = {2, -2}}));
  EXPECT_ERROR("replace", attempt({.fanouts = {2}, .draw = NeighborDraw::kLabor, .replace = true}));
  EXPECT_ERROR("withreplacement,got-1", attempt({.fanouts = {2, -1}, .replace = true}));
  EXPECT_ERROR("layer_dependency", attempt({.fanouts = {2}, .layer_dependency = true}));
  EXPECT_ERROR("edge0", attempt({.fanouts = {2}, .edge_weights = at::full({4}, -1.0)}));
  EXPECT_ERROR("4sources", BlockSampler(in_star(4), {.fanouts = {2}}));
}

}  // namespace
}  // namespace mezzo::test
