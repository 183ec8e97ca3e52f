#include "mezzo/sampling/blocks/block.h"

#include "support/graphs.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

const CpuOnlySuite kBlockOnCpu("Block", "sampling on the CPU");
const CpuOnlySuite kToBlockOnCpu("ToBlock", "sampling on the CPU");

/// Two destinations (nodes 5 and 7) and a third source (node 9).
Block small_block() {
  return Block(topology_of({2, 0, 1}, {0, 1, 1}, 3, 2), ids({5, 7, 9}), ids({10, 20, -1}));
}

TEST(Block, calls_nodes_and_edges_as_the_parent_does) {
  const Block block = small_block();
  EXPECT_EQ(block.num_src(), 3);
  EXPECT_EQ(block.num_dst(), 2);
  EXPECT_EQ(block.num_edges(), 3);
  EXPECT_EQ(values(block.src_nodes()), (Ids{5, 7, 9}));
  EXPECT_EQ(values(block.dst_nodes()), (Ids{5, 7}));
  EXPECT_EQ(values(block.parent_edges()), (Ids{10, 20, -1}));
  EXPECT_EQ(block.src_nodes().scalar_type(), at::kLong);
}

TEST(Block, narrow_ids_are_given_as_int64) {
  const Block block(topology_of({2, 0, 1}, {0, 1, 1}, 3, 2), ids({5, 7, 9}).to(at::kInt),
                    ids({10, 20, -1}).to(at::kInt));
  EXPECT_TRUE(same_bits(block.src_nodes(), ids({5, 7, 9})));
  EXPECT_TRUE(same_bits(block.dst_nodes(), ids({5, 7})));
  EXPECT_TRUE(same_bits(block.parent_edges(), ids({10, 20, -1})));
}

TEST(Block, copies_share_their_frames) {
  Block block = small_block(), copy = block;
  block.srcdata()["h"] = at::ones({3, 2});
  block.dstdata()["h"] = at::ones({2, 2});
  block.edata()["w"] = at::ones({3});
  EXPECT_TRUE(exact(copy.srcdata().at("h"), at::ones({3, 2})));
  EXPECT_TRUE(exact(copy.dstdata().at("h"), at::ones({2, 2})));
  EXPECT_TRUE(exact(copy.edata().at("w"), at::ones({3})));
}

TEST(Block, columns_of_another_length_name_their_side) {
  Block block = small_block();
  for (Frame* frame : {&block.srcdata(), &block.dstdata(), &block.edata()}) {
    (*frame)["x"] = at::ones({9});
  }
  EXPECT_ERROR("source", block.srcdata().at("x"));
  EXPECT_ERROR("destination", block.dstdata().at("x"));
  EXPECT_ERROR("edge", block.edata().at("x"));
}

TEST(Block, on_its_own_device_is_itself) {
  Block block = small_block();
  Block same = block.to(at::kCPU);
  same.srcdata()["h"] = at::ones({3});
  EXPECT_TRUE(block.srcdata().contains("h"));
}

TEST(Block, ids_of_another_length_are_an_error) {
  const Topology topology = topology_of({2, 0, 1}, {0, 1, 1}, 3, 2);
  EXPECT_ERROR("src_nodes", Block(topology, ids({1, 2}), {}));
  EXPECT_ERROR("edges", Block(topology, ids({1, 2, 3}), ids({1})));
  EXPECT_ERROR("src_nodes", Block(topology, at::rand({3}), {}));
  EXPECT_ERROR("2sources", Block(topology.reverse(), ids({1, 2}), {}));
}

TEST(Block, edges_that_are_not_known_are_an_error) {
  const Block block(topology_of({0}, {0}, 1, 1), ids({3}), {});
  EXPECT_ERROR("parent_edges", block.parent_edges());
}

TEST(ToBlock, destinations_come_first_in_the_given_order) {
  const Topology topology = topology_of({1, 2}, {2, 3}, 4, 4);
  const Block block = to_block(topology, ids({0, 1}), ids({3, 2}));
  EXPECT_EQ(values(block.dst_nodes()), (Ids{3, 2}));
  EXPECT_EQ(values(block.src_nodes()), (Ids{3, 2, 1}));
  EXPECT_EQ(values(block.parent_edges()), (Ids{0, 1}));
  const auto parents = [](const at::Tensor& nodes, const at::Tensor& local) {
    return values(nodes.index_select(0, local));
  };
  EXPECT_EQ(parents(block.src_nodes(), block.topology().src()), (Ids{1, 2}));
  EXPECT_EQ(parents(block.dst_nodes(), block.topology().dst()), (Ids{2, 3}));
}

TEST(ToBlock, without_destinations_the_sources_are_those_of_the_edges) {
  const Topology topology = topology_of({1, 2, 3}, {2, 3, 2}, 4, 4);
  const Block block = to_block(topology, ids({1, 0, 2}), ids({3, 2}), false);
  EXPECT_EQ(values(block.src_nodes()), (Ids{2, 1, 3}));
  EXPECT_EQ(values(block.dst_nodes()), (Ids{3, 2}));
  EXPECT_EQ(values(block.parent_edges()), (Ids{1, 0, 2}));
  EXPECT_EQ(values(block.topology().src()), (Ids{0, 1, 2}));
  EXPECT_EQ(values(block.topology().dst()), (Ids{0, 1, 1}));
  EXPECT_EQ(block.dstdata().num_rows(), 2);
  // more destinations than sources
  const Block of_receivers = to_block(topology, ids({0}), ids({3, 2, 0}), false);
  EXPECT_EQ(values(of_receivers.src_nodes()), (Ids{1}));
  EXPECT_EQ(values(of_receivers.dst_nodes()), (Ids{3, 2, 0}));
  EXPECT_EQ(values(of_receivers.topology().dst()), (Ids{1}));
  const Block none = to_block(topology, ids({}), ids({3}), false);
  EXPECT_EQ(none.num_src(), 0);
  EXPECT_EQ(values(none.dst_nodes()), (Ids{3}));
}

TEST(ToBlock, its_topology_knows_whether_the_destinations_are_sources) {
  const Topology topology = topology_of({1, 2}, {2, 3}, 4, 4);
  EXPECT_FALSE(to_block(topology, ids({0}), ids({2})).topology().has_separate_destinations());
  const Block block = to_block(topology, ids({0}), ids({2}), false);
  const Topology& separate = block.topology();
  EXPECT_TRUE(separate.has_separate_destinations());
  EXPECT_TRUE(separate.reverse().has_separate_destinations());
  EXPECT_TRUE(separate.with_parent_degrees(ids({1}), ids({1})).has_separate_destinations());
  EXPECT_ERROR("destinations", Block(separate, ids({1}), {}));
}

TEST(ToBlock, an_edge_into_another_node_is_an_error) {
  const Topology topology = topology_of({1, 2}, {2, 3}, 4, 4);
  const std::string text = error_of([&] { to_block(topology, ids({0, 1}), ids({2})); });
  EXPECT_TRUE(mentions(text, "edge1")) << text;
  EXPECT_TRUE(mentions(text, "node3")) << text;
}

TEST(ToBlock, masks_choose_edges_and_nodes) {
  const Topology topology = four_nodes();
  const at::Tensor edges = ids({0, 1, 0, 1}).to(at::kBool), nodes = ids({0, 0, 1, 1}).to(at::kBool);
  const Block block = to_block(topology, edges, nodes);
  EXPECT_EQ(values(block.dst_nodes()), (Ids{2, 3}));
  EXPECT_EQ(values(block.src_nodes()), (Ids{2, 3, 0}));
  EXPECT_EQ(values(block.parent_edges()), (Ids{1, 3}));
  EXPECT_EQ(values(block.topology().src()), (Ids{2, 1}));
}

TEST(ToBlock, keeps_copies_of_what_it_was_given) {
  const at::Tensor edges = ids({1, 3}), nodes = ids({2, 3});
  const Block block = to_block(four_nodes(), edges, nodes);
  edges.zero_();
  nodes.zero_();
  EXPECT_EQ(values(block.parent_edges()), (Ids{1, 3}));
  EXPECT_EQ(values(block.dst_nodes()), (Ids{2, 3}));
}

TEST(ToBlock, of_no_edges_keeps_the_destinations) {
  const Block block = to_block(four_nodes(), ids({}), ids({3, 0}));
  EXPECT_EQ(block.num_edges(), 0);
  EXPECT_EQ(values(block.src_nodes()), (Ids{3, 0}));
}

TEST(ToBlock, repeated_destinations_and_ids_out_of_range_are_errors) {
  const Topology topology = four_nodes();
  EXPECT_ERROR("dst_nodes", to_block(topology, ids({0}), ids({1, 1})));
  EXPECT_ERROR("edges", to_block(topology, ids({4}), ids({1})));
  EXPECT_ERROR("dst_nodes", to_block(topology, ids({0}), ids({7})));
  EXPECT_ERROR("3sources", to_block(in_star(3), ids({0}), ids({0})));
}

}  // namespace
}  // namespace mezzo::test
