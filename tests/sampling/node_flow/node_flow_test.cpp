#include "mezzo/sampling/node_flow/node_flow.h"

#include <functional>

#include "sampling/flow_support.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

const CpuOnlySuite kNodeFlowOnCpu("NodeFlow", "sampling on the CPU");

const Ids kSeeds = {1, 2, 0, 3};

TEST(NodeFlow, has_a_layer_more_than_hops_and_the_seeds_in_their_order_last) {
  const Graph graph = featured_graph();
  for (std::int64_t hops = 1; hops <= 4; ++hops) {
    SCOPED_TRACE(hops);
    const NodeFlow flow = whole_flow(graph, kSeeds, hops);
    EXPECT_EQ(flow.num_layers(), hops + 1);
    EXPECT_EQ(flow.num_blocks(), hops);
    EXPECT_EQ(values(flow.layer_parent_nid(-1)), kSeeds);
    std::int64_t nodes = flow.layer_size(hops), edges = 0;
    for (std::int64_t i = 0; i < hops; ++i) {
      EXPECT_TRUE(is_ascending(values(flow.layer_parent_nid(i))));
      nodes += flow.layer_size(i);
      edges += flow.block_size(i);
    }
    EXPECT_EQ(flow.num_nodes(), nodes);
    EXPECT_EQ(flow.num_edges(), edges);
  }
}

TEST(NodeFlow, degrees_of_neighbouring_layers_agree) {
  const Graph graph = featured_graph();
  const NodeFlow flow = whole_flow(graph, kSeeds, 3);
  EXPECT_TRUE(exact(flow.layer_in_degree(0), at::zeros({flow.layer_size(0)})));
  EXPECT_TRUE(exact(flow.layer_out_degree(-1), at::zeros({flow.layer_size(-1)})));
  for (std::int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(flow.layer_out_degree(i).sum().item<std::int64_t>(), flow.block_size(i));
    EXPECT_EQ(flow.layer_in_degree(i + 1).sum().item<std::int64_t>(), flow.block_size(i));
    // All neighbours are drawn, so the degrees are the parent's.
    EXPECT_TRUE(exact(flow.layer_in_degree(i + 1),
                      graph.in_degrees().index_select(0, flow.layer_parent_nid(i + 1))));
    EXPECT_EQ(flow.layer_in_degree(i).scalar_type(), at::kLong);
    EXPECT_EQ(flow.layer_out_degree(i).scalar_type(), at::kLong);
  }
}

TEST(NodeFlow, blocks_hold_the_edges_of_the_parent) {
  const NodeFlow flow = whole_flow(featured_graph(), kSeeds, 3);
  for (std::int64_t i = 0; i < 3; ++i) expect_edges_of_the_parent(flow, i);
}

TEST(NodeFlow, works_on_every_kind_of_graph) {
  for (const NamedGraph& named : named_graphs()) {
    SCOPED_TRACE(named.name);
    const std::int64_t n = named.graph.num_nodes();
    if (n == 0) continue;
    for (const bool add_self_loop : {false, true}) {
      const NodeFlow flow = whole_flow(named.graph, {n - 1, 0}, 2, add_self_loop);
      for (std::int64_t i = 0; i < 2; ++i) expect_edges_of_the_parent(flow, i);
    }
  }
}

TEST(NodeFlow, matrices_have_a_row_for_each_destination) {
  const Graph graph = graph_of({0, 0, 2, 2}, {1, 1, 1, 0}, 3);  // 0 -> 1 twice
  const NodeFlow flow(graph, {{ids({0, 2}), ids({1, 0})},
                              {topology_of({0, 0, 1, 1}, {0, 0, 0, 1}, 2, 2)},
                              {ids({0, 1, 2, 3})}});
  using Incidence = NodeFlow::Incidence;
  for (const std::int64_t block : {0, -1}) {
    EXPECT_TRUE(exact(flow.block_adjacency_matrix(block).to_dense(),
                      ids({2, 1, 0, 1}).view({2, 2}).to(at::kFloat)));
    EXPECT_TRUE(exact(flow.block_incidence_matrix(block, Incidence::kIn).to_dense(),
                      ids({1, 1, 1, 0, 0, 0, 0, 1}).view({2, 4}).to(at::kFloat)));
    EXPECT_TRUE(exact(flow.block_incidence_matrix(block, Incidence::kOut).to_dense(),
                      ids({1, 1, 0, 0, 0, 0, 1, 1}).view({2, 4}).to(at::kFloat)));
  }
  EXPECT_ERROR("block", flow.block_adjacency_matrix(1));
}

TEST(NodeFlow, ids_of_the_flow_run_over_the_layers_and_invert) {
  const NodeFlow flow = whole_flow(featured_graph(), kSeeds, 3);
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < flow.num_layers(); ++i) {
    const std::int64_t end = begin + flow.layer_size(i);
    EXPECT_TRUE(exact(flow.layer_nid(i), at::arange(begin, end)));
    EXPECT_TRUE(exact(flow.map_to_parent_nid(flow.layer_nid(i)), flow.layer_parent_nid(i)));
    EXPECT_TRUE(
        exact(flow.map_from_parent_nid(i, flow.layer_parent_nid(i)), at::arange(begin, end)));
    EXPECT_TRUE(exact(flow.map_from_parent_nid(i, flow.layer_parent_nid(i), /*local=*/true),
                      at::arange(end - begin)));
    begin = end;
  }
  begin = 0;
  for (std::int64_t i = 0; i < flow.num_blocks(); ++i) {
    const std::int64_t end = begin + flow.block_size(i);
    EXPECT_TRUE(exact(flow.block_eid(i), at::arange(begin, end)));
    EXPECT_TRUE(exact(flow.map_to_parent_eid(flow.block_eid(i)), flow.block_parent_eid(i)));
    begin = end;
  }
}

TEST(NodeFlow, ids_map_across_layers_in_any_order) {
  const NodeFlow flow = whole_flow(featured_graph(), kSeeds, 2);
  const std::int64_t last = flow.num_nodes() - 1;
  const at::Tensor picked = ids({last, 0, last - 3, 0});
  EXPECT_EQ(values(flow.map_to_parent_nid(picked.to(at::kInt))),
            (Ids{3, values(flow.layer_parent_nid(0))[0], 1, values(flow.layer_parent_nid(0))[0]}));
  EXPECT_EQ(values(flow.map_from_parent_nid(-1, ids({3, 1, 3}), /*local=*/true)), (Ids{3, 0, 3}));
}

TEST(NodeFlow, block_edges_of_the_flow_are_the_local_ones_moved) {
  const NodeFlow flow = whole_flow(featured_graph(), kSeeds, 2);
  for (std::int64_t i = 0; i < 2; ++i) {
    const NodeFlow::BlockEdges local = flow.block_edges(i, /*local=*/true);
    const NodeFlow::BlockEdges of_flow = flow.block_edges(i);
    EXPECT_TRUE(exact(of_flow.src, flow.layer_nid(i).index_select(0, local.src)));
    EXPECT_TRUE(exact(of_flow.dst, flow.layer_nid(i + 1).index_select(0, local.dst)));
    EXPECT_TRUE(exact(of_flow.edges, flow.block_eid(i)));
    EXPECT_TRUE(exact(local.edges, at::arange(flow.block_size(i))));
    EXPECT_EQ(local.src.scalar_type(), at::kLong);
  }
}

TEST(NodeFlow, negative_indices_count_from_the_end) {
  NodeFlow flow = whole_flow(featured_graph(), kSeeds, 2);
  for (std::int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(flow.layer_size(i - 3), flow.layer_size(i));
    EXPECT_TRUE(exact(flow.layer_nid(i - 3), flow.layer_nid(i)));
    EXPECT_TRUE(exact(flow.layer_in_degree(i - 3), flow.layer_in_degree(i)));
    EXPECT_TRUE(exact(flow.layer_out_degree(i - 3), flow.layer_out_degree(i)));
    EXPECT_EQ(&flow.layers(i - 3).data(), &flow.layers(i).data());
  }
  for (std::int64_t i = 0; i < 2; ++i) {
    EXPECT_EQ(flow.block_size(i - 2), flow.block_size(i));
    EXPECT_TRUE(exact(flow.block_eid(i - 2), flow.block_eid(i)));
    EXPECT_TRUE(exact(flow.block_parent_eid(i - 2), flow.block_parent_eid(i)));
    EXPECT_TRUE(exact(flow.block_edges(i - 2).src, flow.block_edges(i).src));
    EXPECT_EQ(&flow.blocks(i - 2).data(), &flow.blocks(i).data());
  }
}

TEST(NodeFlow, wrong_indices_and_ids_are_errors_that_name_them) {
  NodeFlow flow = whole_flow(featured_graph(), kSeeds, 2);
  const std::int64_t n = flow.num_nodes();
  EXPECT_ERROR("layerin[-3,3)", flow.layer_size(3));
  EXPECT_ERROR("got-4", flow.layers(-4));
  EXPECT_ERROR("blockin[-2,2)", flow.block_eid(2));
  EXPECT_ERROR(fmt::format("got{}", n), flow.map_to_parent_nid(ids({0, n})));
  EXPECT_ERROR("got-1", flow.map_to_parent_eid(ids({-1})));
  EXPECT_ERROR("integervector", flow.map_to_parent_nid(at::rand({2})));
  EXPECT_ERROR("node7", flow.map_from_parent_nid(-1, ids({2, 7})));
  error_of([&] { flow.map_from_parent_nid(0, ids({20})); });
}

TEST(NodeFlow, parts_that_do_not_fit_are_errors) {
  const Graph graph = four_node_graph();
  const Topology block = topology_of({0, 1}, {0, 0}, 2, 1);
  const auto attempt = [&](const std::vector<at::Tensor>& nodes,
                           const std::vector<Topology>& blocks,
                           const std::vector<at::Tensor>& edges) {
    NodeFlow(graph, {nodes, blocks, edges});
  };
  const at::Tensor two = ids({0, 1}), one = ids({2});
  EXPECT_NO_THROW(attempt({two, one}, {block}, {two}));
  EXPECT_ERROR("atleastoneblock", attempt({two}, {}, {}));
  EXPECT_ERROR("edgesof0", attempt({two, one}, {block}, {}));
  EXPECT_ERROR("layer0", attempt({one, one}, {block}, {two}));
  EXPECT_ERROR("layer1", attempt({two, two}, {block}, {two}));
  EXPECT_ERROR("edgesofblock0", attempt({two, one}, {block}, {one}));
  error_of([&] { attempt({two.to(at::kInt), one}, {block}, {two}); });
}

TEST(NodeFlow, copies_only_the_columns_named) {
  Graph graph = featured_graph();
  graph.ndata()["other"] = at::ones({20});
  NodeFlow flow = whole_flow(graph, kSeeds, 2);
  flow.copy_from_parent({"x"}, {"w"});
  for (std::int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(flow.layers(i).data().names(), std::vector<std::string>{"x"});
    EXPECT_TRUE(exact(flow.layers(i).data()["x"],
                      graph.ndata()["x"].index_select(0, flow.layer_parent_nid(i))));
  }
  for (std::int64_t i = 0; i < 2; ++i) {
    EXPECT_EQ(flow.blocks(i).data().names(), std::vector<std::string>{"w"});
    EXPECT_TRUE(exact(flow.blocks(i).data()["w"],
                      graph.edata()["w"].index_select(0, flow.block_parent_eid(i))));
  }
}

TEST(NodeFlow, copies_all_columns_where_none_is_named) {
  Graph graph = featured_graph();
  graph.ndata()["other"] = at::ones({20});
  NodeFlow flow = whole_flow(graph, kSeeds, 2);
  flow.copy_from_parent();
  for (std::int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(flow.layers(i).data().names(), (std::vector<std::string>{"other", "x"}));
  }
  for (std::int64_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(exact(flow.blocks(i).data()["w"],
                      graph.edata()["w"].index_select(0, flow.block_parent_eid(i))));
  }
}

TEST(NodeFlow, copies_columns_layer_by_layer) {
  Graph graph = featured_graph();
  graph.ndata()["other"] = at::ones({20});
  NodeFlow flow = whole_flow(graph, kSeeds, 2);
  flow.copy_from_parent(
      NodeFlow::ColumnsByLayer{.nodes = {{"x"}, {"x", "other"}, {}}, .edges = {{}, {"w"}}});
  EXPECT_EQ(flow.layers(0).data().names(), std::vector<std::string>{"x"});
  EXPECT_EQ(flow.layers(1).data().names(), (std::vector<std::string>{"other", "x"}));
  EXPECT_TRUE(flow.layers(2).data().names().empty());
  EXPECT_TRUE(flow.blocks(0).data().names().empty());
  EXPECT_TRUE(flow.blocks(1).data().contains("w"));
}

TEST(NodeFlow, copies_keep_the_dtype) {
  Graph graph = featured_graph();
  for (const DTypeInfo& dtype : dtypes()) {
    graph.ndata()["h"] = integers({20, 2, 3}, dtype.scalar, 5);
    NodeFlow flow = whole_flow(graph, kSeeds, 1);
    flow.copy_from_parent({"h"});
    EXPECT_TRUE(same_bits(flow.layers(0).data()["h"],
                          graph.ndata()["h"].index_select(0, flow.layer_parent_nid(0))));
  }
}

TEST(NodeFlow, wrong_columns_are_errors_that_write_nothing) {
  Graph graph = featured_graph();
  NodeFlow flow = whole_flow(graph, kSeeds, 2);
  EXPECT_ERROR("'none'", flow.copy_from_parent({"x", "none"}));
  EXPECT_ERROR("'none'", flow.copy_from_parent({"x"}, {"none"}));
  EXPECT_TRUE(flow.layers(0).data().names().empty());
  EXPECT_ERROR("3layers,got2",
               flow.copy_from_parent(NodeFlow::ColumnsByLayer{.nodes = {{"x"}, {"x"}}}));
  EXPECT_ERROR("'h'", flow.copy_to_parent({.nodes = {{}, {"h"}, {}}}));
  flow.layers(2).data()["x"] = at::ones({4, 5}, at::kDouble);
  flow.layers(1).data()["x"] = at::zeros({flow.layer_size(1), 3}, at::kDouble);
  EXPECT_ERROR("'x'", flow.copy_to_parent({.nodes = {{}, {"x"}, {"x"}}}));
  EXPECT_TRUE(exact(graph.ndata()["x"], integers({20, 3}, at::kDouble, 11)));
}

TEST(NodeFlow, edge_columns_do_not_go_with_added_self_loops) {
  Graph graph = featured_graph();
  NodeFlow flow = whole_flow(graph, kSeeds, 1, /*add_self_loop=*/true);
  ASSERT_LT(flow.block_parent_eid(0).min().item<std::int64_t>(), 0);
  EXPECT_ERROR("block0hasanaddedselfloop", flow.copy_from_parent({"x"}, {"w"}));
  EXPECT_TRUE(flow.layers(0).data().names().empty());
  EXPECT_NO_THROW(flow.copy_from_parent({"x"}));
  flow.blocks(0).data()["w"] = at::ones({flow.block_size(0), 1}, at::kDouble);
  EXPECT_ERROR("added", flow.copy_to_parent({.edges = {{"w"}}}));
}

TEST(NodeFlow, copy_to_parent_writes_the_rows_back) {
  Graph graph = featured_graph();
  const at::Tensor before = graph.ndata()["x"];
  const at::Tensor untouched = before.clone();
  NodeFlow flow = whole_flow(graph, kSeeds, 1);
  flow.layers(1).data()["x"] = leaf(integers({4, 3}, at::kFloat, 7));
  flow.blocks(0).data()["new"] = at::ones({flow.block_size(0)});
  flow.copy_to_parent({.nodes = {{}, {"x"}}, .edges = {{"new"}}});
  const at::Tensor expected = untouched.index_copy(
      0, ids(kSeeds), integers({4, 3}, at::kDouble, 7));  // with the parent's dtype
  EXPECT_TRUE(exact(graph.ndata()["x"], expected));
  EXPECT_EQ(graph.ndata()["x"].scalar_type(), at::kDouble);
  EXPECT_FALSE(graph.ndata()["x"].requires_grad());
  EXPECT_TRUE(before.is_same(graph.ndata()["x"]));  // in place
  EXPECT_TRUE(exact(graph.edata()["new"],
                    at::zeros({graph.num_edges()}).index_fill(0, flow.block_parent_eid(0), 1)));
}

TEST(NodeFlow, copy_to_parent_leaves_memory_that_is_not_the_columns_own) {
  const at::Tensor memory = at::zeros({20});
  const std::vector<at::Tensor> columns = {
      at::from_blob(memory.data_ptr(), {20}, at::kFloat),  // like a mapped file
      leaf(at::zeros({20})), at::zeros({1}).expand({20})};
  for (const at::Tensor& column : columns) {
    Graph graph = featured_graph();
    graph.ndata()["h"] = column;
    NodeFlow flow = whole_flow(graph, kSeeds, 1);
    flow.layers(1).data()["h"] = at::ones({4});
    flow.copy_to_parent({.nodes = {{}, {"h"}}});
    EXPECT_TRUE(exact(column, at::zeros({20})));
    EXPECT_TRUE(exact(graph.ndata()["h"], at::zeros({20}).index_fill(0, ids(kSeeds), 1)));
  }
}

TEST(NodeFlow, the_last_layers_row_stays_in_the_parent) {
  Graph graph = featured_graph();
  NodeFlow flow = whole_flow(graph, kSeeds, 2, /*add_self_loop=*/true);
  for (std::int64_t i = 0; i < 3; ++i) {
    flow.layers(i).data()["h"] = at::full({flow.layer_size(i)}, i + 1, at::kFloat);
  }
  flow.copy_to_parent({.nodes = {{"h"}, {"h"}, {"h"}}});
  at::Tensor expected = at::zeros({20});
  for (std::int64_t i = 0; i < 3; ++i) expected.index_fill_(0, flow.layer_parent_nid(i), i + 1);
  EXPECT_TRUE(exact(graph.ndata()["h"], expected));
  EXPECT_TRUE(exact(graph.ndata()["h"].index_select(0, ids(kSeeds)), at::full({4}, 3)));
}

TEST(NodeFlow, an_edge_drawn_twice_cannot_be_written_back) {
  const Graph graph = graph_of({0}, {1}, 2);
  NodeFlow flow(graph, {{ids({0}), ids({1})}, {topology_of({0, 0}, {0, 0}, 1, 1)}, {ids({0, 0})}});
  flow.blocks(0).data()["m"] = at::ones({2});
  EXPECT_ERROR("distinct", flow.copy_to_parent({.edges = {{"m"}}}));
}

TEST(NodeFlow, copies_of_the_handle_share_the_columns) {
  NodeFlow flow = whole_flow(featured_graph(), kSeeds, 1);
  NodeFlow copy = flow;
  copy.layers(0).data()["h"] = at::ones({flow.layer_size(0)});
  EXPECT_TRUE(flow.layers(0).data().contains("h"));
}

TEST(NodeFlow, moves_in_place_and_keeps_everything) {
  NodeFlow flow = whole_flow(featured_graph(), kSeeds, 2);
  flow.copy_from_parent({"x"}, {"w"});
  const auto before = contents(flow);
  const NodeFlow::View inputs = flow.layers(0);
  flow.to(at::kCPU);
  EXPECT_EQ(contents(flow), before);
  EXPECT_TRUE(inputs.data().contains("x"));
  EXPECT_TRUE(flow.blocks(1).data().contains("w"));
  if (!at::hasCUDA()) GTEST_SKIP() << "the rest needs a CUDA device";
  flow.to(at::kCUDA);
  EXPECT_TRUE(flow.device().is_cuda());
  EXPECT_EQ(contents(flow), before);
  EXPECT_TRUE(flow.layers(-1).data()["x"].is_cuda());
  flow.copy_from_parent({"x"});  // from the parent on the CPU
  EXPECT_TRUE(flow.layers(-1).data().at("x").is_cuda());
}

}  // namespace
}  // namespace mezzo::test
