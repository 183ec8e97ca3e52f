#include "mezzo/nn/conv/interaction_block.h"

#include <optional>
#include <set>

#include "mezzo/amp/autocast/autocast.h"
#include "mezzo/ops/dense/edge_mlp.h"
#include "mezzo/runtime/batch_invariant.h"
#include "mezzo/runtime/memory.h"

#include "nn/conv/interaction_reference.h"
#include "support/errors.h"
#include "support/module_gradcheck.h"
#include "support/running_error.h"
#include "support/settings.h"

namespace mezzo::test::interaction_block_test {
namespace {

using nn::InteractionBlock;
using nn::InteractionBlockOptions;
using Rows = std::vector<at::Tensor>;

InteractionBlock make(const InteractionBlockOptions& options, at::ScalarType stored = at::kDouble) {
  InteractionBlock layer(options);
  layer->to(stored);
  randomise(*layer, stored, 1, stored);
  return layer;
}

/// The results, then the gradients of the rows and of every parameter.
Rows run_all(InteractionBlock& layer, const Topology& g, const Rows& in, const Rows& grads,
             at::ScalarType autocast = at::kDouble) {
  const Rows rows = {leaf(in[0]), leaf(in[1])};
  Rows results;
  {
    const bool lowers = autocast != at::kDouble;
    std::optional<amp::Autocast> scope;
    if (lowers) scope.emplace(test_device().type(), autocast);
    const auto [h, e] = layer(g, rows[0], rows[1]);
    results = {h, e};
  }
  Rows inputs = rows;
  for (const at::Tensor& parameter : layer->parameters()) inputs.push_back(parameter);
  const Rows gradients = torch::autograd::grad(
      results, inputs,
      {grads[0].to(results[0].scalar_type()), grads[1].to(results[1].scalar_type())});
  results.insert(results.end(), gradients.begin(), gradients.end());
  return results;
}

struct Case {
  Topology g;
  InteractionBlockOptions options;
  Rows rows(at::ScalarType type, std::uint64_t seed) const {
    return {uniform({g.num_src(), options.node_features}, type, seed),
            uniform({g.num_edges(), options.edge_features}, type, seed + 1)};
  }
};

std::vector<Case> cases() {
  return {{random_topology(12, 12, 40, 1), {.node_features = 3, .edge_features = 5}},
          {random_topology(12, 12, 40, 2),
           {.node_features = 20, .edge_features = 2, .hidden_features = 33}},
          {random_topology(30, 30, 9000, 3),
           {.node_features = 4, .edge_features = 18, .hidden_features = 7, .hidden_layers = 3}}};
}

void expect_near(const Rows& got, const std::vector<Rounded>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(near(got[i], expected[i])) << i;
}

TEST(InteractionBlock, equals_the_definition_with_its_gradients) {
  for (const Case& one : cases()) {
    SCOPED_TRACE(testing::Message() << one.options.hidden_features);
    InteractionBlock layer = make(one.options);
    const Rows in = one.rows(at::kDouble, 5), grads = one.rows(at::kDouble, 7);
    expect_near(run_all(layer, one.g, in, grads), rounded_block(layer, one.g, in, grads));
  }
}

TEST(InteractionBlock, gradients_agree_with_differences) {
  const Topology g = random_topology(5, 5, 8, 10);
  InteractionBlock layer =
      make({.node_features = 3, .edge_features = 4, .hidden_features = 6, .hidden_layers = 2});
  EXPECT_TRUE(
      module_gradcheck(*layer,
                       [&](const Rows& in) {
                         const auto [h, e] = layer(g, in[0], in[1]);
                         return at::cat({h.flatten(), e.flatten()});
                       },
                       {uniform({5, 3}, at::kDouble, 11), uniform({8, 4}, at::kDouble, 12)}));
}

TEST(InteractionBlock, stays_within_the_rounding_of_every_dtype_also_under_autocast) {
  const Case one = {random_topology(12, 12, 40, 13),
                    {.node_features = 16, .edge_features = 24, .hidden_features = 32}};
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(setting.name());
    const at::ScalarType dtype = setting.dtype.scalar;
    InteractionBlock layer = make(one.options, dtype);
    const Rows in = one.rows(dtype, 14), grads = one.rows(dtype, 16);
    const std::vector<Rounded> expected = rounded_block(layer, one.g, in, grads);
    if (setting.autocast) layer->to(at::kFloat);
    const at::ScalarType stored = setting.autocast ? at::kFloat : dtype;
    const Rows got = run_all(layer, one.g, {in[0].to(stored), in[1].to(stored)}, grads,
                             setting.autocast ? dtype : at::kDouble);
    expect_near(got, expected);
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].scalar_type(), i < 2 ? dtype : stored) << i;
    }
  }
}

/// Inputs of the edges' MLP with random numbers.
mezzo::detail::EdgeMlpInputs inputs_of(const Topology& g, std::int64_t hidden,
                                       std::int64_t features, at::ScalarType type) {
  auto next = [type, seed = 31](const std::vector<std::int64_t>& sizes) mutable {
    return leaf(uniform(sizes, type, static_cast<std::uint64_t>(++seed)));
  };
  return {.topology = mezzo::detail::hold(g),
          .src = next({g.num_src(), hidden}),
          .dst = next({g.num_dst(), hidden}),
          .edge = next({g.num_edges(), features}),
          .weight = next({hidden, features}),
          .hidden_weight = next({2, hidden, hidden}),
          .hidden_bias = next({2, hidden}),
          .out_weight = next({features, hidden}),
          .out_bias = next({features}),
          .norm_weight = next({features}),
          .norm_bias = next({features})};
}

TEST(InteractionBlock, edges_have_the_same_bits_on_any_number_of_threads) {
  const Topology g = random_topology(500, 400, 60'000, 20);
  for (const DTypeInfo& dtype : dtypes()) {
    const auto in = inputs_of(g, 40, 33, dtype.scalar);
    for (const bool invariant : {false, true}) {
      SCOPED_TRACE(testing::Message() << dtype.name << (invariant ? ", BatchInvariant" : ""));
      std::optional<BatchInvariant> scope;
      if (invariant) scope.emplace();
      Rows alone;
      for (const int threads : {1, 2, 3}) {
        const ThreadCount count(threads);
        const auto [edge, sum] = mezzo::detail::edge_mlp(in);
        Rows got = {edge.detach(), sum.detach()};
        for (const at::Tensor& gradient : torch::autograd::grad(
                 {edge, sum},
                 {in.src, in.dst, in.edge, in.weight, *in.hidden_weight, *in.hidden_bias,
                  in.out_weight, in.out_bias, in.norm_weight, in.norm_bias},
                 {edge.detach(), sum.detach()})) {
          got.push_back(gradient);
        }
        if (alone.empty()) alone = got;
        for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], alone[i])) << i;
      }
    }
  }
}

TEST(InteractionBlock, results_that_the_loss_ignores_have_no_gradient) {
  const Case one = cases()[1];
  InteractionBlock layer = make(one.options);
  const Rows in = one.rows(at::kDouble, 25), grads = one.rows(at::kDouble, 27);
  for (const std::size_t used : {0, 1}) {
    const Rows zeroed = {used == 0 ? grads[0] : grads[0] * 0, used == 1 ? grads[1] : grads[1] * 0};
    const Rounded expected = rounded_block(layer, one.g, in, zeroed)[2];
    const at::Tensor h = leaf(in[0]);  // e needs no gradient
    const auto [new_h, new_e] = layer(one.g, h, in[1]);
    const at::Tensor got =
        torch::autograd::grad({used == 0 ? new_h : new_e}, {h}, {grads[used]})[0];
    EXPECT_TRUE(near(got, expected));
  }
}

TEST(InteractionBlock, the_composed_form_agrees_with_blocks) {
  const Topology g = random_topology(20, 15, 100, 30);
  const auto in = inputs_of(g, 6, 5, at::kDouble);
  const at::Tensor &weights = *in.hidden_weight, &biases = *in.hidden_bias;
  const RoundedEdgeMlp expected(g, exactly(in.src), exactly(in.dst), in.edge, in.weight,
                                {weights[0], biases[0], weights[1], biases[1], in.out_weight,
                                 in.out_bias, in.norm_weight, in.norm_bias});
  const at::Tensor edge_grad = uniform({100, 5}, at::kDouble, 50);
  const at::Tensor sum_grad = uniform({15, 5}, at::kDouble, 51);
  const std::vector<Rounded> gradients = expected.gradients(exactly(edge_grad), exactly(sum_grad));
  for (const auto& [edge, sum] :
       {mezzo::detail::edge_mlp(in), mezzo::detail::composed_edge_mlp(in)}) {
    expect_near({edge, sum}, {expected.edge(), expected.sum()});
    expect_near(torch::autograd::grad({edge, sum}, {in.src, in.dst, in.edge, in.weight},
                                      {edge_grad, sum_grad}),
                {gradients.begin(), gradients.begin() + 4});
  }
  const auto composed = mezzo::detail::composed_edge_mlp_grad(in, {edge_grad, sum_grad}, true);
  EXPECT_TRUE(near(std::get<2>(composed), gradients[2]));
  EXPECT_TRUE(near(std::get<4>(composed)[0], gradients[4]));
  EXPECT_TRUE(near(std::get<4>(composed)[1], gradients[6]));
  const auto without = mezzo::detail::composed_edge_mlp_grad(in, {{}, sum_grad}, false);
  EXPECT_FALSE(std::get<2>(without).defined());
}

TEST(InteractionBlock, keeps_nothing_and_allocates_one_row_an_edge_and_pass) {
  if (!test_device().is_cpu()) GTEST_SKIP() << "the composed form keeps rows of edges";
  const Case one = {random_topology(1000, 1000, 200'000, 40),
                    {.node_features = 32, .edge_features = 32}};
  InteractionBlock layer = make(one.options, at::kFloat);
  const Rows in = one.rows(at::kFloat, 41), grads = one.rows(at::kFloat, 43);
  const at::Tensor h = leaf(in[0]), e = leaf(in[1]);
  (void)one.g.src();
  const auto rows = static_cast<double>(e.nbytes());
  const auto over = [&](std::int64_t before, std::int64_t after) {
    return static_cast<double>(after - before) / rows;
  };
  std::int64_t before = current_memory_bytes(test_device());
  reset_peak_memory(test_device());
  const auto [new_h, new_e] = layer(one.g, h, e);
  EXPECT_LT(over(before, current_memory_bytes(test_device())), 1.1);  // the result
  EXPECT_LT(over(before, peak_memory_bytes(test_device())), 1.3);  // and blocks, a chunk's 32 sums
  before = current_memory_bytes(test_device());
  reset_peak_memory(test_device());
  torch::autograd::backward({new_h, new_e}, {grads[0], grads[1]});
  EXPECT_LT(over(before, peak_memory_bytes(test_device())),
            1.4);  // the gradient of e, a chunk of 1/6
}

TEST(InteractionBlock, rounds_sums_of_nodes_without_more_memory) {
  if (!test_device().is_cpu()) GTEST_SKIP() << "the composed form keeps rows of edges";
  const Case one = {random_topology(200'000, 200'000, 50'000, 44),
                    {.node_features = 32, .edge_features = 32}};
  InteractionBlock layer = make(one.options, at::kBFloat16);
  const Rows in = one.rows(at::kBFloat16, 45), grads = one.rows(at::kBFloat16, 47);
  const at::Tensor h = leaf(in[0]), e = leaf(in[1]);
  (void)one.g.src();
  const std::int64_t before = current_memory_bytes(test_device());
  const auto [new_h, new_e] = layer(one.g, h, e);
  reset_peak_memory(test_device());
  torch::autograd::backward({new_h, new_e}, {grads[0], grads[1]});
  // In rows of nodes: the new rows, the two parts of the products, the gradients of the received
  // sums and of h, and two sums in float32. Half of one is for a chunk and the threads' blocks.
  const double nodes = static_cast<double>(h.nbytes()) * (1 + 2 + 2 + 2 * 2 + 0.5);
  const double edges = static_cast<double>(e.nbytes()) * 2;  // the new rows, the gradient
  EXPECT_LT(static_cast<double>(peak_memory_bytes(test_device()) - before), nodes + edges);
}

TEST(InteractionBlock, runs_without_edges_and_without_nodes) {
  for (const std::int64_t num_nodes : {0, 5}) {
    const Case one = {topology_of({}, {}, num_nodes, num_nodes),
                      {.node_features = 3, .edge_features = 2, .hidden_layers = 2}};
    InteractionBlock layer = make(one.options);
    const Rows in = one.rows(at::kDouble, 50), grads = one.rows(at::kDouble, 52);
    const Rows got = run_all(layer, one.g, in, grads);
    EXPECT_EQ(got[1].sizes(), in[1].sizes());
    EXPECT_EQ(got[0].sizes(), in[0].sizes());
    EXPECT_TRUE(near(got[0], rounded_block(layer, one.g, in, grads)[0]));
    EXPECT_TRUE(exact(got[4], at::zeros_like(got[4])));  // of the first weight of the edges' MLP
  }
}

TEST(InteractionBlock, has_parameters_of_a_sequential_and_clones) {
  InteractionBlock layer(4, 3, InteractionBlockOptions{.hidden_features = 8});
  EXPECT_EQ(parameter_shapes(*layer),
            (std::set<std::string>{
                "edge_mlp.0.weight [8, 11]", "edge_mlp.0.bias [8]", "edge_mlp.2.weight [3, 8]",
                "edge_mlp.2.bias [3]", "edge_mlp.3.weight [3]", "edge_mlp.3.bias [3]",
                "node_mlp.0.weight [8, 7]", "node_mlp.0.bias [8]", "node_mlp.2.weight [4, 8]",
                "node_mlp.2.bias [4]", "node_mlp.3.weight [4]", "node_mlp.3.bias [4]"}));
  InteractionBlock copy(std::dynamic_pointer_cast<nn::InteractionBlockImpl>(layer->clone()));
  const Topology g = random_topology(6, 6, 10, 60);
  const at::Tensor h = uniform({6, 4}, at::kFloat, 61), e = uniform({10, 3}, at::kFloat, 62);
  layer->to(test_device());
  copy->to(test_device());
  EXPECT_TRUE(same_bits(copy(g, h, e).first, layer(g, h, e).first));
}

TEST(InteractionBlock, wrong_arguments_are_errors_that_name_them) {
  EXPECT_ERROR("edge_features", InteractionBlock(InteractionBlockOptions{.node_features = 3}));
  EXPECT_ERROR("node_features", InteractionBlock(InteractionBlockOptions{.edge_features = 3}));
  EXPECT_ERROR("hidden_layers",
               InteractionBlock(3, 3, InteractionBlockOptions{.hidden_layers = 0}));
  EXPECT_ERROR("hidden_features",
               InteractionBlock(3, 3, InteractionBlockOptions{.hidden_features = -1}));
  const Topology g = random_topology(5, 5, 10, 70);
  InteractionBlock layer = make({.node_features = 3, .edge_features = 2});
  const at::Tensor h = uniform({5, 3}, at::kDouble, 71), e = uniform({10, 2}, at::kDouble, 72);
  EXPECT_ERROR(fragments("InteractionBlock", "h[5,3]", "[5,2]"), layer(g, h.narrow(1, 0, 2), e));
  EXPECT_ERROR(fragments("InteractionBlock", "e[10,2]", "[9,2]"), layer(g, h, e.narrow(0, 0, 9)));
  EXPECT_ERROR("undefined", layer(g, h, at::Tensor()));
  EXPECT_ERROR(fragments("eoftheweights'dtype", "Double", "Float"), layer(g, h, e.to(at::kFloat)));
  EXPECT_ERROR("onesetofnodes", layer(random_topology(5, 4, 10, 73), h, e));
  const auto [new_h, new_e] = layer(g, leaf(h), leaf(e));
  EXPECT_THROWS(InvalidArgument, "second derivatives",
                torch::autograd::grad({new_e.sum()}, {layer->parameters()[0]}, {}, true, true));
}

}  // namespace
}  // namespace mezzo::test::interaction_block_test
