#include <functional>

#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "mezzo/message_passing/fn.h"
#include "mezzo/sampling/node_flow/node_flow.h"

#include "sampling/flow_support.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

const Ids kComputeSeeds = {1, 2, 0, 3};

/// Functions that read "h" of a layer and write "h" of the next.
std::vector<NamedStep> steps() {
  return {{"sum", fn::copy_u("h", "m"), fn::sum("m", "h")},
          {"mean", fn::copy_u("h", "m"), fn::mean("m", "h")},
          {"weighted sum", fn::u_mul_e("h", "w", "m"), fn::sum("m", "h")},
          {"max", fn::copy_u("h", "m"), fn::max("m", "h")},
          {"with apply", fn::copy_u("h", "m"), fn::sum("m", "h"), doubled_plus_x},
          {"user-defined message", message_of_h, fn::sum("m", "h")},
          {"user-defined reduction", fn::u_mul_e("h", "w", "m"), largest_message},
          {"all user-defined", message_of_h, largest_message, doubled_plus_x}};
}

/// "h" after `hops` updates of the whole graph, starting from "x".
at::Tensor whole_graph(const Graph& graph, const NamedStep& step, std::int64_t hops) {
  Graph own = graph.local_var();
  own.ndata()["h"] = own.ndata()["x"];
  for (std::int64_t i = 0; i < hops; ++i) own.update_all(step.message, step.reduce, step.apply);
  return own.ndata()["h"];
}

/// Sums of integers are exact in float64 here; means round.
testing::AssertionResult equal_but_for_rounding(const at::Tensor& got, const at::Tensor& expected) {
  return near(got, expected, sum_bound(expected.abs() + 1, 100, at::kDouble));
}

TEST(NodeFlowCompute, equals_the_whole_graph_where_every_neighbor_is_there) {
  const Graph graph = featured_graph();
  for (const NamedStep& step : steps()) {
    for (std::int64_t hops = 1; hops <= 3; ++hops) {
      SCOPED_TRACE(fmt::format("{}, {} hops", step.name, hops));
      NodeFlow flow = whole_flow(graph, kComputeSeeds, hops);
      flow.copy_from_parent({"x"}, {"w"});
      flow.layers(0).data()["h"] = flow.layers(0).data()["x"];
      for (std::int64_t i = 0; i < hops; ++i) {
        flow.block_compute(i, step.message, step.reduce, step.apply);
      }
      EXPECT_TRUE(equal_but_for_rounding(
          flow.layers(-1).data()["h"],
          whole_graph(graph, step, hops).index_select(0, ids(kComputeSeeds))));
    }
  }
}

TEST(NodeFlowCompute, prop_flow_computes_every_block) {
  const Graph graph = featured_graph();
  const NamedStep step = steps()[2];
  NodeFlow flow = whole_flow(graph, kComputeSeeds, 2);
  flow.copy_from_parent({"x"}, {"w"});
  flow.layers(0).data()["h"] = flow.layers(0).data()["x"];
  flow.prop_flow(step.message, step.reduce, step.apply);
  EXPECT_TRUE(equal_but_for_rounding(
      flow.layers(2).data()["h"], whole_graph(graph, step, 2).index_select(0, ids(kComputeSeeds))));
}

TEST(NodeFlowCompute, apply_sees_the_layers_old_columns_and_the_reduced_one) {
  Graph graph = featured_graph();
  NodeFlow flow = whole_flow(graph, kComputeSeeds, 1);
  flow.copy_from_parent({"x"});
  flow.layers(1).data()["r"] =
      at::full({4, 3}, 100.0, on_device(at::kDouble));  // the reduced r replaces it
  const auto apply = [](const NodeBatch& nodes) {
    return one_column("out", nodes.data("x") - nodes.data("r"));
  };
  flow.block_compute(0, fn::copy_u("x", "m"), fn::sum("m", "r"), apply);
  Graph own = graph.local_var();
  own.update_all(fn::copy_u("x", "m"), fn::sum("m", "r"), apply);
  EXPECT_TRUE(
      exact(flow.layers(1).data()["out"], own.ndata()["out"].index_select(0, ids(kComputeSeeds))));
  EXPECT_TRUE(
      exact(flow.layers(1).data()["r"], own.ndata()["r"].index_select(0, ids(kComputeSeeds))));
}

TEST(NodeFlowCompute, restricted_nodes_leave_the_others_untouched) {
  const Graph graph = featured_graph();
  for (const NamedStep& step : steps()) {
    SCOPED_TRACE(step.name);
    NodeFlow flow = whole_flow(graph, kComputeSeeds, 1);
    flow.copy_from_parent({"x"}, {"w"});
    flow.layers(0).data()["h"] = flow.layers(0).data()["x"];
    const at::Tensor old = at::full({4, 3}, -77.0, on_device(at::kDouble));
    flow.layers(1).data()["h"] = old;
    const at::Tensor positions = ids({2, 0});
    flow.block_compute(0, step.message, step.reduce, step.apply,
                       flow.layer_nid(1).index_select(0, positions));
    const at::Tensor all = whole_graph(graph, step, 1).index_select(0, ids(kComputeSeeds));
    EXPECT_TRUE(equal_but_for_rounding(
        flow.layers(1).data()["h"], old.index_copy(0, positions, all.index_select(0, positions))));
  }
}

TEST(NodeFlowCompute, nodes_without_in_edges_get_zero) {
  Graph graph = four_node_graph();
  graph.ndata()["x"] = numbers({1, 2, 3, 4});
  NodeFlow flow = whole_flow(graph, {3, 2, 0}, 1);
  flow.copy_from_parent({"x"});
  flow.block_compute(0, fn::copy_u("x", "m"), fn::max("m", "y"));
  EXPECT_TRUE(exact(flow.layers(1).data()["y"], numbers({0, 4, 0})));
  flow.layers(1).data()["y"] = numbers({5, 6, 7});
  flow.block_compute(0, fn::copy_u("x", "m"), fn::sum("m", "y"), {},
                     flow.map_from_parent_nid(1, ids({0})));
  EXPECT_TRUE(exact(flow.layers(1).data()["y"], numbers({5, 6, 0})));
}

TEST(NodeFlowCompute, functions_see_local_ids) {
  const Graph graph = featured_graph();
  NodeFlow flow = whole_flow(graph, kComputeSeeds, 2);
  flow.copy_from_parent({"x"});
  flow.apply_layer(1, [&](const NodeBatch& nodes) {
    return one_column("id", flow.layer_parent_nid(1).index_select(0, nodes.nodes()));
  });
  EXPECT_TRUE(exact(flow.layers(1).data()["id"], flow.layer_parent_nid(1)));
  flow.apply_block(1, [&](const EdgeBatch& edges) -> Columns {
    return {{"src", flow.layer_parent_nid(1).index_select(0, edges.src_ids())},
            {"dst", flow.layer_parent_nid(2).index_select(0, edges.dst_ids())}};
  });
  EXPECT_TRUE(exact(flow.blocks(1).data()["src"], flow.map_to_parent_nid(flow.block_edges(1).src)));
  EXPECT_TRUE(exact(flow.blocks(1).data()["dst"], flow.map_to_parent_nid(flow.block_edges(1).dst)));
}

TEST(NodeFlowCompute, apply_layer_of_some_nodes_changes_these_alone) {
  NodeFlow flow = whole_flow(featured_graph(), kComputeSeeds, 1);
  flow.copy_from_parent({"x"});
  const at::Tensor before = flow.layers(-1).data()["x"];
  const auto negate = [](const NodeBatch& nodes) { return one_column("x", -nodes.data("x")); };
  flow.apply_layer(-1, negate, flow.map_from_parent_nid(-1, ids({3, 2})));
  at::Tensor expected = before.clone();
  expected[1] = -before[1];
  expected[3] = -before[3];
  EXPECT_TRUE(exact(flow.layers(-1).data()["x"], expected));
  flow.apply_layer(-1, negate);
  EXPECT_TRUE(exact(flow.layers(-1).data()["x"], -expected));
}

TEST(NodeFlowCompute, apply_block_of_some_edges_changes_these_alone) {
  NodeFlow flow = whole_flow(featured_graph(), kComputeSeeds, 2);
  flow.copy_from_parent({"x"}, {"w"});
  flow.apply_block(0, fn::u_sub_v("x", "x", "d"));
  const NodeFlow::BlockEdges edges = flow.block_edges(0, /*local=*/true);
  EXPECT_TRUE(
      exact(flow.blocks(0).data()["d"], flow.layers(0).data()["x"].index_select(0, edges.src) -
                                            flow.layers(1).data()["x"].index_select(0, edges.dst)));
  const at::Tensor before = flow.blocks(1).data()["w"].clone();
  flow.apply_block(
      1, [](const EdgeBatch& some) { return one_column("w", some.data("w") + 10); },
      flow.block_eid(1).narrow(0, 1, 2));
  at::Tensor expected = before.clone();
  expected.narrow(0, 1, 2).add_(10);
  EXPECT_TRUE(exact(flow.blocks(1).data()["w"], expected));
}

TEST(NodeFlowCompute, wrong_nodes_and_edges_are_errors_that_change_nothing) {
  NodeFlow flow = whole_flow(featured_graph(), kComputeSeeds, 1);
  flow.copy_from_parent({"x"});
  const std::int64_t below = flow.layer_size(0);
  const auto attempt = [&](const at::Tensor& nodes) {
    flow.block_compute(0, fn::copy_u("x", "m"), fn::sum("m", "y"), {}, nodes);
  };
  EXPECT_ERROR(fmt::format("[{},{})", below, below + 4), attempt(ids({below - 1})));
  EXPECT_ERROR("distinct", attempt(ids({below, below})));
  EXPECT_ERROR("integervector", attempt(at::ones({4}, on_device(at::kBool))));
  EXPECT_ERROR("'none'", flow.block_compute(0, fn::copy_u("none", "m"), fn::sum("m", "y")));
  EXPECT_ERROR("blockin[-1,1)", flow.block_compute(1, fn::copy_u("x", "m"), fn::sum("m", "y")));
  EXPECT_EQ(flow.layers(1).data().names(), std::vector<std::string>{"x"});
}

TEST(NodeFlowCompute, an_empty_flow_computes) {
  Graph graph = isolated_graph(6);
  graph.ndata()["x"] = at::ones({6, 2}, on_device());
  NodeFlow flow = whole_flow(graph, {5, 1}, 2);
  EXPECT_EQ(flow.layer_size(0), 0);
  EXPECT_EQ(flow.num_edges(), 0);
  flow.copy_from_parent({"x"});
  flow.prop_flow(fn::copy_u("x", "m"), fn::mean("m", "x"));
  EXPECT_TRUE(exact(flow.layers(-1).data()["x"], at::zeros({2, 2})));
}

TEST(NodeFlowCompute, gradients_reach_the_parents_column) {
  Graph graph = featured_graph();
  const at::Tensor x = leaf(graph.ndata()["x"]);
  graph.ndata()["x"] = x;
  const NamedStep step = steps()[2];
  NodeFlow flow = whole_flow(graph, kComputeSeeds, 2);
  flow.copy_from_parent({"x"}, {"w"});
  flow.layers(0).data()["h"] = flow.layers(0).data()["x"];
  flow.prop_flow(step.message, step.reduce);
  const at::Tensor sampled = torch::autograd::grad({flow.layers(-1).data()["h"].sum()}, {x})[0];
  const at::Tensor whole = whole_graph(graph, step, 2).index_select(0, ids(kComputeSeeds));
  EXPECT_TRUE(equal_but_for_rounding(sampled, torch::autograd::grad({whole.sum()}, {x})[0]));
}

struct UpdateImpl : torch::nn::Module {
  UpdateImpl(std::int64_t in_features, std::int64_t out_features)
      : linear(register_module("linear", torch::nn::Linear(in_features, out_features))) {}
  Columns forward(const NodeBatch& nodes) {
    return {{"h_new", linear(at::cat({nodes.data("h"), nodes.data("h_n")}, 1))}};
  }
  torch::nn::Linear linear;
};
TORCH_MODULE(Update);

// GraphSAGE over a flow: in step i every layer from i on receives messages.
TEST(NodeFlowCompute, modules_apply_where_each_layer_also_stands_below) {
  Graph graph = featured_graph();
  graph.ndata()["x"] = graph.ndata()["x"].to(at::kFloat);
  NodeFlow flow = whole_flow(graph, kComputeSeeds, 2, /*add_self_loop=*/true);
  flow.copy_from_parent({"x"});
  std::vector<Update> layers = {Update(6, 5), Update(10, 2)};
  for (const Update& layer : layers) layer.ptr()->to(test_device());
  for (std::int64_t i = 0; i < flow.num_layers(); ++i) {
    flow.layers(i).data()["h"] = flow.layers(i).data()["x"];
  }
  for (std::int64_t i = 0; i < 2; ++i) {
    const auto layer = layers[static_cast<std::size_t>(i)];
    for (std::int64_t j = i; j < 2; ++j) {
      flow.block_compute(j, fn::copy_u("h", "m"), fn::mean("m", "h_n"), layer);
    }
    for (std::int64_t j = i; j < 2; ++j) {
      flow.layers(j + 1).data()["h"] = flow.layers(j + 1).data()["h_new"];
    }
  }
  EXPECT_EQ(flow.layers(-1).data()["h"].sizes(), (Ids{4, 2}));
  flow.layers(-1).data()["h"].sum().backward();
  for (const Update& layer : layers) EXPECT_TRUE(layer->linear->weight.grad().defined());
}

}  // namespace
}  // namespace mezzo::test
