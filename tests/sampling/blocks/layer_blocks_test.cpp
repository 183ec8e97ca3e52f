#include <algorithm>
#include <set>

#include "mezzo/sampling/blocks/block_loader.h"

#include "sampling/flow_support.h"
#include "support/graphs.h"
#include "support/tolerance.h"

/// BlockLoader with layer_sizes.
namespace mezzo::test {
namespace {

const CpuOnlySuite kLayerBlocksOnCpu("LayerBlocks", "sampling on the CPU");

at::Tensor mean_weights(const Block& block) {
  return block.edata().at("edge_weights");
}

/// The nodes and edges of the blocks of a batch.
std::vector<Ids> block_contents(const Batch& batch) {
  std::vector<Ids> all;
  for (const Block& block : batch.blocks) {
    all.push_back(values(block.src_nodes()));
    all.push_back(values(block.topology().src()));
    all.push_back(values(block.topology().dst()));
    all.push_back(values(block.parent_edges()));
  }
  return all;
}

std::vector<std::vector<Ids>> loader_contents(BlockLoader& loader) {
  std::vector<std::vector<Ids>> all;
  for (const Batch& batch : loader) all.push_back(block_contents(batch));
  return all;
}

TEST(LayerBlocks, sources_are_the_destinations_and_then_the_drawn_nodes) {
  const Graph graph = power_law_graph(80, 1200, 12);
  const Ids sizes = {5, 9, 12};
  BlockLoader loader(graph, at::arange(80), {.batch_size = 16, .layer_sizes = sizes});
  EXPECT_EQ(loader.num_batches(), 5);
  for (const Batch& batch : loader) {
    ASSERT_EQ(batch.blocks.size(), 3U);
    EXPECT_EQ(values(batch.blocks.back().dst_nodes()), values(batch.output_nodes));
    for (std::size_t i = 0; i < 3; ++i) {
      const Block& block = batch.blocks[i];
      const Ids nodes = values(block.src_nodes());
      EXPECT_EQ(Ids(nodes.begin(), nodes.begin() + block.num_dst()), values(block.dst_nodes()));
      EXPECT_TRUE(is_ascending(Ids(nodes.begin() + block.num_dst(), nodes.end())));
      EXPECT_EQ(std::set<std::int64_t>(nodes.begin(), nodes.end()).size(), nodes.size());
      EXPECT_LE(block.num_src(), block.num_dst() + sizes[i]);
      if (i > 0) {
        EXPECT_EQ(values(batch.blocks[i - 1].dst_nodes()), nodes);
      }
    }
  }
}

TEST(LayerBlocks, hold_every_edge_from_a_drawn_node_and_no_other) {
  const Graph graph = power_law_graph(80, 1200, 12);
  const Ids parent_src = values(graph.topology().src()),
            parent_dst = values(graph.topology().dst());
  const BlockLoader loader(graph, at::arange(10), {.layer_sizes = {7, 6}});
  const Batch batch = loader.batch(3, 0);
  for (std::size_t i = 0; i < 2; ++i) {
    const Block& block = batch.blocks[i];
    const Ids nodes = values(block.src_nodes()), src = values(block.topology().src()),
              dst = values(block.topology().dst()), edges = values(block.parent_edges());
    std::set<std::int64_t> drawn;
    for (std::size_t e = 0; e < edges.size(); ++e) {
      const auto parent = static_cast<std::size_t>(edges[e]);
      EXPECT_EQ(nodes[static_cast<std::size_t>(src[e])], parent_src[parent]);
      EXPECT_EQ(nodes[static_cast<std::size_t>(dst[e])], parent_dst[parent]);
      drawn.insert(parent_src[parent]);
    }
    EXPECT_LE(drawn.size(), i == 0 ? 7U : 6U);
    const Ids rows = values(block.dst_nodes());
    const std::set<std::int64_t> receivers(rows.begin(), rows.end());
    Ids expected;
    for (std::size_t e = 0; e < parent_src.size(); ++e) {
      if (drawn.contains(parent_src[e]) && receivers.contains(parent_dst[e])) {
        expected.push_back(static_cast<std::int64_t>(e));
      }
    }
    Ids sorted = edges;
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(sorted, expected);
  }
}

TEST(LayerBlocks, take_every_neighbor_with_weight_one_where_there_are_few) {
  const Graph graph = power_law_graph(80, 1200, 12);
  const BlockLoader loader(graph, at::arange(80),
                           {.parent_degrees = true, .layer_sizes = {80, 80}});
  for (const Block& block : loader.batch(0, 0).blocks) {
    EXPECT_EQ(block.num_edges(), 1200);
    EXPECT_TRUE(exact(mean_weights(block), at::ones({1200})));
    ASSERT_NE(block.topology().parent_in_degrees(), nullptr);
    EXPECT_EQ(values(*block.topology().parent_in_degrees()),
              values(graph.in_degrees().index_select(0, block.dst_nodes())));
    EXPECT_EQ(values(*block.topology().parent_out_degrees()),
              values(graph.out_degrees().index_select(0, block.src_nodes())));
  }
}

TEST(LayerBlocks, the_weighted_mean_estimates_the_mean_over_all_neighbors) {
  const Graph graph = random_graph(80, 0.2, 12);
  const at::Tensor x = uniform({80}, at::kDouble, 3);
  const Ids src = values(graph.topology().src()), dst = values(graph.topology().dst());
  at::Tensor expected = at::zeros({12}, at::kDouble), degrees = at::zeros({12}, at::kDouble);
  for (std::size_t e = 0; e < src.size(); ++e) {
    if (dst[e] >= 12) continue;
    expected[dst[e]] += x[src[e]];
    degrees[dst[e]] += 1;
  }
  expected = expected / degrees.clamp_min(1);
  const BlockLoader loader(graph, at::arange(12), {.seed = 5, .layer_sizes = {10}});
  std::vector<at::Tensor> samples;
  for (std::int64_t epoch = 0; epoch < 2000; ++epoch) {
    const Batch batch = loader.batch(epoch, 0);
    const Block& block = batch.blocks[0];
    const at::Tensor rows = block.topology().dst().to(at::kLong);
    const at::Tensor messages =
        x.index_select(0, batch.input_nodes).index_select(0, block.topology().src().to(at::kLong)) *
        mean_weights(block);
    const at::Tensor sums = at::zeros({12}, at::kDouble).index_add(0, rows, messages);
    samples.push_back(sums / at::bincount(rows, {}, 12).clamp_min(1));
  }
  EXPECT_TRUE(is_unbiased(at::stack(samples), expected));
}

TEST(LayerBlocks, are_equal_for_equal_seeds_any_workers_and_either_width_of_ids) {
  const auto epochs = [](std::int64_t num_workers, std::uint64_t seed, IdWidth width) {
    const Graph graph = power_law_graph(60, 900, 3, width);
    BlockLoader loader(graph, at::arange(60),
                       {.batch_size = 8,
                        .shuffle = true,
                        .num_workers = num_workers,
                        .seed = seed,
                        .layer_sizes = {6, 6}});
    return std::vector{loader_contents(loader), loader_contents(loader)};
  };
  const auto expected = epochs(0, 7, IdWidth::kInt32);
  EXPECT_NE(expected[0], expected[1]);
  for (const std::int64_t workers : {1, 2}) {
    EXPECT_EQ(epochs(workers, 7, IdWidth::kInt32), expected);
  }
  EXPECT_EQ(epochs(0, 7, IdWidth::kInt64), expected);
  EXPECT_NE(epochs(0, 8, IdWidth::kInt32), expected);
}

TEST(LayerBlocks, of_nodes_without_neighbors_hold_the_seeds_alone) {
  const BlockLoader loader(isolated_graph(6), ids({3, 1}), {.layer_sizes = {4, 4}});
  const Batch batch = loader.batch(0, 0);
  for (const Block& block : batch.blocks) {
    EXPECT_EQ(values(block.src_nodes()), (Ids{3, 1}));
    EXPECT_EQ(block.num_edges(), 0);
    EXPECT_EQ(mean_weights(block).numel(), 0);
  }
}

TEST(LayerBlocks, wrong_options_are_errors_that_name_them) {
  const Graph graph = power_law_graph(80, 1200, 12);
  const auto attempt = [&](const BlockLoaderOptions& options) {
    BlockLoader(graph, ids({1}), options);
  };
  EXPECT_ERROR("layer_sizes", attempt({.layer_sizes = {4, 0}}));
  EXPECT_ERROR("got256", attempt({.layer_sizes = Ids(256, 4)}));
  EXPECT_ERROR("gotboth", attempt({.fanouts = {2}, .layer_sizes = {4}}));
  EXPECT_ERROR("replace", attempt({.replace = true, .layer_sizes = {4}}));
  EXPECT_ERROR("draw", attempt({.draw = NeighborDraw::kLabor, .layer_sizes = {4}}));
}

}  // namespace
}  // namespace mezzo::test
