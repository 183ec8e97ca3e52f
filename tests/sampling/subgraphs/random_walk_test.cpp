#include "mezzo/sampling/subgraphs/random_walk.h"

#include <map>

#include "support/graphs.h"
#include "support/statistics.h"

namespace mezzo::test {
namespace {

const CpuOnlySuite kRandomWalkOnCpu("RandomWalk", "sampling on the CPU");

void expect_walks_follow_edges(const Graph& g, const RandomWalks& walks) {
  const Ids src = values(g.topology().src()), dst = values(g.topology().dst());
  const Ids out_degrees = values(g.out_degrees());
  const Ids nodes = values(walks.nodes), edges = values(walks.edges);
  const auto length = static_cast<std::size_t>(walks.edges.size(1));
  for (std::size_t walk = 0; walk < static_cast<std::size_t>(walks.edges.size(0)); ++walk) {
    for (std::size_t step = 0; step < length; ++step) {
      const std::int64_t from = nodes[walk * (length + 1) + step];
      const std::int64_t to = nodes[walk * (length + 1) + step + 1];
      const std::int64_t edge = edges[walk * length + step];
      if (from < 0 || out_degrees[static_cast<std::size_t>(from)] == 0) {
        EXPECT_EQ(to, -1);
        EXPECT_EQ(edge, -1);
      } else {
        ASSERT_GE(edge, 0);
        EXPECT_EQ(src[static_cast<std::size_t>(edge)], from);
        EXPECT_EQ(dst[static_cast<std::size_t>(edge)], to);
      }
    }
  }
}

/// The number of visits of each node in step `step`.
Ids visits(const RandomWalks& walks, std::int64_t step, std::int64_t num_nodes) {
  return values(walks.nodes.select(1, step).bincount({}, num_nodes));
}

TEST(RandomWalk, follows_edges_until_a_dead_end) {
  for (const NamedGraph& named : named_graphs()) {
    SCOPED_TRACE(named.name);
    const at::Tensor starts = at::arange(named.graph.num_nodes(), at::kLong).repeat({3});
    const RandomWalks walks = random_walk(named.graph, starts, 6, {.seed = 2});
    EXPECT_TRUE(at::equal(walks.nodes.select(1, 0), starts));
    expect_walks_follow_edges(named.graph, walks);
    expect_walks_follow_edges(named.graph,
                              random_walk(named.graph, starts, 6, {.p = 0.25, .q = 4}));
  }
}

TEST(RandomWalk, on_a_cycle_has_one_way_to_go) {
  const RandomWalks walks = random_walk(cycle_graph(4), ids({2, 0}), 5);
  EXPECT_EQ(values(walks.nodes), Ids({2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1}));
  EXPECT_EQ(values(walks.edges), Ids({2, 3, 0, 1, 2, 0, 1, 2, 3, 0}));
}

TEST(RandomWalk, of_no_steps_is_its_start) {
  const RandomWalks walks = random_walk(four_node_graph(), ids({3, 1}), 0);
  EXPECT_EQ(values(walks.nodes), Ids({3, 1}));
  EXPECT_EQ(walks.edges.sizes(), at::IntArrayRef({2, 0}));
  EXPECT_EQ(random_walk(four_node_graph(), ids({}), 3).nodes.sizes(), at::IntArrayRef({0, 4}));
}

TEST(RandomWalk, depends_on_the_seed_and_not_on_the_threads) {
  const Graph g = power_law_graph(200, 3000, 4);
  const at::Tensor starts = at::arange(3000, at::kLong).remainder(200);
  const RandomWalkOptions options{.seed = 8, .restart_probability = 0.1, .p = 0.5, .q = 2};
  const ThreadCount one(1);
  const RandomWalks first = random_walk(g, starts, 5, options);
  {
    const ThreadCount four(4);
    const RandomWalks again = random_walk(g, starts, 5, options);
    EXPECT_TRUE(at::equal(again.nodes, first.nodes));
    EXPECT_TRUE(at::equal(again.edges, first.edges));
  }
  const RandomWalks other =
      random_walk(g, starts, 5, {.seed = 9, .restart_probability = 0.1, .p = 0.5, .q = 2});
  EXPECT_FALSE(at::equal(other.nodes, first.nodes));
}

TEST(RandomWalk, takes_edges_in_proportion_to_their_weights) {
  const Graph g = graph_of({0, 1, 0, 0, 0}, {1, 0, 2, 3, 4}, 5);
  const at::Tensor weights = numbers({1, 7, 0, 3, 6}, at::kFloat);
  constexpr std::int64_t kWalks = 20000;
  const RandomWalks walks =
      random_walk(g, at::zeros({kWalks}, at::kLong), 1, {.seed = 1, .edge_weights = weights});
  const Ids seen = visits(walks, 1, 5);
  EXPECT_EQ(seen[0] + seen[2], 0);
  EXPECT_LE(chi_square({seen[1], seen[3], seen[4]}, {kWalks * 0.1, kWalks * 0.3, kWalks * 0.6}),
            chi_square_bound(2));
}

TEST(RandomWalk, a_node_whose_edges_have_no_weight_is_a_dead_end) {
  const RandomWalks walks =
      random_walk(cycle_graph(3), ids({0}), 3, {.edge_weights = numbers({1, 0, 1})});
  EXPECT_EQ(values(walks.nodes), Ids({0, 1, -1, -1}));
  EXPECT_EQ(values(walks.edges), Ids({0, -1, -1}));
}

TEST(RandomWalk, subnormal_weights_lead_along_their_edges) {
  // Half of the numbers in [0, 1) round to 1 when they are scaled by the smallest double.
  const Graph g = graph_of({0, 0, 2}, {1, 2, 0}, 3);
  const double smallest = std::numeric_limits<double>::denorm_min();
  const RandomWalks walks =
      random_walk(g, at::zeros({200}, at::kLong), 1,
                  {.edge_weights = numbers({smallest, 0, smallest}, at::kDouble)});
  EXPECT_EQ(visits(walks, 1, 3), Ids({0, 200, 0}));
  EXPECT_TRUE(walks.edges.eq(0).all().item<bool>());
}

TEST(RandomWalk, restarts_as_often_as_asked) {
  constexpr std::int64_t kWalks = 20000;
  const RandomWalks walks = random_walk(cycle_graph(50), at::full({kWalks}, 7, at::kLong), 2,
                                        {.seed = 3, .restart_probability = 0.3});
  const Ids seen = visits(walks, 2, 50);  // restart last; restart, step; step, step
  EXPECT_LE(chi_square({seen[7], seen[8], seen[9]},
                       {kWalks * 0.3, kWalks * 0.3 * 0.7, kWalks * 0.7 * 0.7}),
            chi_square_bound(2));
  const at::Tensor is_restart = walks.edges.select(1, 0) == -1;
  EXPECT_TRUE(at::equal(is_restart, walks.nodes.select(1, 1) == 7));
}

/// Checks the second step of walks 0 -> 1 -> x on the undirected edges 0-1, 1-2, 1-3, 0-2.
void expect_node2vec(double p, double q, const at::Tensor& weights, double middle) {
  const Graph g = graph_of({0, 1, 1, 2, 1, 3, 0, 2}, {1, 0, 2, 1, 3, 1, 2, 0}, 4);
  constexpr std::int64_t kWalks = 40000;
  const RandomWalks walks = random_walk(g, at::zeros({kWalks}, at::kLong), 2,
                                        {.seed = 6, .edge_weights = weights, .p = p, .q = q});
  const at::Tensor through_one = (walks.nodes.select(1, 1) == 1).nonzero().squeeze(1);
  const Ids seen = values(walks.nodes.select(1, 2).index_select(0, through_one).bincount({}, 4));
  const double back = 1 / p, near = middle, far = 1 / q, total = back + near + far;
  const auto n = static_cast<double>(through_one.numel());
  ASSERT_GT(n, kWalks / 4);
  EXPECT_EQ(seen[1], 0);
  EXPECT_LE(chi_square({seen[0], seen[2], seen[3]},
                       {n * back / total, n * near / total, n * far / total}),
            chi_square_bound(2));
}

TEST(RandomWalk, node2vec_has_the_transition_probabilities_of_its_definition) {
  expect_node2vec(0.25, 2, {}, 1);
  expect_node2vec(4, 0.5, {}, 1);
  expect_node2vec(2, 0.25, numbers({1, 1, 3, 1, 1, 1, 1, 1}), 3);
}

TEST(RandomWalk, node2vec_is_exact_where_hardly_a_proposal_is_accepted) {
  // the only edge leads back to 0, however unlikely p makes it
  const Graph path = graph_of({0, 1}, {1, 0}, 2);
  const RandomWalks walks = random_walk(path, ids({0}), 4, {.p = 1e9, .q = 1e-9});
  EXPECT_EQ(values(walks.nodes), Ids({0, 1, 0, 1, 0}));
  // from 1 to 2 (near) and 3 (near) equally often; q makes other graphs' far nodes likely
  const Graph g = graph_of({0, 1, 1, 1, 0, 0}, {1, 0, 2, 3, 2, 3}, 4);
  constexpr std::int64_t kWalks = 4000;
  const RandomWalks drawn =
      random_walk(g, at::zeros({kWalks}, at::kLong), 2, {.seed = 2, .p = 1e9, .q = 1e-9});
  const at::Tensor through_one = (drawn.nodes.select(1, 1) == 1).nonzero().squeeze(1);
  const Ids seen = values(drawn.nodes.select(1, 2).index_select(0, through_one).bincount({}, 4));
  const auto n = static_cast<double>(through_one.numel());
  EXPECT_EQ(seen[0], 0);
  EXPECT_LE(chi_square({seen[2], seen[3]}, {n / 2, n / 2}), chi_square_bound(1));
}

TEST(RandomWalk, stays_where_there_are_no_edges) {
  for (const double p : {1.0, 0.5}) {
    const RandomWalks walks = random_walk(isolated_graph(3), ids({2, 0}), 2, {.p = p});
    EXPECT_EQ(values(walks.nodes.flatten()), (Ids{2, -1, -1, 0, -1, -1}));
    EXPECT_EQ(values(walks.edges.flatten()), (Ids{-1, -1, -1, -1}));
  }
}

TEST(RandomWalk, wrong_arguments_are_errors) {
  const Graph g = cycle_graph(3);
  const at::Tensor start = ids({0});
  const auto attempt = [&](const RandomWalkOptions& options) { random_walk(g, start, 2, options); };
  EXPECT_ERROR("starts", random_walk(g, ids({3}), 2));
  EXPECT_ERROR("starts", random_walk(g, ids({-1}), 2));
  EXPECT_ERROR("lengthin[0,2^31],got-1", random_walk(g, start, -1));
  constexpr std::int64_t kHuge = std::int64_t{1} << 60;
  EXPECT_ERROR("lengthin[0,2^31]", random_walk(g, start, kHuge));
  const at::Tensor many = at::zeros({1024}, at::kLong);
  EXPECT_ERROR("2^40", random_walk(g, many, kMostWalkLength));
  EXPECT_ERROR("onesetofnodes", random_walk(in_star(3), start, 1));
  EXPECT_ERROR("restart_probabilityin[0,1)", attempt({.restart_probability = 1}));
  EXPECT_ERROR("expectedpin", attempt({.p = 0}));
  EXPECT_ERROR("expectedqin", attempt({.q = std::nan("")}));
  EXPECT_ERROR("edge_weights", attempt({.edge_weights = numbers({1, 2})}));
  EXPECT_ERROR("got-2foredge1", attempt({.edge_weights = numbers({1, -2, 1})}));
  EXPECT_ERROR("foredge2", attempt({.edge_weights = numbers({1, 1, std::nan("")})}));
  EXPECT_ERROR("floatingpoint", attempt({.edge_weights = ids({1, 1, 1})}));
}

}  // namespace
}  // namespace mezzo::test
