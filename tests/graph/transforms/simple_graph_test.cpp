#include <map>

#include "mezzo/graph/transforms/transforms.h"

#include "support/graphs.h"

namespace mezzo::test {
namespace {

/// The number of edges from u to v for each pair (u, v).
std::map<Edge, std::int64_t> edge_counts(const Graph& g) {
  std::map<Edge, std::int64_t> counts;
  for (const Edge& edge : edges(g)) ++counts[edge];
  return counts;
}

void expect_simple(const Graph& simple, const Graph& g) {
  std::vector<Edge> pairs;
  Ids count;
  for (const auto& [ends, times] : edge_counts(g)) {
    pairs.push_back(ends);
    count.push_back(times);
  }
  EXPECT_EQ(simple.num_nodes(), g.num_nodes());
  EXPECT_EQ(edges(simple), pairs);
  EXPECT_EQ(values(simple.edata().at("count")), count);
  EXPECT_EQ(simple.edata().at("count").scalar_type(), at::kLong);
}

TEST(ToSimple, merges_parallel_edges_in_order_and_counts_them) {
  for (const NamedGraph& named : named_graphs()) {
    SCOPED_TRACE(named.name);
    expect_simple(to_simple(named.graph), named.graph);
  }
  EXPECT_EQ(values(to_simple(duplicate_graph()).edata().at("count")), Ids({3, 1}));
}

TEST(ToSimple, keeps_the_width_of_ids) {
  for (const IdWidth width : {IdWidth::kInt32, IdWidth::kInt64}) {
    const Graph g = power_law_graph(50, 400, 3, width);
    const Graph simple = to_simple(g);
    EXPECT_LT(simple.num_edges(), g.num_edges());
    EXPECT_EQ(simple.topology().id_dtype(), g.topology().id_dtype());
    expect_simple(simple, g);
  }
}

TEST(ToSimple, shares_node_columns_and_drops_those_of_edges_and_the_batch) {
  Graph g = batch({duplicate_graph(), self_loop_graph()});
  g.ndata()["h"] = at::ones({7}, on_device());
  g.edata()["w"] = at::ones({9}, on_device());
  g.edata()["count"] = at::ones({9}, on_device());
  Graph simple = to_simple(g);
  EXPECT_TRUE(simple.ndata().at("h").is_same(g.ndata().at("h")));
  EXPECT_EQ(simple.edata().names(), Names({"count"}));
  EXPECT_EQ(simple.batch_size(), 1);
  simple.ndata()["new"] = at::ones({7}, on_device());
  EXPECT_FALSE(g.ndata().contains("new"));
  expect_simple(simple, g);
}

TEST(ToSimple, of_a_simple_graph_sorts_its_edges) {
  const Graph g = random_graph(20, 0.3, 8);
  const Graph simple = to_simple(g);
  EXPECT_EQ(simple.num_edges(), g.num_edges());
  EXPECT_EQ(values(to_simple(simple).topology().dst()), values(simple.topology().dst()));
}

}  // namespace
}  // namespace mezzo::test
