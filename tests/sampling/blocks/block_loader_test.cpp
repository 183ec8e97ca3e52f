#include "mezzo/sampling/blocks/block_loader.h"

#include <set>

#include "support/graphs.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

const CpuOnlySuite kBlockLoaderOnCpu("BlockLoader", "sampling on the CPU");
const CpuOnlySuite kBlockLoaderTestOnCpu("BlockLoaderTest", "sampling on the CPU");

constexpr std::int64_t kLoaderNodes = 200;

/// A power law with columns of several dtypes, an edge weight and a class.
Graph columned_graph() {
  Graph graph = power_law_graph(kLoaderNodes, 2000, 3);
  graph.ndata()["feat"] = uniform({kLoaderNodes, 12}, at::kFloat, 1);
  graph.ndata()["half"] = uniform({kLoaderNodes, 5}, at::kHalf, 2);
  graph.ndata()["brain"] = uniform({kLoaderNodes, 7}, at::kBFloat16, 3);
  graph.ndata()["label"] = at::arange(kLoaderNodes).remainder(4);
  graph.edata()["weight"] = uniform({2000}, at::kFloat, 4, 0.5, 2.0);
  return graph;
}

BlockLoaderOptions usual_options(std::int64_t num_workers = 0) {
  return {.fanouts = {4, 3},
          .batch_size = 16,
          .shuffle = true,
          .features = {"feat", "half", "brain"},
          .labels = {"label"},
          .num_workers = num_workers,
          .seed = 5};
}

BlockLoader loader_of(const Graph& graph, const BlockLoaderOptions& options) {
  return {graph, at::arange(100), options};
}

std::vector<Batch> loop(BlockLoader& loader) {
  std::vector<Batch> batches;
  for (Batch& batch : loader) batches.push_back(batch);
  return batches;
}

testing::AssertionResult same_batch(const Batch& a, const Batch& b) {
  const auto differ = [&](const char* what) {
    return testing::AssertionFailure() << what << " of batch " << a.index << " differ";
  };
  if (a.index != b.index || a.blocks.size() != b.blocks.size()) return differ("numbers");
  if (!at::equal(a.input_nodes, b.input_nodes)) return differ("input nodes");
  if (!at::equal(a.output_nodes, b.output_nodes)) return differ("output nodes");
  for (std::size_t i = 0; i < a.blocks.size(); ++i) {
    if (!at::equal(a.blocks[i].parent_edges(), b.blocks[i].parent_edges())) return differ("edges");
    if (!at::equal(a.blocks[i].src_nodes(), b.blocks[i].src_nodes())) return differ("sources");
  }
  for (const auto& [name, column] : a.feature_columns) {
    if (!same_bits(column, b.features(name))) return differ("features");
  }
  for (const auto& [name, column] : a.label_columns) {
    if (!at::equal(column, b.labels(name))) return differ("labels");
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult same_batches(const std::vector<Batch>& a, const std::vector<Batch>& b) {
  if (a.size() != b.size()) return testing::AssertionFailure() << "numbers of batches differ";
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (const auto same = same_batch(a[i], b[i]); !same) return same;
  }
  return testing::AssertionSuccess();
}

}  // namespace

class BlockLoaderTest : public testing::Test {
 protected:
  const Graph graph = columned_graph();
  BlockLoaderOptions options = usual_options();
};

TEST_F(BlockLoaderTest, the_number_of_workers_changes_nothing) {
  BlockLoader plain = loader_of(graph, options);
  const std::vector<Batch> first = loop(plain), second = loop(plain);
  EXPECT_EQ(first.size(), 7U);
  EXPECT_FALSE(same_batches(first, second)) << "a new epoch draws anew";
  for (const std::int64_t num_workers : {1, 2, 3}) {
    options.num_workers = num_workers;
    BlockLoader loader = loader_of(graph, options);
    EXPECT_TRUE(same_batches(loop(loader), first));
    EXPECT_TRUE(same_batches(loop(loader), second));
  }
}

TEST_F(BlockLoaderTest, rows_are_those_of_the_nodes_with_their_dtypes_and_bits) {
  BlockLoader loader = loader_of(graph, usual_options(2));
  for (const Batch& batch : loader) {
    ASSERT_EQ(batch.blocks.size(), 2U);
    EXPECT_TRUE(at::equal(batch.input_nodes, batch.blocks.front().src_nodes()));
    EXPECT_TRUE(at::equal(batch.output_nodes, batch.blocks.back().dst_nodes()));
    EXPECT_TRUE(at::equal(batch.blocks[0].dst_nodes(), batch.blocks[1].src_nodes()));
    for (const std::string name : {"feat", "half", "brain"}) {
      EXPECT_TRUE(
          same_bits(batch.features(name), graph.ndata()[name].index_select(0, batch.input_nodes)));
    }
    EXPECT_TRUE(at::equal(batch.labels("label"), batch.output_nodes.remainder(4)));
  }
}

TEST_F(BlockLoaderTest, an_epoch_passes_once_over_the_seeds) {
  BlockLoader loader = loader_of(graph, usual_options());
  std::multiset<std::int64_t> seen;
  for (const Batch& batch : loader) {
    for (const std::int64_t seed : values(batch.output_nodes)) seen.insert(seed);
  }
  EXPECT_EQ(seen.size(), 100U);
  EXPECT_EQ(std::set<std::int64_t>(seen.begin(), seen.end()).size(), 100U);
  EXPECT_EQ(*seen.rbegin(), 99);
}

TEST(BlockLoader, an_interrupted_epoch_goes_on_as_if_unbroken) {
  const Graph graph = columned_graph();
  const BlockLoaderOptions options = usual_options(1);
  BlockLoader unbroken = loader_of(graph, options), resumed = loader_of(graph, options);
  loop(unbroken);
  const std::vector<Batch> second = loop(unbroken);
  resumed.start_at(1, 3);
  EXPECT_TRUE(same_batches(loop(resumed), {second.begin() + 3, second.end()}));
  EXPECT_EQ(resumed.epoch(), 2);
  EXPECT_TRUE(same_batch(resumed.batch(1, 5), second[5]));
}

TEST_F(BlockLoaderTest, a_loop_left_in_the_middle_does_not_change_the_next) {
  BlockLoader whole = loader_of(graph, options);
  loop(whole);
  options.num_workers = 3;
  BlockLoader left = loader_of(graph, options);
  for (const Batch& batch : left) {
    if (batch.index == 1) break;
  }
  EXPECT_TRUE(same_batches(loop(left), loop(whole)));
}

TEST_F(BlockLoaderTest, every_neighbour_is_taken_without_a_limit) {
  options.fanouts = {kAllNeighbors};
  BlockLoader loader = loader_of(graph, options);
  for (const Batch& batch : loader) {
    const at::Tensor expected = graph.in_edges(batch.output_nodes);
    EXPECT_TRUE(at::equal(std::get<0>(batch.blocks[0].parent_edges().sort()),
                          std::get<0>(expected.sort())));
  }
}

TEST_F(BlockLoaderTest, fan_out_0_and_graphs_without_edges_give_blocks_of_the_seeds) {
  options.features = options.labels = {};
  const Graph isolated = isolated_graph(100);
  BlockLoader without_edges = loader_of(isolated, options);
  options.fanouts = {0, 0};
  BlockLoader without_fan_out = loader_of(graph, options);
  for (BlockLoader* loader : {&without_edges, &without_fan_out}) {
    for (const Batch& batch : *loader) {
      EXPECT_TRUE(at::equal(batch.input_nodes, batch.output_nodes));
      for (const Block& block : batch.blocks) EXPECT_EQ(block.num_edges(), 0);
    }
    EXPECT_EQ(loader->statistics().batches, 7);
  }
}

TEST_F(BlockLoaderTest, no_seeds_give_no_batches) {
  for (const std::int64_t num_workers : {0, 2}) {
    BlockLoader loader(graph, ids({}), usual_options(num_workers));
    EXPECT_EQ(loader.num_batches(), 0);
    EXPECT_TRUE(loop(loader).empty());
  }
}

TEST_F(BlockLoaderTest, a_seed_that_is_twice_in_a_batch_stands_once_with_its_count) {
  options.shuffle = false;
  BlockLoader loader(graph, ids({9, 4, 9, 9, 7}), options);
  for (const Batch& batch : loader) {
    EXPECT_EQ(values(batch.output_nodes), (Ids{9, 4, 7}));
    EXPECT_EQ(values(batch.output_counts), (Ids{3, 1, 1}));
    EXPECT_EQ(batch.labels("label").size(0), 3);
  }
  EXPECT_FALSE(loader_of(graph, options).batch(0, 0).output_counts.defined());
}

TEST_F(BlockLoaderTest, a_last_batch_that_is_not_full_can_be_left_out) {
  options.drop_last = true;
  EXPECT_EQ(loader_of(graph, options).num_batches(), 6);
}

TEST_F(BlockLoaderTest, seeds_can_be_weighted_or_balanced) {
  options.seed_weights = at::zeros({100});
  options.seed_weights.slice(0, 10, 13).fill_(1);
  BlockLoader weighted = loader_of(graph, options);
  for (const Batch& batch : weighted) {
    EXPECT_TRUE(
        batch.output_nodes.ge(10).logical_and(batch.output_nodes.lt(13)).all().item<bool>());
    EXPECT_EQ(batch.output_counts.sizes(), batch.output_nodes.sizes());
    EXPECT_EQ(batch.output_counts.sum().item<double>(), batch.index < 6 ? 16 : 4);
  }
  options.seed_weights = at::Tensor();
  options.balance_by = "label";
  BlockLoader balanced = loader_of(graph, options);
  EXPECT_EQ(loop(balanced).size(), 7U);
}

TEST(BlockLoader, sparse_features_stay_sparse) {
  Graph graph = columned_graph();
  const at::Tensor dense = graph.ndata()["feat"] * graph.ndata()["feat"].gt(0);
  graph.ndata()["feat"] = dense.to_sparse_csr();
  BlockLoader loader = loader_of(graph, usual_options(1));
  for (const Batch& batch : loader) {
    const at::Tensor& rows = batch.features("feat");
    EXPECT_EQ(rows.layout(), at::kSparseCsr);
    EXPECT_TRUE(exact(rows.to_dense(), dense.index_select(0, batch.input_nodes)));
  }
}

TEST_F(BlockLoaderTest, statistics_count_what_was_drawn) {
  BlockLoader loader = loader_of(graph, usual_options(2));
  std::int64_t num_edges = 0, num_nodes = 0;
  for (const Batch& batch : loader) {
    for (const Block& block : batch.blocks) num_edges += block.num_edges();
    num_nodes += batch.input_nodes.numel();
  }
  const PipelineStatistics statistics = loader.statistics();
  EXPECT_EQ(statistics.batches, 7);
  EXPECT_EQ(statistics.sampled_edges, num_edges);
  EXPECT_EQ(statistics.sampled_nodes, num_nodes);
  EXPECT_GT(statistics.sample_seconds, 0.0);
  EXPECT_GT(statistics.gather_seconds, 0.0);
  EXPECT_GT(statistics.edges_per_second(), 0.0);
}

TEST_F(BlockLoaderTest, edges_of_blocks_are_in_csc_order) {
  ASSERT_TRUE(graph.topology().csc().edge_ids.defined());
  const Batch batch = loader_of(graph, options).batch(0, 0);
  for (const Block& block : batch.blocks) {
    EXPECT_FALSE(block.topology().csc().edge_ids.defined());
  }
}

TEST_F(BlockLoaderTest, rows_by_source_are_built_ahead_for_all_blocks) {
  const Batch prepared = loader_of(graph, options).batch(0, 0);
  options.prepare_backward = false;
  const Batch plain = loader_of(graph, options).batch(0, 0);
  const auto bytes = [](const Batch& batch, std::size_t block) {
    return batch.blocks[block].topology().memory_bytes();
  };
  EXPECT_GT(bytes(prepared, 0), bytes(plain, 0));
  EXPECT_GT(bytes(prepared, 1), bytes(plain, 1));
  EXPECT_TRUE(same_batch(prepared, plain));
}

TEST_F(BlockLoaderTest, a_column_that_was_not_asked_for_is_an_error_that_lists_the_others) {
  const Batch batch = loader_of(graph, usual_options()).batch(0, 0);
  EXPECT_ERROR(fragments("brain,feat,half", "got'label'"), batch.features("label"));
  EXPECT_ERROR("labels:label", batch.labels("feat"));
  EXPECT_ERROR("none", Batch().labels("feat"));
}

TEST(BlockLoader, bad_options_are_named_before_any_work) {
  Graph graph = columned_graph();
  graph.ndata()["short"] = at::zeros({3, 2});
  const auto attempt = [&](auto change) {
    BlockLoaderOptions options = usual_options();
    change(options);
    loader_of(graph, options);
  };
  using Options = BlockLoaderOptions;
  EXPECT_ERROR("features", attempt([](Options& o) { o.features = {"none"}; }));
  EXPECT_ERROR("brain", attempt([](Options& o) { o.features = {"none"}; }));
  EXPECT_ERROR("labels", attempt([](Options& o) { o.labels = {"none"}; }));
  EXPECT_ERROR("short", attempt([](Options& o) { o.features = {"short"}; }));
  EXPECT_ERROR("batch_size", attempt([](Options& o) { o.batch_size = 0; }));
  EXPECT_ERROR("fanouts", attempt([](Options& o) { o.fanouts = {}; }));
  EXPECT_ERROR("-2", attempt([](Options& o) { o.fanouts = {5, -2}; }));
  EXPECT_ERROR("num_workers", attempt([](Options& o) { o.num_workers = -1; }));
  EXPECT_ERROR("prefetch", attempt([](Options& o) { o.prefetch = 0; }));
  EXPECT_ERROR("meta", attempt([](Options& o) { o.device = at::kMeta; }));
  EXPECT_ERROR("edge_weights", attempt([](Options& o) { o.edge_weights = "none"; }));
  EXPECT_ERROR("balance_by", attempt([](Options& o) { o.balance_by = "none"; }));
  EXPECT_ERROR("integer", attempt([](Options& o) { o.balance_by = "feat"; }));
  EXPECT_ERROR("both", attempt([](Options& o) {
                 o.balance_by = "label";
                 o.seed_weights = at::ones({100});
               }));
  EXPECT_ERROR("seeds", BlockLoader(graph, ids({200}), usual_options()));
}

}  // namespace mezzo::test
