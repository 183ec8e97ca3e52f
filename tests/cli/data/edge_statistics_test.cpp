#include "mezzo/cli/data/edge_statistics.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "mezzo/data/dataset.h"

#include "support/draw.h"

namespace mezzo::cli {
namespace {

using EdgeList = std::vector<std::pair<std::int64_t, std::int64_t>>;

Topology topology_with(const EdgeList& edges, std::int64_t nodes, IdWidth width) {
  std::vector<std::int64_t> src, dst;
  for (const auto& [from, to] : edges) {
    src.push_back(from);
    dst.push_back(to);
  }
  return Topology::from_coo(at::tensor(src, at::kLong), at::tensor(dst, at::kLong), nodes, nodes,
                            width);
}

EdgeStatistics statistics_by_definition(const EdgeList& edges,
                                        const std::vector<std::int64_t>& label) {
  const std::set<std::pair<std::int64_t, std::int64_t>> distinct(edges.begin(), edges.end());
  EdgeStatistics statistics;
  statistics.parallel_edges = static_cast<std::int64_t>(edges.size() - distinct.size());
  statistics.is_undirected = std::all_of(distinct.begin(), distinct.end(), [&](const auto& edge) {
    return distinct.count({edge.second, edge.first}) > 0;
  });
  for (const auto& [from, to] : edges) {
    const std::int64_t a = label[static_cast<std::size_t>(from)];
    const std::int64_t b = label[static_cast<std::size_t>(to)];
    statistics.self_loops += from == to ? 1 : 0;
    if (from == to || a == kNoLabel || b == kNoLabel) continue;
    ++statistics.labelled;
    statistics.between_equals += a == b ? 1 : 0;
  }
  return statistics;
}

void expect_same_statistics(const EdgeStatistics& got, const EdgeStatistics& expected) {
  EXPECT_EQ(got.self_loops, expected.self_loops);
  EXPECT_EQ(got.parallel_edges, expected.parallel_edges);
  EXPECT_EQ(got.is_undirected, expected.is_undirected);
  EXPECT_EQ(got.labelled, expected.labelled);
  EXPECT_EQ(got.between_equals, expected.between_equals);
}

TEST(EdgeStatistics, is_that_of_its_definition) {
  int undirected = 0;
  constexpr int kGraphs = 400;
  for (int graph = 0; graph < kGraphs; ++graph) {
    SCOPED_TRACE(graph);
    test::Draw draw(static_cast<std::uint64_t>(graph));
    const std::int64_t nodes = 1 + draw.below(7);
    EdgeList edges;
    for (std::int64_t i = draw.below(12); i > 0; --i) {
      const std::int64_t from = draw.below(nodes), to = draw.below(nodes);
      edges.emplace_back(from, to);
      if (graph % 2 == 0) edges.insert(edges.begin() + draw.below(i % 2 + 1), {to, from});
    }
    if (graph % 4 == 0 && !edges.empty()) edges.pop_back();  // often almost undirected
    if (draw.coin()) std::sort(edges.begin(), edges.end());
    std::vector<std::int64_t> labels;
    for (std::int64_t i = 0; i < nodes; ++i) labels.push_back(draw.below(3) - 1);
    const EdgeStatistics expected = statistics_by_definition(edges, labels);
    undirected += expected.is_undirected ? 1 : 0;
    for (const IdWidth width : {IdWidth::kAutomatic, IdWidth::kInt64}) {
      const Topology topology = topology_with(edges, nodes, width);
      expect_same_statistics(edge_statistics(topology, at::tensor(labels, at::kLong)), expected);
      EdgeStatistics unlabelled = expected;
      unlabelled.labelled = unlabelled.between_equals = 0;
      expect_same_statistics(edge_statistics(topology, {}), unlabelled);
    }
  }
  EXPECT_GT(undirected, kGraphs / 5);
  EXPECT_LT(undirected, kGraphs * 4 / 5);
}

TEST(EdgeStatistics, leaves_the_topology_as_it_is) {
  const Topology topology = topology_with({{2, 0}, {1, 0}, {0, 1}}, 3, IdWidth::kAutomatic);
  const at::Tensor before = topology.csc().indices.clone();
  EXPECT_FALSE(edge_statistics(topology, {}).is_undirected);
  EXPECT_TRUE(at::equal(topology.csc().indices, before));
}

}  // namespace
}  // namespace mezzo::cli
