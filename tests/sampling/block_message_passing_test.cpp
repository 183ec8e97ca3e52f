#include <torch/csrc/autograd/autograd.h>

#include "mezzo/message_passing/fn.h"
#include "mezzo/sampling/blocks/block.h"

#include "support/graphs.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

/// Three sources; the first two are also the destinations: edges 2->0, 0->1, 1->1.
Block three_edge_block(IdWidth width = IdWidth::kAutomatic) {
  return Block(topology_of({2, 0, 1}, {0, 1, 1}, 3, 2, width), ids({5, 7, 9}), ids({10, 20, -1}));
}

/// Many sources, few destinations; one destination has no in-edges.
Block larger_block(IdWidth width) {
  const Topology drawn = random_topology(40, 8, 150, 3, 1.0, width);
  const Topology topology =
      Topology::from_coo(drawn.src(), drawn.dst(), drawn.num_src(), drawn.num_dst() + 1, width);
  return Block(topology, at::arange(40, on_device(at::kLong)), {});
}

/// For each destination the sum of `messages` ([E, ...]) of its in-edges, in float64 on the CPU.
at::Tensor summed_into(const Topology& topology, const at::Tensor& messages) {
  const at::Tensor rows = messages.detach().to(at::kCPU, at::kDouble);
  Ids shape = rows.sizes().vec();
  shape[0] = topology.num_dst();
  const at::Tensor sums = at::zeros(shape, at::kDouble);
  const Ids dst = values(topology.dst());
  for (std::size_t e = 0; e < dst.size(); ++e) {
    sums.select(0, dst[e]).add_(rows.select(0, static_cast<std::int64_t>(e)));
  }
  return sums;
}

/// rows[ids[i]] for each i, in float64 on the CPU.
at::Tensor rows_at(const at::Tensor& rows, const at::Tensor& which) {
  return rows.detach().to(at::kCPU, at::kDouble).index_select(0, which.cpu().to(at::kLong));
}

TEST(BlockMessagePassing, update_all_sums_over_the_edges_into_each_destination) {
  for (const IdWidth width : {IdWidth::kInt32, IdWidth::kInt64}) {
    for (const DTypeInfo& dtype : dtypes()) {
      SCOPED_TRACE(dtype.name);
      Block block = larger_block(width);
      const Topology& topology = block.topology();
      const at::Tensor x = integers({block.num_src(), 3}, dtype.scalar, 1);
      const at::Tensor w = integers({block.num_edges(), 1}, dtype.scalar, 2);
      block.srcdata()["x"] = x;
      block.edata()["w"] = w;
      block.update_all(fn::u_mul_e("x", "w", "m"), fn::sum("m", "out"));
      const at::Tensor messages = rows_at(x, topology.src()) * w.cpu().to(at::kDouble);
      EXPECT_TRUE(exact_rounded(block.dstdata().at("out"), summed_into(topology, messages)));
      EXPECT_EQ(block.srcdata().names(), Names({"x"}));
      EXPECT_EQ(block.edata().names(), Names({"w"}));
    }
  }
}

TEST(BlockMessagePassing, messages_read_both_sides_and_apply_sees_what_was_reduced) {
  Block block = three_edge_block();
  block.srcdata()["x"] = numbers({1, 2, 4});
  block.dstdata()["x"] = numbers({10, 20});  // differs from the sources' values
  block.update_all(fn::u_add_v("x", "x", "m"), fn::sum("m", "sum"), [](const NodeBatch& nodes) {
    return one_column("y", nodes.data("sum") - nodes.data("x"));
  });
  EXPECT_TRUE(exact(block.dstdata().at("sum"), numbers({14, 43})));
  EXPECT_TRUE(exact(block.dstdata().at("y"), numbers({4, 23})));
  EXPECT_FALSE(block.srcdata().contains("y"));
}

TEST(BlockMessagePassing, user_defined_functions_see_rows_and_ids_of_their_side) {
  Block block = three_edge_block();
  block.srcdata()["x"] = numbers({1, 2, 4});
  block.dstdata()["x"] = numbers({10, 20});
  Ids src, dst, edges, degrees;
  block.update_all(
      [&](const EdgeBatch& batch) -> Columns {
        src = values(batch.src_ids());
        dst = values(batch.dst_ids());
        edges = values(batch.edge_ids());
        return {{"m", batch.src("x") * batch.dst("x")}};
      },
      [&](const NodeBatch& batch) -> Columns {
        degrees.push_back(batch.mailbox("m").size(1));
        return {{"out", batch.mailbox("m").sum(1) + batch.data("x")}};
      });
  EXPECT_EQ(src, Ids({2, 0, 1}));
  EXPECT_EQ(dst, Ids({0, 1, 1}));
  EXPECT_EQ(edges, Ids({0, 1, 2}));
  EXPECT_EQ(degrees, Ids({1, 2}));
  EXPECT_TRUE(exact(block.dstdata().at("out"), numbers({50, 80})));
}

TEST(BlockMessagePassing, apply_edges_of_all_or_some_edges) {
  Block block = three_edge_block();
  block.srcdata()["x"] = numbers({1, 2, 4});
  block.dstdata()["y"] = numbers({10, 20});
  block.apply_edges(fn::u_mul_v("x", "y", "z"));
  EXPECT_TRUE(exact(block.edata().at("z"), numbers({40, 20, 40})));
  block.apply_edges(
      [](const EdgeBatch& batch) { return one_column("z", batch.data("z") + batch.src("x")); },
      ids({2, 0}));
  EXPECT_TRUE(exact(block.edata().at("z"), numbers({44, 20, 42})));
  EXPECT_ERROR("apply_edges:expectededgesin[0,3),got3atposition0",
               block.apply_edges(fn::u_mul_v("x", "y", "z"), ids({3})));
}

TEST(BlockMessagePassing, errors_name_the_side_and_leave_the_frames) {
  Block block = three_edge_block();
  block.srcdata()["x"] = numbers({1, 2, 4});
  EXPECT_ERROR(fragments("update_all", "sourcecolumn'misspelt'"),
               block.update_all(fn::copy_u("misspelt", "m"), fn::sum("m", "out")));
  EXPECT_ERROR("destinationcolumn'x'", block.apply_edges(fn::u_add_v("x", "x", "z")));
  EXPECT_TRUE(block.dstdata().columns().empty());
  EXPECT_TRUE(block.edata().columns().empty());
}

TEST(BlockMessagePassing, gradients_reach_the_columns_of_both_sides) {
  Block block = three_edge_block();
  const at::Tensor x = leaf(numbers({1, 2, 4})), y = leaf(numbers({10, 20}));
  block.srcdata()["x"] = x;
  block.dstdata()["y"] = y;
  block.update_all(fn::u_mul_v("x", "y", "m"), fn::sum("m", "out"));
  block.dstdata().at("out").sum().backward();
  EXPECT_TRUE(exact(x.grad(), numbers({20, 20, 10})));
  EXPECT_TRUE(exact(y.grad(), numbers({4, 3})));
}

TEST(BlockMessagePassing, degrees_are_those_of_its_edges) {
  const Block block = three_edge_block();
  EXPECT_EQ(values(block.in_degrees()), Ids({1, 2}));
  EXPECT_EQ(values(block.out_degrees()), Ids({1, 1, 1}));
}

TEST(BlockMessagePassing, local_scope_undoes_what_was_done_to_the_three_frames) {
  Block block = three_edge_block();
  const at::Tensor old = numbers({1, 2, 4});
  block.srcdata()["x"] = old;
  block.dstdata()["removed"] = numbers({1, 2});
  const at::Tensor& x = block.srcdata()["x"];
  {
    const auto scope = block.local_scope();
    block.srcdata()["x"] = numbers({0, 0, 0});
    block.dstdata().erase("removed");
    block.update_all(fn::copy_u("x", "m"), fn::sum("m", "out"));
    block.apply_edges(fn::copy_u("x", "z"));
    EXPECT_TRUE(block.dstdata().contains("out"));
  }
  EXPECT_TRUE(block.srcdata().at("x").is_same(old));
  EXPECT_EQ(&x, &block.srcdata()["x"]);  // the same place in the frame
  EXPECT_EQ(block.dstdata().names(), Names({"removed"}));
  EXPECT_TRUE(block.edata().columns().empty());
}

TEST(BlockMessagePassing, local_var_shares_structure_ids_and_tensors_but_no_columns) {
  Block block = three_edge_block();
  const at::Tensor x = numbers({1, 2, 4});
  block.srcdata()["x"] = x;
  Block own = block.local_var();
  EXPECT_TRUE(own.topology().is_same(block.topology()));
  EXPECT_EQ(values(own.src_nodes()), Ids({5, 7, 9}));
  EXPECT_EQ(values(own.parent_edges()), Ids({10, 20, -1}));
  EXPECT_TRUE(own.srcdata().at("x").is_same(x));
  own.srcdata()["new"] = x;
  own.dstdata()["new"] = numbers({1, 2});
  own.edata()["new"] = x;
  EXPECT_EQ(block.srcdata().names(), Names({"x"}));
  EXPECT_TRUE(block.dstdata().columns().empty());
  EXPECT_TRUE(block.edata().columns().empty());
}

/// One layer for graphs and blocks, as in docs/library.md.
template <class Sides>
at::Tensor weighted_mean(Sides g, const at::Tensor& h, const at::Tensor& w) {
  const auto scope = g.local_scope();
  g.srcdata()["h"] = h;
  g.edata()["w"] = w;
  g.update_all(fn::u_mul_e("h", "w", "m"), fn::mean("m", "out"));
  return g.dstdata().at("out");
}

TEST(BlockMessagePassing, one_template_serves_a_graph_and_its_blocks) {
  MEZZO_CPU_ONLY("to_block runs on the CPU");
  Graph g = power_law_graph(50, 400, 3);
  const at::Tensor h = uniform({50, 4}, at::kFloat, 1), w = uniform({400, 1}, at::kFloat, 2);
  const at::Tensor whole = weighted_mean(g, h, w);
  EXPECT_TRUE(g.ndata().columns().empty());
  const at::Tensor seeds = ids({7, 3, 49});
  for (const bool with_destinations : {true, false}) {
    const Block block = to_block(g.topology(), g.in_edges(seeds), seeds, with_destinations);
    const at::Tensor part = weighted_mean(block, h.index_select(0, block.src_nodes()),
                                          w.index_select(0, block.parent_edges()));
    EXPECT_TRUE(same_bits(part, whole.index_select(0, seeds)));
    EXPECT_TRUE(block.dstdata().columns().empty());
    const Block own = block.local_var();
    EXPECT_EQ(values(own.dst_nodes()), values(seeds));
    EXPECT_EQ(own.topology().has_separate_destinations(), !with_destinations);
  }
}

}  // namespace
}  // namespace mezzo::test
