#include <numeric>
#include <set>
#include <thread>

#include "mezzo/sampling/blocks/block_sampler.h"

#include "support/graphs.h"
#include "support/statistics.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

const CpuOnlySuite kNeighborSourceOnCpu("NeighborSource", "sampling on the CPU");
const CpuOnlySuite kLaborOnCpu("Labor", "sampling on the CPU");

struct RowOf {
  Ids neighbors, edges;
};

/// The neighbours and edges drawn for each node.
std::vector<RowOf> rows_of(const DrawnNeighbors& drawn) {
  const Ids offsets = values(drawn.offsets), neighbors = values(drawn.neighbors),
            edges = values(drawn.edges);
  std::vector<RowOf> rows;
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    rows.push_back({{neighbors.begin() + offsets[i], neighbors.begin() + offsets[i + 1]},
                    {edges.begin() + offsets[i], edges.begin() + offsets[i + 1]}});
  }
  return rows;
}

DrawnNeighbors draw_from(const NeighborSource& source, const Ids& nodes, DrawOptions options,
                         const BatchKey& key = {.seed = 5}, std::int64_t hop = 0) {
  Workspace workspace;
  options.type = source.type();
  return source.draw(ids(nodes), options, key, hop, workspace);
}

/// `count` copies of the node, for `count` draws with one key.
Ids repeated(std::int64_t node, std::int64_t count) {
  return Ids(static_cast<std::size_t>(count), node);
}

Ids neighbor_counts(const DrawnNeighbors& drawn, std::int64_t num_nodes) {
  Ids counts(static_cast<std::size_t>(num_nodes));
  for (const std::int64_t neighbor : values(drawn.neighbors)) {
    ++counts[static_cast<std::size_t>(neighbor)];
  }
  return counts;
}

TEST(NeighborSource, every_neighbor_with_its_edge) {
  for (const IdWidth width : {IdWidth::kInt32, IdWidth::kInt64}) {
    const NeighborSource source(four_nodes(width), NeighborType::kIn);
    const DrawnNeighbors drawn = draw_from(source, {2, 0, 1}, {});
    EXPECT_EQ(values(drawn.offsets), (Ids{0, 3, 3, 4}));
    EXPECT_EQ(values(drawn.neighbors), (Ids{0, 1, 3, 0}));
    EXPECT_EQ(values(drawn.edges), (Ids{1, 2, 3, 0}));
    EXPECT_EQ(drawn.neighbors.scalar_type(), source.topology().id_dtype());
    EXPECT_EQ(drawn.edges.scalar_type(), source.topology().id_dtype());
    EXPECT_FALSE(drawn.weights.defined());
  }
}

TEST(NeighborSource, out_neighbors_follow_the_edges) {
  const NeighborSource source(four_nodes(), NeighborType::kOut);
  const auto rows = rows_of(draw_from(source, {0, 2}, {}));
  EXPECT_EQ(rows[0].neighbors, (Ids{1, 2}));
  EXPECT_EQ(rows[0].edges, (Ids{0, 1}));
  EXPECT_TRUE(rows[1].neighbors.empty());
}

TEST(NeighborSource, drawn_edges_are_distinct_edges_of_the_graph_into_the_node) {
  const Topology topology = large_power_law();
  const Topology square =
      Topology::from_coo(topology.src().remainder(1200), topology.dst(), 1200, 1200);
  const Ids src = values(square.src()), dst = values(square.dst()),
            degrees = values(square.in_degrees());
  const NeighborSource source(square, NeighborType::kIn);
  Ids nodes(1200);
  std::iota(nodes.begin(), nodes.end(), std::int64_t{0});
  for (const std::int64_t fanout : {1, 3, 10, 20, 50, 400}) {
    const auto rows = rows_of(draw_from(source, nodes, {.fanout = fanout}));
    for (std::size_t node = 0; node < nodes.size(); ++node) {
      const RowOf& row = rows[node];
      ASSERT_EQ(static_cast<std::int64_t>(row.edges.size()), std::min(fanout, degrees[node]));
      for (std::size_t i = 0; i < row.edges.size(); ++i) {
        const auto edge = static_cast<std::size_t>(row.edges[i]);
        ASSERT_EQ(dst[edge], static_cast<std::int64_t>(node));
        ASSERT_EQ(src[edge], row.neighbors[i]);
        if (i > 0) {
          ASSERT_GT(row.edges[i], row.edges[i - 1]);
        }
      }
    }
  }
}

TEST(NeighborSource, three_of_ten_are_each_drawn_in_three_of_ten_draws) {
  const NeighborSource source(star_graph(10).topology(), NeighborType::kIn);
  constexpr std::int64_t kDraws = 30000;
  const auto counts = neighbor_counts(draw_from(source, repeated(0, kDraws), {.fanout = 3}), 11);
  for (std::size_t leaf = 1; leaf <= 10; ++leaf) {
    EXPECT_NEAR(static_cast<double>(counts[leaf]), 0.3 * kDraws, binomial_bound(kDraws, 0.3));
  }
}

TEST(NeighborSource, batches_and_epochs_and_hops_draw_anew) {
  const NeighborSource source(star_graph(1000).topology(), NeighborType::kIn);
  const DrawOptions options{.fanout = 20};
  const auto edges = [&](const BatchKey& key, std::int64_t hop) {
    return values(draw_from(source, {0}, options, key, hop).edges);
  };
  const Ids first = edges({.seed = 1}, 0);
  EXPECT_EQ(first, edges({.seed = 1}, 0));
  EXPECT_NE(first, edges({.seed = 2}, 0));
  EXPECT_NE(first, edges({.seed = 1, .epoch = 1}, 0));
  EXPECT_NE(first, edges({.seed = 1, .batch = 1}, 0));
  EXPECT_NE(first, edges({.seed = 1}, 1));
}

TEST(NeighborSource, draws_do_not_depend_on_threads_or_workspaces) {
  const NeighborSource source(power_law_graph(2000, 30000, 3).topology(), NeighborType::kIn);
  Ids nodes;
  for (std::int64_t i = 0; i < 20000; ++i) nodes.push_back(i * 7 % 2000);
  ASSERT_GT(source.topology().in_degrees().max().item<std::int64_t>(), 64);  // tracked in a bitmap
  for (const std::int64_t fanout : {5, 40}) {
    SCOPED_TRACE(fanout);
    const DrawOptions options{.fanout = fanout};
    DrawnNeighbors one;
    {
      const ThreadCount threads(1);
      one = draw_from(source, nodes, options);
    }
    Workspace used;
    source.draw(ids({1, 2, 3}), {.fanout = 100}, {.seed = 9}, 0, used);
    const ThreadCount threads(2);
    const DrawnNeighbors two = source.draw(ids(nodes), options, {.seed = 5}, 0, used);
    EXPECT_TRUE(same_bits(one.offsets, two.offsets));
    EXPECT_TRUE(same_bits(one.neighbors, two.neighbors));
    EXPECT_TRUE(same_bits(one.edges, two.edges));
    DrawnNeighbors other;
    std::thread([&] { other = draw_from(source, nodes, options); }).join();
    EXPECT_TRUE(same_bits(one.edges, other.edges));
  }
}

TEST(NeighborSource, with_replacement_every_node_with_a_neighbor_has_exactly_the_fanout) {
  const NeighborSource source(four_nodes(), NeighborType::kIn);
  const DrawnNeighbors drawn = draw_from(source, {0, 1, 2, 3}, {.fanout = 4, .replace = true});
  EXPECT_EQ(values(drawn.offsets), (Ids{0, 0, 4, 8, 8}));
}

TEST(NeighborSource, fanout_zero_and_graphs_without_edges_draw_nothing) {
  const NeighborSource source(four_nodes(), NeighborType::kIn);
  for (const NeighborDraw kind : {NeighborDraw::kNeighbor, NeighborDraw::kLabor}) {
    EXPECT_EQ(values(draw_from(source, {1, 2}, {.draw = kind, .fanout = 0}).offsets),
              (Ids{0, 0, 0}));
    const NeighborSource isolated(isolated_graph(6).topology(), NeighborType::kIn);
    EXPECT_EQ(values(draw_from(isolated, {1, 5}, {.draw = kind, .fanout = 3}).offsets),
              (Ids{0, 0, 0}));
    EXPECT_EQ(values(draw_from(isolated, {}, {.draw = kind}).offsets), (Ids{0}));
  }
}

TEST(NeighborSource, parallel_edges_are_edges_of_their_own) {
  const NeighborSource source(duplicate_graph().topology(), NeighborType::kIn);
  const auto rows = rows_of(draw_from(source, {1}, {.fanout = 2}));
  EXPECT_EQ(rows[0].neighbors, (Ids{0, 0}));
  EXPECT_LT(rows[0].edges[0], rows[0].edges[1]);
}

TEST(NeighborSource, a_hub_gives_a_large_fanout_evenly) {
  constexpr std::int64_t kLeaves = 70000, kFanout = 1000, kDraws = 50, kParts = 50;
  const NeighborSource source(star_graph(kLeaves).topology(), NeighborType::kIn);
  const auto rows = rows_of(draw_from(source, repeated(0, kDraws), {.fanout = kFanout}));
  Ids parts(kParts);
  for (const RowOf& row : rows) {
    ASSERT_EQ(row.edges.size(), static_cast<std::size_t>(kFanout));
    for (std::size_t i = 0; i < row.edges.size(); ++i) {
      if (i > 0) {
        ASSERT_GT(row.edges[i], row.edges[i - 1]);
      }
      ++parts[static_cast<std::size_t>(row.edges[i] * kParts / kLeaves)];
    }
  }
  const std::vector<double> expected(kParts, static_cast<double>(kDraws * kFanout / kParts));
  EXPECT_LT(chi_square(parts, expected), chi_square_bound(kParts - 1));
}

TEST(NeighborSource, weights_belong_to_edges_not_entries) {
  // Edge 4 (1 -> 0) comes first in the CSR by destination.
  const Topology topology = topology_of({1, 2, 3, 4, 1}, {5, 5, 5, 5, 0}, 6, 6);
  const NeighborSource source(topology, NeighborType::kIn, numbers({0, 6, 3, 1, 2}));
  constexpr std::int64_t kDraws = 20000;
  for (const bool replace : {false, true}) {
    const auto counts = neighbor_counts(
        draw_from(source, repeated(5, kDraws), {.fanout = 1, .replace = replace}), 6);
    EXPECT_EQ(counts[1], 0);
    EXPECT_LT(
        chi_square({counts[2], counts[3], counts[4]}, {kDraws * 0.6, kDraws * 0.3, kDraws * 0.1}),
        chi_square_bound(2));
  }
  EXPECT_EQ(values(draw_from(source, {5}, {}).neighbors), (Ids{2, 3, 4}));  // 0 is never drawn
}

TEST(NeighborSource, unfit_weights_name_the_edge) {
  const Topology topology = four_nodes();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {-1.0, std::nan(""), infinity, -infinity, 1e300}) {
    const std::string text = error_of([&] {
      NeighborSource(topology, NeighborType::kIn, numbers({1, 0, bad, bad}));
    });
    EXPECT_TRUE(mentions(text, "edge2")) << text;
  }
  for (const double lost : {1e-46, std::numeric_limits<double>::denorm_min()}) {
    const std::string text = error_of([&] {
      NeighborSource(topology, NeighborType::kIn, numbers({1, 0, lost, 1}, at::kDouble));
    });
    EXPECT_TRUE(mentions(text, "foredge2")) << text;
    EXPECT_TRUE(mentions(text, "float32")) << text;
  }
  for (const at::Tensor& bad : {at::ones({3}), at::ones({4}, at::kLong), at::ones({4, 1})}) {
    EXPECT_ERROR("edge_weights", NeighborSource(topology, NeighborType::kIn, bad));
  }
}

TEST(NeighborSource, contradictory_options_are_errors) {
  const NeighborSource source(four_nodes(), NeighborType::kIn);
  Workspace workspace;
  const auto attempt = [&](const DrawOptions& options, std::int64_t hop = 0) {
    source.draw(ids({0}), options, {}, hop, workspace);
  };
  EXPECT_ERROR("fanout", attempt({.fanout = -2}));
  EXPECT_ERROR("replace", attempt({.draw = NeighborDraw::kLabor, .replace = true}));
  EXPECT_ERROR("withreplacement,got-1", attempt({.replace = true}));
  EXPECT_ERROR("2147483648", attempt({.fanout = std::int64_t{1} << 31, .replace = true}));
  EXPECT_ERROR("layer_dependency", attempt({.fanout = 2, .layer_dependency = true}));
  EXPECT_ERROR("type", attempt({.type = NeighborType::kOut}));
  EXPECT_ERROR("hop", attempt({}, 256));
  EXPECT_ERROR("4sources", NeighborSource(in_star(4), NeighborType::kIn));
}

TEST(Labor, draws_the_fanout_on_average_and_estimates_sums_without_bias) {
  const NeighborSource source(star_graph(40).topology(), NeighborType::kIn);
  constexpr std::int64_t kDraws = 4000;
  const double p = 8.0 / 40, trials = 40.0 * kDraws;
  double size = 0, sum = 0, variance = 0;
  for (std::int64_t leaf = 1; leaf <= 40; ++leaf) {
    variance += static_cast<double>(leaf * leaf) * (1 - p) / p;
  }
  for (std::int64_t batch = 0; batch < kDraws; ++batch) {
    const DrawnNeighbors drawn = draw_from(source, {0}, {.draw = NeighborDraw::kLabor, .fanout = 8},
                                           {.seed = 3, .batch = batch});
    size += static_cast<double>(drawn.neighbors.numel());
    sum += (drawn.neighbors.to(at::kDouble) * drawn.weights).sum().item<double>();
  }
  EXPECT_NEAR(size, trials * p, binomial_bound(trials, p));
  EXPECT_NEAR(sum / kDraws, 41 * 20, 5 * std::sqrt(variance / kDraws));
}

/// Nodes 0 and 1, each with the neighbours 2 to 101.
Topology shared_neighbors() {
  Ids src, dst;
  for (std::int64_t neighbor = 2; neighbor < 102; ++neighbor) {
    for (const std::int64_t node : {0, 1}) {
      src.push_back(neighbor);
      dst.push_back(node);
    }
  }
  return topology_of(src, dst, 102, 102);
}

TEST(Labor, nodes_with_the_same_neighbors_draw_the_same) {
  const NeighborSource source(shared_neighbors(), NeighborType::kIn);
  DrawOptions options{.draw = NeighborDraw::kLabor, .fanout = 10};
  const auto rows = rows_of(draw_from(source, {0, 1}, options));
  EXPECT_FALSE(rows[0].neighbors.empty());
  EXPECT_EQ(rows[0].neighbors, rows[1].neighbors);
  const auto neighbors = [&](std::int64_t hop) {
    return values(draw_from(source, {0}, options, {.seed = 5}, hop).neighbors);
  };
  EXPECT_NE(neighbors(0), neighbors(1));
  options.layer_dependency = true;
  EXPECT_EQ(neighbors(0), neighbors(1));
}

TEST(Labor, estimates_a_mean_as_exactly_as_free_draws_by_fewer_nodes) {
  // Draws 10 of 100 values, half 1 and half -1.
  constexpr std::int64_t kDraws = 2000;
  constexpr double kDegree = 100, kFanout = 10, kShare = kFanout / kDegree;
  const NeighborSource source(shared_neighbors(), NeighborType::kIn);
  const at::Tensor value = at::arange(102).remainder(2) * 2 - 1;
  struct Case {
    NeighborDraw draw;
    double variance;  ///< of a node's mean
    double share;     ///< of the neighbours drawn for at least one node
  };
  for (const Case& expected :
       {Case{NeighborDraw::kLabor, (1 - kShare) / kFanout, kShare},
        Case{NeighborDraw::kNeighbor, (1 - kShare) / kFanout * kDegree / (kDegree - 1),
             1 - (1 - kShare) * (1 - kShare)}}) {
    double squares = 0, nodes = 0;
    for (std::int64_t batch = 0; batch < kDraws; ++batch) {
      const DrawnNeighbors drawn = draw_from(source, {0, 1}, {.draw = expected.draw, .fanout = 10},
                                             {.seed = 4, .batch = batch});
      const at::Tensor first =
          drawn.neighbors.narrow(0, 0, drawn.offsets[1].item<std::int64_t>()).to(at::kLong);
      const double mean = value.index_select(0, first).sum().item<double>() / kShare / kDegree;
      squares += mean * mean;
      const Ids both = values(drawn.neighbors);
      nodes += static_cast<double>(std::set<std::int64_t>(both.begin(), both.end()).size());
    }
    // The means are nearly normal, so their squares have the variance 2 variance^2.
    EXPECT_NEAR(squares / kDraws, expected.variance,
                5 * expected.variance * std::sqrt(2.0 / kDraws));
    EXPECT_NEAR(nodes, kDraws * kDegree * expected.share,
                binomial_bound(kDraws * kDegree, expected.share));
  }
}

TEST(Labor, takes_certain_neighbors_and_all_of_a_small_row) {
  const NeighborSource source(star_graph(5).topology(), NeighborType::kIn);
  for (const std::int64_t fanout : {std::int64_t{5}, std::int64_t{9}, kAllNeighbors}) {
    const DrawnNeighbors drawn =
        draw_from(source, {0}, {.draw = NeighborDraw::kLabor, .fanout = fanout});
    EXPECT_EQ(values(drawn.neighbors).size(), 5U);
    EXPECT_TRUE(same_bits(drawn.weights, at::ones({5}, at::kFloat)));
  }
}

TEST(NeighborSource, scanned_draws_do_not_depend_on_threads_or_workspaces) {
  // rows for several tasks, the last one not full
  const Topology topology = power_law_graph(2000, 30000, 3).topology();
  const at::Tensor weights = integers({30000}, at::kFloat, 2, 0, 3);
  Ids nodes;
  for (std::int64_t i = 0; i < 5000; ++i) nodes.push_back(i * 7 % 2000);
  struct Case {
    NeighborDraw draw;
    bool replace, weighted;
  };
  for (const Case& each :
       {Case{NeighborDraw::kNeighbor, false, true}, Case{NeighborDraw::kNeighbor, true, true},
        Case{NeighborDraw::kLabor, false, false}, Case{NeighborDraw::kLabor, false, true}}) {
    const NeighborSource source(topology, NeighborType::kIn,
                                each.weighted ? weights : at::Tensor());
    const DrawOptions options{.draw = each.draw, .fanout = 5, .replace = each.replace};
    Workspace used;
    source.draw(ids({1, 2, 3}), options, {.seed = 9}, 0, used);
    DrawnNeighbors one, two;
    {
      const ThreadCount threads(1);
      Workspace fresh;
      one = source.draw(ids(nodes), options, {.seed = 5}, 0, fresh);
    }
    {
      const ThreadCount threads(2);
      two = source.draw(ids(nodes), options, {.seed = 5}, 0, used);
    }
    EXPECT_TRUE(same_bits(one.offsets, two.offsets));
    EXPECT_TRUE(same_bits(one.neighbors, two.neighbors));
    EXPECT_TRUE(same_bits(one.edges, two.edges));
    ASSERT_EQ(one.weights.defined(), each.draw == NeighborDraw::kLabor);
    if (one.weights.defined()) {
      EXPECT_TRUE(same_bits(one.weights, two.weights));
    }
    // every edge is in its row and in the graph
    EXPECT_EQ(one.offsets[-1].item<std::int64_t>(), one.neighbors.numel());
    EXPECT_TRUE((one.offsets.diff() >= 0).all().item<bool>());
    const at::Tensor into = at::repeat_interleave(ids(nodes), one.offsets.diff());
    const at::Tensor edges = one.edges.to(at::kLong);
    EXPECT_TRUE(at::equal(topology.dst().index_select(0, edges).to(at::kLong), into));
    EXPECT_TRUE(at::equal(topology.src().index_select(0, edges), one.neighbors));
  }
}

TEST(NeighborSource, scanned_draws_of_one_node_differ_from_row_to_row) {
  const NeighborSource source(star_graph(100).topology(), NeighborType::kIn, at::ones({100}));
  for (const bool replace : {false, true}) {
    std::set<Ids> distinct;
    const auto rows =
        rows_of(draw_from(source, repeated(0, 2000), {.fanout = 20, .replace = replace}));
    for (const RowOf& row : rows) distinct.insert(row.neighbors);
    EXPECT_EQ(distinct.size(), rows.size());  // of over 10^20 possible
  }
}

}  // namespace
}  // namespace mezzo::test
