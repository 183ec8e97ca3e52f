#include "mezzo/graph/topology_ops.h"

#include "support/tensors.h"

// Compares the builders of CUDA topologies, on the test device (also the CPU), with the CPU's
// loops.
namespace mezzo::test {
namespace {

using mezzo::detail::EntryOrder;

bool same_array(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return a.scalar_type() == b.scalar_type() && at::equal(a.cpu(), b.cpu());
}

std::vector<Topology> structures() {
  std::vector<Topology> all;
  for (const IdWidth width : {IdWidth::kInt32, IdWidth::kInt64}) {
    for (const std::int64_t num_edges : {0, 1, 2, 40, 3000}) {
      all.push_back(random_topology(50, 70, num_edges, 4, 2.0, width).to(at::kCPU));
    }
    const Topology mixed = all.back();
    // Entry i of the CSR is edge i, so the keys are sorted.
    all.push_back(Topology::from_csr(mixed.csr().indptr, mixed.csr().indices, 70, {}, width));
  }
  return all;
}

TEST(TopologyOps, edges_are_sorted_as_by_the_cpu) {
  for (const Topology& topology : structures()) {
    for (const Topology& way : {topology, topology.reverse()}) {
      const Adjacency rows = mezzo::detail::sort_edges_by_ops(on_device(way.src()),
                                                              on_device(way.dst()), way.num_src());
      EXPECT_TRUE(same_array(rows.indptr, way.csr().indptr));
      EXPECT_TRUE(same_array(rows.indices, way.csr().indices));
      EXPECT_TRUE(same_array(rows.edge_ids, way.csr().edge_ids));
      EXPECT_EQ(rows.longest_row, way.csr().longest_row);
    }
  }
}

TEST(TopologyOps, rows_expand_to_the_edges) {
  for (const Topology& topology : structures()) {
    for (const Topology& way : {topology, topology.reverse()}) {
      const Adjacency& rows = way.csr();
      const at::Tensor edge_ids = rows.edge_ids.defined() ? on_device(rows.edge_ids) : at::Tensor();
      const mezzo::detail::EdgeList edges = mezzo::detail::expand_rows_by_ops(
          {on_device(rows.indptr), on_device(rows.indices), edge_ids});
      EXPECT_TRUE(same_array(edges.src, way.src()));
      EXPECT_TRUE(same_array(edges.dst, way.dst()));
    }
  }
}

TEST(TopologyOps, ids_are_counted) {
  for (const Topology& topology : structures()) {
    EXPECT_TRUE(
        same_array(mezzo::detail::count_ids_by_ops(on_device(topology.dst()), topology.num_dst()),
                   topology.in_degrees()));
  }
}

TEST(TopologyOps, row_pointers_run_from_0_to_the_end_and_never_fall) {
  const auto longest = [](std::vector<std::int64_t> indptr) {
    return mezzo::detail::longest_row(ids(indptr), 5);
  };
  EXPECT_EQ(longest({0, 5}), 5);
  EXPECT_EQ(longest({0, 0, 2, 2, 5, 5}), 3);
  EXPECT_EQ(mezzo::detail::longest_row(ids({0}), 0), 0);
  EXPECT_EQ(longest({0, 3, 2, 5}), std::nullopt);
  EXPECT_EQ(longest({1, 5}), std::nullopt);
  EXPECT_EQ(longest({0, 4}), std::nullopt);
  EXPECT_EQ(longest({0, 6}), std::nullopt);
}

TEST(TopologyOps, entries_are_the_edges_or_ascend_in_their_rows_or_neither) {
  const auto order = [](std::vector<std::int64_t> edge_ids) {
    return mezzo::detail::entry_order(ids({0, 0, 3, 3, 5}), ids(edge_ids));
  };
  EXPECT_EQ(order({0, 1, 2, 3, 4}), EntryOrder::kIdentity);
  EXPECT_EQ(order({1, 2, 4, 0, 3}), EntryOrder::kAscending);
  EXPECT_EQ(order({1, 2, 0, 3, 4}), EntryOrder::kOther);
  EXPECT_EQ(order({0, 1, 2, 4, 3}), EntryOrder::kOther);
  EXPECT_EQ(order({0, 1, 1, 3, 4}), std::nullopt);
  EXPECT_EQ(mezzo::detail::entry_order(ids({0, 0}), ids({})), EntryOrder::kIdentity);
}

}  // namespace
}  // namespace mezzo::test
