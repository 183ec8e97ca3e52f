#include <algorithm>
#include <numeric>

#include "mezzo/graph/transforms/transforms.h"

#include "support/graphs.h"
#include "support/tensors.h"

namespace mezzo::test {
namespace {

/// Expects that `reordered` is `g` renumbered by its "_ID" columns, with sorted edges.
void expect_same_graph(const Graph& g, const Graph& reordered) {
  const Ids nodes = values(reordered.ndata().at("_ID")), ids = values(reordered.edata().at("_ID"));
  Ids sorted = nodes, all(nodes.size());
  std::sort(sorted.begin(), sorted.end());
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(sorted, all);
  const std::vector<Edge> after = edges(reordered), before = edges(g);
  ASSERT_EQ(ids.size(), before.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto [src, dst] = after[i];
    EXPECT_EQ(Edge(nodes[static_cast<std::size_t>(src)], nodes[static_cast<std::size_t>(dst)]),
              before[static_cast<std::size_t>(ids[i])]);
    if (i > 0) {
      EXPECT_LE(std::pair(after[i - 1].second, after[i - 1].first), std::pair(dst, src));
    }
  }
  EXPECT_EQ(values(reordered.ndata().at("h").select(1, 0)), nodes);
  EXPECT_EQ(values(reordered.edata().at("w").select(1, 0)), ids);
  EXPECT_FALSE(reordered.topology().csc().edge_ids.defined());  // CSR order is edge-id order
}

TEST(Reorder, keeps_the_graph_under_every_order) {
  for (const NamedGraph& named : named_graphs()) {
    mezzo::detail::for_each(NodeOrders{}, [&]<class Order>() {
      SCOPED_TRACE(named.name + " " + std::string(Order::name));
      const Graph g = with_id_columns(named.graph);
      expect_same_graph(g, reorder(g, Order::kind));
    });
  }
}

TEST(Reorder, keep_leaves_the_nodes_and_degree_puts_the_most_connected_one_first) {
  const auto nodes_by = [](NodeOrder order) {
    return values(reorder(four_node_graph(), order).ndata().at("_ID"));
  };
  EXPECT_EQ(nodes_by(NodeOrder::kKeep), Ids({0, 1, 2, 3}));
  EXPECT_EQ(nodes_by(NodeOrder::kDegree), Ids({2, 0, 1, 3}));
}

TEST(Reorder, reverse_cuthill_mckee_puts_a_shuffled_path_in_line) {
  // The path 3 - 0 - 4 - 1 - 2.
  const Graph g = with_id_columns(graph_of({3, 4, 4, 1}, {0, 0, 1, 2}, 5));
  const Graph reordered = reorder(g, NodeOrder::kReverseCuthillMcKee);
  const Ids order = values(reordered.ndata().at("_ID"));
  EXPECT_TRUE(order == Ids({3, 0, 4, 1, 2}) || order == Ids({2, 1, 4, 0, 3}));
}

TEST(Reorder, takes_an_order_of_ones_own_and_refuses_what_is_none) {
  const Graph g = with_id_columns(four_node_graph());
  const Graph reordered = reorder(g, ids({3, 1, 0, 2}));
  EXPECT_EQ(values(reordered.ndata().at("_ID")), Ids({3, 1, 0, 2}));
  expect_same_graph(g, reordered);
  EXPECT_THROW(reorder(g, ids({0, 1, 2})), InvalidArgument);
  EXPECT_THROW(reorder(g, ids({0, 1, 2, 2})), InvalidArgument);
  EXPECT_THROW(reorder(g, ids({0, 1, 2, 4})), InvalidArgument);
  EXPECT_THROW(reorder(g, static_cast<NodeOrder>(9)), InvalidArgument);
}

TEST(Reorder, keeps_its_ids_when_the_caller_changes_his) {
  const at::Tensor order = ids({3, 1, 0, 2});
  const Graph reordered = reorder(four_node_graph(), order);
  order.zero_();
  EXPECT_EQ(values(reordered.ndata().at("_ID")), Ids({3, 1, 0, 2}));
}

TEST(Reorder, refuses_more_nodes_than_it_can_sort_edges_of) {
  const Graph g =
      Graph::from_coo(at::empty({0}, at::kLong), at::empty({0}, at::kLong), 4'000'000'000);
  EXPECT_THROW(reorder(g, NodeOrder::kKeep), InvalidArgument);
  EXPECT_THROW(reorder(g, ids({0})), InvalidArgument);
}

}  // namespace
}  // namespace mezzo::test
