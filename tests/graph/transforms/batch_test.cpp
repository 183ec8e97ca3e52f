
#include <torch/csrc/autograd/autograd.h>

#include "mezzo/graph/transforms/transforms.h"

#include "support/graphs.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

/// The graph with columns of different rows: "h" float32 [N, 2], "label" int64 [N], "w" float64
/// [E].
Graph with_columns(Graph graph, std::uint64_t seed) {
  graph.ndata()["h"] = uniform({graph.num_nodes(), 2}, at::kFloat, seed);
  graph.ndata()["label"] = integers({graph.num_nodes()}, at::kLong, seed + 1);
  graph.edata()["w"] = uniform({graph.num_edges()}, at::kDouble, seed + 2);
  return graph;
}

std::vector<Graph> columned_graphs() {
  std::vector<Graph> graphs;
  for (const NamedGraph& named : named_graphs()) {
    graphs.push_back(with_columns(named.graph, 10 * graphs.size()));
  }
  return graphs;
}

void expect_same_frame(const Frame& got, const Frame& expected) {
  EXPECT_EQ(got.names(), expected.names());
  for (const std::string& name : expected.names()) {
    EXPECT_EQ(got.at(name).scalar_type(), expected.at(name).scalar_type()) << name;
    EXPECT_TRUE(at::equal(got.at(name), expected.at(name))) << name;
  }
}

void expect_same(const Graph& got, const Graph& expected) {
  EXPECT_EQ(got.num_nodes(), expected.num_nodes());
  EXPECT_EQ(got.topology().id_dtype(), expected.topology().id_dtype());
  EXPECT_EQ(edges(got), edges(expected));
  EXPECT_EQ(values(got.batch_num_nodes()), values(expected.batch_num_nodes()));
  EXPECT_EQ(values(got.batch_num_edges()), values(expected.batch_num_edges()));
  expect_same_frame(got.ndata(), expected.ndata());
  expect_same_frame(got.edata(), expected.edata());
}

TEST(Batch, puts_the_nodes_and_edges_of_the_graphs_one_after_another) {
  const Graph joined = batch({four_node_graph(), isolated_graph(2), duplicate_graph()});
  EXPECT_EQ(joined.num_nodes(), 9);
  EXPECT_EQ(edges(joined),
            std::vector<Edge>({{0, 1}, {0, 2}, {1, 2}, {3, 2}, {6, 7}, {7, 6}, {6, 7}, {6, 7}}));
  EXPECT_EQ(joined.batch_size(), 3);
  EXPECT_EQ(values(joined.batch_num_nodes()), Ids({4, 2, 3}));
  EXPECT_EQ(values(joined.batch_num_edges()), Ids({4, 0, 4}));
  EXPECT_EQ(joined.batch_num_nodes().scalar_type(), at::kLong);
  EXPECT_EQ(joined.batch_num_edges().scalar_type(), at::kLong);
}

TEST(Batch, a_graph_that_is_no_batch_is_its_only_part) {
  const Graph g = four_node_graph();
  EXPECT_EQ(g.batch_size(), 1);
  EXPECT_EQ(values(g.batch_num_nodes()), Ids({4}));
  EXPECT_EQ(values(g.batch_num_edges()), Ids({4}));
  EXPECT_EQ(values(Graph().batch_num_nodes()), Ids({0}));
  const Graph columned = with_columns(g, 1);
  expect_same(batch({columned}), columned);
  ASSERT_EQ(unbatch(columned).size(), 1U);
  expect_same(unbatch(columned)[0], columned);
}

TEST(Batch, concatenates_the_columns) {
  const Graph a = with_columns(four_node_graph(), 1), b = with_columns(star_graph(3), 5);
  const Graph joined = batch({a, b});
  EXPECT_EQ(joined.ndata().names(), Names({"h", "label"}));
  EXPECT_EQ(joined.edata().names(), Names({"w"}));
  EXPECT_TRUE(at::equal(joined.ndata().at("h"), at::cat({a.ndata().at("h"), b.ndata().at("h")})));
  EXPECT_TRUE(at::equal(joined.edata().at("w"), at::cat({a.edata().at("w"), b.edata().at("w")})));
  EXPECT_EQ(joined.ndata().at("label").scalar_type(), at::kLong);
}

TEST(Batch, of_batches_has_their_parts) {
  const Graph pair = batch({four_node_graph(), one_node_graph()});
  const Graph joined = batch({pair, cycle_graph(3), pair});
  EXPECT_EQ(values(joined.batch_num_nodes()), Ids({4, 1, 3, 4, 1}));
  EXPECT_EQ(values(joined.batch_num_edges()), Ids({4, 0, 3, 4, 0}));
  EXPECT_EQ(unbatch(joined).size(), 5U);
}

TEST(Batch, unbatch_gives_the_graphs_back) {
  const std::vector<Graph> graphs = columned_graphs();
  const Graph joined = batch(graphs);
  const std::vector<Graph> parts = unbatch(joined);
  ASSERT_EQ(parts.size(), graphs.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    SCOPED_TRACE(named_graphs()[i].name);
    expect_same(parts[i], graphs[i]);
  }
  expect_same(batch(parts), joined);
}

TEST(Batch, unbatch_by_given_sizes_may_keep_neighbours_together) {
  const Graph a = with_columns(four_node_graph(), 1), b = with_columns(star_graph(3), 5),
              c = with_columns(cycle_graph(2), 9);
  const std::vector<Graph> parts = unbatch(batch({a, b, c}), ids({4, 6}), ids({4, 5}));
  ASSERT_EQ(parts.size(), 2U);
  expect_same(parts[0], a);
  EXPECT_EQ(parts[1].batch_size(), 1);
  EXPECT_EQ(edges(parts[1]), edges(batch({b, c})));
  expect_same_frame(parts[1].ndata(), batch({b, c}).ndata());
}

TEST(Batch, unbatch_takes_parts_without_nodes) {
  const std::vector<Graph> parts = unbatch(four_node_graph(), ids({0, 4, 0}), ids({0, 4, 0}));
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[0].num_nodes(), 0);
  EXPECT_EQ(values(parts[1].topology().dst()), Ids({1, 2, 2, 2}));
}

TEST(Batch, columns_of_graphs_without_rows_are_optional) {
  const Graph a = with_columns(four_node_graph(), 1);
  Graph empty = empty_graph();
  empty.ndata()["other"] = at::zeros({0});
  Graph edgeless = one_node_graph();
  edgeless.ndata()["h"] = at::ones({1, 2});
  edgeless.ndata()["label"] = ids({7});
  const Graph joined = batch({empty, a, edgeless});
  EXPECT_EQ(joined.ndata().names(), Names({"h", "label"}));
  EXPECT_TRUE(at::equal(joined.edata().at("w"), a.edata().at("w")));
  EXPECT_EQ(batch({empty, empty}).ndata().names(), Names({"other"}));
}

TEST(Batch, a_column_that_a_graph_lacks_is_an_error_that_names_both) {
  const Graph plain = four_node_graph(), columned = with_columns(four_node_graph(), 1);
  EXPECT_ERROR("batch:nodecolumn'h'ofgraph0ismissingingraph2", batch({columned, columned, plain}));
  EXPECT_ERROR("batch:nodecolumn'h'ofgraph1ismissingingraph0", batch({plain, columned}));
  Graph weighted = four_node_graph();
  weighted.edata()["w"] = at::ones({4});
  EXPECT_ERROR("batch:edgecolumn'w'ofgraph0ismissingingraph1", batch({weighted, plain}));
}

TEST(Batch, takes_the_columns_that_are_named_alone) {
  Graph a = with_columns(four_node_graph(), 1), b = with_columns(star_graph(3), 5);
  a.ndata()["own"] = at::ones({4});
  b.edata()["w"] = at::ones({3}, at::kHalf);  // a's dtype differs
  const Graph some = batch({a, b}, {"label", "h"}, {});
  EXPECT_EQ(some.ndata().names(), Names({"h", "label"}));
  EXPECT_TRUE(at::equal(some.ndata().at("h"), at::cat({a.ndata().at("h"), b.ndata().at("h")})));
  EXPECT_TRUE(some.edata().columns().empty());
  EXPECT_EQ(values(some.batch_num_nodes()), Ids({4, 4}));
  EXPECT_EQ(values(some.topology().src()),
            values(at::cat({a.topology().src(), b.topology().src() + 4})));
  const Graph none = batch({a, b}, {}, {});
  EXPECT_TRUE(none.ndata().columns().empty());
  const Graph edges = batch({a, a}, {}, {"w"});
  EXPECT_TRUE(at::equal(edges.edata().at("w"), at::cat({a.edata().at("w"), a.edata().at("w")})));
}

TEST(Batch, a_named_column_that_a_graph_lacks_is_an_error_unless_it_has_no_rows) {
  const Graph a = with_columns(four_node_graph(), 1), plain = four_node_graph();
  EXPECT_ERROR("batch:expectednodecolumn'h'ineverygraph,itismissingingraph1",
               batch({a, plain}, {"h"}, {}));
  EXPECT_ERROR("batch:expectededgecolumn'misspelt'ineverygraph,itismissingingraph0",
               batch({a, a}, {}, {"misspelt"}));
  const Graph joined = batch({empty_graph(), a}, {"h"}, {"w"});
  EXPECT_TRUE(at::equal(joined.ndata().at("h"), a.ndata().at("h")));
  EXPECT_TRUE(at::equal(joined.edata().at("w"), a.edata().at("w")));
}

TEST(Batch, columns_of_other_dtype_or_shape_are_an_error_that_names_them) {
  Graph a = four_node_graph(), b = cycle_graph(3);
  a.ndata()["h"] = at::ones({4, 2});
  b.ndata()["h"] = at::ones({3, 2}, at::kDouble);
  EXPECT_ERROR(
      fragments("batch:nodecolumn'h':expectedrowsFloat[2],asgraph0has", "gotDouble[2]ingraph1"),
      batch({a, b}));
  b.ndata()["h"] = at::ones({3, 5});
  EXPECT_ERROR("gotFloat[5]ingraph1", batch({a, b}));
}

TEST(Batch, of_no_graphs_is_an_error) {
  EXPECT_ERROR("batch:expectedatleastonegraph,gotnone", batch({}));
}

TEST(Batch, ids_are_int64_if_those_of_a_part_are) {
  const Graph int32 = batch({four_node_graph(), four_node_graph()});
  EXPECT_EQ(int32.topology().id_dtype(), at::kInt);
  const Graph int64 = batch({four_node_graph(), four_node_graph(IdWidth::kInt64)});
  EXPECT_EQ(int64.topology().id_dtype(), at::kLong);
  EXPECT_EQ(edges(int64), edges(int32));
  for (const Graph& part : unbatch(int64)) EXPECT_EQ(part.topology().id_dtype(), at::kLong);
}

TEST(Batch, unbatch_refuses_sizes_that_are_not_those_of_parts) {
  const Graph g = batch({four_node_graph(), cycle_graph(3)});
  const auto attempt = [&](const at::Tensor& nodes, const at::Tensor& edges) {
    unbatch(g, nodes, edges);
  };
  EXPECT_ERROR("unbatch:expectednum_nodesthatsumtothegraph's7nodes,got6",
               attempt(ids({4, 2}), ids({4, 3})));
  EXPECT_ERROR("num_nodesthatsumtothegraph's7nodes", attempt(ids({4, 4}), ids({4, 3})));
  EXPECT_ERROR("num_edgesthatsumtothegraph's7edges", attempt(ids({4, 3}), ids({4, 2})));
  EXPECT_ERROR("num_nodes", attempt(ids({8, -1}), ids({4, 3})));
  EXPECT_ERROR("num_nodesofatleast0,got-1", attempt(ids({-1, 8}), ids({4, 3})));
  EXPECT_ERROR("got2and3", attempt(ids({4, 3}), ids({4, 3, 0})));
  EXPECT_ERROR("num_nodestobeanintegervector", attempt(at::ones({7}), ids({4, 3})));
  EXPECT_ERROR("num_nodestobeanintegervector", attempt({}, ids({4, 3})));
  EXPECT_ERROR("atleastone", unbatch(Graph(), ids({}), ids({})));
}

TEST(Batch, unbatch_refuses_edges_that_leave_their_part) {
  // Edges 0->1, 0->2, 1->2, 3->2 of one graph.
  const std::string text = error_of([] { unbatch(four_node_graph(), ids({2, 2}), ids({1, 3})); });
  EXPECT_TRUE(
      mentions(text, "unbatch:expectedtheedgesofpart1betweenitsnodes[2,4)", "gotedge1from0to2"));
}

TEST(Batch, copies_of_the_handle_are_the_same_batch) {
  Graph g = batch({four_node_graph(), cycle_graph(3)});
  const Graph copy = g;
  EXPECT_EQ(values(copy.batch_num_nodes()), Ids({4, 3}));
  EXPECT_EQ(values(g.to(at::kCPU).batch_num_nodes()), Ids({4, 3}));
  g.batch_num_nodes().fill_(9);  // modifies a copy
  EXPECT_EQ(values(g.batch_num_nodes()), Ids({4, 3}));
  g.set_batch(ids({7}), ids({7}));
  EXPECT_EQ(copy.batch_size(), 1);
}

TEST(Batch, on_another_device_stays_a_batch) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no CUDA device";
  const Graph g = batch({with_columns(four_node_graph(), 1), with_columns(cycle_graph(3), 5)});
  const Graph moved = g.to(at::kCUDA);
  EXPECT_EQ(values(moved.batch_num_nodes()), Ids({4, 3}));
  EXPECT_TRUE(moved.batch_num_nodes().is_cpu());
  const std::vector<Graph> parts = unbatch(moved);
  EXPECT_TRUE(parts[1].device().is_cuda());
  expect_same(batch(parts).to(at::kCPU), g);
  EXPECT_ERROR("graph1oncuda", batch({g, moved}));
}

TEST(Batch, set_batch_makes_a_batch_of_the_result_of_a_transform) {
  const Graph joined = batch({four_node_graph(), cycle_graph(3)});
  Graph turned = reverse(joined);
  EXPECT_EQ(turned.batch_size(), 1);
  turned.set_batch(joined.batch_num_nodes(), joined.batch_num_edges().to(at::kInt));
  EXPECT_EQ(values(unbatch(turned)[1].topology().src()), Ids({1, 2, 0}));
  EXPECT_ERROR("set_batch:expectedasmanynum_nodesasnum_edges",
               turned.set_batch(ids({7}), ids({4, 3})));
  EXPECT_ERROR("set_batch:expectednum_nodesthatsumtothegraph's7nodes,got6",
               turned.set_batch(ids({6}), ids({7})));
  EXPECT_EQ(turned.batch_size(), 2);  // as before the errors
}

TEST(Batch, sparse_columns_are_errors) {
  Graph a = four_node_graph();
  a.ndata()["h"] = at::eye(4).to_sparse_csr();
  EXPECT_ERROR("'h':expectedstridedrows,gotsparse", batch({a}));
}

TEST(Batch, gradients_flow_to_the_columns_and_from_the_parts) {
  Graph a = four_node_graph(), b = cycle_graph(3);
  const at::Tensor x = leaf(at::ones({4})), y = leaf(at::ones({3}));
  a.ndata()["h"] = x;
  b.ndata()["h"] = y;
  const Graph joined = batch({a, b});
  const at::Tensor last = unbatch(joined)[1].ndata().at("h");
  (joined.ndata().at("h").sum() + 2 * last.sum()).backward();
  EXPECT_TRUE(exact(x.grad(), at::full({4}, 1)));
  EXPECT_TRUE(exact(y.grad(), at::full({3}, 3)));
}

}  // namespace
}  // namespace mezzo::test
