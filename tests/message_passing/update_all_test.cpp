#include "mezzo/message_passing/update_all.h"

#include <algorithm>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "mezzo/graph/graph.h"
#include "mezzo/message_passing/fn.h"

#include "support/tensors.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

Graph four_node_features(at::ScalarType dtype = at::kFloat) {
  Graph g{four_nodes()};
  g.ndata()["x"] = numbers({1, 2, 3, 4}, dtype);
  g.edata()["w"] = numbers({10, 20, 30, 40}, dtype);
  return g;
}

Columns copy_x(const EdgeBatch& edges) {
  return {{"m", edges.src("x")}};
}
Columns sum_m(const NodeBatch& nodes) {
  return {{"out", nodes.mailbox("m").sum(1)}};
}

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
  Frame src("node", 30, at::kCPU), edge("edge", 100, at::kCPU), dst("node", 40, at::kCPU);
  src["x"] = integers({30, 4}, at::kFloat, 1);
  update_all(g, src, edge, dst, fn::copy_u("x", "m"), fn::sum("m", "out"));
  EXPECT_EQ(dst["out"].sizes(), (std::vector<std::int64_t>{40, 4}));
  EXPECT_FALSE(src.contains("out"));
}

// User-defined functions.

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
  // In-degrees 0, 3, 1, 3, 0, 1; edge ids are not sorted by destination.
  Graph g{topology_of({0, 1, 2, 3, 4, 5, 0, 1}, {3, 1, 2, 3, 1, 5, 1, 3}, 6, 6)};
  g.ndata()["x"] = numbers({0, 1, 2, 3, 4, 5}, at::kFloat);
  g.edata()["id"] = at::arange(8, at::kFloat).unsqueeze(1).expand({8, 2}).contiguous();
  std::vector<std::int64_t> degrees;
  g.update_all(fn::copy_e("id", "m"), [&](const NodeBatch& nodes) -> Columns {
    const at::Tensor& mailbox = nodes.mailbox("m");
    EXPECT_EQ(mailbox.dim(), 3);
    EXPECT_EQ(mailbox.size(0), nodes.batch_size());
    EXPECT_EQ(mailbox.size(2), 2);
    degrees.push_back(mailbox.size(1));
    EXPECT_TRUE(exact(nodes.data("x"), nodes.nodes()));
    if (mailbox.size(1) == 1) {
      EXPECT_TRUE(exact(nodes.nodes(), numbers({2, 5})));
      EXPECT_TRUE(exact(mailbox.select(2, 0), numbers({2, 5}).reshape({2, 1})));
    } else {
      EXPECT_TRUE(exact(nodes.nodes(), numbers({1, 3})));
      EXPECT_TRUE(exact(mailbox.select(2, 0), numbers({1, 4, 6, 0, 3, 7}).reshape({2, 3})));
    }
    return {{"out", mailbox.sum(1)}};
  });
  std::sort(degrees.begin(), degrees.end());
  EXPECT_EQ(degrees, (std::vector<std::int64_t>{1, 3}));
  EXPECT_TRUE(exact(g.ndata()["out"].select(1, 0), numbers({0, 11, 2, 10, 0, 5})));
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
  g.ndata()["x"] = at::ones({3, 2}, at::kFloat);
  int calls = 0;
  const auto run = [&] {
    g.update_all(fn::copy_u("x", "m"), [&](const NodeBatch& nodes) -> Columns {
      ++calls;
      return {{"out", nodes.mailbox("m").sum(1)}};
    });
  };
  EXPECT_NO_THROW(run());
  EXPECT_EQ(calls, 0);
  g.update_all(fn::copy_u("x", "m"), fn::max("m", "out"));
  EXPECT_TRUE(exact(g.ndata()["out"], at::zeros({3, 2})));
}

// Apply functions.

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
  const auto text = error_of([&] {
    g.update_all(fn::copy_u("x", "m"), fn::sum("m", "sum"), [](const NodeBatch&) -> Columns {
      return {{"out", at::ones({7}, at::kFloat)}};
    });
  });
  EXPECT_TRUE(mentions(text, "out"));
  EXPECT_TRUE(mentions(text, "7"));
}

// Errors.

TEST(UpdateAllErrors, a_missing_column_is_named) {
  Graph g = four_node_features();
  EXPECT_TRUE(mentions(
      error_of([&] { g.update_all(fn::copy_u("nope", "m"), fn::sum("m", "out")); }), "nope"));
  EXPECT_TRUE(mentions(
      error_of([&] { g.update_all(fn::u_mul_e("x", "gone", "m"), fn::sum("m", "out")); }), "gone"));
  EXPECT_TRUE(mentions(error_of([&] { g.apply_edges(fn::u_add_v("x", "lost", "out")); }), "lost"));
  EXPECT_TRUE(mentions(error_of([&] {
                         g.update_all(
                             [](const EdgeBatch& edges) -> Columns {
                               return {{"m", edges.src("absent")}};
                             },
                             fn::sum("m", "out"));
                       }),
                       "absent"));
  EXPECT_FALSE(g.ndata().contains("out"));
}

TEST(UpdateAllErrors, a_message_that_is_not_the_one_reduced_is_named) {
  Graph g = four_node_features();
  const auto builtin =
      error_of([&] { g.update_all(fn::copy_u("x", "sent"), fn::sum("read", "out")); });
  EXPECT_TRUE(mentions(builtin, "sent"));
  EXPECT_TRUE(mentions(builtin, "read"));
  const auto custom = error_of([&] { g.update_all(copy_x, fn::sum("read", "out")); });
  EXPECT_TRUE(mentions(custom, "read"));
  const auto mailbox = error_of([&] {
    g.update_all(fn::copy_u("x", "sent"), [](const NodeBatch& nodes) -> Columns {
      return {{"out", nodes.mailbox("read").sum(1)}};
    });
  });
  EXPECT_TRUE(mentions(mailbox, "read"));
}

TEST(UpdateAllErrors, a_column_of_the_wrong_row_count_is_named) {
  Graph g = four_node_features();
  g.ndata()["x"] = at::ones({17, 2}, at::kFloat);
  const auto text = error_of([&] { g.update_all(fn::copy_u("x", "m"), fn::sum("m", "out")); });
  EXPECT_TRUE(mentions(text, "x"));
  EXPECT_TRUE(mentions(text, "17"));
}

TEST(UpdateAllErrors, a_column_on_another_device_is_named) {
  Graph g = four_node_features();
  g.ndata()["x"] = at::ones({4, 2}, at::TensorOptions().device(at::kMeta));
  const auto text = error_of([&] { g.update_all(fn::copy_u("x", "m"), fn::sum("m", "out")); });
  EXPECT_TRUE(mentions(text, "meta"));
  EXPECT_TRUE(mentions(text, "cpu"));
}

TEST(UpdateAllErrors, messages_and_results_of_the_wrong_row_count_are_refused) {
  Graph g = four_node_features();
  const auto message = error_of([&] {
    g.update_all(
        [](const EdgeBatch&) -> Columns {
          return {{"m", at::ones({19}, at::kFloat)}};
        },
        fn::sum("m", "out"));
  });
  EXPECT_TRUE(mentions(message, "19"));
  const auto reduced = error_of([&] {
    g.update_all(fn::copy_u("x", "m"), [](const NodeBatch&) -> Columns {
      return {{"out", at::ones({19}, at::kFloat)}};
    });
  });
  EXPECT_TRUE(mentions(reduced, "out"));
  EXPECT_TRUE(mentions(reduced, "19"));
}

TEST(UpdateAllErrors, a_mailbox_outside_a_reduce_function_is_an_error) {
  Graph g = four_node_features();
  EXPECT_TRUE(mentions(error_of([&] {
                         g.update_all(fn::copy_u("x", "m"), fn::sum("m", "out"),
                                      [](const NodeBatch& nodes) -> Columns {
                                        return {{"y", nodes.mailbox("m")}};
                                      });
                       }),
                       "m"));
}

TEST(UpdateAllErrors, an_error_inside_a_user_defined_function_comes_through) {
  Graph g = four_node_features();
  EXPECT_THROW(g.update_all(copy_x, [](const NodeBatch&) -> Columns { throw 42; }), int);
  EXPECT_FALSE(g.ndata().contains("out"));
}

}  // namespace
}  // namespace mezzo::test
