#include "mezzo/graph/graph.h"
#include "mezzo/message_passing/fn.h"
#include "mezzo/message_passing/update_all.h"
#include "mezzo/runtime/memory.h"

#include "message_passing/update_all_support.h"
#include "support/gradcheck.h"
#include "support/graphs.h"
#include "support/tensors.h"
#include "support/tolerance.h"

// Message passing along selected edges, and functions applied to selected nodes and edges.

namespace mezzo::test {
namespace {

at::Tensor mask(const std::vector<std::int64_t>& rows) {
  return ids(rows).to(at::kBool);
}

Columns ten_times(const NodeBatch& nodes) {
  return {{"out", nodes.data("x") * 10}};
}

TEST(SendAndRecv, makes_a_column_that_is_zero_where_nothing_arrives) {
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    Graph g = four_node_features(dtype.scalar);
    g.send_and_recv(ids({1, 3}), fn::u_mul_e("x", "w", "m"), fn::sum("m", "out"));
    EXPECT_TRUE(exact(g.ndata()["out"], numbers({0, 0, 180, 0})));
    EXPECT_EQ(g.ndata()["out"].scalar_type(), dtype.scalar);
    EXPECT_FALSE(g.edata().contains("m"));
  }
}

TEST(SendAndRecv, leaves_the_rows_of_nodes_that_receive_nothing) {
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    Graph g = four_node_features(dtype.scalar);
    const at::Tensor old = numbers({5, 6, 7, 8}, dtype.scalar);
    g.ndata()["out"] = old;
    g.send_and_recv(ids({1, 3}), copy_x, sum_m);
    EXPECT_TRUE(exact(g.ndata()["out"], numbers({5, 6, 5, 8})));
    EXPECT_TRUE(exact(old, numbers({5, 6, 7, 8})));  // not changed in place
  }
}

TEST(SendAndRecv, takes_ids_of_either_width_and_a_mask) {
  for (const at::Tensor& edges : {ids({0, 3}), ids({0, 3}).to(at::kInt), mask({1, 0, 0, 1})}) {
    Graph g = four_node_features();
    g.send_and_recv(edges, fn::copy_u("x", "m"), fn::sum("m", "out"));
    EXPECT_TRUE(exact(g.ndata()["out"], numbers({0, 1, 4, 0})));
  }
}

TEST(SendAndRecv, bytes_are_neither_ids_nor_a_mask) {
  Graph g = four_node_features();
  const at::Tensor bytes = mask({1, 0, 0, 1}).to(at::kByte);
  EXPECT_ERROR("gotuint8", g.send_and_recv(bytes, fn::copy_u("x", "m"), fn::sum("m", "out")));
}

TEST(SendAndRecv, takes_edges_by_their_ends) {
  Graph g = four_node_features();
  g.send_and_recv(g.edge_ids(ids({3, 0}), ids({2, 1})), fn::copy_e("w", "m"), fn::max("m", "out"));
  EXPECT_TRUE(exact(g.ndata()["out"], numbers({0, 10, 40, 0})));
}

TEST(SendAndRecv, an_edge_named_twice_sends_twice) {
  Graph g = four_node_features();
  g.send_and_recv(ids({1, 3, 1}), fn::copy_u("x", "m"), fn::sum("m", "sum"));
  EXPECT_TRUE(exact(g.ndata()["sum"], numbers({0, 0, 6, 0})));
  g.send_and_recv(ids({1, 3, 1}), fn::copy_u("x", "m"), fn::mean("m", "mean"));
  EXPECT_TRUE(exact(g.ndata()["mean"], numbers({0, 0, 2, 0})));
}

TEST(SendAndRecv, equals_its_definition_on_a_bipartite_graph) {
  const Topology g = random_topology(30, 40, 100, 71);
  Frame src("node", 30, test_device()), edge("edge", 100, test_device()),
      dst("node", 40, test_device());
  src["x"] = integers({30, 4}, at::kFloat, 1);
  edge["w"] = integers({100, 1}, at::kFloat, 2);
  const at::Tensor edges = integers({60}, at::kLong, 3, 0, 99);
  send_and_recv(g, src, edge, dst, edges, fn::u_mul_e("x", "w", "m"), fn::sum("m", "out"));
  at::Tensor expected = at::zeros({40, 4}, on_device());
  for (const std::int64_t e : values(edges)) {
    expected[g.dst()[e].item<std::int64_t>()] +=
        src["x"][g.src()[e].item<std::int64_t>()] * edge["w"][e];
  }
  EXPECT_TRUE(exact(dst["out"], expected));
  EXPECT_FALSE(src.contains("out"));
}

TEST(SendAndRecv, user_defined_functions_see_the_edges_in_the_given_order) {
  Graph g = four_node_features();
  const auto message = [](const EdgeBatch& edges) -> Columns {
    EXPECT_EQ(edges.batch_size(), 3);
    EXPECT_TRUE(exact(edges.edge_ids(), numbers({3, 0, 1})));
    EXPECT_TRUE(exact(edges.src_ids(), numbers({3, 0, 0})));
    EXPECT_TRUE(exact(edges.dst_ids(), numbers({2, 1, 2})));
    EXPECT_TRUE(exact(edges.src("x"), numbers({4, 1, 1})));
    EXPECT_TRUE(exact(edges.dst("x"), numbers({3, 2, 3})));
    EXPECT_TRUE(exact(edges.data("w"), numbers({40, 10, 20})));
    return {{"m", edges.data("w")}};
  };
  Ids degrees;
  const auto reduce = [&](const NodeBatch& nodes) -> Columns {
    const at::Tensor& mailbox = nodes.mailbox("m");
    degrees.push_back(mailbox.size(1));
    const bool one = mailbox.size(1) == 1;
    EXPECT_TRUE(exact(nodes.nodes(), numbers({one ? 1.0 : 2.0})));
    EXPECT_TRUE(exact(nodes.data("x"), numbers({one ? 2.0 : 3.0})));
    EXPECT_TRUE(exact(mailbox.flatten(), one ? numbers({10}) : numbers({40, 20})));
    return {{"out", mailbox.select(1, 0)}};
  };
  g.send_and_recv(ids({3, 0, 1}), message, reduce);
  EXPECT_EQ(degrees, Ids({1, 2}));
  EXPECT_TRUE(exact(g.ndata()["out"], numbers({0, 10, 40, 0})));
}

TEST(SendAndRecv, the_apply_function_sees_the_nodes_that_receive_in_ascending_order) {
  Graph g = four_node_features();
  g.send_and_recv(ids({3, 0}), fn::copy_u("x", "m"), fn::sum("m", "sum"),
                  [](const NodeBatch& nodes) -> Columns {
                    EXPECT_TRUE(exact(nodes.nodes(), numbers({1, 2})));
                    EXPECT_TRUE(exact(nodes.data("sum"), numbers({1, 4})));
                    EXPECT_TRUE(exact(nodes.data("x"), numbers({2, 3})));
                    return {{"out", nodes.data("sum") + 100 * nodes.data("x")}};
                  });
  EXPECT_TRUE(exact(g.ndata()["out"], numbers({0, 201, 304, 0})));
  EXPECT_TRUE(exact(g.ndata()["sum"], numbers({0, 1, 4, 0})));
}

TEST(SendAndRecv, gradients_reach_the_messages_and_the_rows_that_stay) {
  Graph g = four_node_features();
  const at::Tensor x = leaf(g.ndata()["x"]), old = leaf(numbers({5, 6, 7, 8}, at::kFloat));
  g.ndata()["x"] = x;
  g.ndata()["out"] = old;
  g.send_and_recv(ids({1, 3}), copy_x, fn::sum("m", "out"));
  g.ndata()["out"].sum().backward();
  EXPECT_TRUE(exact(x.grad(), numbers({1, 0, 0, 1})));
  EXPECT_TRUE(exact(old.grad(), numbers({1, 1, 0, 1})));
}

TEST(SendAndRecv, gradients_agree_with_difference_quotients) {
  const Topology topology = random_topology(8, 8, 30, 5);
  const auto run = [&](const std::vector<at::Tensor>& inputs) {
    Graph g{topology};
    g.ndata()["x"] = inputs[0];
    g.edata()["w"] = inputs[1];
    g.ndata()["out"] = inputs[2];
    g.send_and_recv(ids({7, 2, 2, 19, 0, 28, 11}), fn::u_mul_e("x", "w", "m"),
                    fn::mean("m", "out"));
    return g.ndata()["out"];
  };
  EXPECT_TRUE(gradcheck(run, {uniform({8, 3}, at::kDouble, 1), uniform({30, 1}, at::kDouble, 2),
                              uniform({8, 3}, at::kDouble, 3)}));
}

TEST(SendAndRecv, gradients_of_a_hub_are_summed_in_float32) {
  constexpr std::int64_t kLeaves = 600;  // a sum in bfloat16 would stop at 256
  for (const MessageFunction& message :
       {MessageFunction(fn::copy_u("x", "m")), MessageFunction(copy_x)}) {
    Graph g{Topology::from_coo(at::zeros({kLeaves}, on_device(at::kLong)),
                               at::arange(kLeaves, on_device()), kLeaves, kLeaves)};
    const at::Tensor x = leaf(at::ones({kLeaves}, on_device(at::kBFloat16)));
    g.ndata()["x"] = x;
    g.send_and_recv(at::arange(kLeaves, on_device()), message, fn::sum("m", "out"));
    g.ndata()["out"].sum().backward();
    EXPECT_TRUE(exact(x.grad()[0], at::scalar_tensor(kLeaves)));
  }
}

TEST(SendAndRecv, a_builtin_pair_makes_no_message) {
  constexpr std::int64_t kEdges = 16384, kWidth = 256;
  Graph g = power_law_graph(64, kEdges, 3);
  g.ndata()["x"] = at::ones({64, kWidth}, on_device());
  const at::Tensor edges = at::arange(0, kEdges, 2, on_device());
  const auto peak = [&](const MessageFunction& message) {
    const std::int64_t before = current_memory_bytes(test_device());
    reset_peak_memory(test_device());
    g.send_and_recv(edges, message, fn::mean("m", "out"));
    return peak_memory_bytes(test_device()) - before;
  };
  const std::int64_t message_bytes = edges.numel() * kWidth * std::int64_t{sizeof(float)};
  EXPECT_GE(peak(copy_x), message_bytes);
  EXPECT_LT(peak(fn::copy_u("x", "m")), message_bytes / 2);
}

TEST(SendAndRecv, with_all_edges_equals_update_all) {
  for (const NamedGraph& named : named_graphs()) {
    if (named.graph.num_edges() == 0) continue;
    SCOPED_TRACE(named.name);
    for (const ReduceFunction& reduce :
         {ReduceFunction(fn::sum("m", "out")), ReduceFunction(fn::max("m", "out")),
          ReduceFunction(sum_m)}) {
      Graph g = named.graph.local_var();
      g.ndata()["x"] = integers({g.num_nodes(), 3}, at::kFloat, 1);
      g.edata()["w"] = integers({g.num_edges(), 3}, at::kFloat, 2);
      const auto message = fn::u_mul_e("x", "w", "m");
      g.update_all(message, reduce);
      const at::Tensor expected = g.ndata().pop("out");
      g.send_and_recv(at::arange(g.num_edges(), on_device()), message, reduce);
      EXPECT_TRUE(same_bits(g.ndata().pop("out"), expected));
      g.pull(at::arange(g.num_nodes(), on_device()), message, reduce);
      EXPECT_TRUE(exact(g.ndata().pop("out"), expected));
      g.push(at::arange(g.num_nodes(), on_device()), message, reduce);
      EXPECT_TRUE(exact(g.ndata().pop("out"), expected));
    }
  }
}

TEST(SendAndRecv, without_edges_nothing_happens) {
  Graph g = four_node_features();
  int calls = 0;
  const auto message = [&](const EdgeBatch& edges) {
    ++calls;
    return copy_x(edges);
  };
  const auto apply = [&](const NodeBatch& nodes) {
    ++calls;
    return ten_times(nodes);
  };
  g.send_and_recv(ids({}), message, fn::sum("m", "out"), apply);
  g.send_and_recv(mask({0, 0, 0, 0}), message, fn::sum("m", "out"), apply);
  g.push(ids({2}), message, fn::sum("m", "out"), apply);  // no out-edges
  g.push(ids({}), message, fn::sum("m", "out"), apply);
  g.pull(ids({}), message, fn::sum("m", "out"), apply);
  EXPECT_EQ(calls, 0);
  EXPECT_FALSE(g.ndata().contains("out"));
}

// pull and push.

TEST(Pull, gives_nodes_without_in_edges_zero_and_leaves_the_others) {
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    for (const ReduceFunction& reduce :
         {ReduceFunction(fn::sum("m", "out")), ReduceFunction(sum_m)}) {
      Graph g = four_node_features(dtype.scalar);
      g.ndata()["out"] = numbers({5, 6, 7, 8}, dtype.scalar);
      g.pull(ids({2, 0}), fn::copy_u("x", "m"), reduce);
      EXPECT_TRUE(exact(g.ndata()["out"], numbers({0, 6, 7, 8})));
    }
    Graph g = four_node_features(dtype.scalar);
    g.pull(mask({1, 0, 0, 0}), fn::copy_u("x", "m"), fn::max("m", "out"));  // no edges
    EXPECT_TRUE(exact(g.ndata()["out"], numbers({0, 0, 0, 0})));
  }
}

TEST(Pull, where_no_node_has_in_edges_a_user_defined_reduce_function_is_not_called) {
  Graph g = four_node_features();
  g.pull(ids({0, 3}), fn::copy_u("x", "m"), [](const NodeBatch&) -> Columns {
    ADD_FAILURE() << "called";
    return {};
  });
  EXPECT_FALSE(g.ndata().contains("out"));
}

TEST(Pull, the_apply_function_sees_each_node_once_in_ascending_order) {
  Graph g = four_node_features();
  g.pull(ids({3, 2, 3}), fn::copy_u("x", "m"), fn::sum("m", "sum"), [](const NodeBatch& nodes) {
    EXPECT_TRUE(exact(nodes.nodes(), numbers({2, 3})));
    EXPECT_TRUE(exact(nodes.data("sum"), numbers({7, 0})));
    return ten_times(nodes);
  });
  EXPECT_TRUE(exact(g.ndata()["out"], numbers({0, 0, 30, 40})));
}

TEST(Pull, a_node_named_twice_receives_twice) {
  Graph g = four_node_features();
  g.pull(ids({2, 2, 1}), fn::copy_u("x", "m"), fn::sum("m", "out"));
  EXPECT_TRUE(exact(g.ndata()["out"], numbers({0, 1, 14, 0})));
}

TEST(Push, sends_along_the_out_edges_alone) {
  for (const at::Tensor& nodes : {ids({3, 0}), mask({1, 0, 0, 1})}) {
    Graph g = four_node_features();
    g.ndata()["out"] = numbers({5, 6, 7, 8}, at::kFloat);
    g.push(nodes, fn::u_mul_e("x", "w", "m"), fn::sum("m", "out"));
    EXPECT_TRUE(exact(g.ndata()["out"], numbers({5, 10, 180, 8})));
  }
}

TEST(Push, runs_user_defined_functions_and_applies_to_the_nodes_that_receive) {
  Graph g = four_node_features();
  g.push(ids({1}), copy_x, sum_m, [](const NodeBatch& nodes) -> Columns {
    EXPECT_TRUE(exact(nodes.nodes(), numbers({2})));
    return {{"out", nodes.data("out") + nodes.data("x")}};
  });
  EXPECT_TRUE(exact(g.ndata()["out"], numbers({0, 0, 5, 0})));
}

TEST(ApplyNodes, computes_columns_of_all_nodes_or_of_some_in_the_given_order) {
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    Graph g = four_node_features(dtype.scalar);
    g.apply_nodes(
        [](const NodeBatch& nodes) -> Columns {
          EXPECT_TRUE(exact(nodes.nodes(), numbers({3, 1})));
          return {{"some", nodes.data("x") * 10}};
        },
        ids({3, 1}));
    EXPECT_TRUE(exact(g.ndata()["some"], numbers({0, 20, 0, 40})));
    g.apply_nodes(ten_times);
    EXPECT_TRUE(exact(g.ndata()["out"], numbers({10, 20, 30, 40})));
    EXPECT_EQ(g.ndata()["some"].scalar_type(), dtype.scalar);
    EXPECT_EQ(g.ndata()["out"].scalar_type(), dtype.scalar);
  }
}

TEST(ApplyNodes, of_no_nodes_makes_a_column_of_zeros) {
  Graph g = four_node_features();
  g.apply_nodes(ten_times, ids({}));
  EXPECT_TRUE(exact(g.ndata()["out"], numbers({0, 0, 0, 0})));
}

TEST(ApplyNodes, passes_gradients_to_the_rows_it_read_and_to_those_that_stay) {
  Graph g = four_node_features();
  const at::Tensor x = leaf(g.ndata()["x"]);
  g.ndata()["x"] = x;
  g.apply_nodes([](const NodeBatch& nodes) { return one_column("x", nodes.data("x") * 10); },
                mask({0, 1, 0, 1}));
  g.ndata()["x"].sum().backward();
  EXPECT_TRUE(exact(x.grad(), numbers({1, 10, 1, 10})));
}

TEST(ApplyEdges, computes_some_edges_by_builtin_and_user_defined_functions) {
  const auto custom = [](const EdgeBatch& edges) -> Columns {
    EXPECT_TRUE(exact(edges.edge_ids(), numbers({2, 0})));
    return {{"out", edges.src("x") + edges.dst("x") * edges.data("w")}};
  };
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    Graph g = four_node_features(dtype.scalar);
    g.apply_edges(fn::u_add_v("x", "x", "sum"), ids({2, 0}));
    EXPECT_TRUE(exact(g.edata()["sum"], numbers({3, 0, 5, 0})));
    g.apply_edges(fn::e_sub_u("w", "x", "sum"), mask({0, 1, 0, 0}));
    EXPECT_TRUE(exact(g.edata()["sum"], numbers({3, 19, 5, 0})));
    g.apply_edges(custom, ids({2, 0}));
    EXPECT_TRUE(exact(g.edata()["out"], numbers({21, 0, 92, 0})));
    g.apply_edges(fn::copy_u("x", "none"), ids({}));
    EXPECT_TRUE(exact(g.edata()["none"], numbers({0, 0, 0, 0})));
  }
}

TEST(ApplyEdges, of_some_edges_has_the_gradient_of_its_formula) {
  Graph g = four_node_features();
  const at::Tensor x = leaf(g.ndata()["x"]), w = leaf(g.edata()["w"]);
  g.ndata()["x"] = x;
  g.edata()["w"] = w;
  g.apply_edges(fn::u_mul_e("x", "w", "out"), ids({3, 0}));
  g.edata()["out"].sum().backward();
  EXPECT_TRUE(exact(x.grad(), numbers({10, 0, 0, 40})));
  EXPECT_TRUE(exact(w.grad(), numbers({1, 0, 0, 4})));
}

TEST(SelectionErrors, ids_that_are_none_are_named_with_the_operation) {
  Graph g = four_node_features();
  const auto message = fn::copy_u("x", "m");
  const auto reduce = fn::sum("m", "out");
  EXPECT_ERROR("send_and_recv:expectededgesin[0,4),got4atposition1",
               g.send_and_recv(ids({0, 4}), message, reduce));
  EXPECT_ERROR("pull:expectednodesin[0,4),got-1atposition0", g.pull(ids({-1}), message, reduce));
  EXPECT_ERROR("push:expectednodestobeanintegervector,gotfloat32[2]",
               g.push(at::ones({2}, on_device()), message, reduce));
  EXPECT_ERROR("gotint64[1,1]", g.push(ids({1}).view({1, 1}), message, reduce));
  EXPECT_ERROR("pull:expectednodestobeanintegervector,gotanundefinedtensor",
               g.pull(at::Tensor(), message, reduce));
  EXPECT_ERROR("send_and_recv:expectededgesasamaskof4entries,gotbool[2]",
               g.send_and_recv(mask({1, 0}), message, reduce));
  EXPECT_ERROR("apply_nodes:expectednodestobeanintegervector,gotanundefinedtensor",
               g.apply_nodes(ten_times, at::Tensor()));
  EXPECT_ERROR("apply_edges:expectededgesin[0,4),got9atposition0",
               g.apply_edges(message, ids({9})));
  EXPECT_ERROR("gotmeta", g.pull(ids({1}).to(at::kMeta), message, reduce));
}

TEST(SelectionErrors, rows_named_twice_are_refused) {
  Graph g = four_node_features();
  EXPECT_ERROR("apply_nodes:expecteddistinctnodes,got3morethanonce",
               g.apply_nodes(ten_times, ids({3, 1, 3})));
  EXPECT_ERROR("apply_edges:expecteddistinctedges,got0morethanonce",
               g.apply_edges(copy_x, ids({0, 0})));
}

TEST(SelectionErrors, rows_of_another_dtype_or_shape_than_the_column_change_nothing) {
  Graph g = four_node_features();
  const at::Tensor old = numbers({5, 6, 7, 8}, at::kHalf);
  g.ndata()["out"] = old;
  EXPECT_ERROR("nodecolumn'out':expectedrowsasthoseoffloat16[4],gotfloat32[1]",
               g.pull(ids({2}), copy_x, sum_m));
  g.ndata()["x"] = at::ones({4, 2}, on_device(at::kHalf));
  EXPECT_ERROR("gotfloat16[1,2]", g.pull(ids({2}), copy_x, sum_m));
  EXPECT_TRUE(g.ndata()["out"].is_same(old));
}

TEST(SelectionErrors, functions_are_named_with_the_operation) {
  Graph g = four_node_features();
  EXPECT_ERROR("push:messagefunctioncopy_u('nope')->'m':nodecolumn'nope'ismissing;thereare:x",
               g.push(ids({0}), fn::copy_u("nope", "m"), fn::sum("m", "out")));
  const auto rows = [&] {
    g.send_and_recv(
        ids({0, 1}), [](const EdgeBatch&) { return one_column("m", at::ones({4}, on_device())); },
        sum_m);
  };
  EXPECT_TRUE(mentions(error_of(rows),
                       "send_and_recv:theuser-definedmessagefunction:expectedcolumn'm'[2,...],one"
                       "rowanedge,gotfloat32[4]"));
  const auto applied = [&] {
    g.apply_nodes([](const NodeBatch&) { return one_column("out", at::ones({4}, on_device())); },
                  ids({1}));
  };
  EXPECT_TRUE(mentions(error_of(applied),
                       "apply_nodes:theuser-definedapplyfunction:expectedcolumn'out'[1,...]"));
  EXPECT_ERROR("apply_nodes:expectedafunction,gotnone", g.apply_nodes({}));
}

TEST(SelectionErrors, what_a_user_defined_function_does_not_find_is_told_with_the_operation) {
  Graph g = four_node_features();
  const auto no_edge = [](const EdgeBatch& edges) { return one_column("m", edges.data("lost")); };
  const auto no_node = [](const NodeBatch& nodes) { return one_column("out", nodes.data("lost")); };
  const std::string edge = ":theuser-definedmessagefunction:edgecolumn'lost'ismissing;thereare:w";
  const auto node = [](const std::string& function) {
    return ":theuser-defined" + function + "function:nodecolumn'lost'ismissing;thereare:x";
  };
  EXPECT_EQ(error_of([&] { g.send_and_recv(ids({1}), no_edge, sum_m); }), "send_and_recv" + edge);
  EXPECT_EQ(error_of([&] { g.pull(ids({2}), copy_x, no_node); }), "pull" + node("reduce"));
  EXPECT_EQ(error_of([&] { g.push(ids({0}), copy_x, sum_m, no_node); }), "push" + node("apply"));
  EXPECT_EQ(error_of([&] { g.apply_edges(no_edge); }), "apply_edges" + edge);
  EXPECT_EQ(error_of([&] { g.apply_edges(no_edge, ids({3})); }), "apply_edges" + edge);
  EXPECT_EQ(error_of([&] { g.apply_nodes(no_node); }), "apply_nodes" + node("apply"));
  EXPECT_EQ(error_of([&] { g.apply_nodes(no_node, ids({3})); }), "apply_nodes" + node("apply"));
}

TEST(SelectionErrors, frames_of_another_size_are_named) {
  const Topology g = random_topology(3, 5, 7, 1);
  Frame src("node", 3, test_device()), edge("edge", 7, test_device()),
      dst("node", 5, test_device());
  const auto attempt = [&](const Frame& s, const Frame& e, Frame& d) {
    pull(g, s, e, d, ids({1}), copy_x, sum_m);
  };
  EXPECT_ERROR("pull:expectedasourceframeof3rows,got5", attempt(dst, edge, dst));
  EXPECT_ERROR("pull:expectedanedgeframeof7rows,got3", attempt(src, src, dst));
  EXPECT_ERROR("pull:expectedadestinationframeof5rows,got3", attempt(src, edge, src));
}

}  // namespace
}  // namespace mezzo::test
