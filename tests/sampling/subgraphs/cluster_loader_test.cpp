#include <algorithm>

#include "mezzo/graph/transforms/transforms.h"
#include "mezzo/sampling/subgraphs/subgraph_loaders.h"
#include "mezzo/sampling/subgraphs/subgraph_source.h"

#include "support/graphs.h"

namespace mezzo::test {
namespace {

const CpuOnlySuite kClusterLoaderOnCpu("ClusterLoader", "sampling on the CPU");
const CpuOnlySuite kInducedSubgraphOnCpu("InducedSubgraph", "sampling on the CPU");

Graph with_columns(Graph g) {
  g.ndata()["x"] = at::arange(g.num_nodes() * 3, at::kFloat).view({-1, 3}).to(at::kBFloat16);
  g.ndata()["y"] = at::arange(g.num_nodes(), at::kLong);
  return g;
}

/// Whether the batch is the subgraph of its nodes, by the definition, in any edge order.
void expect_induced(const Graph& g, const SubgraphBatch& batch) {
  const Graph expected = subgraph(g, batch.nodes);
  ASSERT_EQ(batch.graph.num_nodes(), expected.num_nodes());
  ASSERT_EQ(batch.graph.num_edges(), expected.num_edges());
  const at::Tensor order = batch.edges.argsort();
  EXPECT_TRUE(at::equal(batch.edges.index_select(0, order), expected.edata()["_ID"]));
  const auto same = [&](const at::Tensor& got, const at::Tensor& other) {
    return at::equal(got.to(at::kLong).index_select(0, order), other.to(at::kLong));
  };
  EXPECT_TRUE(same(batch.graph.topology().src(), expected.topology().src()));
  EXPECT_TRUE(same(batch.graph.topology().dst(), expected.topology().dst()));
}

TEST(InducedSubgraph, is_the_subgraph_by_definition) {
  Workspace workspace;
  for (const NamedGraph& named : named_graphs()) {
    for (const std::int64_t stride : {1, 2, 3}) {
      SCOPED_TRACE(named.name + ", every node of " + std::to_string(stride));
      const at::Tensor nodes = at::arange(0, named.graph.num_nodes(), stride, at::kLong).flip({0});
      const mezzo::detail::InducedSubgraph induced =
          mezzo::detail::induced_subgraph(named.graph.topology(), nodes, workspace);
      SubgraphBatch batch;
      batch.graph = Graph(induced.topology);
      batch.nodes = nodes;
      batch.edges = induced.edges;
      expect_induced(named.graph, batch);
    }
  }
}

TEST(ClusterLoader, batches_are_induced_subgraphs_that_hold_every_node_once) {
  for (const IdWidth width : {IdWidth::kInt32, IdWidth::kInt64}) {
    const Graph g = with_columns(power_law_graph(200, 1500, 3, width));
    ClusterLoader loader(g, {.num_parts = 10, .clusters_per_batch = 3, .seed = 4});
    Ids seen;
    std::int64_t num_batches = 0;
    for (const SubgraphBatch& batch : loader) {
      EXPECT_EQ(batch.index, num_batches++);
      expect_induced(g, batch);
      EXPECT_FALSE(batch.graph.topology().csc().edge_ids.defined());  // in CSC order
      const Ids nodes = values(batch.nodes);
      seen.insert(seen.end(), nodes.begin(), nodes.end());
    }
    EXPECT_EQ(num_batches, 4);
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, values(at::arange(200, at::kLong)));
  }
}

TEST(ClusterLoader, takes_given_parts_in_their_order_without_shuffling) {
  const Graph g = with_columns(cycle_graph(6));
  ClusterLoader loader(g, {.parts = ids({4, 1, 4, 1, 0, 4}),
                           .clusters_per_batch = 2,
                           .shuffle = false,
                           .features = {"x"},
                           .labels = {"y"}});
  std::vector<Ids> nodes, edges;
  for (const SubgraphBatch& batch : loader) {
    nodes.push_back(values(batch.nodes));
    edges.push_back(values(batch.edges));
    EXPECT_TRUE(at::equal(batch.labels("y"), batch.nodes));
    EXPECT_TRUE(at::equal(batch.features("x"), g.ndata()["x"].index_select(0, batch.nodes)));
    EXPECT_FALSE(batch.node_weights.defined());
  }
  EXPECT_EQ(nodes, std::vector<Ids>({{4, 1, 3}, {0, 2, 5}}));
  EXPECT_EQ(edges, std::vector<Ids>({{3}, {5}}));  // 3 -> 4 and 5 -> 0
}

TEST(ClusterLoader, depends_on_the_seed_and_not_on_the_workers) {
  const Graph g = with_columns(power_law_graph(150, 900, 6));
  const auto nodes_of = [&](std::int64_t num_workers, std::uint64_t seed) {
    ClusterLoader loader(g, {.parts = at::arange(150, at::kLong).remainder(15),
                             .clusters_per_batch = 4,
                             .features = {"x"},
                             .num_workers = num_workers,
                             .seed = seed});
    std::vector<Ids> nodes;
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (const SubgraphBatch& batch : loader) nodes.push_back(values(batch.nodes));
    }
    return nodes;
  };
  const std::vector<Ids> first = nodes_of(0, 1);
  EXPECT_EQ(nodes_of(1, 1), first);
  EXPECT_EQ(nodes_of(2, 1), first);
  EXPECT_NE(nodes_of(0, 2), first);
  EXPECT_NE(first[0], first[4]);  // the second epoch starts with other clusters
}

TEST(ClusterLoader, rows_by_source_are_built_ahead) {
  const SubgraphBatch batch = ClusterLoader(cycle_graph(12), {.num_parts = 2}).batch(0, 0);
  const std::int64_t bytes = batch.graph.topology().memory_bytes();
  static_cast<void>(batch.graph.topology().csr());
  EXPECT_EQ(batch.graph.topology().memory_bytes(), bytes);
}

TEST(ClusterLoader, drops_an_unfinished_batch_on_request_and_counts_what_it_drew) {
  const Graph g = cycle_graph(10);
  ClusterLoader loader(g, {.parts = at::arange(10, at::kLong).floor_divide(2),
                           .clusters_per_batch = 2,
                           .drop_last = true});
  EXPECT_EQ(loader.num_batches(), 2);
  std::int64_t num_edges = 0;
  for (const SubgraphBatch& batch : loader) num_edges += batch.graph.num_edges();
  EXPECT_EQ(loader.statistics().batches, 2);
  EXPECT_EQ(loader.statistics().sampled_nodes, 8);
  EXPECT_EQ(loader.statistics().sampled_edges, num_edges);
}

TEST(ClusterLoader, takes_graphs_without_edges_and_without_nodes) {
  ClusterLoader loader(isolated_graph(6), {.num_parts = 3});
  Ids seen;
  for (const SubgraphBatch& batch : loader) {
    EXPECT_EQ(batch.graph.num_edges(), 0);
    for (const std::int64_t node : values(batch.nodes)) seen.push_back(node);
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, (Ids{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(ClusterLoader(empty_graph(), {.num_parts = 1}).num_batches(), 0);
}

TEST(ClusterLoader, wrong_options_are_errors) {
  Graph g = with_columns(cycle_graph(4));
  g.ndata()["coo"] = at::eye(4).to_sparse();
  const auto attempt = [&](const ClusterLoaderOptions& options) { ClusterLoader(g, options); };
  EXPECT_ERROR("num_partsin[1,4]", attempt({}));
  EXPECT_ERROR("gotboth", attempt({.parts = ids({0, 0, 1, 1}), .num_parts = 2}));
  EXPECT_ERROR("onepernode(4)", attempt({.parts = ids({0, 1})}));
  EXPECT_ERROR("parts", attempt({.parts = ids({0, 1, -1, 0})}));
  EXPECT_ERROR("clusters_per_batch", attempt({.num_parts = 2, .clusters_per_batch = 0}));
  EXPECT_ERROR("features", attempt({.num_parts = 2, .features = {"z"}}));
  EXPECT_ERROR("labels", attempt({.num_parts = 2, .labels = {"z"}}));
  EXPECT_ERROR("'coo'offeatures", attempt({.num_parts = 2, .features = {"coo"}}));
  EXPECT_ERROR("'coo'oflabels", attempt({.num_parts = 2, .labels = {"coo"}}));
  EXPECT_ERROR("num_workers", attempt({.num_parts = 2, .num_workers = -1}));
  EXPECT_ERROR("prefetch", attempt({.num_parts = 2, .prefetch = 0}));
  const SubgraphBatch batch = ClusterLoader(g, {.num_parts = 2}).batch(0, 0);
  EXPECT_ERROR("x", static_cast<void>(batch.features("x")));
}

}  // namespace
}  // namespace mezzo::test
