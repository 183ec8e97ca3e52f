#include <algorithm>

#include "mezzo/sampling/node_flow/flow_samplers.h"

#include "sampling/flow_support.h"
#include "support/tolerance.h"

/// Rows that the workers of a sampler gather before copy_from_parent().
namespace mezzo::test {
namespace {

const CpuOnlySuite kFlowFeaturesOnCpu("FlowFeatures", "sampling on the CPU");

NeighborSampler ahead_of(const Graph& graph) {
  return {graph, ids({1, 2, 0, 3}), {.num_neighbors = 4, .num_hops = 2, .features = {"x"}}};
}

/// Expects each layer's "x" to be the rows of `column`.
void expect_rows_of(NodeFlow& flow, const at::Tensor& column) {
  for (std::int64_t i = 0; i < flow.num_layers(); ++i) {
    EXPECT_TRUE(
        exact(flow.layers(i).data()["x"], column.index_select(0, flow.layer_parent_nid(i))));
  }
}

/// Writes through the data pointer, which does not change the tensor's version.
void write_unseen(const at::Tensor& column, double value) {
  std::fill_n(column.mutable_data_ptr<double>(), column.numel(), value);
}

TEST(FlowFeatures, change_nothing_in_what_is_copied) {
  const Graph graph = featured_graph();
  for (const std::int64_t workers : {0, 2}) {
    NeighborSampler by_neighbors(graph, at::arange(20),
                                 {.batch_size = 6,
                                  .num_neighbors = 3,
                                  .num_hops = 2,
                                  .num_workers = workers,
                                  .features = {"x"}});
    LayerSampler by_layers(
        graph, at::arange(20),
        {.batch_size = 6, .layer_sizes = {4, 5}, .num_workers = workers, .features = {"x"}});
    for (Batches<NodeFlow>* sampler : {static_cast<Batches<NodeFlow>*>(&by_neighbors),
                                       static_cast<Batches<NodeFlow>*>(&by_layers)}) {
      std::int64_t flows = 0;
      for (NodeFlow& flow : *sampler) {
        EXPECT_FALSE(flow.layers(0).data().contains("x"));
        flow.copy_from_parent();
        expect_rows_of(flow, graph.ndata().at("x"));
        ++flows;
      }
      EXPECT_EQ(flows, 4);
    }
  }
}

TEST(FlowFeatures, are_not_gathered_again_and_given_once) {
  Graph graph = featured_graph();
  const at::Tensor x = graph.ndata()["x"], before = x.clone();
  NodeFlow flow = ahead_of(graph).batch(0, 0);
  write_unseen(x, 100);
  flow.copy_from_parent({"x"});
  expect_rows_of(flow, before);
  flow.copy_from_parent({"x"});
  expect_rows_of(flow, x);
}

TEST(FlowFeatures, of_a_column_that_changed_are_gathered_anew) {
  Graph graph = featured_graph();
  NodeFlow written = ahead_of(graph).batch(0, 0), replaced = ahead_of(graph).batch(0, 0);
  graph.ndata()["x"].add_(1);
  written.copy_from_parent({"x"});
  expect_rows_of(written, graph.ndata()["x"]);
  graph.ndata()["x"] = graph.ndata()["x"] * 2;
  replaced.copy_from_parent({"x"});
  expect_rows_of(replaced, graph.ndata()["x"]);
}

TEST(FlowFeatures, of_a_flow_before_follow_what_a_flow_wrote_to_the_parent) {
  Graph graph = featured_graph();
  NeighborSampler sampler = ahead_of(graph);
  NodeFlow first = sampler.batch(0, 0), second = sampler.batch(0, 0);
  first.copy_from_parent({"x"});
  first.layers(-1).data()["x"] = first.layers(-1).data()["x"] + 7;
  first.copy_to_parent({.nodes = {{}, {}, {"x"}}});
  second.copy_from_parent({"x"});
  expect_rows_of(second, graph.ndata()["x"]);
}

TEST(FlowFeatures, of_a_column_that_learns_carry_its_gradient) {
  Graph graph = featured_graph();
  graph.ndata()["x"] = graph.ndata()["x"].clone().requires_grad_();
  NodeFlow flow = ahead_of(graph).batch(0, 0);
  flow.copy_from_parent({"x"});
  flow.layers(-1).data()["x"].sum().backward();
  at::Tensor expected = at::zeros({20, 3}, at::kDouble);
  expected.narrow(0, 0, 4).fill_(1);
  EXPECT_TRUE(exact(graph.ndata()["x"].grad(), expected));
}

TEST(FlowFeatures, that_are_no_columns_are_errors) {
  const Graph graph = featured_graph();
  EXPECT_ERROR("features", NeighborSampler(graph, ids({1}), {.features = {"z"}}));
  EXPECT_ERROR("'z'", LayerSampler(graph, ids({1}), {.layer_sizes = {2}, .features = {"z"}}));
}

}  // namespace
}  // namespace mezzo::test
