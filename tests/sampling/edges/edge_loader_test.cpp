#include "mezzo/sampling/edges/edge_loader.h"

#include <algorithm>
#include <set>

#include "support/graphs.h"

namespace mezzo::test {
namespace {

const CpuOnlySuite kEdgeLoaderOnCpu("EdgeLoader", "sampling on the CPU");

using IdSet = std::set<std::int64_t>;

at::Tensor all_edges(const Graph& g) {
  return at::arange(g.num_edges(), at::kLong);
}

IdSet set_of(const at::Tensor& numbers_of) {
  const Ids list = values(numbers_of);
  return {list.begin(), list.end()};
}

/// The edges that a batch of `seeds` must exclude, by the definition.
IdSet excluded_edges(const Graph& g, const at::Tensor& seeds, EdgeExclusion exclude) {
  if (exclude == EdgeExclusion::kNone) return {};
  IdSet excluded = set_of(seeds);
  if (exclude == EdgeExclusion::kSelf) return excluded;
  const Ids src = values(g.topology().src()), dst = values(g.topology().dst());
  for (const std::int64_t seed : values(seeds)) {
    for (std::size_t e = 0; e < src.size(); ++e) {
      const auto s = static_cast<std::size_t>(seed);
      if (src[e] == dst[s] && dst[e] == src[s]) excluded.insert(static_cast<std::int64_t>(e));
    }
  }
  return excluded;
}

/// Expects the blocks to hold edges of the graph and to lead from the inputs to the outputs.
void expect_blocks_of(const Graph& g, const EdgeMiniBatch& batch) {
  EXPECT_TRUE(at::equal(batch.blocks.front().src_nodes(), batch.input_nodes));
  EXPECT_TRUE(at::equal(batch.blocks.back().dst_nodes(), batch.output_nodes));
  for (std::size_t i = 0; i < batch.blocks.size(); ++i) {
    const Block& block = batch.blocks[i];
    if (i > 0) {
      EXPECT_TRUE(at::equal(batch.blocks[i - 1].dst_nodes(), block.src_nodes()));
    }
    const auto ends_agree = [&](const at::Tensor& local, const at::Tensor& whole) {
      return at::equal(block.src_nodes().index_select(0, local),
                       whole.index_select(0, block.parent_edges()).to(at::kLong));
    };
    EXPECT_TRUE(ends_agree(block.topology().src(), g.topology().src()));
    EXPECT_TRUE(ends_agree(block.topology().dst(), g.topology().dst()));
    ASSERT_NE(block.topology().parent_in_degrees(), nullptr);
    EXPECT_TRUE(at::equal(block.topology().parent_in_degrees()->to(at::kLong),
                          g.in_degrees().index_select(0, block.dst_nodes())));
    EXPECT_TRUE(at::equal(block.topology().parent_out_degrees()->to(at::kLong),
                          g.out_degrees().index_select(0, block.src_nodes())));
  }
}

TEST(EdgeLoader, pairs_are_the_ends_of_the_seeds_and_nodes_without_an_edge_from_them) {
  const Graph g = random_graph(30, 0.2, 3);
  const Topology& t = g.topology();
  EdgeLoader loader(g, all_edges(g),
                    {.fanouts = {2, 3},
                     .batch_size = 16,
                     .shuffle = true,
                     .num_negatives = 4,
                     .parent_degrees = true});
  Ids seen;
  for (const EdgeMiniBatch& batch : loader) {
    const auto node = [&](const at::Tensor& rows) {
      return batch.output_nodes.index_select(0, rows);
    };
    const at::Tensor src = t.src().index_select(0, batch.seed_edges).to(at::kLong);
    EXPECT_TRUE(at::equal(node(batch.positives.src), src));
    EXPECT_TRUE(at::equal(node(batch.positives.dst),
                          t.dst().index_select(0, batch.seed_edges).to(at::kLong)));
    EXPECT_TRUE(at::equal(node(batch.negatives.src), src.repeat_interleave(4)));
    EXPECT_TRUE(at::equal(batch.pairs.src(), at::cat({batch.positives.src, batch.negatives.src})));
    EXPECT_TRUE(at::equal(batch.pairs.dst(), at::cat({batch.positives.dst, batch.negatives.dst})));
    EXPECT_EQ(batch.pairs.num_dst(), batch.output_nodes.numel());
    const Ids from = values(node(batch.negatives.src)), to = values(node(batch.negatives.dst));
    for (std::size_t i = 0; i < from.size(); ++i) {
      EXPECT_THROW(static_cast<void>(g.edge_ids(ids({from[i]}), ids({to[i]}))), InvalidArgument);
    }
    EXPECT_EQ(
        set_of(batch.output_nodes),
        set_of(node(at::cat({batch.positives.src, batch.positives.dst, batch.negatives.dst}))));
    const Ids seeds = values(batch.seed_edges);
    seen.insert(seen.end(), seeds.begin(), seeds.end());
    expect_blocks_of(g, batch);
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, values(all_edges(g)));
}

TEST(EdgeLoader, blocks_have_every_edge_but_the_excluded_ones) {
  for (const IdWidth width : {IdWidth::kInt32, IdWidth::kInt64}) {
    const Graph g = power_law_graph(25, 200, 4, width);  // with parallel edges
    for (const EdgeExclusion exclude :
         {EdgeExclusion::kNone, EdgeExclusion::kSelf, EdgeExclusion::kReverse}) {
      SCOPED_TRACE(static_cast<int>(exclude));
      EdgeLoader loader(g, all_edges(g),
                        {.fanouts = {kAllNeighbors, kAllNeighbors},
                         .batch_size = 7,
                         .exclude = exclude,
                         .parent_degrees = true});
      for (const EdgeMiniBatch& batch : loader) {
        const IdSet excluded = excluded_edges(g, batch.seed_edges, exclude);
        for (const Block& block : batch.blocks) {
          IdSet expected = set_of(g.in_edges(block.dst_nodes()));
          for (const std::int64_t edge : excluded) expected.erase(edge);
          EXPECT_EQ(set_of(block.parent_edges()), expected);
        }
        expect_blocks_of(g, batch);
      }
    }
  }
}

TEST(EdgeLoader, excluded_edges_stay_out_of_sampled_blocks) {
  const Graph g = random_graph(20, 0.5, 9);
  EdgeLoader loader(g, all_edges(g),
                    {.fanouts = {3, 3},
                     .batch_size = 32,
                     .exclude = EdgeExclusion::kReverse,
                     .parent_degrees = true});
  for (const EdgeMiniBatch& batch : loader) {
    const IdSet excluded = excluded_edges(g, batch.seed_edges, EdgeExclusion::kReverse);
    for (const Block& block : batch.blocks) {
      for (const std::int64_t edge : values(block.parent_edges())) {
        EXPECT_FALSE(excluded.contains(edge));
      }
      EXPECT_LE(block.topology().in_degrees().max().item<std::int64_t>(), 3);
    }
    expect_blocks_of(g, batch);
  }
}

TEST(EdgeLoader, degrees_in_a_part_are_those_of_the_whole) {
  const Graph g = random_graph(20, 0.3, 2);
  const at::Tensor in = g.in_degrees() + 7, out = g.out_degrees() + 5;
  const Graph part(g.topology().with_parent_degrees(in, out));
  for (const EdgeExclusion exclude :
       {EdgeExclusion::kNone, EdgeExclusion::kSelf, EdgeExclusion::kReverse}) {
    SCOPED_TRACE(static_cast<int>(exclude));
    const EdgeMiniBatch batch =
        EdgeLoader(part, all_edges(part),
                   {.fanouts = {2, 2}, .exclude = exclude, .parent_degrees = true})
            .batch(0, 0);
    for (const Block& block : batch.blocks) {
      ASSERT_NE(block.topology().parent_in_degrees(), nullptr);
      EXPECT_TRUE(at::equal(block.topology().parent_in_degrees()->to(at::kLong),
                            in.index_select(0, block.dst_nodes())));
      EXPECT_TRUE(at::equal(block.topology().parent_out_degrees()->to(at::kLong),
                            out.index_select(0, block.src_nodes())));
    }
  }
}

TEST(EdgeLoader, depends_on_the_seed_and_not_on_the_workers) {
  Graph g = random_graph(40, 0.2, 5);
  g.ndata()["x"] = at::arange(80, at::kFloat).view({40, 2});
  const auto drawn = [&](std::int64_t num_workers, std::uint64_t seed) {
    EdgeLoader loader(g, all_edges(g),
                      {.fanouts = {2, 2},
                       .batch_size = 50,
                       .shuffle = true,
                       .exclude = EdgeExclusion::kSelf,
                       .features = {"x"},
                       .num_workers = num_workers,
                       .seed = seed});
    std::vector<at::Tensor> all;
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (const EdgeMiniBatch& batch : loader) {
        EXPECT_TRUE(
            at::equal(batch.features("x"), g.ndata()["x"].index_select(0, batch.input_nodes)));
        all.push_back(at::cat({batch.seed_edges, batch.negatives.dst, batch.input_nodes,
                               batch.blocks[0].parent_edges(), batch.blocks[1].parent_edges()}));
      }
    }
    return all;
  };
  const std::vector<at::Tensor> first = drawn(0, 1);
  for (const std::int64_t num_workers : {1, 2}) {
    const std::vector<at::Tensor> again = drawn(num_workers, 1);
    ASSERT_EQ(again.size(), first.size());
    for (std::size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(again[i], first[i]));
  }
  EXPECT_FALSE(at::equal(first[0], first[first.size() / 2]));  // another epoch
  EXPECT_FALSE(at::equal(first[0], drawn(0, 2)[0]));
}

TEST(EdgeLoader, reads_edges_in_the_order_of_rows_where_they_are) {
  const Graph drawn = power_law_graph(30, 200, 6);
  const Adjacency& rows = drawn.topology().csc();
  for (const IdWidth width : {IdWidth::kInt32, IdWidth::kInt64}) {
    const Graph g(Topology::from_csc(rows.indptr, rows.indices, 30, {}, width));
    const std::int64_t bytes = g.topology().memory_bytes();
    std::vector<EdgeMiniBatch> batches;
    for (const EdgeExclusion exclude : {EdgeExclusion::kNone, EdgeExclusion::kReverse}) {
      EdgeLoader loader(g, all_edges(g), {.fanouts = {2}, .batch_size = 30, .exclude = exclude});
      for (const EdgeMiniBatch& batch : loader) batches.push_back(batch);
    }
    EXPECT_EQ(g.topology().memory_bytes(), bytes);  // the ends of all edges were not built
    for (const EdgeMiniBatch& batch : batches) {
      const auto node = [&](const at::Tensor& local) {
        return batch.output_nodes.index_select(0, local);
      };
      EXPECT_TRUE(at::equal(node(batch.positives.src),
                            g.topology().src().index_select(0, batch.seed_edges).to(at::kLong)));
      EXPECT_TRUE(at::equal(node(batch.positives.dst),
                            g.topology().dst().index_select(0, batch.seed_edges).to(at::kLong)));
    }
  }
}

TEST(EdgeLoader, rows_by_source_are_built_ahead) {
  const Graph g = random_graph(20, 0.3, 2);
  for (const EdgeExclusion exclude : {EdgeExclusion::kNone, EdgeExclusion::kSelf}) {
    const EdgeMiniBatch batch =
        EdgeLoader(g, all_edges(g), {.fanouts = {3, 3}, .exclude = exclude}).batch(0, 0);
    std::vector<Topology> built = {batch.pairs};
    for (const Block& block : batch.blocks) built.push_back(block.topology());
    for (const Topology& topology : built) {
      const std::int64_t bytes = topology.memory_bytes();
      static_cast<void>(topology.csr());
      EXPECT_EQ(topology.memory_bytes(), bytes);
    }
  }
}

/// Some edges of g reversed, in a row of their own order, and pairs of a node with itself.
Topology reversed_pairs(const Graph& g) {
  const at::Tensor loops = at::arange(g.num_nodes(), g.topology().id_dtype());
  return Topology::from_coo(at::cat({g.topology().dst().flip(0), loops}),
                            at::cat({g.topology().src().flip(0), loops}), g.num_nodes(),
                            g.num_nodes());
}

TEST(EdgeLoader, pairs_need_not_be_edges) {
  Graph g = random_graph(20, 0.3, 2);
  g.ndata()["x"] = at::arange(20, at::kFloat).view({20, 1});
  const Topology pairs = reversed_pairs(g);
  const at::Tensor seeds = at::arange(0, pairs.num_edges(), 2);
  const Columns columns = {{"id", at::arange(pairs.num_edges(), at::kLong)}};
  EdgeLoader loader(g, pairs, seeds,
                    {.fanouts = {kAllNeighbors},
                     .batch_size = 16,
                     .num_negatives = 0,
                     .features = {"x"},
                     .edge_data = columns});
  Ids seen;
  for (const EdgeMiniBatch& batch : loader) {
    const auto node = [&](const at::Tensor& rows) {
      return batch.output_nodes.index_select(0, rows.to(at::kLong));
    };
    const auto ends = [&](const at::Tensor& of_pairs) {
      return of_pairs.index_select(0, batch.seed_edges).to(at::kLong);
    };
    EXPECT_TRUE(at::equal(node(batch.pairs.src()), ends(pairs.src())));
    EXPECT_TRUE(at::equal(node(batch.pairs.dst()), ends(pairs.dst())));
    EXPECT_EQ(batch.pairs.num_src(), batch.output_nodes.numel());
    EXPECT_TRUE(at::equal(batch.edge_data.at("id"), batch.seed_edges));
    EXPECT_EQ(set_of(batch.blocks[0].parent_edges()),
              set_of(g.in_edges(batch.blocks[0].dst_nodes())));
    const Ids list = values(batch.seed_edges);
    seen.insert(seen.end(), list.begin(), list.end());
  }
  EXPECT_EQ(seen, values(seeds));
}

TEST(EdgeLoader, edges_between_the_ends_of_pairs_are_excluded) {
  const Graph g = power_law_graph(25, 200, 4);
  const Topology pairs = reversed_pairs(g);
  const Ids src = values(g.topology().src()), dst = values(g.topology().dst());
  for (const EdgeExclusion exclude : {EdgeExclusion::kSelf, EdgeExclusion::kReverse}) {
    EdgeLoader loader(g, pairs, at::arange(pairs.num_edges()),
                      {.fanouts = {kAllNeighbors}, .batch_size = 9, .exclude = exclude});
    for (const EdgeMiniBatch& batch : loader) {
      std::set<std::pair<std::int64_t, std::int64_t>> excluded;
      const Ids from = values(batch.output_nodes.index_select(0, batch.positives.src));
      const Ids to = values(batch.output_nodes.index_select(0, batch.positives.dst));
      for (std::size_t i = 0; i < from.size(); ++i) {
        excluded.insert({from[i], to[i]});
        if (exclude == EdgeExclusion::kReverse) excluded.insert({to[i], from[i]});
      }
      IdSet expected = set_of(g.in_edges(batch.blocks[0].dst_nodes()));
      std::erase_if(expected, [&](std::int64_t edge) {
        const auto e = static_cast<std::size_t>(edge);
        return excluded.contains({src[e], dst[e]});
      });
      EXPECT_EQ(set_of(batch.blocks[0].parent_edges()), expected);
    }
  }
}

TEST(EdgeLoader, without_negatives_or_seeds_there_are_none) {
  const Graph g = cycle_graph(6);
  const EdgeMiniBatch batch =
      EdgeLoader(g, ids({4, 1}), {.fanouts = {1}, .num_negatives = 0}).batch(0, 0);
  EXPECT_EQ(values(batch.output_nodes), Ids({1, 2, 4, 5}));
  EXPECT_EQ(values(batch.positives.src), Ids({2, 0}));
  EXPECT_EQ(values(batch.positives.dst), Ids({3, 1}));
  EXPECT_EQ(batch.negatives.src.numel(), 0);
  EXPECT_EQ(batch.negatives.dst.numel(), 0);
  EXPECT_EQ(EdgeLoader(g, ids({}), {.fanouts = {1}}).num_batches(), 0);
  EXPECT_EQ(EdgeLoader(isolated_graph(2), ids({}), {.fanouts = {1}}).num_batches(), 0);
}

TEST(EdgeLoader, a_source_that_is_joined_to_every_node_is_an_error_at_its_batch) {
  const Graph g = random_graph(4, 1.0, 1);
  EdgeLoader loader(g, ids({0}), {.fanouts = {1}, .num_workers = 1});
  EXPECT_ERROR("everyoneisexcluded", loader.begin());
}

TEST(EdgeLoader, fan_out_0_gives_blocks_of_the_ends_alone) {
  const Graph g = random_graph(20, 0.3, 2);
  for (const EdgeExclusion exclude :
       {EdgeExclusion::kNone, EdgeExclusion::kSelf, EdgeExclusion::kReverse}) {
    const EdgeMiniBatch batch =
        EdgeLoader(g, ids({0, 5}), {.fanouts = {0, 0}, .exclude = exclude}).batch(0, 0);
    EXPECT_TRUE(at::equal(batch.input_nodes, batch.output_nodes));
    for (const Block& block : batch.blocks) EXPECT_EQ(block.num_edges(), 0);
  }
}

TEST(EdgeLoader, wrong_options_are_errors) {
  Graph g = cycle_graph(4);
  g.ndata()["coo"] = at::eye(4).to_sparse();
  const auto attempt = [&](const at::Tensor& edges, const EdgeLoaderOptions& options) {
    EdgeLoader(g, edges, options);
  };
  EXPECT_ERROR("edgesin[0,4)", attempt(ids({4}), {.fanouts = {1}}));
  EXPECT_ERROR("edgesin[0,4)", attempt(ids({-1}), {.fanouts = {1}}));
  EXPECT_ERROR("fanouts", attempt(ids({0}), {.fanouts = {}}));
  EXPECT_ERROR("fanout", attempt(ids({0}), {.fanouts = {-2}}));
  EXPECT_ERROR("batch_size", attempt(ids({0}), {.fanouts = {1}, .batch_size = 0}));
  EXPECT_ERROR("num_negatives", attempt(ids({0}), {.fanouts = {1}, .num_negatives = -1}));
  EXPECT_ERROR("num_negativesin[0,2^31]",
               attempt(ids({0}), {.fanouts = {1}, .num_negatives = std::int64_t{1} << 62}));
  EXPECT_ERROR("abatch",
               attempt(ids({0, 1}), {.fanouts = {1}, .num_negatives = kMostNegatives / 2 + 1}));
  EXPECT_ERROR("features", attempt(ids({0}), {.fanouts = {1}, .features = {"z"}}));
  EXPECT_ERROR("'coo'", attempt(ids({0}), {.fanouts = {1}, .features = {"coo"}}));
  for (const EdgeExclusion exclude : {EdgeExclusion::kSelf, EdgeExclusion::kReverse}) {
    EXPECT_ERROR("fanouts", attempt(ids({0}), {.fanouts = {}, .exclude = exclude}));
    EXPECT_ERROR("fanout", attempt(ids({0}), {.fanouts = {-2}, .exclude = exclude}));
  }
  EXPECT_ERROR("num_workers", attempt(ids({0}), {.fanouts = {1}, .num_workers = -1}));
  EXPECT_ERROR("edge_datacolumn'y'strided,ontheCPU,[4,...],got",
               attempt(ids({0}), {.fanouts = {1}, .edge_data = {{"y", at::zeros({3})}}}));
  EXPECT_ERROR(
      "pairsofthe4nodesontheCPU,got3sources",
      EdgeLoader(g, Topology::from_coo(ids({0}), ids({1}), 3, 4), ids({0}), {.fanouts = {1}}));
  const EdgeMiniBatch batch = EdgeLoader(g, ids({0}), {.fanouts = {1}}).batch(0, 0);
  EXPECT_ERROR("'x'", static_cast<void>(batch.features("x")));
}

}  // namespace
}  // namespace mezzo::test
