#include "mezzo/sampling/blocks/control_variate.h"

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "mezzo/message_passing/fn.h"
#include "mezzo/sampling/node_flow/flow_samplers.h"

#include "sampling/flow_support.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

const CpuOnlySuite kControlVariateOnCpu("ControlVariate", "sampling on the CPU");
const CpuOnlySuite kControlVariateTestOnCpu("ControlVariateTest", "sampling on the CPU");

constexpr std::int64_t kNumNodes = 80, kWidth = 3;
const Ids kReceivers = {4, 0, 17, 1, 60};

Graph skewed_graph() {
  return power_law_graph(kNumNodes, 1500, 13);
}

/// The mean of x over the in-edges of kReceivers, by the definition in float64.
at::Tensor neighbor_means(const Graph& graph, const at::Tensor& x) {
  std::vector<at::Tensor> means;
  for (const std::int64_t v : kReceivers) {
    const at::Tensor edges = graph.in_edges(ids({v}));
    const at::Tensor sources = graph.topology().src().index_select(0, edges);
    const at::Tensor sum = x.to(at::kDouble).index_select(0, sources).sum(0);
    means.push_back(edges.numel() > 0 ? sum / edges.numel() : sum);
  }
  return at::stack(means);
}

testing::AssertionResult near_means(const at::Tensor& got, const at::Tensor& means,
                                    double terms = 1500) {
  return near(got, means, sum_bound(at::full_like(means, 2.0), terms, got.scalar_type()));
}

NodeFlow sampled_flow(const Graph& graph, std::int64_t fanout, std::int64_t epoch = 0) {
  const NeighborSampler sampler(graph, ids(kReceivers), {.num_neighbors = fanout});
  return sampler.batch(epoch, 0);
}

at::Tensor rows_of_layer(const NodeFlow& flow, const at::Tensor& x) {
  return x.index_select(0, flow.layer_parent_nid(0));
}

TEST(ControlVariate, is_exact_for_any_fanout_where_the_history_is) {
  const Graph graph = skewed_graph();
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor x = uniform({kNumNodes, kWidth}, dtype, 1);
    ControlVariate variate(graph, {.widths = {kWidth}, .dtype = dtype});
    variate.set_history(0, x);
    for (const std::int64_t fanout : {std::int64_t{0}, std::int64_t{1}, std::int64_t{5}}) {
      const NodeFlow flow = sampled_flow(graph, fanout);
      const at::Tensor estimate = variate.mean(flow, 0, rows_of_layer(flow, x));
      EXPECT_EQ(estimate.scalar_type(), dtype);
      EXPECT_TRUE(near_means(estimate, neighbor_means(graph, x)));
    }
  }
}

class ControlVariateTest : public testing::Test {
 protected:
  const Graph graph = skewed_graph();
  const at::Tensor x = uniform({kNumNodes, kWidth}, at::kFloat, 1);
};

TEST_F(ControlVariateTest, is_exact_for_any_history_where_every_neighbor_is_there) {
  ControlVariate variate(graph, {.widths = {kWidth}});
  const NodeFlow flow = sampled_flow(graph, kAllNeighbors);
  EXPECT_TRUE(near_means(variate.mean(flow, -1, rows_of_layer(flow, x)), neighbor_means(graph, x)));
  variate.set_history(0, uniform({kNumNodes, kWidth}, at::kFloat, 2));
  EXPECT_TRUE(near_means(variate.mean(flow, 0, rows_of_layer(flow, x)), neighbor_means(graph, x)));
}

TEST_F(ControlVariateTest, is_unbiased_and_varies_less_than_the_sampled_mean) {
  ControlVariate informed(graph, {.widths = {kWidth}}), none(graph, {.widths = {kWidth}});
  informed.set_history(0, x + uniform({kNumNodes, kWidth}, at::kFloat, 2, -0.125, 0.125));
  const NeighborSampler sampler(graph, ids(kReceivers), {.num_neighbors = 2});
  std::vector<at::Tensor> with_history, without;
  for (std::int64_t epoch = 0; epoch < 1000; ++epoch) {
    const NodeFlow flow = sampler.batch(epoch, 0);
    with_history.push_back(informed.mean(flow, 0, rows_of_layer(flow, x)));
    without.push_back(none.mean(flow, 0, rows_of_layer(flow, x)));  // no history: the plain mean
  }
  const at::Tensor means = neighbor_means(graph, x);
  const at::Tensor estimates = at::stack(with_history), plain = at::stack(without);
  EXPECT_TRUE(is_unbiased(estimates, means));
  EXPECT_TRUE(is_unbiased(plain, means));
  const auto variance = [](const at::Tensor& samples) {
    return samples.var(0, /*unbiased=*/true).sum().item<double>();
  };
  // The differences' deviation is 1/8 of the activations': about 1/64 of the variance.
  EXPECT_LT(variance(estimates), variance(plain) / 16);
}

TEST_F(ControlVariateTest, gradients_are_those_of_the_sampled_mean) {
  ControlVariate variate(graph, {.widths = {kWidth}});
  variate.set_history(0, uniform({kNumNodes, kWidth}, at::kFloat, 2));
  NodeFlow flow = sampled_flow(graph, 3);
  const at::Tensor h = leaf(uniform({flow.layer_size(0), kWidth}, at::kFloat, 5));
  const at::Tensor weights = uniform({5, kWidth}, at::kFloat, 6);
  const at::Tensor by_estimate =
      torch::autograd::grad({variate.mean(flow, 0, h)}, {h}, {weights})[0];
  flow.layers(0).data()["h"] = h;
  flow.block_compute(0, fn::copy_u("h", "m"), fn::mean("m", "h"));
  EXPECT_TRUE(
      exact(by_estimate, torch::autograd::grad({flow.layers(1).data()["h"]}, {h}, {weights})[0]));
}

TEST_F(ControlVariateTest, update_remembers_the_rows_of_a_layer_without_gradients) {
  ControlVariate variate(graph, {.widths = {kWidth, 2}});
  const NodeFlow flow = whole_flow(graph, kReceivers, 2);
  const at::Tensor h = leaf(uniform({flow.layer_size(1), 2}, at::kFloat, 5));
  variate.update(flow, 1, h);
  EXPECT_TRUE(exact(variate.history(1),
                    at::zeros({kNumNodes, 2}).index_copy(0, flow.layer_parent_nid(1), h.detach())));
  EXPECT_FALSE(variate.history(1).requires_grad());
  EXPECT_TRUE(exact(variate.history(-2), at::zeros({kNumNodes, kWidth})));
  variate.update(flow, -3, at::ones({flow.layer_size(0), kWidth}));
  EXPECT_EQ(variate.history(0).sum().item<double>(),
            static_cast<double>(flow.layer_size(0) * kWidth));
}

TEST_F(ControlVariateTest, keeps_the_histories_in_sixteen_bits) {
  for (const DTypeInfo& dtype : narrow_dtypes()) {
    ControlVariate variate(graph, {.widths = {kWidth}, .dtype = dtype.scalar});
    variate.set_history(0, x);
    EXPECT_TRUE(exact_rounded(variate.history(0), x));
    const NodeFlow flow = sampled_flow(graph, 2);
    // Activations equal to the history: one rounding of the mean to the history's dtype.
    const at::Tensor exact_h = rows_of_layer(flow, variate.history(0));
    const at::Tensor means = neighbor_means(graph, variate.history(0));
    const at::Tensor estimate = variate.mean(flow, 0, exact_h.to(at::kFloat));
    EXPECT_EQ(estimate.scalar_type(), at::kFloat);
    EXPECT_TRUE(near_means(estimate.to(dtype.scalar), means));
    EXPECT_EQ(variate.mean(flow, 0, exact_h).scalar_type(), dtype.scalar);
  }
}

TEST_F(ControlVariateTest, autocast_does_not_round_the_differences) {
  ControlVariate variate(graph, {.widths = {kWidth}});
  const NodeFlow flow = sampled_flow(graph, kAllNeighbors);
  const at::Tensor expected = variate.mean(flow, 0, rows_of_layer(flow, x));
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const at::Tensor got = variate.mean(flow, 0, rows_of_layer(flow, x));
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_TRUE(same_bits(got, expected));
}

TEST_F(ControlVariateTest, follows_out_edges_where_the_sampler_does) {
  ControlVariate variate(graph, {.widths = {kWidth}, .neighbor_type = NeighborType::kOut});
  variate.set_history(0, x);
  const NeighborSampler sampler(graph, ids(kReceivers),
                                {.num_neighbors = 1, .neighbor_type = NeighborType::kOut});
  const NodeFlow flow = sampler.batch(0, 0);
  const Graph turned(graph.topology().reverse());
  EXPECT_TRUE(near_means(variate.mean(flow, 0, rows_of_layer(flow, x)), neighbor_means(turned, x)));
}

// As in DGL's example: histories and their means as columns of the parent.
TEST(ControlVariate, equals_histories_copied_from_the_parent) {
  Graph graph = skewed_graph();
  const at::Tensor x = uniform({kNumNodes, kWidth}, at::kFloat, 1);
  graph.ndata()["h"] = x;
  graph.ndata()["history"] = uniform({kNumNodes, kWidth}, at::kFloat, 2);
  graph.update_all(fn::copy_u("history", "m"), fn::mean("m", "agg_history"));
  NodeFlow flow = sampled_flow(graph, 2);
  flow.copy_from_parent(NodeFlow::ColumnsByLayer{.nodes = {{"h", "history"}, {"agg_history"}}});
  Frame& inputs = flow.layers(0).data();
  inputs["h"] = inputs["h"] - inputs["history"];
  flow.block_compute(0, fn::copy_u("h", "m"), fn::mean("m", "h"), [](const NodeBatch& nodes) {
    return one_column("h", nodes.data("h") + nodes.data("agg_history"));
  });
  ControlVariate variate(graph, {.widths = {kWidth}});
  variate.set_history(0, graph.ndata()["history"]);
  EXPECT_TRUE(near_means(variate.mean(flow, 0, rows_of_layer(flow, x)),
                         flow.layers(1).data()["h"].to(at::kDouble), 100));
}

TEST_F(ControlVariateTest, corrects_the_means_of_a_block) {
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    ControlVariate variate(graph, {.widths = {kWidth}, .dtype = dtype.scalar});
    variate.set_history(0, uniform({kNumNodes, kWidth}, dtype.scalar, 1));
    const at::Tensor history = variate.history(0).to(at::kDouble);
    for (const std::int64_t fanout : {std::int64_t{0}, std::int64_t{2}, kAllNeighbors}) {
      const BlockSampler sampler(graph.topology(), {.fanouts = {fanout}});
      const Block block = sampler.sample(ids(kReceivers), BatchKey{.seed = 7}).front();
      const at::Tensor degrees = block.in_degrees().clamp_min(1).unsqueeze(1);
      const at::Tensor drawn = at::zeros({block.num_dst(), kWidth}, at::kDouble)
                                   .index_add(0, block.topology().dst(),
                                              history.index_select(0, block.src_nodes())
                                                  .index_select(0, block.topology().src()));
      // Two means of numbers in [-1, 1], each rounded to the histories' dtype.
      const at::Tensor expected = neighbor_means(graph, history) - drawn / degrees;
      const at::Tensor correction = variate.correction(block, 0);
      EXPECT_EQ(correction.scalar_type(), dtype.scalar == at::kDouble ? at::kDouble : at::kFloat);
      EXPECT_TRUE(near(
          correction, expected,
          sum_bound(at::full_like(expected, 2.0), 1500, correction.scalar_type(), dtype.epsilon)));
    }
  }
}

TEST_F(ControlVariateTest, update_remembers_the_sources_of_a_block) {
  ControlVariate variate(graph, {.widths = {kWidth}});
  const BlockSampler sampler(graph.topology(), {.fanouts = {2}});
  const Block block = sampler.sample(ids(kReceivers), BatchKey{.seed = 7}).front();
  const at::Tensor h = leaf(uniform({block.num_src(), kWidth}, at::kFloat, 5));
  variate.update(block, 0, h);
  EXPECT_TRUE(exact(variate.history(0),
                    at::zeros({kNumNodes, kWidth}).index_copy(0, block.src_nodes(), h.detach())));
  EXPECT_FALSE(variate.history(0).requires_grad());
  EXPECT_ERROR("floating", variate.update(block, 0, h.narrow(1, 0, 1)));
  EXPECT_ERROR("layer", variate.update(block, 1, h));
  EXPECT_ERROR("layer", variate.correction(block, 1));
}

TEST(ControlVariate, is_zero_without_edges) {
  const Graph graph = isolated_graph(5);
  ControlVariate variate(graph, {.widths = {2}});
  const NeighborSampler sampler(graph, ids({3, 1}), {.num_neighbors = 2});
  const NodeFlow flow = sampler.batch(0, 0);
  EXPECT_TRUE(exact(variate.mean(flow, 0, at::ones({flow.layer_size(0), 2})), at::zeros({2, 2})));
}

TEST_F(ControlVariateTest, wrong_arguments_are_errors_that_name_them) {
  const auto attempt = [&](ControlVariateOptions options) { ControlVariate(graph, options); };
  EXPECT_ERROR("width", attempt({.widths = {}}));
  EXPECT_ERROR("got0", attempt({.widths = {3, 0}}));
  EXPECT_ERROR("dtype", attempt({.widths = {3}, .dtype = at::kLong}));
  ControlVariate variate(graph, {.widths = {kWidth}});
  const NodeFlow flow = sampled_flow(graph, 2), other = sampled_flow(skewed_graph(), 2);
  const at::Tensor h = at::ones({flow.layer_size(0), kWidth});
  EXPECT_ERROR("graph", variate.mean(other, 0, h));
  EXPECT_ERROR("block", variate.mean(flow, 1, h));
  EXPECT_ERROR("floating", variate.mean(flow, 0, h.narrow(1, 0, 1)));
  EXPECT_ERROR("floating", variate.mean(flow, 0, h.to(at::kLong)));
  EXPECT_ERROR("last", variate.update(flow, 1, h));
  EXPECT_ERROR("[80,3]", variate.set_history(0, h));
  EXPECT_ERROR("blocks", variate.mean(whole_flow(graph, kReceivers, 2), 0, h));
  // A node without a self loop in the parent gets an added one.
  const Graph looped = graph_of({0}, {1}, 2);
  ControlVariate of_looped(looped, {.widths = {1}});
  const NodeFlow with_loops = whole_flow(looped, {1}, 1, /*add_self_loop=*/true);
  EXPECT_ERROR("addedselfloop", of_looped.mean(with_loops, 0, at::ones({2, 1})));
}

}  // namespace
}  // namespace mezzo::test
