#include <torch/csrc/autograd/autograd.h>

#include "mezzo/graph/transforms/transforms.h"

#include "support/graphs.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

/// The reducers of DGL's fill_data.
const std::vector<ReduceOp>& fill_reducers() {
  static const std::vector<ReduceOp> all = {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMax,
                                            ReduceOp::kMin};
  return all;
}

at::Tensor reduced_rows(const at::Tensor& rows, ReduceOp op) {
  switch (op) {
    case ReduceOp::kMean:
      return rows.mean(0);
    case ReduceOp::kMax:
      return rows.amax(0);
    case ReduceOp::kMin:
      return rows.amin(0);
    default:
      return rows.sum(0);
  }
}

/// The definition in float64 on the CPU: reduces `column` over the edges into each node; 0 without
/// in-edges.
at::Tensor reduced_in_edges(const Graph& g, const at::Tensor& column, ReduceOp op) {
  const Ids dst = values(g.topology().dst());
  const at::Tensor float64 = column.detach().to(at::kCPU, at::kDouble);
  Ids shape = float64.sizes().vec();
  shape[0] = g.num_nodes();
  const at::Tensor out = at::zeros(shape, at::kDouble);
  for (std::int64_t node = 0; node < g.num_nodes(); ++node) {
    std::vector<at::Tensor> rows;
    for (std::size_t e = 0; e < dst.size(); ++e) {
      if (dst[e] == node) rows.push_back(float64.select(0, static_cast<std::int64_t>(e)));
    }
    if (!rows.empty()) out.select(0, node).copy_(reduced_rows(at::stack(rows), op));
  }
  return out;
}

TEST(AddSelfLoopReduced, gives_loops_what_the_edges_into_their_node_reduce_to) {
  for (const NamedGraph& named : named_graphs()) {
    for (const DTypeInfo& dtype : dtypes()) {
      for (const ReduceOp op : fill_reducers()) {
        SCOPED_TRACE(fmt::format("{} {} {}", named.name, dtype.name, name_of(ReduceOps{}, op)));
        Graph g = named.graph.local_var();
        const std::int64_t num_edges = g.num_edges(), num_nodes = g.num_nodes();
        g.edata()["a"] = integers({num_edges}, dtype.scalar, 1);
        g.edata()["b"] = integers({num_edges, 2, 3}, dtype.scalar, 2);
        const Graph looped = add_self_loop(g, op);
        for (const char* name : {"a", "b"}) {
          const at::Tensor &before = g.edata().at(name), &after = looped.edata().at(name);
          EXPECT_TRUE(same_bits(after.narrow(0, 0, num_edges), before));
          const at::Tensor loops = after.narrow(0, num_edges, num_nodes);
          const at::Tensor expected = reduced_in_edges(g, before, op);
          if (op == ReduceOp::kMean) {  // the division and the store round
            EXPECT_TRUE(near(loops, expected, sum_bound(expected.abs(), 2, dtype.scalar)));
          } else {
            EXPECT_TRUE(exact_rounded(loops, expected));
          }
        }
      }
    }
  }
}

TEST(AddSelfLoopReduced, is_that_of_dgls_manual) {
  for (const IdWidth width : {IdWidth::kInt32, IdWidth::kInt64}) {
    Graph g = graph_of({0, 0, 2}, {2, 1, 0}, 3, width);
    g.ndata()["hv"] = numbers({0, 1, 2}, at::kFloat).view({3, 1});
    g.edata()["he"] = numbers({0, 1, 2}, at::kFloat).view({3, 1});
    const Graph looped = add_self_loop(g, ReduceOp::kSum);
    EXPECT_EQ(edges(looped), std::vector<Edge>({{0, 2}, {0, 1}, {2, 0}, {0, 0}, {1, 1}, {2, 2}}));
    EXPECT_EQ(values(looped.edata().at("he")), Ids({0, 1, 2, 2, 1, 0}));
    EXPECT_TRUE(looped.ndata().at("hv").is_same(g.ndata().at("hv")));
    EXPECT_EQ(looped.topology().id_dtype(), g.topology().id_dtype());
  }
}

TEST(AddSelfLoopReduced, passes_gradients_through_both_parts_of_a_column) {
  Graph g = four_node_graph();  // node 1 has edge 0, node 2 has edges 1, 2 and 3
  const auto gradient = [&](ReduceOp op) {
    const at::Tensor w = leaf(numbers({10, 20, 30, 40}));
    g.edata()["w"] = w;
    add_self_loop(g, op).edata().at("w").sum().backward();
    return w.grad();
  };
  EXPECT_TRUE(exact(gradient(ReduceOp::kSum), numbers({2, 2, 2, 2})));
  EXPECT_TRUE(exact(gradient(ReduceOp::kMax), numbers({2, 1, 1, 2})));
  EXPECT_TRUE(exact(gradient(ReduceOp::kMin), numbers({2, 2, 1, 1})));
  const at::Tensor means = numbers({2, 4.0 / 3, 4.0 / 3, 4.0 / 3});
  EXPECT_TRUE(near(gradient(ReduceOp::kMean), means, sum_bound(means, 4, at::kDouble)));
}

TEST(AddSelfLoopReduced, refuses_columns_of_integers) {
  Graph g = four_node_graph();
  g.edata()["type"] = ids({1, 2, 3, 4});
  EXPECT_ERROR(
      "add_self_loop:expectededgecolumn'type'ofafloatingdtypeforthemeanofitsvalues,"
      "gotLong",
      add_self_loop(g, ReduceOp::kMean));
  g.edata()["type"] = at::zeros({3}, on_device());
  EXPECT_ERROR("edgecolumn'type':expected4rows,got3", add_self_loop(g, ReduceOp::kMean));
}

}  // namespace
}  // namespace mezzo::test
