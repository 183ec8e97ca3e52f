#include "mezzo/nn/conv/edge_conv.h"

#include <set>

#include "mezzo/amp/autocast/autocast.h"
#include "mezzo/graph/topology.h"

#include "support/module_gradcheck.h"
#include "support/nn_reference.h"

namespace mezzo::test::edge_conv_test {
namespace {

using nn::EdgeConv;
using nn::EdgeConvOptions;

EdgeConv make(std::int64_t in, std::int64_t out, EdgeConvOptions options = {},
              at::ScalarType stored = at::kDouble) {
  EdgeConv layer(in, out, std::move(options));
  layer->to(stored);
  randomise(*layer, stored, 1, stored);
  return layer;
}

/// The messages of the edges, [E, out]: theta(h_v - h_u) + phi(h_v).
at::Tensor messages(const EdgeConv& layer, const Topology& topology, const at::Tensor& h) {
  const at::Tensor x = take(h, Numbers::kGiven);
  const at::Tensor from = x.index_select(0, topology.src()), to = x.index_select(0, topology.dst());
  return dense_linear(to - from, layer->theta->weight, layer->theta->bias, Numbers::kGiven) +
         dense_linear(to, layer->phi->weight, layer->phi->bias, Numbers::kGiven);
}

/// The sum of the sizes of the terms of a message, at most: [N, out] of the destinations.
at::Tensor sizes_of_messages(const EdgeConv& layer, const Topology& topology, const at::Tensor& h) {
  const at::Tensor x = take(h, Numbers::kAbsolute);
  const at::Tensor sent = dense_linear(x, layer->theta->weight, {}, Numbers::kAbsolute).amax(0);
  const at::Tensor own = x.slice(0, 0, topology.num_dst());
  return sent + dense_linear(own, layer->theta->weight, layer->theta->bias, Numbers::kAbsolute) +
         dense_linear(own, layer->phi->weight, layer->phi->bias, Numbers::kAbsolute);
}

at::Tensor normalised(const EdgeConv& layer, const at::Tensor& rows) {
  const auto parameters = layer->named_parameters();
  const at::Tensor centred = rows - rows.mean(0), variance = centred.square().mean(0);
  return centred / (variance + 1e-5).sqrt() * parameters["bn.weight"].detach() +
         parameters["bn.bias"].detach();
}

at::Tensor maximum(const Topology& topology, const at::Tensor& rows) {
  at::Tensor out = at::zeros({topology.num_dst(), rows.size(1)}, on_device(at::kDouble));
  for (std::int64_t v = 0; v < topology.num_dst(); ++v) {
    const at::Tensor edges = (topology.dst() == v).nonzero().squeeze(1);
    if (edges.numel() > 0) out[v] = rows.index_select(0, edges).amax(0);
  }
  return out;
}

at::Tensor define(const EdgeConv& layer, const Topology& topology, const at::Tensor& h) {
  const at::Tensor rows = messages(layer, topology, h);
  return maximum(topology, layer->options.batch_norm ? normalised(layer, rows) : rows);
}

TEST(EdgeConv, equals_the_definition_with_and_without_batch_normalization) {
  const Topology square = connected(12, 12, 40, 1), rectangular = connected(9, 5, 20, 2);
  for (const Topology& g : {square, rectangular}) {
    for (const bool batch_norm : {false, true}) {
      for (const auto& [in, out] : {std::pair(3, 7), std::pair(7, 3)}) {
        SCOPED_TRACE(testing::Message() << batch_norm << ": " << in << " -> " << out);
        EdgeConv layer = make(in, out, {.batch_norm = batch_norm});
        const at::Tensor h = uniform({g.num_src(), in}, at::kDouble, 5);
        // Normalization multiplies rounding errors by at most 1 / sqrt(1e-5).
        const double terms = batch_norm ? 400.0 * static_cast<double>(g.num_edges()) : 40;
        EXPECT_TRUE(near_terms(layer(g, h), define(layer, g, h), terms));
      }
    }
  }
}

TEST(EdgeConv, is_exact_on_small_integers_in_every_dtype) {
  const Topology g = connected(20, 20, 80, 3);
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    EdgeConv layer = make(3, 9, {}, dtype.scalar);
    std::uint64_t seed = 0;
    for (auto& parameter : layer->named_parameters()) {
      parameter.value().set_data(integers(parameter.value().sizes(), dtype.scalar, ++seed, -2, 2));
    }
    const at::Tensor h = integers({20, 3}, dtype.scalar, 4);
    const at::Tensor got = layer(g, h);
    EXPECT_EQ(got.scalar_type(), dtype.scalar);
    EXPECT_TRUE(exact(got, define(layer, g, h)));
  }
}

TEST(EdgeConv, differences_of_near_rows_keep_their_digits_in_sixteen_bits) {
  const Topology g = connected(20, 20, 80, 21);
  for (const DTypeInfo& dtype : narrow_dtypes()) {
    SCOPED_TRACE(dtype.name);
    EdgeConv layer = make(3, 6, {}, at::kFloat);
    for (at::Tensor t : {layer->theta->bias, layer->phi->weight, layer->phi->bias}) {
      t.detach().zero_();
    }
    const at::Tensor h = uniform({20, 3}, at::kFloat, 22) + 64;  // far off beside their distances
    at::Tensor got;
    {
      const amp::Autocast scope(test_device().type(), dtype.scalar);
      got = layer(g, h);
    }
    EXPECT_EQ(got.scalar_type(), dtype.scalar);
    // One rounding of the result; float32's of numbers 64 times larger are 2^-18 beside it.
    const at::Tensor expected = define(layer, g, h);
    const double distance = (got.to(at::kDouble) - expected).abs().max().item<double>();
    EXPECT_LT(distance, dtype.epsilon * expected.abs().max().item<double>() + 0x1p-14);
  }
}

TEST(EdgeConv, sixteen_bit_rows_stay_within_their_rounding_also_under_autocast) {
  const Topology g = connected(20, 20, 80, 6);
  for (const DTypeInfo& dtype : narrow_dtypes()) {
    for (const bool autocast : {false, true}) {
      SCOPED_TRACE(testing::Message() << dtype.name << ", autocast " << autocast);
      EdgeConv layer = make(3, 6, {}, dtype.scalar);
      const at::Tensor h = uniform({20, 3}, dtype.scalar, 7);
      const at::Tensor expected = define(layer, g, h);
      const SumBound bound =
          sum_bound(sizes_of_messages(layer, g, h), 16, dtype.scalar, 2 * dtype.epsilon);
      at::Tensor got;
      if (autocast) {
        layer->to(at::kFloat);
        const amp::Autocast scope(test_device().type(), dtype.scalar);
        got = layer(g, h.to(at::kFloat));
      } else {
        got = layer(g, h);
      }
      EXPECT_EQ(got.scalar_type(), dtype.scalar);
      EXPECT_TRUE(near(got, expected, bound));
    }
  }
}

TEST(EdgeConv, batch_normalization_runs_in_every_dtype_and_under_autocast) {
  const Topology g = connected(10, 10, 40, 8);
  for (const DTypeInfo& dtype : narrow_dtypes()) {
    SCOPED_TRACE(dtype.name);
    EdgeConv layer = make(3, 4, {.batch_norm = true}, at::kFloat);
    at::Tensor got;
    {
      const amp::Autocast scope(test_device().type(), dtype.scalar);
      got = layer(g, uniform({10, 3}, at::kFloat, 9));
    }
    EXPECT_EQ(got.scalar_type(), dtype.scalar);
    EXPECT_TRUE(got.isfinite().all().item<bool>());
    got.to(at::kFloat).sum().backward();
    for (const auto& parameter : layer->named_parameters()) {
      EXPECT_EQ(parameter.value().grad().scalar_type(), at::kFloat) << parameter.key();
      EXPECT_TRUE(parameter.value().grad().isfinite().all().item<bool>()) << parameter.key();
    }
  }
}

TEST(EdgeConv, gradients_agree_with_differences) {
  const Topology g = connected(6, 4, 9, 10);
  for (const bool batch_norm : {false, true}) {
    SCOPED_TRACE(batch_norm);
    EdgeConv layer = make(2, 3, {.batch_norm = batch_norm});
    EXPECT_TRUE(module_gradcheck(
        *layer, [&](const std::vector<at::Tensor>& inputs) { return layer(g, inputs[0]); },
        {uniform({6, 2}, at::kDouble, 11)}));
  }
}

TEST(EdgeConv, evaluation_normalises_by_the_running_statistics) {
  const Topology g = connected(6, 6, 9, 12);
  EdgeConv layer = make(2, 3, {.batch_norm = true});
  const at::Tensor h = uniform({6, 2}, at::kDouble, 13), rows = messages(layer, g, h);
  layer(g, h);
  const auto buffers = layer->named_buffers();
  // From 0 and 1 with the momentum 0.1; the variance is the sample variance.
  EXPECT_TRUE(near_terms(buffers["bn.running_mean"], 0.1 * rows.mean(0), 20));
  EXPECT_TRUE(
      near_terms(buffers["bn.running_var"], 0.1 * rows.var(0, /*unbiased=*/true) + (1 - 0.1), 100));
  layer->eval();
  const auto parameters = layer->named_parameters();
  const at::Tensor scaled = (rows - buffers["bn.running_mean"]) /
                                (buffers["bn.running_var"] + 1e-5).sqrt() *
                                parameters["bn.weight"].detach() +
                            parameters["bn.bias"].detach();
  EXPECT_TRUE(near_terms(layer(g, h), maximum(g, scaled), 100));
}

TEST(EdgeConv, sparse_rows_give_the_values_and_weight_gradients_of_dense_ones) {
  const EdgeConv layer = make(5, 4);
  expect_sparse_like_dense(layer, connected(10, 7, 30, 14), 5, 400);
}

TEST(EdgeConv, nodes_without_in_edges_are_an_error_unless_allowed_and_then_get_zero) {
  const at::Tensor h = uniform({4, 2}, at::kDouble, 17);
  EdgeConv strict = make(2, 3);
  EXPECT_ERROR(fragments("EdgeConv", "allow_zero_in_degree"), strict(four_nodes(), h));
  for (const bool batch_norm : {false, true}) {
    EdgeConv layer = make(2, 3, {.batch_norm = batch_norm, .allow_zero_in_degree = true});
    const at::Tensor got = layer(four_nodes(), h);
    EXPECT_TRUE(exact(got[0], at::zeros({3})));
    EXPECT_TRUE(exact(got[3], at::zeros({3})));
    EXPECT_TRUE(near_terms(got, define(layer, four_nodes(), h), 1600));
  }
}

TEST(EdgeConv, runs_without_edges_and_without_nodes) {
  for (const std::int64_t num_nodes : {0, 5}) {
    const Topology g = topology_of({}, {}, num_nodes, num_nodes);
    EdgeConv layer = make(2, 3, {.allow_zero_in_degree = true});
    const at::Tensor h = leaf(uniform({num_nodes, 2}, at::kDouble, 18));
    const at::Tensor got = layer(g, h);
    EXPECT_TRUE(exact(got, at::zeros({num_nodes, 3})));
    got.sum().backward();
    EXPECT_TRUE(exact(h.grad(), at::zeros({num_nodes, 2})));
  }
}

TEST(EdgeConv, a_message_that_is_not_a_number_is_passed_on) {
  EdgeConv layer = make(1, 2);
  at::Tensor h = uniform({4, 1}, at::kDouble, 19);
  h[1] = std::numeric_limits<double>::quiet_NaN();
  const Topology g = topology_of({0, 1, 2, 3}, {0, 2, 2, 3}, 4, 4);
  layer->options.allow_zero_in_degree = true;
  const at::Tensor got = layer(g, h);
  EXPECT_TRUE(got[2].isnan().all().item<bool>());
  EXPECT_TRUE(got[0].isfinite().all().item<bool>());
}

TEST(EdgeConv, has_the_parameters_of_dgl) {
  const EdgeConv plain(30, 20);
  EXPECT_EQ(parameter_shapes(*plain),
            (std::set<std::string>{"theta.weight [20, 30]", "theta.bias [20]",
                                   "phi.weight [20, 30]", "phi.bias [20]"}));
  // Uniform within 1 / sqrt(in), as libtorch's linear layer.
  for (const at::Tensor& weight : {plain->theta->weight, plain->phi->weight}) {
    const double largest = weight.abs().max().item<double>(), bound = 1 / std::sqrt(30.0);
    EXPECT_LE(largest, bound);
    EXPECT_GT(largest, bound * 0.95);  // 600 draws: all below with probability 0.95^600
  }
  const EdgeConv normed(3, 2, {.batch_norm = true});
  EXPECT_EQ(parameter_shapes(*normed),
            (std::set<std::string>{"theta.weight [2, 3]", "theta.bias [2]", "phi.weight [2, 3]",
                                   "phi.bias [2]", "bn.weight [2]", "bn.bias [2]"}));
  EXPECT_TRUE(normed->named_buffers().contains("bn.running_mean"));
}

TEST(EdgeConv, wrong_arguments_are_errors_that_name_them) {
  EXPECT_ERROR("out_features", EdgeConv(EdgeConvOptions{.in_features = 3}));
  EXPECT_ERROR("in_features", EdgeConv(EdgeConvOptions{.out_features = 3}));
  const Topology g = connected(5, 5, 10, 20);
  EdgeConv layer = make(3, 2);
  for (const at::Tensor& h :
       {at::zeros({5, 4}, on_device(at::kDouble)), at::zeros({4, 3}, on_device(at::kDouble)),
        at::zeros({5}, on_device(at::kDouble)), at::zeros({5, 3}, on_device(at::kLong))}) {
    EXPECT_ERROR(fragments("EdgeConv", "[5,3]"), layer(g, h));
  }
  EXPECT_ERROR("undefined", layer(g, at::Tensor()));
  const Topology one_source = topology_of({0, 0}, {0, 1}, 1, 2);
  EXPECT_ERROR("prefix", layer(one_source, at::zeros({1, 3}, on_device(at::kDouble))));
  EdgeConv normed = make(3, 2, {.batch_norm = true});
  const Topology loop = topology_of({0}, {0}, 1, 1);
  EXPECT_ERROR("EdgeConv:expectedatleast2edges",
               normed(loop, at::zeros({1, 3}, on_device(at::kDouble))));
}

}  // namespace
}  // namespace mezzo::test::edge_conv_test
