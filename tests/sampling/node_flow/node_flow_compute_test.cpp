#include <array>
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

/// A layer of GraphSAGE: "h_new" from a node's own "h" and the mean "h_n".
struct UpdateImpl : torch::nn::Module {
  UpdateImpl(std::int64_t in_features, std::int64_t out_features, bool with_relu)
      : linear(register_module("linear", torch::nn::Linear(2 * in_features, out_features))),
        activate(with_relu) {}
  Columns forward(const NodeBatch& nodes) {
    const at::Tensor h = linear(at::cat({nodes.data("h"), nodes.data("h_n")}, 1));
    return {{"h_new", activate ? at::relu(h) : h}};
  }
  torch::nn::Linear linear;
  bool activate;
};
TORCH_MODULE(Update);

/// A model with only numbers and sums that are exact in `dtype`, in any order: small integers,
/// divided by degrees of 1, 2 and 4.
struct CrossLayerCase {
  at::ScalarType dtype;
  Ids widths;  ///< of the features and of the outputs of each layer
  std::int64_t most_feature, most_weight, most_bias;
  Ids seeds;
};

std::vector<CrossLayerCase> cross_layer_cases() {
  // At most 20 bits; in bfloat16 multiples of 1/16 up to 16.
  return {{at::kDouble, {3, 5, 4, 2}, 4, 2, 2, {5, 4, 0, 11}},
          {at::kFloat, {3, 5, 4, 2}, 4, 2, 2, {5, 4, 0, 11}},
          {at::kBFloat16, {2, 3, 2}, 1, 1, 0, {5, 4}}};
}

/// In-degrees 1, 2 and 4, with the self loops that a flow adds; node 4 has its own.
Graph graph_of_dyadic_degrees() {
  constexpr std::int64_t kNodes = 12;
  Ids src = {4, 9}, dst = {4, 4};
  for (std::int64_t v = 0; v < kNodes; ++v) {
    const std::int64_t neighbors = v == 4 ? 0 : std::array<std::int64_t, 3>{0, 1, 3}[v % 3];
    for (std::int64_t k = 1; k <= neighbors; ++k) {
      src.push_back((v + 5 * k) % kNodes);
      dst.push_back(v);
    }
  }
  return graph_of(src, dst, kNodes);
}

std::vector<Update> integer_layers(const CrossLayerCase& test) {
  const at::NoGradGuard no_grad;
  std::vector<Update> layers;
  for (std::size_t i = 0; i + 1 < test.widths.size(); ++i) {
    layers.emplace_back(test.widths[i], test.widths[i + 1], i + 2 < test.widths.size());
    layers.back().ptr()->to(test_device(), test.dtype);
    const at::Tensor &weight = layers.back()->linear->weight, &bias = layers.back()->linear->bias;
    weight.copy_(integers(weight.sizes(), test.dtype, 20 + i, -test.most_weight, test.most_weight));
    bias.copy_(integers(bias.sizes(), test.dtype, 30 + i, -test.most_bias, test.most_bias));
  }
  return layers;
}

/// GraphSAGE over a flow: in step i every layer from i on receives messages.
at::Tensor cross_layer_sage(NodeFlow& flow, const std::vector<Update>& layers) {
  for (std::int64_t i = 0; i < flow.num_layers(); ++i) {
    flow.layers(i).data()["h"] = flow.layers(i).data()["x"];
  }
  const auto steps = static_cast<std::int64_t>(layers.size());
  for (std::int64_t i = 0; i < steps; ++i) {
    const auto layer = layers[static_cast<std::size_t>(i)];
    for (std::int64_t j = i; j < steps; ++j) {
      flow.block_compute(j, fn::copy_u("h", "m"), fn::mean("m", "h_n"), layer);
    }
    for (std::int64_t j = i; j < steps; ++j) {
      flow.layers(j + 1).data()["h"] = flow.layers(j + 1).data()["h_new"];
    }
  }
  return flow.layers(-1).data()["h"];
}

/// GraphSAGE on all nodes by its definition in float64. parameters: weight and bias of each layer.
at::Tensor whole_sage(const Graph& graph, const at::Tensor& x,
                      const std::vector<at::Tensor>& parameters) {
  const Topology& topology = graph.topology();
  at::Tensor means = at::zeros({topology.num_dst(), topology.num_src()}, on_device(at::kDouble));
  means.index_put_({topology.dst().to(at::kLong), topology.src().to(at::kLong)}, 1.0);
  means.fill_diagonal_(1);
  means = means / means.sum(1, /*keepdim=*/true);
  at::Tensor h = x.to(at::kDouble);
  for (std::size_t i = 0; i < parameters.size(); i += 2) {
    h = at::matmul(at::cat({h, at::matmul(means, h)}, 1), parameters[i].t()) + parameters[i + 1];
    if (i + 2 < parameters.size()) h = at::relu(h);
  }
  return h;
}

TEST(NodeFlowCompute, cross_layer_sage_with_all_neighbors_is_the_full_graphs_model) {
  for (const CrossLayerCase& test : cross_layer_cases()) {
    SCOPED_TRACE(c10::toString(test.dtype));
    Graph graph = graph_of_dyadic_degrees();
    graph.ndata()["x"] = integers({graph.num_nodes(), test.widths.front()}, test.dtype, 11,
                                  -test.most_feature, test.most_feature);
    const std::vector<Update> layers = integer_layers(test);
    std::vector<at::Tensor> parameters, of_definition;
    for (const Update& layer : layers) {
      for (const at::Tensor& parameter : layer->parameters()) parameters.push_back(parameter);
    }
    for (const at::Tensor& parameter : parameters) {
      of_definition.push_back(leaf(parameter.to(at::kDouble)));
    }
    NodeFlow flow = whole_flow(graph, test.seeds, static_cast<std::int64_t>(layers.size()),
                               /*add_self_loop=*/true);
    flow.copy_from_parent({"x"});
    const at::Tensor got = cross_layer_sage(flow, layers);
    const at::Tensor expected =
        whole_sage(graph, graph.ndata()["x"], of_definition).index_select(0, ids(test.seeds));
    EXPECT_EQ(got.scalar_type(), test.dtype);
    EXPECT_TRUE(exact(got, expected));

    const at::Tensor weights = divisors(expected.sizes(), test.dtype, 5).sign();
    const auto gradients = torch::autograd::grad({got}, parameters, {weights});
    const auto defined =
        torch::autograd::grad({expected}, of_definition, {weights.to(at::kDouble)});
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_GT(defined[i].abs().sum().item<double>(), 0) << i;
      EXPECT_TRUE(exact(gradients[i], defined[i])) << i;
    }
  }
}

}  // namespace
}  // namespace mezzo::test
