#include <map>
#include <set>

#include "mezzo/sampling/edges/edge_loader.h"

#include "support/graphs.h"
#include "support/statistics.h"

namespace mezzo::test {
namespace {

const CpuOnlySuite kNegativeSamplingOnCpu("NegativeSampling", "sampling on the CPU");

using Pair = std::pair<std::int64_t, std::int64_t>;

std::vector<Pair> pairs_of(const at::Tensor& src, const at::Tensor& dst) {
  const Ids from = values(src), to = values(dst);
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < from.size(); ++i) pairs.emplace_back(from[i], to[i]);
  return pairs;
}

std::set<Pair> edges_of(const Graph& g) {
  const std::vector<Pair> edges = pairs_of(g.topology().src(), g.topology().dst());
  return {edges.begin(), edges.end()};
}

/// All edges between `n` nodes, with self loops, except the `missing` ones.
Graph complete_without(std::int64_t n, const std::set<Pair>& missing) {
  Ids src, dst;
  for (std::int64_t i = 0; i < n * n; ++i) {
    if (missing.contains({i / n, i % n})) continue;
    src.push_back(i / n);
    dst.push_back(i % n);
  }
  return graph_of(src, dst, n);
}

TEST(NegativeSampling, never_gives_an_edge_that_it_excludes) {
  for (const NegativeDistribution distribution :
       {NegativeDistribution::kUniform, NegativeDistribution::kDegree}) {
    const Graph g = random_graph(30, 0.4, 3);
    const std::set<Pair> edges = edges_of(g);
    const NodePairs drawn = negative_edges(
        g, 3000, {.distribution = distribution, .exclude_edges = true, .exclude_loops = true}, 4);
    for (const Pair& pair : pairs_of(drawn.src, drawn.dst)) {
      EXPECT_FALSE(edges.contains(pair));
      EXPECT_NE(pair.first, pair.second);
    }
  }
}

TEST(NegativeSampling, finds_the_only_pair_that_is_left) {
  const Graph g = complete_without(40, {{17, 31}});
  for (const NegativeDistribution distribution :
       {NegativeDistribution::kUniform, NegativeDistribution::kDegree}) {
    const NodePairs drawn = negative_edges(g, 50, {.distribution = distribution});
    for (const Pair& pair : pairs_of(drawn.src, drawn.dst)) EXPECT_EQ(pair, Pair(17, 31));
  }
  const at::Tensor drawn = NegativeSampler(g).destinations(ids({17, 17}), 3, {});
  EXPECT_EQ(values(drawn), Ids(6, 31));
}

TEST(NegativeSampling, a_sampler_that_has_listed_the_pairs_draws_as_before) {
  const NegativeSampler sampler(complete_without(40, {{17, 31}, {2, 3}, {2, 4}}));
  const NodePairs first = sampler.pairs(60, {}), again = sampler.pairs(60, {});
  EXPECT_TRUE(at::equal(again.src, first.src));
  EXPECT_TRUE(at::equal(again.dst, first.dst));
  const NegativeSampler none(complete_without(5, {}));
  for (int i = 0; i < 2; ++i) {
    EXPECT_ERROR("everyoneisexcluded", none.pairs(1, {}));
  }
}

TEST(NegativeSampling, where_no_pair_is_left_is_an_error) {
  const Graph full = complete_without(5, {});
  EXPECT_ERROR("everyoneisexcluded", negative_edges(full, 1));
  const Graph loops_left = complete_without(4, {{0, 0}, {1, 1}, {2, 2}, {3, 3}});
  EXPECT_NO_THROW(negative_edges(loops_left, 5));
  EXPECT_ERROR("everyoneisexcluded", negative_edges(loops_left, 5, {.exclude_loops = true}));
  const NegativeSampler sampler(complete_without(5, {{2, 3}}));
  EXPECT_NO_THROW(static_cast<void>(sampler.destinations(ids({2}), 4, {})));
  EXPECT_ERROR("node1", sampler.destinations(ids({2, 1}), 4, {}));
}

TEST(NegativeSampling, draws_all_allowed_pairs_equally_often) {
  constexpr double kDraws = 20000;
  for (const double density : {0.3, 1.0}) {  // by rejection, and from the list of allowed pairs
    const std::set<Pair> missing = {{0, 1}, {3, 3}, {3, 5}, {11, 2}, {29, 29}};
    const Graph g = density == 1.0 ? complete_without(30, missing) : random_graph(6, density, 8);
    const std::set<Pair> edges = edges_of(g);
    std::map<Pair, std::int64_t> counts;
    for (std::int64_t i = 0; i < g.num_nodes() * g.num_nodes(); ++i) {
      const Pair pair(i / g.num_nodes(), i % g.num_nodes());
      if (!edges.contains(pair)) counts[pair] = 0;
    }
    const NodePairs drawn = negative_edges(g, static_cast<std::int64_t>(kDraws), {}, 5);
    for (const Pair& pair : pairs_of(drawn.src, drawn.dst)) ++counts.at(pair);
    Ids observed;
    for (const auto& [pair, count] : counts) observed.push_back(count);
    const auto num_pairs = static_cast<double>(observed.size());
    EXPECT_LE(chi_square(observed, std::vector<double>(observed.size(), kDraws / num_pairs)),
              chi_square_bound(num_pairs - 1));
  }
}

TEST(NegativeSampling, draws_destinations_by_degree_to_the_power_of_three_quarters) {
  const Graph g = graph_of({0, 0, 0, 0, 1, 2}, {1, 1, 1, 1, 2, 3}, 5);  // in-degrees 0 4 1 1 0
  constexpr double kDraws = 20000;
  const NegativeSampler sampler(
      g, {.distribution = NegativeDistribution::kDegree, .exclude_edges = false});
  const Ids seen = values(sampler.destinations(ids({4}), static_cast<std::int64_t>(kDraws), {})
                              .flatten()
                              .bincount({}, 5));
  const double four = std::pow(4.0, 0.75), total = four + 2;
  EXPECT_EQ(seen[0] + seen[4], 0);
  EXPECT_LE(chi_square({seen[1], seen[2], seen[3]},
                       {kDraws * four / total, kDraws / total, kDraws / total}),
            chi_square_bound(2));
}

TEST(NegativeSampling, depends_on_the_key_alone) {
  const Graph g = power_law_graph(50, 400, 3);
  const NegativeSampler sampler(g);
  const at::Tensor sources = at::arange(50, at::kLong);
  const BatchKey key{.seed = 1, .epoch = 2, .batch = 3};
  const at::Tensor first = sampler.destinations(sources, 4, key);
  EXPECT_EQ(first.sizes(), at::IntArrayRef({50, 4}));
  EXPECT_TRUE(at::equal(sampler.destinations(sources, 4, key), first));
  for (const BatchKey& other : {BatchKey{2, 2, 3}, BatchKey{1, 3, 3}, BatchKey{1, 2, 4}}) {
    EXPECT_FALSE(at::equal(sampler.destinations(sources, 4, other), first));
  }
}

TEST(NegativeSampling, of_none_is_empty_and_wrong_arguments_are_errors) {
  EXPECT_EQ(negative_edges(empty_graph(), 0).src.numel(), 0);
  EXPECT_EQ(negative_edges(isolated_graph(3), 4).dst.numel(), 4);
  const NegativeSampler sampler(cycle_graph(4));
  EXPECT_EQ(sampler.destinations(ids({1, 2}), 0, {}).sizes(), at::IntArrayRef({2, 0}));
  EXPECT_ERROR("got-1", negative_edges(cycle_graph(4), -1));
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  EXPECT_ERROR("countin[0,2^31]", negative_edges(cycle_graph(4), kHuge));
  EXPECT_ERROR("num_negativesin[0,2^31]", sampler.destinations(ids({0}), kHuge, {}));
  EXPECT_ERROR("inall", sampler.destinations(ids({0, 1}), kMostNegatives, {}));
  EXPECT_ERROR("withnodes", negative_edges(empty_graph(), 1));
  EXPECT_ERROR("sources", sampler.destinations(ids({4}), 1, {}));
  EXPECT_ERROR("got-2", sampler.destinations(ids({0}), -2, {}));
  EXPECT_ERROR("withedges", negative_edges(isolated_graph(3), 1,
                                           {.distribution = NegativeDistribution::kDegree}));
}

}  // namespace
}  // namespace mezzo::test
