

#include "mezzo/graph/transforms/transforms.h"

#include "support/graphs.h"

namespace mezzo::test {
namespace {

/// The line graph by its definition: all pairs of edges of `g`.
std::vector<Edge> expected_line_edges(const Graph& g, bool backtracking) {
  const Ids src = values(g.topology().src()), dst = values(g.topology().dst());
  std::vector<Edge> pairs;
  for (std::size_t e = 0; e < src.size(); ++e) {
    for (std::size_t f = 0; f < src.size(); ++f) {
      if (e == f || src[f] != dst[e] || (!backtracking && dst[f] == src[e])) continue;
      pairs.emplace_back(static_cast<std::int64_t>(e), static_cast<std::int64_t>(f));
    }
  }
  return pairs;
}

TEST(LineGraph, joins_each_edge_to_those_that_go_on_from_it) {
  for (const NamedGraph& named : named_graphs()) {
    for (const bool backtracking : {true, false}) {
      SCOPED_TRACE(named.name + (backtracking ? "" : " without backtracking"));
      const Graph line = line_graph(named.graph, backtracking);
      EXPECT_EQ(line.num_nodes(), named.graph.num_edges());
      EXPECT_EQ(edges(line), expected_line_edges(named.graph, backtracking));
    }
  }
}

TEST(LineGraph, is_that_of_dgls_manual) {
  for (const IdWidth width : {IdWidth::kInt32, IdWidth::kInt64}) {
    const Graph g = graph_of({0, 1, 1, 2, 2}, {2, 0, 2, 0, 1}, 3, width);
    EXPECT_EQ(edges(line_graph(g)),
              std::vector<Edge>({{0, 3}, {0, 4}, {1, 0}, {2, 3}, {2, 4}, {3, 0}, {4, 1}, {4, 2}}));
    EXPECT_EQ(edges(line_graph(g, /*backtracking=*/false)),
              std::vector<Edge>({{0, 4}, {1, 0}, {2, 3}, {4, 1}}));
    EXPECT_EQ(line_graph(g).topology().id_dtype(), width == IdWidth::kInt64 ? at::kLong : at::kInt);
  }
}

TEST(LineGraph, no_edge_goes_on_to_itself_but_parallel_loops_to_each_other) {
  const Graph g = graph_of({0, 0}, {0, 0}, 1);
  EXPECT_EQ(edges(line_graph(g)), std::vector<Edge>({{0, 1}, {1, 0}}));
  EXPECT_EQ(line_graph(g, /*backtracking=*/false).num_edges(), 0);
}

TEST(LineGraph, takes_the_columns_of_the_edges_over_where_it_is_told_to) {
  Graph g = four_node_graph();
  const at::Tensor w = leaf(at::ones({4, 2}, on_device()));
  g.edata()["w"] = w;
  Graph line = line_graph(g);
  EXPECT_TRUE(line.ndata().columns().empty());
  EXPECT_TRUE(line.edata().columns().empty());
  line.ndata().update(g.edata().columns());
  EXPECT_TRUE(line.ndata().at("w").is_same(w));
}

}  // namespace
}  // namespace mezzo::test
