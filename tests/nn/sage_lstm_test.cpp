#include <set>

#include <c10/core/GradMode.h>

#include "mezzo/amp/autocast/autocast.h"
#include "mezzo/nn/conv/aggregation_layers.h"

#include "support/module_gradcheck.h"
#include "support/nn_reference.h"
#include "support/recurrent_reference.h"
#include "support/running_error.h"
#include "support/settings.h"

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

/// The messages times the factors of their edges.
at::Tensor weighted(const at::Tensor& messages, const at::Tensor& factors) {
  return messages * take(factors, Numbers::kGiven).unsqueeze(1);
}
Rounded weighted(const Rounded& messages, const at::Tensor& factors) {
  return messages * exactly(factors).reshape({-1, 1});
}

/// What `read` makes, [1, width], of the messages into each node in the order of their edges.
/// Number: at::Tensor in float64, or Rounded.
template <class Number, class Read>
Number define_aggregate(const Topology& g, const Number& sent, const at::Tensor& weight,
                        Read read) {
  std::vector<Number> rows;
  for (std::int64_t v = 0; v < g.num_dst(); ++v) {
    const at::Tensor edges = (g.dst() == v).nonzero().squeeze(1);
    Number messages = sent.index_select(0, g.src().to(at::kLong).index_select(0, edges));
    if (weight.defined()) messages = weighted(messages, weight.index_select(0, edges));
    rows.push_back(read(messages));
  }
  return cat(rows, 0);
}

/// The state after all messages, one after another; 0 without any.
template <class Number>
Number read_by_lstm(const SAGEConv& layer, const Number& messages) {
  const Number zeros = zero_rows(messages, 1, messages.size(1));
  std::pair<Number, Number> state(zeros, zeros);
  for (std::int64_t i = 0; i < messages.size(0); ++i) {
    state = define_lstm(*layer->lstm, "l0", messages.narrow(0, i, 1), state.first, state.second);
  }
  return state.first;
}

at::Tensor mean_or_zeros(const at::Tensor& messages) {
  return messages.size(0) > 0 ? messages.mean(0, true) : zero_rows(messages, 1, messages.size(1));
}

at::Tensor max_or_zeros(const at::Tensor& messages) {
  return messages.size(0) > 0 ? messages.amax(0, true) : zero_rows(messages, 1, messages.size(1));
}

/// The layer's aggregation of the messages into each node, in float64.
at::Tensor define_received(const SAGEConv& layer, const Topology& g, const at::Tensor& h,
                           const at::Tensor& weight) {
  const at::Tensor rows = take(h, Numbers::kGiven);
  switch (layer->options.aggregator) {
    case Aggregator::kGcn: {
      const auto sum = [](const at::Tensor& messages) { return messages.sum(0, true); };
      const at::Tensor own = rows.narrow(0, 0, g.num_dst());
      return (define_aggregate(g, rows, weight, sum) + own) / (g.in_degrees() + 1).unsqueeze(1);
    }
    case Aggregator::kMean:
      return define_aggregate(g, rows, weight, mean_or_zeros);
    case Aggregator::kPool: {
      const at::Tensor sent = applied(rows, layer->fc_pool->weight, layer->fc_pool->bias);
      return define_aggregate(g, sent.clamp_min(0), weight, max_or_zeros);
    }
    default:
      return define_aggregate(g, rows, weight, [&](const at::Tensor& messages) {
        return read_by_lstm(layer, messages);
      });
  }
}

/// What every aggregator but kGcn leads to.
template <class Number>
Number define_result(const SAGEConv& layer, const Number& received, const Number& own) {
  return applied(received, layer->fc_neigh->weight, {}) +
         applied(own, layer->fc_self->weight, layer->fc_self->bias);
}

at::Tensor define_layer(const SAGEConv& layer, const Topology& g, const at::Tensor& h,
                        const at::Tensor& weight = {}) {
  const at::Tensor received = define_received(layer, g, h, weight);
  if (layer->options.aggregator == Aggregator::kGcn) {
    return applied(received, layer->fc_neigh->weight, layer->bias);
  }
  return define_result(layer, received, take(h, Numbers::kGiven).narrow(0, 0, g.num_dst()));
}

TEST(SageLstm, equals_the_definition_with_and_without_edge_weights_for_every_aggregator) {
  const Topology rectangular = connected(9, 5, 20, 2);
  for (const Topology& g : {mixed_degrees(), rectangular}) {
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
  const at::Tensor expected = define_result(layer, define_received(layer, g, src, {}), dst);
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

/// What is not the layer: without what the LSTM gives, with the mean of the messages in its place,
/// with the messages in the other order, with the last of them alone, with factors of 1.
std::vector<at::Tensor> wrong_results(const SAGEConv& layer, const Topology& g, const at::Tensor& h,
                                      const at::Tensor& weight) {
  const at::Tensor rows = take(h, Numbers::kGiven);
  const auto result = [&](const at::Tensor& factors, const auto& read) {
    return define_result(layer, define_aggregate(g, rows, factors, read), rows);
  };
  const auto turned = [&](const at::Tensor& messages) {
    return read_by_lstm(layer, messages.flip(0));
  };
  const auto last = [&](const at::Tensor& messages) {
    const std::int64_t count = messages.size(0);
    return read_by_lstm(layer, count > 0 ? messages.narrow(0, count - 1, 1) : messages);
  };
  std::vector<at::Tensor> results = {define_result(layer, at::zeros_like(rows), rows),
                                     result(weight, mean_or_zeros), result(weight, turned),
                                     result(weight, last)};
  if (weight.defined()) results.push_back(define_layer(layer, g, h));
  return results;
}

TEST(SageLstm, stays_within_its_rounding_in_every_dtype_also_under_autocast) {
  const Topology g = mixed_degrees();
  for (const Setting& setting : settings()) {
    for (const bool has_weights : {false, true}) {
      SCOPED_TRACE(testing::Message() << setting.name() << ", edge weights " << has_weights);
      const at::ScalarType scalar = setting.dtype.scalar;
      SAGEConv layer =
          drawn({.in_features = 3, .out_features = 2, .aggregator = Aggregator::kLstm}, scalar);
      const at::Tensor h = uniform({6, 3}, scalar, 11);
      const at::Tensor weight = has_weights ? uniform({g.num_edges()}, scalar, 12) : at::Tensor();
      const auto read = [&](const Rounded& messages) { return read_by_lstm(layer, messages); };
      const Rounded rows = exactly(h);
      const Rounded expected = define_result(layer, define_aggregate(g, rows, weight, read), rows);
      const at::Tensor got = run_in(
          setting, *layer, [&](at::ScalarType dtype) { return layer(g, h.to(dtype), weight); });
      EXPECT_EQ(got.scalar_type(), scalar);
      EXPECT_TRUE(near(got, expected));
      for (const at::Tensor& wrong : wrong_results(layer, g, h, weight)) {
        EXPECT_FALSE(near(wrong, expected));
      }
      got.sum().backward();
      for (const auto& parameter : layer->named_parameters()) {
        EXPECT_TRUE(parameter.value().grad().isfinite().all().item<bool>()) << parameter.key();
      }
    }
  }
}

/// An LSTM of 2 units with only numbers that are exact in 16 bits. The gates are constants: unit 0
/// keeps a cell of 0 and multiplies its candidate by 1/2; unit 1, which nothing after it reads, has
/// the state tanh(1) from the first step on.
SAGEConv constant_gates() {
  SAGEConv layer(2, 1, {.aggregator = Aggregator::kLstm});
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
    // Every step gives unit 0's candidate the gradient 2048 * 1/2. A sum in bfloat16 would stop at
    // 256 of them; a sum in float16 would overflow.
    out.backward(at::full_like(out, 2048));
    const double state = at::scalar_tensor(std::tanh(1.0), dtype.scalar).item<double>();
    const double steps = kFirst + kSecond;
    at::Tensor bias = at::zeros({8}, at::kDouble), received = at::zeros({8, 2}, at::kDouble);
    at::Tensor expected_hidden = at::zeros({8, 2}, at::kDouble);
    bias[4].fill_(1024 * steps);
    received[4].fill_(1024 * steps);
    expected_hidden[4][1].fill_(1024 * state * (steps - 2));  // a first step has no state before it
    const auto parameters = layer->lstm->named_parameters();
    EXPECT_TRUE(exact(parameters["bias_ih_l0"].grad(), bias));
    EXPECT_TRUE(exact(parameters["bias_hh_l0"].grad(), bias));
    EXPECT_TRUE(exact(parameters["weight_ih_l0"].grad(), received));
    EXPECT_TRUE(exact(parameters["weight_hh_l0"].grad(), expected_hidden));
  }
}

TEST(SageLstm, has_the_parameters_of_dgl) {
  const SAGEConv layer(5, 4, {.aggregator = Aggregator::kLstm});
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
    EXPECT_ERROR(
        "SAGEConv:expectedfloatingedge_weight[12]",
        layer(g, uniform({6, 3}, at::kDouble, 12), at::ones({11}, on_device(at::kDouble))));
  }
}

}  // namespace
}  // namespace mezzo::test::sage_lstm_test
