#include <algorithm>
#include <numeric>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "mezzo/graph/transforms/transforms.h"

#include "support/graphs.h"
#include "support/tensors.h"

namespace mezzo::test {
namespace {

using Ids = std::vector<std::int64_t>;

Graph with_columns(Graph g) {
  g.ndata()["h"] = at::arange(g.num_nodes(), at::kDouble);
  g.edata()["w"] = at::arange(g.num_edges(), at::kDouble);
  return g;
}

/// Expects that `made` is `g` renumbered by its "_ID" columns, with sorted edges.
void expect_same_graph(const Graph& g, const Graph& made) {
  const Ids nodes = values(made.ndata().at("_ID")), edges = values(made.edata().at("_ID"));
  Ids sorted = nodes, all(nodes.size());
  std::sort(sorted.begin(), sorted.end());
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(sorted, all);
  const Ids src = values(made.topology().src()), dst = values(made.topology().dst());
  const Ids old_src = values(g.topology().src()), old_dst = values(g.topology().dst());
  ASSERT_EQ(edges.size(), old_src.size());
  for (std::size_t i = 0; i < edges.size(); ++i) {
    const auto edge = static_cast<std::size_t>(edges[i]);
    EXPECT_EQ(nodes[static_cast<std::size_t>(src[i])], old_src[edge]);
    EXPECT_EQ(nodes[static_cast<std::size_t>(dst[i])], old_dst[edge]);
    if (i > 0) {
      EXPECT_LE(std::pair(dst[i - 1], src[i - 1]), std::pair(dst[i], src[i]));
    }
  }
  EXPECT_EQ(values(made.ndata().at("h")), nodes);
  EXPECT_EQ(values(made.edata().at("w")), edges);
  EXPECT_FALSE(made.topology().csc().edge_ids.defined());  // CSR order is edge-id order
}

TEST(Reorder, keeps_the_graph_under_every_order) {
  for (const NamedGraph& named : named_graphs()) {
    mezzo::detail::for_each(NodeOrders{}, [&]<class Order>() {
      SCOPED_TRACE(named.name + " " + std::string(Order::name));
      const Graph g = with_columns(named.graph);
      expect_same_graph(g, reorder(g, Order::kind));
    });
  }
}

TEST(Reorder, keep_leaves_the_nodes_where_they_are) {
  const Graph made = reorder(with_columns(four_node_graph()), NodeOrder::kKeep);
  EXPECT_EQ(values(made.ndata().at("_ID")), Ids({0, 1, 2, 3}));
}

TEST(Reorder, degree_puts_the_most_connected_node_first) {
  const Graph made = reorder(with_columns(four_node_graph()), NodeOrder::kDegree);
  EXPECT_EQ(values(made.ndata().at("_ID")), Ids({2, 0, 1, 3}));
}

TEST(Reorder, reverse_cuthill_mckee_puts_a_shuffled_path_in_line) {
  // The path 3 - 0 - 4 - 1 - 2.
  const Graph g = with_columns(graph_of({3, 4, 4, 1}, {0, 0, 1, 2}, 5));
  const Graph made = reorder(g, NodeOrder::kReverseCuthillMcKee);
  const Ids order = values(made.ndata().at("_ID"));
  EXPECT_TRUE(order == Ids({3, 0, 4, 1, 2}) || order == Ids({2, 1, 4, 0, 3}));
}

TEST(Reorder, takes_an_order_of_ones_own_and_refuses_what_is_none) {
  const Graph g = with_columns(four_node_graph());
  const Graph made = reorder(g, ids({3, 1, 0, 2}));
  EXPECT_EQ(values(made.ndata().at("_ID")), Ids({3, 1, 0, 2}));
  expect_same_graph(g, made);
  EXPECT_THROW(reorder(g, ids({0, 1, 2})), InvalidArgument);
  EXPECT_THROW(reorder(g, ids({0, 1, 2, 2})), InvalidArgument);
  EXPECT_THROW(reorder(g, ids({0, 1, 2, 4})), InvalidArgument);
  EXPECT_THROW(reorder(g, static_cast<NodeOrder>(9)), InvalidArgument);
}

TEST(Reorder, keeps_its_ids_when_the_caller_changes_his) {
  const at::Tensor order = ids({3, 1, 0, 2});
  const Graph made = reorder(four_node_graph(), order);
  order.zero_();
  EXPECT_EQ(values(made.ndata().at("_ID")), Ids({3, 1, 0, 2}));
}

TEST(Reorder, refuses_more_nodes_than_it_can_sort_edges_of) {
  const Graph g =
      Graph::from_coo(at::empty({0}, at::kLong), at::empty({0}, at::kLong), 4'000'000'000);
  EXPECT_THROW(reorder(g, NodeOrder::kKeep), InvalidArgument);
  EXPECT_THROW(reorder(g, ids({0})), InvalidArgument);
}

}  // namespace
}  // namespace mezzo::test
