#include "mezzo/sampling/subgraphs/partition.h"

#include <algorithm>

#include "support/graphs.h"

namespace mezzo::test {
namespace {

const CpuOnlySuite kPartitionOnCpu("Partition", "sampling on the CPU");

/// Two complete graphs of `size` nodes, joined by one edge from the first to the second.
Graph two_cliques(std::int64_t size) {
  Ids src, dst;
  for (std::int64_t side = 0; side < 2; ++side) {
    for (std::int64_t i = 0; i < size; ++i) {
      for (std::int64_t j = 0; j < size; ++j) {
        if (i == j) continue;
        src.push_back(side * size + i);
        dst.push_back(side * size + j);
      }
    }
  }
  src.push_back(size - 1);
  dst.push_back(size);
  return graph_of(src, dst, 2 * size);
}

/// A square grid with undirected edges.
Graph grid(std::int64_t side) {
  Ids src, dst;
  const auto join = [&](std::int64_t a, std::int64_t b) {
    src.insert(src.end(), {a, b});
    dst.insert(dst.end(), {b, a});
  };
  for (std::int64_t i = 0; i < side * side; ++i) {
    if (i % side + 1 < side) join(i, i + 1);
    if (i + side < side * side) join(i, i + side);
  }
  return graph_of(src, dst, side * side);
}

std::int64_t largest_part(const at::Tensor& parts) {
  return parts.bincount().max().item<std::int64_t>();
}

TEST(Partition, cuts_the_one_edge_between_two_cliques) {
  const Graph g = two_cliques(12);
  const at::Tensor parts = metis_partition(g, 2);
  EXPECT_EQ(edge_cut(g, parts), 1);
  EXPECT_EQ(largest_part(parts), 12);
}

TEST(Partition, every_part_has_a_node_and_every_node_a_part) {
  for (const NamedGraph& named : named_graphs()) {
    const std::int64_t num_nodes = named.graph.num_nodes();
    for (std::int64_t num_parts = 1; num_parts <= num_nodes; ++num_parts) {
      SCOPED_TRACE(named.name + " in " + std::to_string(num_parts));
      const at::Tensor parts = metis_partition(named.graph, num_parts);
      ASSERT_EQ(parts.numel(), num_nodes);
      EXPECT_EQ(parts.scalar_type(), at::kLong);
      EXPECT_GE(parts.min().item<std::int64_t>(), 0);
      EXPECT_LT(parts.max().item<std::int64_t>(), num_parts);
      EXPECT_EQ(parts.bincount().count_nonzero().item<std::int64_t>(), num_parts);
    }
  }
}

TEST(Partition, parts_are_balanced_and_cut_less_than_stripes) {
  const Graph g = grid(40);
  const at::Tensor parts = metis_partition(g, 16);
  EXPECT_LE(largest_part(parts), 103);  // the mean of 100 plus the target imbalance
  const at::Tensor stripes = at::arange(1600, at::kLong).floor_divide(100);
  EXPECT_LT(edge_cut(g, parts), edge_cut(g, stripes));
}

TEST(Partition, balances_edges_on_request) {
  // a clique has most of the edges, a cycle most of the nodes
  Ids src, dst;
  for (std::int64_t i = 0; i < 40; ++i) {
    for (std::int64_t j = 0; j < 40; ++j) {
      src.push_back(i);
      dst.push_back(j);
    }
  }
  for (std::int64_t i = 40; i < 600; ++i) {
    src.push_back(i);
    dst.push_back(i + 1 < 600 ? i + 1 : 40);
  }
  const Graph g = graph_of(src, dst, 600);
  const auto most_edges = [&](bool balance_edges) {
    const at::Tensor parts = metis_partition(g, 2, {.balance_edges = balance_edges}).to(at::kLong);
    return at::bincount(parts, g.in_degrees().to(at::kDouble)).max().item<double>();
  };
  EXPECT_GE(most_edges(false), 1600);
  EXPECT_LT(most_edges(true), most_edges(false));
}

TEST(Partition, is_equal_for_equal_seeds_and_id_widths) {
  for (const IdWidth width : {IdWidth::kInt32, IdWidth::kInt64}) {
    const Graph g = power_law_graph(300, 1500, 5, width);
    const at::Tensor parts = metis_partition(g, 7, {.seed = 3});
    EXPECT_TRUE(at::equal(parts, metis_partition(g, 7, {.seed = 3})));
    EXPECT_TRUE(at::equal(parts, metis_partition(power_law_graph(300, 1500, 5), 7, {.seed = 3})));
  }
}

TEST(Partition, direction_loops_and_parallel_edges_do_not_matter) {
  const Graph g = grid(10);
  const at::Tensor src = g.topology().src().to(at::kLong), dst = g.topology().dst().to(at::kLong);
  const at::Tensor all = at::arange(100, at::kLong);
  const Graph noisy =
      Graph::from_coo(at::cat({dst, all, src, src}), at::cat({src, all, dst, dst}), 100);
  EXPECT_TRUE(at::equal(metis_partition(g, 4), metis_partition(noisy, 4)));
}

TEST(Partition, edge_cut_counts_the_edges_between_parts) {
  const Graph g = four_node_graph();
  EXPECT_EQ(edge_cut(g, ids({0, 0, 0, 0})), 0);
  EXPECT_EQ(edge_cut(g, ids({0, 1, 1, 1})), 2);
  EXPECT_EQ(edge_cut(duplicate_graph(), ids({0, 1, 1}).to(at::kInt)), 4);
  EXPECT_EQ(edge_cut(empty_graph(), ids({})), 0);
}

TEST(Partition, wrong_arguments_are_errors) {
  const Graph g = cycle_graph(5);
  EXPECT_ERROR("num_partsin[1,5]", metis_partition(g, 0));
  EXPECT_ERROR("got6", metis_partition(g, 6));
  EXPECT_ERROR("imbalancein(1,100]", metis_partition(g, 2, {.imbalance = 1}));
  EXPECT_ERROR("onesetofnodes", metis_partition(in_star(3), 1));
  EXPECT_ERROR("partsof5nodes", edge_cut(g, ids({0, 1})));
  EXPECT_EQ(metis_partition(empty_graph(), 1).numel(), 0);
}

}  // namespace
}  // namespace mezzo::test
