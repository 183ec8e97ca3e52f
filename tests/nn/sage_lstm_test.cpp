#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "mezzo/amp/autocast.h"
#include "mezzo/nn/sage_conv.h"

#include "support/module_gradcheck.h"
#include "support/nn_reference.h"
#include "support/recurrent_reference.h"

/// SAGEConv's LSTM over the neighbours, and its edge weights.
namespace mezzo::test::sage_lstm_test {
namespace {

using nn::Aggregator;
using nn::SAGEConv;
using nn::SAGEConvOptions;

constexpr Aggregator kAggregators[] = {Aggregator::kMean, Aggregator::kGcn, Aggregator::kPool,
                                       Aggregator::kLstm};

SAGEConv drawn(SAGEConvOptions options, at::ScalarType stored = at::kDouble) {
  SAGEConv layer(std::move(options));
  randomise(*layer, stored, 1, stored);
  return layer;
}

/// In-degrees 0, 1, 1, 3, 4 and 3; the edges of one destination are not together.
Topology mixed_degrees() {
  return topology_of({5, 1, 0, 2, 3, 1, 4, 0, 5, 0, 2, 3}, {3, 4, 5, 3, 4, 1, 5, 3, 4, 2, 4, 5}, 6,
                     6);
}

/// What the messages into each node make, one at a time in the order of their edges; 0 without any.
at::Tensor define_aggregate(const SAGEConv& layer, const Topology& g, const at::Tensor& h,
                            const at::Tensor& weight) {
  const at::Tensor rows = take(h, Numbers::kGiven);
  const bool pools = layer->options.aggregator == Aggregator::kPool;
  const at::Tensor sent =
      pools ? dense_linear(rows, layer->fc_pool->weight, layer->fc_pool->bias, Numbers::kGiven)
                  .clamp_min(0)
            : rows;
  const std::int64_t width = sent.size(1);
  std::vector<at::Tensor> out;
  for (std::int64_t v = 0; v < g.num_dst(); ++v) {
    const at::Tensor edges = (g.dst() == v).nonzero().squeeze(1);
    at::Tensor messages = sent.index_select(0, g.src().to(at::kLong).index_select(0, edges));
    if (weight.defined()) {
      messages = messages * take(weight, Numbers::kGiven).index_select(0, edges).unsqueeze(1);
    }
    const at::Tensor zeros = at::zeros({width}, on_device(at::kDouble));
    const std::int64_t degree = messages.size(0);
    switch (layer->options.aggregator) {
      case Aggregator::kGcn:
        out.push_back((messages.sum(0) + rows[v]) / static_cast<double>(degree + 1));
        break;
      case Aggregator::kMean:
        out.push_back(degree > 0 ? messages.mean(0) : zeros);
        break;
      case Aggregator::kPool:
        out.push_back(degree > 0 ? messages.amax(0) : zeros);
        break;
      default: {
        at::Tensor hidden = zeros.unsqueeze(0), cell = hidden;
        for (std::int64_t i = 0; i < degree; ++i) {
          std::tie(hidden, cell) =
              define_lstm(*layer->lstm, "l0", messages.narrow(0, i, 1), hidden, cell);
        }
        out.push_back(hidden.squeeze(0));
      }
    }
  }
  return at::stack(out);
}

at::Tensor define_layer(const SAGEConv& layer, const Topology& g, const at::Tensor& h,
                        const at::Tensor& weight = {}) {
  const at::Tensor received = dense_linear(define_aggregate(layer, g, h, weight),
                                           layer->fc_neigh->weight, {}, Numbers::kGiven);
  if (layer->options.aggregator == Aggregator::kGcn) {
    return received + layer->bias.detach().to(at::kDouble);
  }
  return received + dense_linear(take(h, Numbers::kGiven).narrow(0, 0, g.num_dst()),
                                 layer->fc_self->weight, layer->fc_self->bias, Numbers::kGiven);
}

TEST(SageLstm, equals_the_definition_with_and_without_edge_weights_for_every_aggregator) {
  const Topology wide = connected(9, 5, 20, 2);
  for (const Topology& g : {mixed_degrees(), wide}) {
    for (const Aggregator aggregator : kAggregators) {
      for (const auto& [in, out] : {std::pair(3, 5), std::pair(5, 3)}) {
        SCOPED_TRACE(testing::Message()
                     << name_of(nn::Aggregators{}, aggregator) << ": " << in << " -> " << out);
        SAGEConv layer = drawn({.in_features = in, .out_features = out, .aggregator = aggregator});
        const at::Tensor h = uniform({g.num_src(), in}, at::kDouble, 3);
        const at::Tensor weight = uniform({g.num_edges()}, at::kDouble, 4);
        EXPECT_TRUE(near_terms(layer(g, h), define_layer(layer, g, h), 1e3));
        EXPECT_TRUE(near_terms(layer(g, h, weight), define_layer(layer, g, h, weight), 1e3));
      }
    }
  }
}

TEST(SageLstm, reads_the_neighbours_in_the_order_of_their_edges) {
  SAGEConv layer = drawn({.in_features = 2, .out_features = 2, .aggregator = Aggregator::kLstm});
  const at::Tensor h = uniform({3, 2}, at::kDouble, 5);
  const Topology forward = topology_of({1, 2}, {0, 0}, 3, 1);
  const Topology backward = topology_of({2, 1}, {0, 0}, 3, 1);
  EXPECT_TRUE(near_terms(layer(forward, h), define_layer(layer, forward, h), 1e3));
  EXPECT_TRUE(near_terms(layer(backward, h), define_layer(layer, backward, h), 1e3));
  EXPECT_FALSE(near_terms(layer(forward, h), layer(backward, h).detach(), 1e3));
}

TEST(SageLstm, gradients_of_rows_weights_and_parameters_agree_with_differences) {
  const Topology g = mixed_degrees();
  for (const Aggregator aggregator : kAggregators) {
    SCOPED_TRACE(name_of(nn::Aggregators{}, aggregator));
    SAGEConv layer = drawn({.in_features = 3, .out_features = 2, .aggregator = aggregator});
    EXPECT_TRUE(module_gradcheck(
        *layer, [&](const std::vector<at::Tensor>& in) { return layer(g, in[0], in[1]); },
        {uniform({6, 3}, at::kDouble, 6), uniform({g.num_edges()}, at::kDouble, 7)}));
  }
}

TEST(SageLstm, takes_pairs_of_rows_and_sparse_rows) {
  const Topology g = topology_of({0, 1, 2, 0, 1, 2}, {3, 3, 0, 1, 2, 2}, 3, 4);
  SAGEConv layer = drawn(
      {.in_features = 3, .in_features_dst = 5, .out_features = 2, .aggregator = Aggregator::kLstm});
  const at::Tensor src = sparse_numbers({3, 3}, 8), dst = uniform({4, 5}, at::kDouble, 9);
  const at::Tensor expected =
      dense_linear(define_aggregate(layer, g, src, {}), layer->fc_neigh->weight, {},
                   Numbers::kGiven) +
      dense_linear(dst, layer->fc_self->weight, layer->fc_self->bias, Numbers::kGiven);
  EXPECT_TRUE(near_terms(layer(g, std::pair(src, dst)), expected, 1e3));
  EXPECT_TRUE(near_terms(layer(g, std::pair(src.to_sparse_csr(), dst)), expected, 1e3));
}

TEST(SageLstm, without_edges_gives_the_own_rows_alone) {
  for (const std::int64_t num_nodes : {0, 5}) {
    const Topology g = topology_of({}, {}, num_nodes, num_nodes);
    SAGEConv layer = drawn({.in_features = 3, .out_features = 2, .aggregator = Aggregator::kLstm});
    const at::Tensor h = leaf(uniform({num_nodes, 3}, at::kDouble, 10));
    const at::Tensor got = layer(g, h);
    EXPECT_TRUE(near_terms(
        got,
        dense_linear(h.detach(), layer->fc_self->weight, layer->fc_self->bias, Numbers::kGiven),
        100));
    got.sum().backward();
    EXPECT_EQ(h.grad().sizes(), h.sizes());
  }
}

TEST(SageLstm, stays_within_its_rounding_in_sixteen_bits_also_under_autocast) {
  const Topology g = mixed_degrees();
  for (const DTypeInfo& dtype : narrow_dtypes()) {
    for (const bool autocast : {false, true}) {
      SCOPED_TRACE(testing::Message() << dtype.name << ", autocast " << autocast);
      SAGEConv layer = drawn({.in_features = 3, .out_features = 2, .aggregator = Aggregator::kLstm},
                             dtype.scalar);
      scale_parameters(*layer, 0x1p-4);
      const at::Tensor h = uniform({6, 3}, dtype.scalar, 11);
      const at::Tensor expected = define_layer(layer, g, h);
      at::Tensor got;
      if (autocast) {
        layer->to(at::kFloat);
        const amp::Autocast scope(test_device().type(), dtype.scalar);
        got = layer(g, h.to(at::kFloat));
      } else {
        got = layer(g, h);
      }
      EXPECT_EQ(got.scalar_type(), dtype.scalar);
      // Rows are at most 1 and weights at most 2^-4: what comes before a gate is at most 0.4, and
      // its roundings move it by 0.6 epsilons. A step adds 1.3 epsilons to an error of the cell of
      // which it keeps 0.7, so that the state is never off by more than 3, of which the last
      // product keeps 3/16; the results, at most 0.3, are rounded three times.
      EXPECT_TRUE(near(got, expected, rounded_bound(expected, 1, 4, dtype.scalar)));
      got.to(at::kFloat).sum().backward();
      for (const auto& parameter : layer->named_parameters()) {
        EXPECT_TRUE(parameter.value().grad().isfinite().all().item<bool>()) << parameter.key();
      }
    }
  }
}

/// An LSTM of 2 units whose every number is exact in 16 bits. The gates are constants: unit 0 keeps
/// a cell of 0 and multiplies its candidate by 1/2; unit 1, which nothing after it reads, has the
/// state tanh(1) from the first step on.
SAGEConv constant_gates() {
  SAGEConv layer(
      SAGEConvOptions{.in_features = 2, .out_features = 1, .aggregator = Aggregator::kLstm});
  const c10::NoGradGuard no_grad;
  for (auto& parameter : layer->named_parameters()) parameter.value().zero_();
  layer->fc_neigh->weight[0][0].fill_(1);
  // Input, forget, candidate and output gates of the two units; 200 gives 1, -200 gives 0.
  const auto gates = at::tensor({0., 200., 200., -200., 0., 200., 200., 200.});
  layer->lstm->named_parameters()["bias_ih_l0"].copy_(gates);
  layer->to(test_device());
  return layer;
}

TEST(SageLstm, autocast_sums_the_gradients_of_all_steps_in_float32) {
  constexpr std::int64_t kFirst = 300, kSecond = 200;  // steps, in two buckets of degrees
  std::vector<std::int64_t> src(kFirst + kSecond, 0), dst(kFirst, 0);
  dst.resize(kFirst + kSecond, 1);
  const Topology g = topology_of(src, dst, 2, 2);
  for (const DTypeInfo& dtype : narrow_dtypes()) {
    SCOPED_TRACE(dtype.name);
    SAGEConv layer = constant_gates();
    at::Tensor out;
    {
      const amp::Autocast scope(test_device().type(), dtype.scalar);
      out = layer(g, at::ones({2, 2}, on_device(at::kFloat)));
    }
    // Every step gives unit 0's candidate the gradient 2048 * 1/2. Added up in bfloat16 it would
    // stop at 256 of them, in float16 beyond the largest number.
    out.backward(at::full_like(out, 2048));
    const double state = at::scalar_tensor(std::tanh(1.0), dtype.scalar).item<double>();
    const double steps = kFirst + kSecond;
    at::Tensor bias = at::zeros({8}, at::kDouble), received = at::zeros({8, 2}, at::kDouble);
    at::Tensor kept = at::zeros({8, 2}, at::kDouble);
    bias[4].fill_(1024 * steps);
    received[4].fill_(1024 * steps);
    kept[4][1].fill_(1024 * state * (steps - 2));  // a first step has no state before it
    const auto parameters = layer->lstm->named_parameters();
    EXPECT_TRUE(exact(parameters["bias_ih_l0"].grad(), bias));
    EXPECT_TRUE(exact(parameters["bias_hh_l0"].grad(), bias));
    EXPECT_TRUE(exact(parameters["weight_ih_l0"].grad(), received));
    EXPECT_TRUE(exact(parameters["weight_hh_l0"].grad(), kept));
  }
}

TEST(SageLstm, has_the_parameters_of_dgl) {
  const SAGEConv layer(
      SAGEConvOptions{.in_features = 5, .out_features = 4, .aggregator = Aggregator::kLstm});
  EXPECT_EQ(
      parameter_shapes(*layer),
      (std::set<std::string>{"fc_self.weight [4, 5]", "fc_self.bias [4]", "fc_neigh.weight [4, 5]",
                             "lstm.weight_ih_l0 [20, 5]", "lstm.weight_hh_l0 [20, 5]",
                             "lstm.bias_ih_l0 [20]", "lstm.bias_hh_l0 [20]"}));
}

TEST(SageLstm, edge_weights_of_another_shape_are_an_error) {
  const Topology g = mixed_degrees();
  for (const Aggregator aggregator : kAggregators) {
    SAGEConv layer = drawn({.in_features = 3, .out_features = 2, .aggregator = aggregator});
    const std::string text = error_of([&] {
      layer(g, uniform({6, 3}, at::kDouble, 12), at::ones({11}, on_device(at::kDouble)));
    });
    EXPECT_TRUE(mentions(text, "SAGEConv:expectedfloatingedge_weight[12]"));
  }
}

}  // namespace
}  // namespace mezzo::test::sage_lstm_test
