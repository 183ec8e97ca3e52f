#include "mezzo/message_passing/update_all.h"

#include <algorithm>

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/graph.h"
#include "mezzo/message_passing/fn.h"

#include "message_passing/update_all_support.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

TEST(UpdateAll, writes_the_reduced_column_of_a_builtin_pair) {
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    Graph g = four_node_features(dtype.scalar);
    g.update_all(fn::u_mul_e("x", "w", "m"), fn::sum("m", "out"));
    EXPECT_TRUE(exact(g.ndata()["out"], numbers({0, 10, 240, 0})));
    EXPECT_FALSE(g.edata().contains("m"));  // the message is never stored
    EXPECT_EQ(g.ndata()["out"].scalar_type(), dtype.scalar);
  }
}

TEST(UpdateAll, replaces_a_column_of_the_same_name) {
  Graph g = four_node_features();
  g.update_all(fn::copy_u("x", "m"), fn::sum("m", "x"));
  EXPECT_TRUE(exact(g.ndata()["x"], numbers({0, 1, 7, 0})));
}

TEST(UpdateAll, works_between_two_sides_of_a_bipartite_graph) {
  const Topology g = random_topology(30, 40, 100, 71);
  Frame src("node", 30, test_device()), edge("edge", 100, test_device()),
      dst("node", 40, test_device());
  src["x"] = integers({30, 4}, at::kFloat, 1);
  update_all(g, src, edge, dst, fn::copy_u("x", "m"), fn::sum("m", "out"));
  EXPECT_EQ(dst["out"].sizes(), (std::vector<std::int64_t>{40, 4}));
  EXPECT_FALSE(src.contains("out"));
}

TEST(UpdateAll, the_message_function_sees_every_edge_in_ascending_id) {
  Graph g = four_node_features();
  int calls = 0;
  g.update_all(
      [&](const EdgeBatch& edges) -> Columns {
        ++calls;
        EXPECT_EQ(edges.batch_size(), 4);
        EXPECT_TRUE(exact(edges.src_ids(), numbers({0, 0, 1, 3})));
        EXPECT_TRUE(exact(edges.dst_ids(), numbers({1, 2, 2, 2})));
        EXPECT_EQ(edges.src_ids().scalar_type(), at::kLong);
        EXPECT_TRUE(exact(edges.src("x"), numbers({1, 1, 2, 4})));
        EXPECT_TRUE(exact(edges.dst("x"), numbers({2, 3, 3, 3})));
        EXPECT_TRUE(exact(edges.data("w"), numbers({10, 20, 30, 40})));
        return {{"m", edges.data("w")}};
      },
      fn::sum("m", "out"));
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(exact(g.ndata()["out"], numbers({0, 10, 90, 0})));
}

TEST(UpdateAll, the_reduce_function_is_called_once_for_each_distinct_in_degree) {
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    // In-degrees 0, 3, 1, 3, 0, 1; edge ids are not sorted by destination.
    Graph g{topology_of({0, 1, 2, 3, 4, 5, 0, 1}, {3, 1, 2, 3, 1, 5, 1, 3}, 6, 6)};
    g.ndata()["x"] = numbers({0, 1, 2, 3, 4, 5}, dtype.scalar);
    const at::Tensor id = numbers({0, 1, 2, 3, 4, 5, 6, 7}, dtype.scalar);
    g.edata()["id"] = at::stack({id, -id}, 1);
    std::vector<std::int64_t> degrees;
    g.update_all(fn::copy_e("id", "m"), [&](const NodeBatch& nodes) -> Columns {
      const at::Tensor& mailbox = nodes.mailbox("m");
      const std::int64_t degree = mailbox.size(1);
      degrees.push_back(degree);
      EXPECT_EQ(mailbox.scalar_type(), dtype.scalar);
      EXPECT_EQ(mailbox.sizes(), (std::vector<std::int64_t>{nodes.batch_size(), degree, 2}));
      EXPECT_TRUE(exact(nodes.data("x"), nodes.nodes()));
      const bool one = degree == 1;
      EXPECT_TRUE(exact(nodes.nodes(), one ? numbers({2, 5}) : numbers({1, 3})));
      const at::Tensor edges = one ? numbers({2, 5}) : numbers({1, 4, 6, 0, 3, 7});
      EXPECT_TRUE(exact(mailbox.select(2, 0), edges.reshape({2, degree})));
      EXPECT_TRUE(exact(mailbox.select(2, 1), -edges.reshape({2, degree})));
      return {{"out", mailbox.sum(1)}};
    });
    std::sort(degrees.begin(), degrees.end());
    EXPECT_EQ(degrees, (std::vector<std::int64_t>{1, 3}));
    EXPECT_TRUE(exact(g.ndata()["out"].select(1, 0), numbers({0, 11, 2, 10, 0, 5})));
  }
}

TEST(UpdateAll, a_reduce_function_may_change_shape_and_dtype_and_give_several_columns) {
  Graph g = four_node_features();
  g.update_all(copy_x, [](const NodeBatch& nodes) -> Columns {
    const at::Tensor& m = nodes.mailbox("m");
    return {{"both", at::stack({m.sum(1), m.amax(1)}, 1)}, {"half", m.sum(1).to(at::kHalf)}};
  });
  EXPECT_TRUE(exact(g.ndata()["both"], numbers({0, 0, 1, 1, 7, 4, 0, 0}).reshape({4, 2})));
  EXPECT_TRUE(exact(g.ndata()["half"], numbers({0, 1, 7, 0})));
  EXPECT_EQ(g.ndata()["half"].scalar_type(), at::kHalf);
}

TEST(UpdateAll, mixes_builtin_and_user_defined_functions) {
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    Graph g = four_node_features(dtype.scalar);
    g.update_all(copy_x, fn::sum("m", "out"));
    EXPECT_TRUE(exact(g.ndata()["out"], numbers({0, 1, 7, 0})));
    g.update_all(fn::copy_u("x", "m"), sum_m);
    EXPECT_TRUE(exact(g.ndata()["out"], numbers({0, 1, 7, 0})));
    g.update_all(copy_x, sum_m);
    EXPECT_TRUE(exact(g.ndata()["out"], numbers({0, 1, 7, 0})));
  }
}

TEST(UpdateAll, gradients_flow_through_user_defined_functions) {
  Graph g = four_node_features();
  g.ndata()["x"] = leaf(g.ndata()["x"]);
  g.update_all(copy_x, sum_m);
  g.ndata()["out"].sum().backward();
  EXPECT_TRUE(exact(g.ndata()["x"].grad(), numbers({2, 1, 0, 1})));
}

TEST(UpdateAll, a_graph_without_edges_never_calls_the_reduce_function) {
  Graph g{topology_of({}, {}, 3, 3)};
  g.ndata()["x"] = at::ones({3, 2}, on_device(at::kFloat));
  int calls = 0;
  const auto run = [&] {
    g.update_all(fn::copy_u("x", "m"), [&](const NodeBatch& nodes) -> Columns {
      ++calls;
      return {{"out", nodes.mailbox("m").sum(1)}};
    });
  };
  EXPECT_NO_THROW(run());
  EXPECT_EQ(calls, 0);
  EXPECT_FALSE(g.ndata().contains("out"));  // its dtype and shape are unknown
  g.update_all(fn::copy_u("x", "m"), sum_m,
               [](const NodeBatch& nodes) { return one_column("applied", nodes.data("x") + 1); });
  EXPECT_TRUE(exact(g.ndata()["applied"], at::full({3, 2}, 2)));
  g.update_all(fn::copy_u("x", "m"), fn::max("m", "out"));
  EXPECT_TRUE(exact(g.ndata()["out"], at::zeros({3, 2})));
}

TEST(UpdateAll, the_message_function_may_send_several_messages) {
  Graph g = four_node_features();
  const auto message = [](const EdgeBatch& edges) -> Columns {
    EXPECT_TRUE(exact(edges.edge_ids(), numbers({0, 1, 2, 3})));
    return {{"a", edges.src("x")}, {"b", edges.data("w").unsqueeze(1).expand({4, 2})}};
  };
  g.update_all(message, [](const NodeBatch& nodes) {
    return one_column("out", nodes.mailbox("a").sum(1) + nodes.mailbox("b").sum(2).sum(1));
  });
  EXPECT_TRUE(exact(g.ndata()["out"], numbers({0, 21, 187, 0})));
  g.update_all(message, fn::max("b", "b"));
  EXPECT_TRUE(exact(g.ndata()["b"], numbers({0, 0, 10, 10, 40, 40, 0, 0}).reshape({4, 2})));
}

TEST(UpdateAll, gradients_flow_through_user_defined_messages_into_every_column) {
  for (const ReduceFunction& reduce :
       {ReduceFunction(fn::sum("m", "out")), ReduceFunction(sum_m)}) {
    Graph g = four_node_features(at::kDouble);
    const at::Tensor x = leaf(g.ndata()["x"]), w = leaf(g.edata()["w"]);
    g.ndata()["x"] = x;
    g.edata()["w"] = w;
    g.update_all(
        [](const EdgeBatch& edges) {
          return one_column("m", edges.src("x") * edges.data("w") + edges.dst("x"));
        },
        reduce);
    g.ndata()["out"].sum().backward();
    EXPECT_TRUE(exact(x.grad(), numbers({30, 31, 3, 40})));
    EXPECT_TRUE(exact(w.grad(), numbers({1, 1, 2, 4})));
  }
}

TEST(UpdateAll, user_defined_functions_take_complex_columns_and_give_them_gradients) {
  Graph g{four_nodes()};
  const at::Tensor x = at::complex(numbers({1, 2, 3, 4}), numbers({5, 6, 7, 8})).requires_grad_();
  g.ndata()["x"] = x;
  g.update_all(copy_x, sum_m);
  const at::Tensor parts = at::view_as_real(g.ndata()["out"]);
  EXPECT_TRUE(exact(parts.select(1, 0).detach(), numbers({0, 1, 7, 0})));
  EXPECT_TRUE(exact(parts.select(1, 1).detach(), numbers({0, 5, 19, 0})));
  parts.sum().backward();
  EXPECT_TRUE(exact(at::real(x.grad()), numbers({2, 1, 0, 1})));
}

TEST(UpdateAll, multiplies_the_messages) {
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    Graph g = four_node_features(dtype.scalar);
    const at::Tensor x = leaf(g.ndata()["x"]);
    g.ndata()["x"] = x;
    g.update_all(fn::copy_u("x", "m"), fn::prod("m", "out"));
    EXPECT_TRUE(exact(g.ndata()["out"], numbers({0, 1, 8, 0})));
    EXPECT_EQ(g.ndata()["out"].scalar_type(), dtype.scalar);
    g.ndata()["out"].sum().backward();
    EXPECT_TRUE(exact(x.grad(), numbers({9, 4, 0, 2})));
  }
}

TEST(UpdateAll, the_gradient_of_a_product_is_the_product_of_the_others_also_at_zero) {
  Graph g = four_node_features();
  const at::Tensor x = leaf(numbers({1, 0, 3, 4}, at::kFloat));
  g.ndata()["x"] = x;
  g.update_all(fn::copy_u("x", "m"), fn::prod("m", "out"));
  EXPECT_TRUE(exact(g.ndata()["out"], numbers({0, 1, 0, 0})));
  g.ndata()["out"].sum().backward();
  EXPECT_TRUE(exact(x.grad(), numbers({1, 4, 0, 0})));
}

TEST(UpdateAll, the_apply_function_sees_old_and_reduced_columns_of_all_nodes) {
  Graph g = four_node_features();
  g.update_all(fn::copy_u("x", "m"), fn::sum("m", "sum"), [](const NodeBatch& nodes) -> Columns {
    EXPECT_EQ(nodes.batch_size(), 4);
    EXPECT_TRUE(exact(nodes.nodes(), numbers({0, 1, 2, 3})));
    return {{"out", nodes.data("sum") + 100 * nodes.data("x")}};
  });
  EXPECT_TRUE(exact(g.ndata()["out"], numbers({100, 201, 307, 400})));
  EXPECT_TRUE(exact(g.ndata()["sum"], numbers({0, 1, 7, 0})));
}

struct NodeUpdateImpl : torch::nn::Module {
  NodeUpdateImpl() : linear(register_module("linear", torch::nn::Linear(1, 2))) {}
  Columns forward(const NodeBatch& nodes) {
    return {{"out", linear(nodes.data("sum").unsqueeze(1))}};
  }
  torch::nn::Linear linear;
};
TORCH_MODULE(NodeUpdate);

TEST(UpdateAll, a_module_is_an_apply_function_and_its_parameters_get_gradients) {
  Graph g = four_node_features();
  NodeUpdate update;
  g.update_all(fn::copy_u("x", "m"), fn::sum("m", "sum"), update);
  const at::Tensor out = g.ndata()["out"];
  EXPECT_EQ(out.sizes(), (std::vector<std::int64_t>{4, 2}));
  out.sum().backward();
  ASSERT_TRUE(update->linear->weight.grad().defined());
  EXPECT_TRUE(exact(update->linear->weight.grad(), at::full({2, 1}, 8)));
  EXPECT_TRUE(exact(update->linear->bias.grad(), at::full({2}, 4)));
}

TEST(UpdateAll, an_apply_function_of_the_wrong_row_count_is_an_error) {
  Graph g = four_node_features();
  EXPECT_ERROR(fragments("out", "7"),
               g.update_all(fn::copy_u("x", "m"), fn::sum("m", "sum"), [](const NodeBatch&) {
                 return one_column("out", at::ones({7}, on_device(at::kFloat)));
               }));
}

TEST(UpdateAllErrors, a_missing_column_is_named) {
  Graph g = four_node_features();
  EXPECT_ERROR("nope", g.update_all(fn::copy_u("nope", "m"), fn::sum("m", "out")));
  EXPECT_ERROR("gone", g.update_all(fn::u_mul_e("x", "gone", "m"), fn::sum("m", "out")));
  EXPECT_ERROR("lost", g.apply_edges(fn::u_add_v("x", "lost", "out")));
  EXPECT_ERROR(
      "absent",
      g.update_all([](const EdgeBatch& edges) { return one_column("m", edges.src("absent")); },
                   fn::sum("m", "out")));
  EXPECT_FALSE(g.ndata().contains("out"));
}

TEST(UpdateAllErrors, name_the_builtin_function) {
  Graph g = four_node_features();
  EXPECT_ERROR(
      "update_all:messagefunctionu_mul_e('h','w')->'m':nodecolumn'h'is"
      "missing;thereare:x",
      g.update_all(fn::u_mul_e("h", "w", "m"), fn::sum("m", "out")));
  EXPECT_ERROR("update_all:messagefunctioncopy_e('e')->'m':edgecolumn'e'ismissing",
               g.update_all(fn::copy_e("e", "m"), sum_m));
  EXPECT_ERROR("apply_edges:messagefunctionv_sub_u('x','lost')->'out':nodecolumn'lost'",
               g.apply_edges(fn::v_sub_u("x", "lost", "out")));
  g.ndata()["x"] = at::ones({4, 3}, on_device());
  g.edata()["w"] = at::ones({4, 2}, on_device());
  EXPECT_ERROR(fragments("messagefunctionu_add_e('x','w')->'out'", "got(3)and(2)"),
               g.apply_edges(fn::u_add_e("x", "w", "out")));
  g.ndata()["y"] = at::ones({4, 3}, on_device(at::kDouble));
  const auto dtype = error_of([&] { g.update_all(fn::u_dot_v("x", "y", "m"), fn::max("m", "h")); });
  EXPECT_TRUE(
      mentions(dtype, "update_all:messagefunctionu_dot_v('x','y')->'m'", "Float", "Double"));
  EXPECT_ERROR(fragments("update_all:reducefunctionmean('m')->'out':", "Long"),
               g.update_all([](const EdgeBatch& edges) { return one_column("m", edges.src_ids()); },
                            fn::mean("m", "out")));
}

TEST(UpdateAllErrors, what_a_user_defined_function_does_not_find_is_told_with_the_function) {
  Graph g = four_node_features();
  const std::string node = "nodecolumn'lost'ismissing;thereare:x";
  using Read = at::Tensor (EdgeBatch::*)(const std::string&) const;
  const auto reading = [&](Read read) {
    return error_of([&] {
      g.update_all([&](const EdgeBatch& edges) { return one_column("m", (edges.*read)("lost")); },
                   fn::sum("m", "out"));
    });
  };
  const std::string message = "update_all:theuser-definedmessagefunction:";
  EXPECT_EQ(reading(&EdgeBatch::src), message + node);
  EXPECT_EQ(reading(&EdgeBatch::dst), message + node);
  EXPECT_EQ(reading(&EdgeBatch::data), message + "edgecolumn'lost'ismissing;thereare:w");
  const auto no_column = [](const NodeBatch& nodes) {
    return one_column("out", nodes.data("lost"));
  };
  const auto no_message = [](const NodeBatch& nodes) {
    return one_column("out", nodes.mailbox("lost"));
  };
  const std::string reduce = "update_all:theuser-definedreducefunction:";
  EXPECT_EQ(error_of([&] { g.update_all(copy_x, no_column); }), reduce + node);
  EXPECT_EQ(error_of([&] { g.update_all(copy_x, no_message); }),
            reduce + "mailbox:message'lost'ismissing;thereare:m");
  const std::string apply = "update_all:theuser-definedapplyfunction:";
  EXPECT_EQ(error_of([&] { g.update_all(copy_x, sum_m, no_column); }), apply + node);
  EXPECT_EQ(error_of([&] { g.update_all(copy_x, sum_m, no_message); }),
            apply + "mailbox:message'lost'ismissing;thereare:none(noreducefunctionruns)");
  // A batch that the caller constructs is not part of an operation.
  const EdgeBatch own(g.topology(), g.ndata(), g.edata(), g.ndata());
  EXPECT_EQ(error_of([&] { own.src("lost"); }), node);
}

/// The error of a user-defined message function that returns `column`, with a built-in reduction.
std::string error_of_message(const at::Tensor& column) {
  Graph g = four_node_features();
  return error_of([&] {
    g.update_all([&](const EdgeBatch&) { return one_column("m", column); }, fn::sum("m", "out"));
  });
}

TEST(UpdateAllErrors, name_the_user_defined_message_function_and_what_it_returned) {
  const std::string context =
      "update_all:theuser-definedmessagefunction:expectedcolumn'm'[4,...],onerowanedge,got";
  EXPECT_TRUE(mentions(error_of_message(at::ones({3, 2}, on_device())), context + "float32[3,2]"));
  EXPECT_TRUE(mentions(error_of_message(at::ones({}, on_device())), context + "float32[]"));
  EXPECT_TRUE(mentions(error_of_message(at::Tensor()), context + "anundefinedtensor"));
  EXPECT_TRUE(mentions(error_of_message(at::ones({4}, on_device()).to(at::kMeta)),
                       "theuser-definedmessagefunction:expectedcolumn'm'oncpu,gotmeta"));
}

TEST(UpdateAllErrors, a_reduce_function_that_differs_between_in_degrees_is_refused) {
  // Node 1 has one in-edge, node 2 has three.
  const auto run = [](const Columns& of_one, const Columns& of_three) {
    Graph g = four_node_features();
    std::string text = error_of([&] {
      g.update_all(copy_x, [&](const NodeBatch& nodes) -> Columns {
        return nodes.mailbox("m").size(1) == 1 ? of_one : of_three;
      });
    });
    EXPECT_EQ(g.ndata().names(), std::vector<std::string>{"x"});
    return text;
  };
  const at::Tensor row = at::ones({1, 2}, on_device());
  const std::string context = "update_all:theuser-definedreducefunction:";
  EXPECT_TRUE(mentions(run({{"a", row}}, {{"a", row}, {"b", row}}),
                       context + "expectedthesamecolumnsforeveryin-degree,got'a'forin-degree1and"
                                 "'a','b'forin-degree3"));
  EXPECT_TRUE(mentions(run({{"a", row}}, {}), "got'a'forin-degree1andnoneforin-degree3"));
  EXPECT_TRUE(mentions(run({{"a", row}}, {{"a", at::ones({1, 3}, on_device())}}),
                       context + "expectedrowsofonedtypeandshapeincolumn'a',gotfloat32[1,2]forin-"
                                 "degree1andfloat32[1,3]forin-degree3"));
  EXPECT_TRUE(mentions(run({{"a", row}}, {{"a", row.to(at::kHalf)}}), "float16[1,2]forin-degree3"));
  EXPECT_TRUE(mentions(run({{"a", at::ones({5}, on_device())}}, {}),
                       context + "expectedcolumn'a'[1,...],onerowanodeofthebatch,gotfloat32[5]"));
}

TEST(UpdateAllErrors, both_functions_are_named_where_the_message_is_not_the_one_reduced) {
  Graph g = four_node_features();
  EXPECT_ERROR(
      "update_all:reducefunctionsum('read')->'out'readsmessage'read',butmessagefunctioncopy_u('x')"
      "->'sent'makes'sent'",
      g.update_all(fn::copy_u("x", "sent"), fn::sum("read", "out")));
  EXPECT_ERROR(
      "reducefunctionprod('read')->'out'readsmessage'read',whichtheuser-defined"
      "messagefunctiondoesnotmake",
      g.update_all(copy_x, fn::prod("read", "out")));
}

TEST(UpdateAllErrors, a_message_that_the_reduction_does_not_read_is_named) {
  Graph g = four_node_features();
  EXPECT_ERROR("read", g.update_all(copy_x, fn::sum("read", "out")));
  EXPECT_ERROR("read", g.update_all(fn::copy_u("x", "sent"), [](const NodeBatch& nodes) {
    return one_column("out", nodes.mailbox("read").sum(1));
  }));
}

TEST(UpdateAllErrors, a_column_of_the_wrong_row_count_or_on_another_device_is_named) {
  Graph g = four_node_features();
  const auto attempt = [&] { g.update_all(fn::copy_u("x", "m"), fn::sum("m", "out")); };
  g.ndata()["x"] = at::ones({17, 2}, on_device(at::kFloat));
  EXPECT_ERROR(fragments("x", "17"), attempt());
  g.ndata()["x"] = at::ones({4, 2}, at::TensorOptions().device(at::kMeta));
  EXPECT_ERROR(fragments("meta", "cpu"), attempt());
}

TEST(UpdateAllErrors, messages_and_results_of_the_wrong_row_count_are_refused) {
  Graph g = four_node_features();
  EXPECT_ERROR("19", g.update_all(
                         [](const EdgeBatch&) {
                           return one_column("m", at::ones({19}, on_device(at::kFloat)));
                         },
                         fn::sum("m", "out")));
  EXPECT_ERROR(fragments("out", "19"), g.update_all(fn::copy_u("x", "m"), [](const NodeBatch&) {
    return one_column("out", at::ones({19}, on_device(at::kFloat)));
  }));
}

TEST(UpdateAllErrors, sparse_columns_ask_for_a_dense_one) {
  Graph g = four_node_features();
  g.ndata().set("sparse", at::eye(4, on_device()).to_sparse_csr());
  EXPECT_TRUE(
      mentions(error_of([&] { g.update_all(fn::copy_u("sparse", "m"), fn::sum("m", "out")); }),
               "gspmm:expectedastridedlhs,gotSparseCsr;convertitwith.to_dense()"));
  const MessageFunction message = [](const EdgeBatch& edges) -> Columns {
    return {{"m", edges.src("sparse")}};
  };
  EXPECT_TRUE(mentions(error_of([&] { g.update_all(message, fn::sum("m", "out")); }),
                       "column'sparse':expectedastridedtensor"));
}

TEST(UpdateAllErrors, a_mailbox_outside_a_reduce_function_is_an_error) {
  Graph g = four_node_features();
  EXPECT_ERROR("m",
               g.update_all(fn::copy_u("x", "m"), fn::sum("m", "out"), [](const NodeBatch& nodes) {
                 return one_column("y", nodes.mailbox("m"));
               }));
}

TEST(UpdateAllErrors, what_a_user_defined_function_throws_passes_unchanged_and_nothing_is_written) {
  Graph g = four_node_features();
  const auto message = fn::copy_u("x", "m");
  const auto reduce = fn::sum("m", "out");
  const auto fail = [](const NodeBatch&) -> Columns { throw 42; };
  EXPECT_THROW(g.update_all([](const EdgeBatch&) -> Columns { throw 42; }, reduce), int);
  EXPECT_THROW(g.update_all(copy_x, fail), int);
  EXPECT_THROW(g.update_all(message, reduce, fail), int);
  EXPECT_THROW(g.apply_nodes(fail), int);
  const auto own = error_of([&] {
    g.apply_edges([](const EdgeBatch&) -> Columns { throw InvalidArgument("the user's own"); });
  });
  EXPECT_EQ(own, "theuser'sown");
  EXPECT_EQ(g.ndata().names(), std::vector<std::string>{"x"});
  EXPECT_EQ(g.edata().names(), std::vector<std::string>{"w"});
}

}  // namespace
}  // namespace mezzo::test
