#include <functional>

#include "mezzo/amp/autocast/autocast.h"
#include "mezzo/graph/transforms/transforms.h"
#include "mezzo/nn/pooling.h"

#include "support/gradcheck.h"
#include "support/graphs.h"
#include "support/nn_reference.h"

namespace mezzo::test::readout_test {
namespace {

/// Graphs of 4, 0, 1, 7 and 3 nodes with 4, 0, 0, 7 and 4 edges.
Graph several_graphs() {
  return batch(
      {four_node_graph(), empty_graph(), one_node_graph(), cycle_graph(7), duplicate_graph()});
}

using ReadoutFunction = at::Tensor (*)(const Graph&, const at::Tensor&, const at::Tensor&);

/// The functions of nodes or edges.
struct SideFunctions {
  std::string name;
  ReadoutFunction sum, mean, max;
  at::Tensor (*softmax)(const Graph&, const at::Tensor&);
  at::Tensor (*broadcast)(const Graph&, const at::Tensor&);
  std::int64_t num_rows;            ///< of several_graphs()
  std::vector<std::int64_t> sizes;  ///< of its graphs
};

const std::vector<SideFunctions>& sides() {
  static const std::vector<SideFunctions> both = {{"nodes",
                                                   nn::sum_nodes,
                                                   nn::mean_nodes,
                                                   nn::max_nodes,
                                                   nn::softmax_nodes,
                                                   nn::broadcast_nodes,
                                                   15,
                                                   {4, 0, 1, 7, 3}},
                                                  {"edges",
                                                   nn::sum_edges,
                                                   nn::mean_edges,
                                                   nn::max_edges,
                                                   nn::softmax_edges,
                                                   nn::broadcast_edges,
                                                   15,
                                                   {4, 0, 0, 7, 4}}};
  return both;
}

/// combine(rows of the graph) for every graph with rows, 0 for the others: [B, ...].
at::Tensor per_part(const SideFunctions& side, const at::Tensor& rows,
                    const std::function<at::Tensor(const at::Tensor&)>& combine) {
  const at::Tensor in_float64 = rows.detach().to(at::kDouble);
  std::vector<at::Tensor> parts;
  std::int64_t first = 0;
  for (const std::int64_t size : side.sizes) {
    const at::Tensor part = in_float64.narrow(0, first, size);
    parts.push_back(size > 0 ? combine(part)
                             : at::zeros(in_float64.sizes().slice(1), in_float64.options()));
    first += size;
  }
  return at::stack(parts);
}

at::Tensor part_sums(const SideFunctions& side, const at::Tensor& rows) {
  return per_part(side, rows, [](const at::Tensor& part) { return part.sum(0); });
}

at::Tensor part_means(const SideFunctions& side, const at::Tensor& rows) {
  return per_part(side, rows, [](const at::Tensor& part) { return part.mean(0); });
}

at::Tensor part_maxima(const SideFunctions& side, const at::Tensor& rows) {
  return per_part(side, rows, [](const at::Tensor& part) { return part.amax(0); });
}

/// The graph index of every row.
at::Tensor owners(const SideFunctions& side) {
  std::vector<std::int64_t> graphs;
  for (std::size_t k = 0; k < side.sizes.size(); ++k) {
    for (std::int64_t i = 0; i < side.sizes[k]; ++i) graphs.push_back(static_cast<std::int64_t>(k));
  }
  return ids(graphs);
}

TEST(Readout, the_graphs_of_these_tests_have_the_sizes_that_the_definitions_take) {
  const Graph g = several_graphs();
  EXPECT_EQ(values(g.batch_num_nodes()), sides()[0].sizes);
  EXPECT_EQ(values(g.batch_num_edges()), sides()[1].sizes);
}

TEST(Readout, sums_and_maxima_of_small_integers_are_exact_in_every_dtype_with_and_without_weights) {
  const Graph g = several_graphs();
  for (const SideFunctions& side : sides()) {
    for (const DTypeInfo& dtype : dtypes()) {
      SCOPED_TRACE(side.name + " " + dtype.name);
      const at::Tensor x = integers({15, 5}, dtype.scalar, 1);
      const at::Tensor weight = integers({15}, dtype.scalar, 2);
      const at::Tensor product = x.to(at::kDouble) * weight.to(at::kDouble).unsqueeze(1);
      EXPECT_EQ(side.sum(g, x, {}).scalar_type(), dtype.scalar);
      EXPECT_EQ(side.sum(g, x, weight).scalar_type(), dtype.scalar);
      EXPECT_TRUE(exact(side.sum(g, x, {}), part_sums(side, x)));
      EXPECT_TRUE(exact(side.max(g, x, {}), part_maxima(side, x)));
      EXPECT_TRUE(exact_rounded(side.sum(g, x, weight), part_sums(side, product)));
      EXPECT_TRUE(exact_rounded(side.max(g, x, weight), part_maxima(side, product)));
    }
  }
}

TEST(Readout, means_divide_by_the_number_of_rows_and_round_once) {
  const Graph g = several_graphs();
  for (const SideFunctions& side : sides()) {
    for (const DTypeInfo& dtype : dtypes()) {
      SCOPED_TRACE(side.name + " " + dtype.name);
      const at::Tensor x = uniform({15, 3}, dtype.scalar, 3), in_float64 = x.to(at::kDouble);
      EXPECT_TRUE(near(side.mean(g, x, {}), part_means(side, in_float64),
                       sum_bound(part_means(side, in_float64.abs()), 8, dtype.scalar)));
      // Operations for each node: the product, the sum, the division.
      const at::Tensor weight = uniform({15, 1}, dtype.scalar, 4);
      const at::Tensor product = in_float64 * weight.to(at::kDouble);
      EXPECT_TRUE(near(side.mean(g, x, weight), part_means(side, product),
                       sum_bound(part_means(side, product.abs()), 16, dtype.scalar)));
    }
  }
}

TEST(Readout, float32_weights_beside_sixteen_bit_rows_are_not_rounded) {
  const Graph g = cycle_graph(2);
  const at::Tensor weight = numbers({1 + 0x1p-20, -1}, at::kFloat);
  for (const DTypeInfo& dtype : narrow_dtypes()) {
    const at::Tensor x = at::ones({2, 1}, on_device(dtype.scalar));
    for (const at::Tensor& got : {nn::sum_nodes(g, x, weight), nn::sum_edges(g, x, weight)}) {
      EXPECT_EQ(got.scalar_type(), dtype.scalar);
      EXPECT_TRUE(exact(got, numbers({0x1p-20}).view({1, 1})));
    }
  }
}

TEST(Readout, sixteen_bit_sums_neither_stall_nor_round_between_rows) {
  const Graph g = batch({isolated_graph(4096), one_node_graph()});
  for (const DTypeInfo& dtype : narrow_dtypes()) {
    const at::Tensor x = at::ones({4097, 1}, on_device(dtype.scalar));
    const at::Tensor expected = numbers({4096, 1}).view({2, 1});
    EXPECT_TRUE(exact(nn::sum_nodes(g, x), expected));
    EXPECT_TRUE(exact(nn::sum_nodes(g, x, x), expected));
  }
}

TEST(Readout, rows_may_have_several_dimensions_or_none_and_weights_one_a_head) {
  const Graph g = several_graphs();
  for (const SideFunctions& side : sides()) {
    const at::Tensor x = integers({15, 2, 3}, at::kFloat, 5);
    const at::Tensor heads = integers({15, 2, 1}, at::kFloat, 6);
    const at::Tensor last = integers({15, 3}, at::kFloat, 7);
    EXPECT_TRUE(exact(side.sum(g, x, {}), part_sums(side, x)));
    EXPECT_TRUE(exact(side.sum(g, x, heads), part_sums(side, x * heads)));
    EXPECT_TRUE(exact(side.sum(g, x, last), part_sums(side, x * last.unsqueeze(1))));
    const at::Tensor flat = integers({15}, at::kFloat, 8);
    EXPECT_TRUE(exact(side.sum(g, flat, flat), part_sums(side, flat * flat)));
  }
}

TEST(Readout, a_graph_that_is_no_batch_gives_one_row) {
  const Graph g = star_graph(6);
  const at::Tensor nodes = integers({7, 2}, at::kFloat, 9), edges = integers({6, 2}, at::kFloat, 9);
  EXPECT_TRUE(exact(nn::sum_nodes(g, nodes), nodes.sum(0, /*keepdim=*/true)));
  EXPECT_TRUE(exact(nn::max_edges(g, edges), edges.amax(0, /*keepdim=*/true)));
}

TEST(Readout, a_graph_without_rows_gives_zeros_in_every_dtype) {
  for (const SideFunctions& side : sides()) {
    for (const DTypeInfo& dtype : dtypes()) {
      SCOPED_TRACE(side.name + " " + dtype.name);
      const at::Tensor none = at::zeros({0, 2}, on_device(dtype.scalar));
      const at::Tensor no_weight = at::zeros({0}, on_device(dtype.scalar));
      const at::Tensor ones = at::ones({1, 2}, on_device(dtype.scalar));
      for (const ReadoutFunction function : {side.sum, side.mean, side.max}) {
        EXPECT_EQ(function(empty_graph(), none, {}).scalar_type(), dtype.scalar);
        EXPECT_TRUE(exact(function(empty_graph(), none, {}), at::zeros({1, 2})));
        EXPECT_TRUE(exact(function(empty_graph(), none, no_weight), at::zeros({1, 2})));
      }
      EXPECT_TRUE(exact(side.softmax(empty_graph(), none), none));
      EXPECT_TRUE(exact(side.broadcast(empty_graph(), ones), none));
    }
  }
}

TEST(Readout, what_is_not_a_number_stays_in_its_graph) {
  const Graph g = batch({cycle_graph(2), cycle_graph(2), cycle_graph(2)});
  const double infinity = std::numeric_limits<double>::infinity();
  const at::Tensor x =
      numbers({1, 2, 3, -infinity, 4, std::numeric_limits<double>::quiet_NaN()}).view({6, 1});
  const at::Tensor ones = at::ones({6}, on_device(at::kDouble));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const at::Tensor& weight : {at::Tensor(), ones}) {
    EXPECT_TRUE(exact(nn::sum_nodes(g, x, weight), numbers({3, -infinity, nan}).view({3, 1})));
    EXPECT_TRUE(exact(nn::max_nodes(g, x, weight), numbers({2, 3, nan}).view({3, 1})));
    EXPECT_TRUE(exact(nn::max_edges(g, x, weight), numbers({2, 3, nan}).view({3, 1})));
  }
}

TEST(Readout, softmax_sums_to_one_in_each_graph_and_equals_the_definition) {
  const Graph g = several_graphs();
  for (const SideFunctions& side : sides()) {
    for (const DTypeInfo& dtype : dtypes()) {
      SCOPED_TRACE(side.name + " " + dtype.name);
      const at::Tensor x = uniform({15, 2}, dtype.scalar, 10, -3, 3);
      const at::Tensor powers = x.to(at::kDouble).exp();
      const at::Tensor expected = powers / part_sums(side, powers).index_select(0, owners(side));
      EXPECT_TRUE(near(side.softmax(g, x), expected, softmax_bound(expected, 7, 6, dtype.scalar)));
    }
  }
}

TEST(Readout, broadcasts_give_every_row_that_of_its_graph_and_sum_its_gradients_in_float32) {
  const Graph g = several_graphs();
  for (const SideFunctions& side : sides()) {
    for (const DTypeInfo& dtype : dtypes()) {
      const at::Tensor x = uniform({5, 2, 2}, dtype.scalar, 11);
      EXPECT_TRUE(same_bits(side.broadcast(g, x), x.index_select(0, owners(side))));
    }
  }
  const Graph hub = isolated_graph(4096);
  const at::Tensor x = leaf(at::zeros({1, 1}, on_device(at::kBFloat16)));
  nn::broadcast_nodes(hub, x).sum().backward();
  EXPECT_TRUE(exact(x.grad(), at::full({1, 1}, 4096)));
}

TEST(Readout, gradients_agree_with_differences) {
  const Graph g = several_graphs();
  using Inputs = std::vector<at::Tensor>;
  for (const SideFunctions& side : sides()) {
    SCOPED_TRACE(side.name);
    const Inputs values = {uniform({15, 2}, at::kDouble, 12), uniform({15}, at::kDouble, 13)};
    for (const ReadoutFunction function : {side.sum, side.mean, side.max}) {
      EXPECT_TRUE(gradcheck([&](const Inputs& in) { return function(g, in[0], {}); }, {values[0]}));
      EXPECT_TRUE(gradcheck([&](const Inputs& in) { return function(g, in[0], in[1]); }, values));
    }
    EXPECT_TRUE(gradcheck([&](const Inputs& in) { return side.softmax(g, in[0]); }, {values[0]}));
    EXPECT_TRUE(gradcheck([&](const Inputs& in) { return side.broadcast(g, in[0]); },
                          {uniform({5, 2}, at::kDouble, 14)}));
  }
}

TEST(Readout, autocast_casts_rows_that_are_reduced_and_no_others) {
  const Graph g = several_graphs();
  const at::Tensor x = integers({15, 2}, at::kFloat, 15), weight = integers({15}, at::kFloat, 16);
  const at::Tensor of_graphs = integers({5, 2}, at::kFloat, 17);
  for (const SideFunctions& side : sides()) {
    const at::Tensor sums = part_sums(side, x),
                     products = part_sums(side, x * weight.view({15, 1}));
    for (const DTypeInfo& dtype : narrow_dtypes()) {
      const amp::Autocast scope(test_device().type(), dtype.scalar);
      const at::Tensor got = side.sum(g, x, {}), weighted = side.sum(g, x, weight);
      EXPECT_EQ(got.scalar_type(), dtype.scalar);
      EXPECT_EQ(weighted.scalar_type(), dtype.scalar);
      EXPECT_TRUE(exact(got, sums));
      EXPECT_TRUE(exact_rounded(weighted, products));
      EXPECT_EQ(side.softmax(g, x).scalar_type(), at::kFloat);
      EXPECT_EQ(side.broadcast(g, of_graphs).scalar_type(), at::kFloat);
    }
  }
}

TEST(Readout, wrong_arguments_are_errors_that_name_function_and_argument) {
  const Graph g = several_graphs();
  const at::Tensor x = at::zeros({15, 3}, on_device());
  for (const at::Tensor& wrong :
       {at::zeros({14, 3}, on_device()), at::Tensor(), at::zeros({15, 3}, on_device(at::kLong)),
        at::scalar_tensor(0, on_device())}) {
    for (const SideFunctions& side : sides()) {
      const std::string row = side.name == "nodes" ? "node" : "edge";
      const std::string rest = ":expectedfloating,stridedx[15,...],onerowper" + row + ",got";
      EXPECT_ERROR("sum_" + side.name + rest, side.sum(g, wrong, {}));
      EXPECT_ERROR("mean_" + side.name + rest, side.mean(g, wrong, {}));
      EXPECT_ERROR("max_" + side.name + rest, side.max(g, wrong, {}));
      EXPECT_ERROR("softmax_" + side.name + rest, side.softmax(g, wrong));
      EXPECT_ERROR(
          "broadcast_" + side.name + ":expectedfloating,stridedx[5,...],onerowpergraph,got",
          side.broadcast(g, wrong));
    }
  }
  EXPECT_ERROR("sum_nodes:expectedfloating,stridedweight[15,...]",
               nn::sum_nodes(g, x, at::zeros({5}, on_device())));
  for (const auto& shape : std::vector<std::vector<std::int64_t>>{{15, 2}, {15, 3, 1}}) {
    EXPECT_ERROR("max_edges:expectedaweightthatbroadcastswithxfloat32[15,3]",
                 nn::max_edges(g, x, at::zeros(shape, on_device())));
  }
}

}  // namespace
}  // namespace mezzo::test::readout_test
