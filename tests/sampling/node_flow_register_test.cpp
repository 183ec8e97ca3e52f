#include "mezzo/message_passing/fn.h"
#include "mezzo/sampling/node_flow/node_flow.h"

#include "sampling/flow_support.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

std::vector<NamedStep> registered_cases() {
  return {{"built-in", fn::u_mul_e("h", "w", "m"), fn::sum("m", "h")},
          {"built-in and applied", fn::copy_u("h", "m"), fn::mean("m", "h"), doubled_plus_x},
          {"user-defined", message_of_h, largest_message, doubled_plus_x}};
}

void register_case(NodeFlow& flow, const NamedStep& functions) {
  flow.register_message_func(functions.message);
  flow.register_reduce_func(functions.reduce);
  flow.register_apply_node_func(functions.apply);
}

void register_case(NodeFlow& flow, const NamedStep& functions, std::int64_t block) {
  flow.register_message_func(functions.message, block);
  flow.register_reduce_func(functions.reduce, block);
  flow.register_apply_node_func(functions.apply, block);
}

void compute_case(NodeFlow& flow, std::int64_t block, const NamedStep& functions) {
  flow.block_compute(block, functions.message, functions.reduce, functions.apply);
}

/// Two hops with the parent's "x" and "w", and "h" of the inputs: the same in every call.
NodeFlow flow_with_inputs() {
  NodeFlow flow = whole_flow(featured_graph(), {1, 2, 0, 3}, 2);
  flow.copy_from_parent({"x"}, {"w"});
  flow.layers(0).data()["h"] = flow.layers(0).data()["x"];
  return flow;
}

/// Whether both flows have the same column in their layers `layer`.
testing::AssertionResult same_in_layer(NodeFlow got, NodeFlow expected, std::int64_t layer,
                                       const std::string& column) {
  return exact(got.layers(layer).data().at(column), expected.layers(layer).data().at(column));
}

const auto kNegateX = [](const NodeBatch& nodes) { return one_column("x", -nodes.data("x")); };

TEST(NodeFlowRegister, functions_of_every_block_are_those_of_calls_without) {
  for (const NamedStep& functions : registered_cases()) {
    SCOPED_TRACE(functions.name);
    NodeFlow expected = flow_with_inputs(), flow = flow_with_inputs();
    register_case(flow, functions);
    for (std::int64_t i = 0; i < 2; ++i) compute_case(expected, i, functions);
    flow.block_compute(0);
    flow.block_compute(-1);
    EXPECT_TRUE(same_in_layer(flow, expected, 1, "h"));
    EXPECT_TRUE(same_in_layer(flow, expected, 2, "h"));
  }
}

TEST(NodeFlowRegister, each_block_has_its_own_and_the_last_registration_stays) {
  const auto cases = registered_cases();
  for (const NamedStep& first : cases) {
    for (const NamedStep& second : cases) {
      SCOPED_TRACE(first.name + ", then " + second.name);
      NodeFlow expected = flow_with_inputs(), flow = flow_with_inputs();
      NodeFlow replaced = flow_with_inputs();
      compute_case(expected, 0, first);
      compute_case(expected, 1, second);
      register_case(flow, first, 0);
      register_case(flow, second, -1);
      register_case(replaced, first);
      register_case(replaced, second, 1);
      for (NodeFlow* each : {&flow, &replaced}) {
        for (std::int64_t i = 0; i < 2; ++i) each->block_compute(i);
        EXPECT_TRUE(same_in_layer(*each, expected, 1, "h"));
        EXPECT_TRUE(same_in_layer(*each, expected, 2, "h"));
      }
    }
  }
}

TEST(NodeFlowRegister, prop_flow_with_registered_functions_equals_that_with_given_ones) {
  for (const NamedStep& functions : registered_cases()) {
    SCOPED_TRACE(functions.name);
    NodeFlow expected = flow_with_inputs(), flow = flow_with_inputs();
    NodeFlow mixed = flow_with_inputs();
    expected.prop_flow(functions.message, functions.reduce, functions.apply);
    register_case(flow, functions);
    flow.prop_flow();
    EXPECT_TRUE(same_in_layer(flow, expected, -1, "h"));
    mixed.register_reduce_func(functions.reduce);
    mixed.prop_flow(functions.message, {}, functions.apply);
    EXPECT_TRUE(same_in_layer(mixed, expected, -1, "h"));
  }
}

TEST(NodeFlowRegister, what_a_call_gives_goes_before_what_is_registered) {
  const MessageFunction copies = fn::copy_u("h", "m");
  const ReduceFunction smallest = fn::min("m", "h");
  const ApplyFunction plus_one = [](const NodeBatch& nodes) {
    return one_column("h", nodes.data("h") + 1);
  };
  for (const NamedStep& functions : registered_cases()) {
    SCOPED_TRACE(functions.name);
    NodeFlow expected = flow_with_inputs(), flow = flow_with_inputs();
    register_case(flow, functions);
    expected.block_compute(0, copies, functions.reduce, functions.apply);
    flow.block_compute(0, copies);
    EXPECT_TRUE(same_in_layer(flow, expected, 1, "h"));
    expected.block_compute(0, functions.message, smallest, functions.apply);
    flow.block_compute(0, {}, smallest);
    EXPECT_TRUE(same_in_layer(flow, expected, 1, "h"));
    expected.block_compute(0, functions.message, functions.reduce, plus_one);
    flow.block_compute(0, {}, {}, plus_one);
    EXPECT_TRUE(same_in_layer(flow, expected, 1, "h"));
    expected.block_compute(0, functions.message, functions.reduce);
    flow.block_compute(0, {}, {}, ApplyFunction());  // an explicit empty function
    EXPECT_TRUE(same_in_layer(flow, expected, 1, "h"));
    compute_case(expected, 0, functions);
    flow.block_compute(0);  // the registered functions are unchanged
    EXPECT_TRUE(same_in_layer(flow, expected, 1, "h"));
  }
}

TEST(NodeFlowRegister, restricted_nodes_are_computed_with_them_too) {
  for (const NamedStep& functions : registered_cases()) {
    SCOPED_TRACE(functions.name);
    NodeFlow expected = flow_with_inputs(), flow = flow_with_inputs();
    const at::Tensor nodes = flow.layer_nid(1).narrow(0, 1, 2);
    register_case(flow, functions, 0);
    expected.block_compute(0, functions.message, functions.reduce, functions.apply, nodes);
    flow.block_compute(0, {}, {}, {}, nodes);
    EXPECT_TRUE(same_in_layer(flow, expected, 1, "h"));
  }
}

TEST(NodeFlowRegister, apply_layer_takes_that_of_the_block_that_runs_into_the_layer) {
  NodeFlow expected = flow_with_inputs(), flow = flow_with_inputs();
  flow.register_apply_node_func(kNegateX, 0);
  EXPECT_ERROR("apply_nodefunctionoflayer0", flow.apply_layer(0));
  EXPECT_ERROR("apply_nodefunctionoflayer2", flow.apply_layer(2));
  flow.apply_layer(1);
  expected.apply_layer(1, kNegateX);
  for (std::int64_t i = 0; i < 3; ++i) EXPECT_TRUE(same_in_layer(flow, expected, i, "x"));

  flow.register_apply_node_func(kNegateX);
  flow.apply_layer(0);
  expected.apply_layer(0, kNegateX);
  const at::Tensor last_seed = flow.layer_nid(-1).narrow(0, 3, 1);
  flow.apply_layer(-1, {}, last_seed);
  expected.apply_layer(-1, kNegateX, last_seed);
  for (std::int64_t i = 0; i < 3; ++i) EXPECT_TRUE(same_in_layer(flow, expected, i, "x"));

  flow.register_apply_node_func(ApplyFunction(), 1);
  EXPECT_ERROR("apply_nodefunctionoflayer2", flow.apply_layer(2));
  flow.apply_layer(1);
  expected.apply_layer(1, kNegateX);
  EXPECT_TRUE(same_in_layer(flow, expected, 1, "x"));
}

TEST(NodeFlowRegister, apply_block_takes_that_of_the_block) {
  const MessageFunction differences = fn::u_sub_v("x", "x", "d");
  const MessageFunction more = [](const EdgeBatch& edges) {
    return one_column("d", edges.data("w") + 1);
  };
  NodeFlow expected = flow_with_inputs(), flow = flow_with_inputs();
  const auto expect_same = [&] {
    for (std::int64_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(exact(flow.blocks(i).data().at("d"), expected.blocks(i).data().at("d")));
    }
  };
  flow.register_apply_edge_func(differences);
  for (std::int64_t i = 0; i < 2; ++i) {
    flow.apply_block(i);
    expected.apply_block(i, differences);
  }
  expect_same();
  flow.register_apply_edge_func(more, 0);
  flow.apply_block(0);
  expected.apply_block(0, more);
  flow.blocks(1).data()["d"] = at::zeros_like(flow.blocks(1).data()["d"]);
  expected.blocks(1).data()["d"] = at::zeros_like(expected.blocks(1).data()["d"]);
  const at::Tensor edges = flow.block_eid(-1).narrow(0, 1, 2);
  flow.apply_block(-1, {}, edges);
  expected.apply_block(-1, differences, edges);
  expect_same();
  flow.apply_block(1, more);
  expected.apply_block(1, more);
  expect_same();
}

TEST(NodeFlowRegister, a_function_that_is_neither_given_nor_registered_is_an_error) {
  NodeFlow flow = flow_with_inputs();
  EXPECT_ERROR("block_compute:expectedthemessagefunctionofblock0", flow.block_compute(0));
  EXPECT_ERROR("register_message_func", flow.block_compute(-1));
  EXPECT_ERROR(
      "block_compute:expectedthereducefunctionofblock1,asanargumentorbyregister_reduce_"
      "func",
      flow.block_compute(-1, fn::copy_u("h", "m")));
  EXPECT_ERROR("messagefunctionofblock0",
               flow.block_compute(0, {}, fn::sum("m", "h"), {}, ids({0})));
  EXPECT_ERROR("apply_layer:expectedtheapply_nodefunctionoflayer2", flow.apply_layer(-1));
  EXPECT_ERROR("apply_block:expectedtheapply_edgefunctionofblock1", flow.apply_block(1));
}

TEST(NodeFlowRegister, prop_flow_computes_nothing_where_one_block_lacks_a_function) {
  NodeFlow flow = flow_with_inputs();
  flow.register_message_func(fn::copy_u("h", "m"));
  flow.register_reduce_func(fn::sum("m", "h"), 0);
  EXPECT_ERROR("prop_flow:expectedthereducefunctionofblock1", flow.prop_flow());
  EXPECT_FALSE(flow.layers(1).data().contains("h"));
}

TEST(NodeFlowRegister, blocks_out_of_range_are_errors_that_register_nothing) {
  NodeFlow flow = flow_with_inputs();
  const NamedStep functions = registered_cases().front();
  for (const std::int64_t block : {2, -3}) {
    EXPECT_ERROR("blockin[-2,2)", flow.register_message_func(functions.message, block));
    EXPECT_ERROR("blockin[-2,2)", flow.register_reduce_func(functions.reduce, block));
    EXPECT_ERROR("blockin[-2,2)", flow.register_apply_node_func(kNegateX, block));
    EXPECT_ERROR("blockin[-2,2)", flow.register_apply_edge_func(functions.message, block));
  }
  EXPECT_ERROR("apply_nodefunctionoflayer2", flow.apply_layer(-1));
}

TEST(NodeFlowRegister, copies_share_what_is_registered_and_a_move_keeps_it) {
  const NamedStep functions = registered_cases().back();
  NodeFlow expected = flow_with_inputs(), flow = flow_with_inputs();
  NodeFlow copy = flow;
  register_case(copy, functions);
  flow.to(test_device());
  flow.prop_flow();
  expected.prop_flow(functions.message, functions.reduce, functions.apply);
  EXPECT_TRUE(same_in_layer(flow, expected, -1, "h"));
}

TEST(NodeFlowRegister, a_function_may_register_another_while_it_runs) {
  NodeFlow flow = flow_with_inputs();
  const at::Tensor before = flow.layers(1).data()["x"];
  // If run in place, the function would destroy its captured summand.
  flow.register_apply_node_func(
      [&flow, summand = at::ones({1}, on_device(at::kDouble))](const NodeBatch& nodes) -> Columns {
        flow.register_apply_node_func(kNegateX);
        return {{"x", nodes.data("x") + summand}};
      });
  flow.apply_layer(1);
  EXPECT_TRUE(exact(flow.layers(1).data()["x"], before + 1));
  flow.apply_layer(1);
  EXPECT_TRUE(exact(flow.layers(1).data()["x"], -(before + 1)));
}

}  // namespace
}  // namespace mezzo::test
