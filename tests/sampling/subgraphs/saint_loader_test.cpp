#include <algorithm>

#include "mezzo/graph/transforms/transforms.h"
#include "mezzo/sampling/subgraphs/subgraph_loaders.h"

#include "support/graphs.h"
#include "support/statistics.h"

namespace mezzo::test {
namespace {

const CpuOnlySuite kSaintLoaderOnCpu("SaintLoader", "sampling on the CPU");

constexpr std::int64_t kBatches = 3000;

/// Undirected edges between nodes of very different degrees, and an isolated node.
Graph uneven_graph() {
  return graph_of({0, 0, 0, 0, 0, 1, 1, 2, 3, 4, 1, 2, 3, 4, 5, 2, 3, 3, 4, 5},
                  {1, 2, 3, 4, 5, 2, 3, 3, 4, 5, 0, 0, 0, 0, 0, 1, 1, 2, 3, 4}, 7);
}

/// The number of batches of an epoch that contain each node.
Ids inclusions(const Graph& g, SaintLoaderOptions options) {
  options.batches_per_epoch = kBatches;
  options.sample_coverage = 0;
  options.seed = 5;
  SaintLoader loader(g, options);
  Ids counts(static_cast<std::size_t>(g.num_nodes()));
  for (const SubgraphBatch& batch : loader) {
    for (const std::int64_t node : values(batch.nodes)) ++counts[static_cast<std::size_t>(node)];
  }
  return counts;
}

/// Expects binomial counts: one draw includes node i with probability p[i].
void expect_inclusions(const Ids& counts, const std::vector<double>& p, double draws) {
  for (std::size_t node = 0; node < counts.size(); ++node) {
    SCOPED_TRACE(node);
    const double inclusion = 1 - std::pow(1 - p.at(node), draws);
    EXPECT_LE(std::abs(static_cast<double>(counts[node]) - kBatches * inclusion),
              binomial_bound(kBatches, inclusion));
  }
}

TEST(SaintLoader, draws_nodes_by_the_norm_of_their_columns) {
  const Graph g = uneven_graph();
  const Ids degree = values(g.in_degrees());
  const Ids src = values(g.topology().src()), dst = values(g.topology().dst());
  std::vector<double> p(degree.size());
  const auto share = [&](std::int64_t node) {
    return std::pow(1.0 + static_cast<double>(degree[static_cast<std::size_t>(node)]), -2);
  };
  for (std::size_t node = 0; node < p.size(); ++node) p[node] = share(static_cast<int>(node));
  for (std::size_t e = 0; e < src.size(); ++e) p[static_cast<std::size_t>(src[e])] += share(dst[e]);
  double total = 0;
  for (const double weight : p) total += weight;
  for (double& weight : p) weight /= total;
  expect_inclusions(inclusions(g, {.kind = SaintKind::kNode, .budget = 4}), p, 4);
}

TEST(SaintLoader, draws_edges_by_the_degrees_of_their_ends) {
  const Graph g = uneven_graph();
  const Ids in = values(g.in_degrees()), out = values(g.out_degrees());
  const Ids src = values(g.topology().src()), dst = values(g.topology().dst());
  std::vector<double> p(in.size());
  double total = 0;
  for (std::size_t e = 0; e < src.size(); ++e) {
    const auto u = static_cast<std::size_t>(src[e]), v = static_cast<std::size_t>(dst[e]);
    const double weight = 1 / static_cast<double>(out[u]) + 1 / static_cast<double>(in[v]);
    p[u] += weight;
    p[v] += weight;
    total += weight;
  }
  for (double& weight : p) weight /= total;
  expect_inclusions(inclusions(g, {.kind = SaintKind::kEdge, .budget = 2}), p, 2);
}

TEST(SaintLoader, walks_against_the_edges_from_uniform_roots) {
  const Graph cycle = cycle_graph(12);
  const SaintLoaderOptions options{
      .kind = SaintKind::kRandomWalk, .num_roots = 2, .walk_length = 3};
  expect_inclusions(inclusions(cycle, options), std::vector<double>(12, 4.0 / 12), 2);
  // node 1 has one in-edge, from 0: both roots reach node 0, only root 1 reaches node 1
  const Graph edge = graph_of({0}, {1}, 4);
  const SaintLoaderOptions one{.kind = SaintKind::kRandomWalk, .num_roots = 1, .walk_length = 5};
  expect_inclusions(inclusions(edge, one), {0.5, 0.25, 0.25, 0.25}, 1);
}

TEST(SaintLoader, batches_are_induced_subgraphs_on_ascending_nodes) {
  Graph g = power_law_graph(80, 600, 2);
  g.ndata()["x"] = at::arange(160, at::kFloat).view({80, 2});
  g.ndata()["y"] = at::arange(80, at::kLong);
  for (const SaintKind kind : {SaintKind::kNode, SaintKind::kEdge, SaintKind::kRandomWalk}) {
    SaintLoader loader(g, {.kind = kind,
                           .budget = 20,
                           .num_roots = 10,
                           .batches_per_epoch = 5,
                           .sample_coverage = 3,
                           .features = {"x"},
                           .labels = {"y"}});
    std::int64_t index = 0;
    for (const SubgraphBatch& batch : loader) {
      EXPECT_EQ(batch.index, index++);
      EXPECT_TRUE((batch.nodes.diff() > 0).all().item<bool>());
      const Graph expected = subgraph(g, batch.nodes);
      EXPECT_TRUE(at::equal(std::get<0>(batch.edges.sort()), expected.edata()["_ID"]));
      EXPECT_TRUE(at::equal(batch.labels("y"), batch.nodes));
      EXPECT_TRUE(at::equal(batch.features("x"), g.ndata()["x"].index_select(0, batch.nodes)));
      EXPECT_EQ(batch.node_weights.numel(), batch.graph.num_nodes());
      EXPECT_EQ(batch.edge_weights.numel(), batch.graph.num_edges());
      const Topology& part = batch.graph.topology();
      ASSERT_NE(part.parent_in_degrees(), nullptr);
      EXPECT_TRUE(
          at::equal(*part.parent_in_degrees(), g.in_degrees().index_select(0, batch.nodes)));
      EXPECT_TRUE(
          at::equal(*part.parent_out_degrees(), g.out_degrees().index_select(0, batch.nodes)));
    }
    EXPECT_EQ(index, 5);
  }
}

TEST(SaintLoader, weights_of_a_sample_that_is_always_whole_are_those_of_the_graph) {
  const Graph g = four_node_graph();
  const SubgraphBatch batch =
      SaintLoader(g, {.kind = SaintKind::kRandomWalk, .num_roots = 400, .walk_length = 0})
          .batch(0, 0);
  EXPECT_EQ(batch.graph.num_nodes(), 4);
  EXPECT_TRUE(at::equal(batch.node_weights, at::full({4}, 0.25F)));
  EXPECT_TRUE(at::equal(batch.edge_weights, at::ones({4})));
}

/// Mean and standard deviation of the added values.
struct Moments {
  double n = 0, sum = 0, squares = 0;
  void add(double value) {
    n += 1;
    sum += value;
    squares += value * value;
  }
  double mean() const { return sum / n; }
  double deviation() const { return std::sqrt(std::max(squares / n - mean() * mean(), 0.0)); }
};

TEST(SaintLoader, weighted_losses_and_messages_are_unbiased) {
  const Graph g = remove_self_loop(random_graph(16, 0.4, 6));
  const at::Tensor loss = at::arange(1, 17, at::kDouble);
  for (const SaintKind kind : {SaintKind::kNode, SaintKind::kEdge, SaintKind::kRandomWalk}) {
    SCOPED_TRACE(static_cast<int>(kind));
    // at least kBatches subgraphs are drawn for the weights: none has more than all nodes
    SaintLoader loader(g, {.kind = kind,
                           .budget = 6,
                           .num_roots = 4,
                           .walk_length = 2,
                           .batches_per_epoch = kBatches,
                           .sample_coverage = kBatches,
                           .seed = 7});
    Moments losses;
    std::vector<Moments> means(16);
    for (const SubgraphBatch& batch : loader) {
      const at::Tensor values_here = loss.index_select(0, batch.nodes);
      losses.add((values_here * batch.node_weights).sum().item<double>());
      const Topology& part = batch.graph.topology();
      const at::Tensor messages = values_here.index_select(0, part.src()) * batch.edge_weights;
      const at::Tensor mean = at::zeros({part.num_dst()}, at::kDouble)
                                  .index_add(0, part.dst(), messages)
                                  .div(part.in_degrees().clamp_min(1));
      const Ids nodes = values(batch.nodes);
      for (std::size_t i = 0; i < nodes.size(); ++i) {
        means[static_cast<std::size_t>(nodes[i])].add(
            mean[static_cast<std::int64_t>(i)].item<double>());
      }
    }
    // the batches and the counts for the weights both fluctuate
    const auto bound = [](const Moments& m) { return 6 * m.deviation() * std::sqrt(2 / m.n); };
    EXPECT_LE(std::abs(losses.mean() - loss.mean().item<double>()), bound(losses));
    for (std::int64_t node = 0; node < 16; ++node) {
      const at::Tensor edges = g.in_edges(ids({node}));
      if (edges.numel() == 0) continue;
      const at::Tensor sources = g.topology().src().index_select(0, edges);
      const Moments& m = means[static_cast<std::size_t>(node)];
      ASSERT_GT(m.n, 0);
      EXPECT_LE(std::abs(m.mean() - loss.index_select(0, sources).mean().item<double>()), bound(m))
          << "node " << node;
    }
  }
}

TEST(SaintLoader, depends_on_the_seed_and_not_on_workers_or_threads) {
  const Graph g = power_law_graph(100, 800, 4);
  const auto drawn = [&](std::int64_t num_workers, std::uint64_t seed) {
    SaintLoader loader(g, {.num_roots = 8,
                           .batches_per_epoch = 6,
                           .sample_coverage = 5,
                           .num_workers = num_workers,
                           .seed = seed});
    std::vector<at::Tensor> all;
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (const SubgraphBatch& batch : loader) {
        all.push_back(at::cat({batch.nodes.to(at::kDouble), batch.node_weights.to(at::kDouble),
                               batch.edges.to(at::kDouble), batch.edge_weights.to(at::kDouble)}));
      }
    }
    return all;
  };
  const std::vector<at::Tensor> first = drawn(0, 1);
  for (const std::int64_t num_workers : {1, 2}) {
    const ThreadCount threads(static_cast<int>(num_workers) + 1);
    const std::vector<at::Tensor> again = drawn(num_workers, 1);
    ASSERT_EQ(again.size(), first.size());
    for (std::size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(again[i], first[i]));
  }
  EXPECT_FALSE(at::equal(first[0], first[6]));  // another epoch
  EXPECT_FALSE(at::equal(first[0], drawn(0, 2)[0]));
}

TEST(SaintLoader, draws_of_nodes_and_walks_do_not_list_the_ends_of_all_edges) {
  const Graph drawn = power_law_graph(40, 300, 8);
  const Adjacency& rows = drawn.topology().csc();
  for (const SaintKind kind : {SaintKind::kNode, SaintKind::kRandomWalk}) {
    const Graph g(Topology::from_csc(rows.indptr, rows.indices, 40));
    const std::int64_t bytes = g.topology().memory_bytes();
    SaintLoader loader(
        g,
        {.kind = kind, .budget = 10, .num_roots = 5, .batches_per_epoch = 2, .sample_coverage = 2});
    for (const SubgraphBatch& batch : loader) EXPECT_GT(batch.graph.num_nodes(), 0);
    EXPECT_EQ(g.topology().memory_bytes(), bytes);
  }
}

TEST(SaintLoader, has_no_weights_without_a_coverage_and_no_batches_where_none_are_asked_for) {
  const Graph g = cycle_graph(5);
  const SubgraphBatch batch = SaintLoader(g, {.num_roots = 2, .sample_coverage = 0}).batch(3, 2);
  EXPECT_FALSE(batch.node_weights.defined());
  EXPECT_FALSE(batch.edge_weights.defined());
  EXPECT_EQ(batch.graph.topology().parent_in_degrees(), nullptr);
  EXPECT_EQ(SaintLoader(g, {.batches_per_epoch = 0, .sample_coverage = 0}).num_batches(), 0);
}

TEST(SaintLoader, nodes_and_walks_take_a_graph_without_edges) {
  for (const SaintKind kind : {SaintKind::kNode, SaintKind::kRandomWalk}) {
    SaintLoader loader(
        isolated_graph(6),
        {.kind = kind, .budget = 4, .num_roots = 4, .batches_per_epoch = 3, .sample_coverage = 2});
    std::int64_t batches = 0;
    for (const SubgraphBatch& batch : loader) {
      ++batches;
      EXPECT_GT(batch.graph.num_nodes(), 0);
      EXPECT_EQ(batch.graph.num_edges(), 0);
      EXPECT_EQ(batch.edge_weights.numel(), 0);
      EXPECT_TRUE((batch.node_weights > 0).all().item<bool>());
    }
    EXPECT_EQ(batches, 3);
  }
}

TEST(SaintLoader, wrong_options_are_errors) {
  const Graph g = cycle_graph(4);
  const auto attempt = [&](const SaintLoaderOptions& options) { SaintLoader(g, options); };
  EXPECT_ERROR("budgetofatleast1", attempt({.kind = SaintKind::kNode, .budget = 0}));
  EXPECT_ERROR("num_rootsofatleast1", attempt({.num_roots = 0}));
  EXPECT_ERROR("walk_lengthofatleast0", attempt({.walk_length = -1}));
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  EXPECT_ERROR("budgetofatmost2^31", attempt({.kind = SaintKind::kNode, .budget = kHuge}));
  EXPECT_ERROR("num_rootsofatmost2^31", attempt({.num_roots = kHuge}));
  EXPECT_ERROR("walk_lengthofatmost2^31", attempt({.walk_length = kHuge}));
  EXPECT_ERROR("batches_per_epoch", attempt({.batches_per_epoch = -1}));
  EXPECT_ERROR("sample_coverage", attempt({.sample_coverage = -1}));
  EXPECT_ERROR("features", attempt({.features = {"z"}}));
  EXPECT_ERROR("num_workers", attempt({.num_workers = -1}));
  EXPECT_ERROR("withnodes", SaintLoader(empty_graph(), {}));
  EXPECT_ERROR("withedges", SaintLoader(isolated_graph(3), {.kind = SaintKind::kEdge}));
}

}  // namespace
}  // namespace mezzo::test
