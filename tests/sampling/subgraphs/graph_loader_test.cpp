#include <algorithm>

#include "mezzo/graph/transforms/transforms.h"
#include "mezzo/sampling/subgraphs/subgraph_loaders.h"

#include "support/graphs.h"

namespace mezzo::test {
namespace {

const CpuOnlySuite kGraphLoaderOnCpu("GraphLoader", "sampling on the CPU");

/// 24 graphs of 0 to 9 nodes with columns of nodes and edges.
Graph many_small_graphs(IdWidth width = IdWidth::kAutomatic) {
  std::vector<Graph> parts;
  for (std::uint64_t i = 0; i < 20; ++i) {
    const auto size = static_cast<std::int64_t>(i % 10);
    parts.push_back(with_id_columns(random_graph(size, 0.4, i, width)));
  }
  for (const Graph& graph :
       {four_node_graph(), self_loop_graph(), isolated_graph(3), duplicate_graph()}) {
    parts.push_back(with_id_columns(graph));
  }
  Graph graph = batch(parts);
  graph.ndata()["x"] = uniform({graph.num_nodes(), 3}, at::kBFloat16, 1);
  graph.edata()["id"] = at::arange(graph.num_edges(), at::kLong);
  return graph;
}

void expect_same_graph(const Graph& got, const Graph& expected) {
  EXPECT_EQ(edges(got), edges(expected));  // in the order of edge ids
  EXPECT_EQ(got.topology().id_dtype(), expected.topology().id_dtype());
  EXPECT_TRUE(at::equal(got.topology().csc().indptr, expected.topology().csc().indptr));
  EXPECT_TRUE(at::equal(got.batch_num_nodes(), expected.batch_num_nodes()));
  EXPECT_TRUE(at::equal(got.batch_num_edges(), expected.batch_num_edges()));
  for (const auto& [name, column] : expected.ndata().columns()) {
    EXPECT_TRUE(at::equal(got.ndata().at(name), column)) << name;
  }
  for (const auto& [name, column] : expected.edata().columns()) {
    EXPECT_TRUE(at::equal(got.edata().at(name), column)) << name;
  }
}

TEST(GraphLoader, a_batch_is_what_batch_makes_of_the_drawn_graphs) {
  for (const IdWidth width : {IdWidth::kAutomatic, IdWidth::kInt64}) {
    const Graph g = many_small_graphs(width);
    const std::vector<Graph> parts = unbatch(g);
    const at::Tensor labels = at::arange(24, at::kLong).mul(3);
    GraphLoader loader(
        g, {.batch_size = 7, .shuffle = true, .graph_data = {{"label", labels}}, .seed = 2});
    std::vector<Ids> orders;
    for (int epoch = 0; epoch < 2; ++epoch) {
      Ids order;
      std::int64_t index = 0;
      for (const GraphBatch& got : loader) {
        std::vector<Graph> drawn;
        for (const std::int64_t id : values(got.graph_ids)) {
          order.push_back(id);
          drawn.push_back(parts[static_cast<std::size_t>(id)]);
        }
        EXPECT_EQ(got.index, index++);
        expect_same_graph(got.graph, batch(drawn));
        EXPECT_TRUE(at::equal(got.graph_data.at("label"), got.graph_ids.mul(3)));
      }
      EXPECT_EQ(index, 4);
      orders.push_back(order);
      std::sort(order.begin(), order.end());
      EXPECT_EQ(order, values(at::arange(24, at::kLong)));
    }
    EXPECT_NE(orders[0], orders[1]);
  }
}

TEST(GraphLoader, depends_neither_on_workers_nor_on_threads) {
  const Graph g = many_small_graphs();
  const auto run = [&](std::int64_t num_workers, int threads, std::uint64_t seed) {
    const ThreadCount count(threads);
    std::vector<Ids> all;
    GraphLoader loader(
        g, {.batch_size = 5, .shuffle = true, .num_workers = num_workers, .seed = seed});
    for (const GraphBatch& got : loader) {
      all.push_back(values(got.graph_ids));
      all.push_back(values(got.graph.topology().src()));
      all.push_back(values(got.graph.edata().at("id")));
    }
    return all;
  };
  const std::vector<Ids> expected = run(0, 1, 3);
  for (const std::int64_t num_workers : {0, 1, 3}) {
    for (const int threads : {1, 4}) EXPECT_EQ(run(num_workers, threads, 3), expected);
  }
  EXPECT_NE(run(0, 1, 4), expected);
}

TEST(GraphLoader, takes_some_graphs_in_their_order_and_drops_an_unfinished_batch) {
  const Graph g = many_small_graphs();
  GraphLoader loader(g, {.batch_size = 2, .graphs = ids({7, 3, 0, 20, 9}), .drop_last = true});
  std::vector<Ids> drawn;
  for (const GraphBatch& got : loader) drawn.push_back(values(got.graph_ids));
  EXPECT_EQ(drawn, std::vector<Ids>({{7, 3}, {0, 20}}));
  EXPECT_EQ(loader.statistics().batches, 2);
  const at::Tensor mask = at::arange(24, at::kLong) >= 22;
  EXPECT_EQ(values(GraphLoader(g, {.graphs = mask}).batch(0, 0).graph_ids), (Ids{22, 23}));
}

TEST(GraphLoader, a_graph_that_is_no_batch_is_one_graph) {
  const Graph g = with_id_columns(four_node_graph());
  for (const GraphBatch& got : GraphLoader(g)) expect_same_graph(got.graph, g);
  EXPECT_EQ(GraphLoader(empty_graph()).batch(0, 0).graph.num_nodes(), 0);
}

TEST(GraphLoader, rows_by_source_are_built_ahead) {
  const GraphBatch got = GraphLoader(many_small_graphs()).batch(0, 0);
  const std::int64_t bytes = got.graph.topology().memory_bytes();
  static_cast<void>(got.graph.topology().csr());
  EXPECT_EQ(got.graph.topology().memory_bytes(), bytes);
}

TEST(GraphLoader, bad_input_is_an_error_that_names_it) {
  const Graph g = many_small_graphs();
  EXPECT_ERROR("GraphLoader:expectedbatch_sizeofatleast1,got0", GraphLoader(g, {.batch_size = 0}));
  EXPECT_ERROR("graphs", GraphLoader(g, {.graphs = ids({24})}));
  EXPECT_ERROR("num_workers", GraphLoader(g, {.num_workers = -1}));
  const Columns rows = {{"label", at::zeros({23})}};
  EXPECT_ERROR("expectedgraph_datacolumn'label'strided,ontheCPU,[24,...],got",
               GraphLoader(g, {.graph_data = rows}));
  Graph sparse = isolated_graph(2);
  sparse.ndata()["x"] = at::eye(2).to_sparse_csr();
  EXPECT_ERROR("expectednodecolumn'x'strided", GraphLoader bad(sparse));
  Graph crossing = cycle_graph(4);
  crossing.set_batch(ids({2, 2}), ids({2, 2}));
  EXPECT_ERROR("edgesofgraph0betweenitsnodes[0,2),gotedge1from1to2", GraphLoader bad(crossing));
}

}  // namespace
}  // namespace mezzo::test
