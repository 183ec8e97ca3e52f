#include "mezzo/nn/conv/gated_graph_conv.h"

#include <set>
#include <tuple>

#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/rnn.h>

#include "mezzo/graph/topology.h"
#include "mezzo/nn/jumping_knowledge.h"

#include "support/module_gradcheck.h"
#include "support/nn_reference.h"
#include "support/recurrent_reference.h"
#include "support/running_error.h"
#include "support/settings.h"

namespace mezzo::test::gated_graph_conv_test {
namespace {

using nn::GatedGraphConv;
using nn::GatedGraphConvOptions;
using nn::JumpingKnowledge;
using nn::JumpingKnowledgeOptions;
using nn::JumpingMode;

GatedGraphConv make(std::int64_t in, std::int64_t out, GatedGraphConvOptions options = {},
                    at::ScalarType stored = at::kDouble) {
  GatedGraphConv layer(in, out, std::move(options));
  randomise(*layer, stored, 1, stored);
  return layer;
}

/// For each type [N, N]: the number of its edges from column to row. One type if there are no
/// `edge_types`.
std::vector<at::Tensor> edges_by_type(const GatedGraphConv& layer, const Topology& topology,
                                      const at::Tensor& edge_types) {
  if (!edge_types.defined()) return {adjacency(topology)};
  std::vector<at::Tensor> edges;
  for (std::int64_t type = 0; type < layer->options.num_edge_types; ++type) {
    edges.push_back(adjacency(topology, edge_types.eq(type).to(at::kDouble)));
  }
  return edges;
}

/// Defined for at::Tensor or Rounded numbers, by the edges of each type.
template <class Number>
Number define(const GatedGraphConv& layer, const std::vector<at::Tensor>& edges, const Number& h) {
  const std::int64_t num_nodes = h.size(0), width = layer->options.out_features;
  const Number padding = zero_rows(h, num_nodes, width - h.size(1));
  Number state = cat(std::vector<Number>{h, padding}, 1);
  for (std::int64_t step = 0; step < layer->options.num_steps; ++step) {
    Number received = zero_rows(h, num_nodes, width);
    for (std::size_t type = 0; type < edges.size(); ++type) {
      const auto& linear = layer->linears->at<torch::nn::LinearImpl>(type);
      received = received + matmul(edges[type], applied(state, linear.weight, linear.bias));
    }
    state = define_gru(*layer->gru, received, state);
  }
  return state;
}

at::Tensor define(const GatedGraphConv& layer, const Topology& topology, const at::Tensor& h,
                  const at::Tensor& edge_types = {}) {
  return define(layer, edges_by_type(layer, topology, edge_types), take(h, Numbers::kGiven));
}

at::Tensor random_types(const Topology& topology, std::int64_t count, std::uint64_t seed) {
  return integers({topology.num_edges()}, at::kLong, seed, 0, count - 1);
}

TEST(GatedGraphConv, equals_the_definition_for_every_number_of_types_and_steps) {
  const Topology g = random_topology(12, 12, 50, 1);
  for (const std::int64_t types : {1, 3}) {
    for (const std::int64_t steps : {1, 4}) {
      for (const auto& [in, out] : {std::pair(3, 5), std::pair(4, 4)}) {
        SCOPED_TRACE(testing::Message() << types << " types, " << steps << " steps, " << in);
        GatedGraphConv layer = make(in, out, {.num_steps = steps, .num_edge_types = types});
        const at::Tensor h = uniform({12, in}, at::kDouble, 2);
        const at::Tensor edge_types = random_types(g, types, 3);
        EXPECT_TRUE(near_terms(layer(g, h, edge_types), define(layer, g, h, edge_types), 1e4));
        if (types == 1) {
          EXPECT_TRUE(same_bits(layer(g, h), layer(g, h, edge_types)));
        }
      }
    }
  }
}

TEST(GatedGraphConv, the_cell_is_that_of_libtorch) {
  for (const bool bias : {true, false}) {
    GatedGraphConv layer = make(3, 3, {.bias = bias});
    const Topology g = topology_of({}, {}, 5, 5);
    const at::Tensor h = uniform({5, 3}, at::kDouble, 4);
    EXPECT_TRUE(near_terms(layer(g, h), layer->gru(at::zeros_like(h), h).detach(), 40));
  }
}

TEST(GatedGraphConv, follows_changed_types_and_graphs) {
  const Topology g = random_topology(9, 9, 30, 5), other = random_topology(9, 9, 30, 6);
  GatedGraphConv layer = make(2, 3, {.num_edge_types = 4});
  const at::Tensor h = uniform({9, 2}, at::kDouble, 7);
  at::Tensor types = random_types(g, 4, 8);
  const auto check = [&](const Topology& topology) {
    EXPECT_TRUE(near_terms(layer(topology, h, types), define(layer, topology, h, types), 1e3));
  };
  check(g);
  check(g);
  check(other);
  types.fill_(2);  // in place, and three types have no edges
  check(other);
  types = types.to(at::kInt);
  check(other);
}

/// What is not the layer: without messages, with the edges of one type, with their ends swapped,
/// with the mean of the messages.
std::vector<at::Tensor> wrong_results(const GatedGraphConv& layer,
                                      const std::vector<at::Tensor>& edges, const at::Tensor& h) {
  const at::Tensor all = at::stack(edges).sum(0);
  const at::Tensor degrees = all.sum(1).clamp_min(1).unsqueeze(1);
  std::vector<at::Tensor> none, swapped, mean;
  for (const at::Tensor& of_type : edges) {
    none.push_back(at::zeros_like(of_type));
    swapped.push_back(of_type.t());
    mean.push_back(of_type / degrees);
  }
  const std::vector<at::Tensor> one_type = {all};
  std::vector<at::Tensor> results;
  for (const auto& wrong : {none, one_type, swapped, mean}) {
    results.push_back(define(layer, wrong, take(h, Numbers::kGiven)));
  }
  return results;
}

TEST(GatedGraphConv, stays_within_its_rounding_in_every_dtype_also_under_autocast) {
  const Topology g = connected(10, 10, 10, 9);
  const at::Tensor types = random_types(g, 2, 10);
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(setting.name());
    const at::ScalarType scalar = setting.dtype.scalar;
    GatedGraphConv layer = make(2, 3, {.num_edge_types = 2}, scalar);
    const at::Tensor h = uniform({10, 2}, scalar, 11);
    const std::vector<at::Tensor> edges = edges_by_type(layer, g, types);
    const Rounded expected = define(layer, edges, exactly(h));
    const at::Tensor got =
        run_in(setting, *layer, [&](at::ScalarType dtype) { return layer(g, h.to(dtype), types); });
    EXPECT_EQ(got.scalar_type(), scalar);
    EXPECT_TRUE(near(got, expected));
    for (const at::Tensor& wrong : wrong_results(layer, edges, h)) {
      EXPECT_FALSE(near(wrong, expected));
    }
    got.sum().backward();
    for (const auto& parameter : layer->named_parameters()) {
      EXPECT_TRUE(parameter.value().grad().isfinite().all().item<bool>()) << parameter.key();
    }
  }
}

TEST(GatedGraphConv, gradients_agree_with_differences) {
  const Topology g = connected(5, 5, 6, 12);
  for (const std::int64_t types : {1, 2}) {
    GatedGraphConv layer = make(2, 3, {.num_steps = 2, .num_edge_types = types});
    scale_parameters(*layer, 0.5);  // keeps the gates from saturating
    at::Tensor edge_types = at::arange(g.num_edges(), on_device()).remainder(types);
    EXPECT_TRUE(module_gradcheck(
        *layer,
        [&](const std::vector<at::Tensor>& inputs) { return layer(g, inputs[0], edge_types); },
        {uniform({5, 2}, at::kDouble, 13)}));
  }
}

TEST(GatedGraphConv, takes_sparse_rows) {
  const Topology g = random_topology(8, 8, 20, 14);
  GatedGraphConv layer = make(4, 4, {.num_edge_types = 2});
  const at::Tensor h = sparse_numbers({8, 4}, 15), types = random_types(g, 2, 16);
  EXPECT_TRUE(same_bits(layer(g, h.to_sparse_csr(), types), layer(g, h, types)));
}

TEST(GatedGraphConv, runs_without_edges_and_without_nodes_in_every_dtype) {
  const at::Tensor types = at::empty({0}, on_device(at::kLong));
  for_each_bare_graph([&](const Topology& bare, at::ScalarType dtype) {
    GatedGraphConv layer = make(4, 4, {.num_edge_types = 2}, dtype);
    const at::Tensor h = leaf(uniform({bare.num_src(), 4}, dtype, 17));
    const at::Tensor got = layer(bare, h, types);
    EXPECT_EQ(got.scalar_type(), dtype);
    EXPECT_TRUE(near(got, define(layer, edges_by_type(layer, bare, types), exactly(h))));
    got.sum().backward();
    EXPECT_EQ(h.grad().sizes(), h.sizes());
  });
}

TEST(GatedGraphConv, has_the_parameters_of_dgl) {
  const GatedGraphConv layer(3, 30, {.num_steps = 2, .num_edge_types = 2});
  EXPECT_EQ(parameter_shapes(*layer),
            (std::set<std::string>{"linears.0.weight [30, 30]", "linears.0.bias [30]",
                                   "linears.1.weight [30, 30]", "linears.1.bias [30]",
                                   "gru.weight_ih [90, 30]", "gru.weight_hh [90, 30]",
                                   "gru.bias_ih [90]", "gru.bias_hh [90]"}));
  for (std::size_t type = 0; type < layer->linears->size(); ++type) {
    const auto& linear = layer->linears->at<torch::nn::LinearImpl>(type);
    EXPECT_TRUE(exact(linear.bias, at::zeros({30})));
    // Normal with the variance 2 * 2 / (in + out); of 900 draws the sample's variance has a
    // relative standard deviation of sqrt(2 / 900).
    const double variance = linear.weight.detach().square().mean().item<double>();
    const double expected = 2.0 * 2 / (30 + 30), deviation = std::sqrt(2.0 / 900);
    EXPECT_LT(std::abs(variance / expected - 1), 6 * deviation);
  }
  EXPECT_LE(layer->gru->weight_ih.abs().max().item<double>(), 1 / std::sqrt(30.0));
  const GatedGraphConv bare(2, 2, {.bias = false});
  EXPECT_EQ(parameter_shapes(*bare),
            (std::set<std::string>{"linears.0.weight [2, 2]", "linears.0.bias [2]",
                                   "gru.weight_ih [6, 2]", "gru.weight_hh [6, 2]"}));
}

TEST(GatedGraphConv, wrong_arguments_are_errors_that_name_them) {
  const auto option_error = [](GatedGraphConvOptions options) {
    return error_of([&] { GatedGraphConv layer(options); });
  };
  EXPECT_TRUE(mentions(option_error({.out_features = 3}), "in_features"));
  EXPECT_TRUE(mentions(option_error({.in_features = 4, .out_features = 3}), "out_features"));
  EXPECT_TRUE(
      mentions(option_error({.in_features = 2, .out_features = 3, .num_steps = 0}), "num_steps"));
  EXPECT_TRUE(mentions(option_error({.in_features = 2, .out_features = 3, .num_edge_types = 0}),
                       "num_edge_types"));
  const Topology g = connected(5, 5, 10, 18);
  GatedGraphConv layer = make(2, 3, {.num_edge_types = 2});
  const at::Tensor h = at::zeros({5, 2}, on_device(at::kDouble)),
                   types = at::zeros({15}, on_device(at::kLong));
  const auto error = [&](const Topology& topology, const at::Tensor& rows,
                         const at::Tensor& edge_types) {
    return error_of([&] { layer(topology, rows, edge_types); });
  };
  EXPECT_TRUE(mentions(error(g, at::zeros({5, 3}, on_device(at::kDouble)), types), "[5,2]"));
  EXPECT_TRUE(mentions(error(g, {}, types), "undefined"));
  EXPECT_TRUE(mentions(error(g, h, {}), "edge_types[15],becausethereare2types,gotnone"));
  EXPECT_TRUE(mentions(error(g, h, at::zeros({14}, on_device(at::kLong))), "edge_types[15]"));
  EXPECT_TRUE(mentions(error(g, h, at::zeros({15, 1}, on_device(at::kLong))), "edge_types[15]"));
  EXPECT_TRUE(mentions(error(g, h, at::zeros({15}, on_device())), "gotfloat32[15]"));
  EXPECT_TRUE(mentions(error(g, h, types + 2), "edge_typesin[0,2),got2"));
  EXPECT_TRUE(mentions(error(g, h, types - 1), "edge_typesin[0,2),got-1"));
  const Topology bipartite = random_topology(5, 4, 15, 19);
  EXPECT_TRUE(mentions(error(bipartite, h, types), "asmanysourcesasdestinations,got5and4"));
}

/// The weighted mean of the layers, by steps of a bidirectional LSTM: of at::Tensor, in float64, or
/// of Rounded numbers.
template <class Number>
Number define(const JumpingKnowledge& module, const std::vector<Number>& x) {
  const std::size_t count = x.size();
  const std::int64_t hidden = module->options.num_layers * module->options.in_features / 2;
  const Number zeros = zero_rows(x[0], x[0].size(0), hidden);
  std::vector<Number> forward(count, zeros), backward(count, zeros), scores;
  std::pair<Number, Number> ahead(zeros, zeros), back(zeros, zeros);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t j = count - 1 - i;
    ahead = define_lstm(*module->lstm, "l0", x[i], ahead.first, ahead.second);
    back = define_lstm(*module->lstm, "l0_reverse", x[j], back.first, back.second);
    forward[i] = ahead.first;
    backward[j] = back.first;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const Number states = cat(std::vector<Number>{forward[i], backward[i]}, 1);
    scores.push_back(applied(states, module->att->weight, module->att->bias));
  }
  const Number shares =
      softmax_by(cat(scores, 1), [](const at::Tensor& powers) { return powers.sum(1, true); });
  Number mean = x[0] * shares.narrow(1, 0, 1);
  for (std::size_t i = 1; i < count; ++i) {
    mean = mean + x[i] * shares.narrow(1, static_cast<std::int64_t>(i), 1);
  }
  return mean;
}

std::vector<at::Tensor> random_layers(std::size_t count, std::int64_t num_nodes, std::int64_t width,
                                      at::ScalarType dtype) {
  std::vector<at::Tensor> layers;
  for (std::size_t i = 0; i < count; ++i) {
    layers.push_back(uniform({num_nodes, width}, dtype, 20 + i));
  }
  return layers;
}

TEST(JumpingKnowledge, concatenates_the_layers_in_every_dtype) {
  for (const DTypeInfo& dtype : dtypes()) {
    JumpingKnowledge module;
    EXPECT_TRUE(module->parameters().empty());
    std::vector<at::Tensor> layers = random_layers(2, 5, 3, dtype.scalar);
    layers.push_back(uniform({5, 4}, dtype.scalar, 1));
    const at::Tensor got = module(layers);
    EXPECT_TRUE(same_bits(got.narrow(1, 0, 3), layers[0]));
    EXPECT_TRUE(same_bits(got.narrow(1, 3, 3), layers[1]));
    EXPECT_TRUE(same_bits(got.narrow(1, 6, 4), layers[2]));
    EXPECT_EQ(got.size(1), 10);
  }
}

TEST(JumpingKnowledge, takes_the_maximum_and_sends_the_gradient_to_it) {
  for (const DTypeInfo& dtype : dtypes()) {
    JumpingKnowledge module(JumpingKnowledgeOptions{.mode = JumpingMode::kMax});
    const at::Tensor a = leaf(numbers({1, 5, 2}, dtype.scalar).view({3, 1}));
    const at::Tensor b = leaf(numbers({4, -1, 2}, dtype.scalar).view({3, 1}));
    const at::Tensor got = module(std::vector<at::Tensor>{a, b});
    EXPECT_TRUE(same_bits(got, numbers({4, 5, 2}, dtype.scalar).view({3, 1})));
    got.sum().backward();
    EXPECT_TRUE(exact(a.grad(), numbers({0, 1, 1}).view({3, 1})));  // the first of equal ones
    EXPECT_TRUE(exact(b.grad(), numbers({1, 0, 0}).view({3, 1})));
  }
}

TEST(JumpingKnowledge, attends_by_a_bidirectional_lstm) {
  for (const std::size_t count : {1U, 2U, 5U}) {
    JumpingKnowledge module(
        JumpingKnowledgeOptions{.mode = JumpingMode::kLstm, .in_features = 3, .num_layers = 3});
    randomise(*module, at::kDouble);
    const std::vector<at::Tensor> layers = random_layers(count, 6, 3, at::kDouble);
    EXPECT_TRUE(near_terms(module(layers), define(module, layers), 200));
    const auto libtorch = std::get<0>(module->lstm(at::stack(layers, 1)));
    const at::Tensor shares = at::softmax(module->att(libtorch), 1);
    EXPECT_TRUE(near_terms(module(layers), (at::stack(layers, 1) * shares).sum(1), 200));
  }
}

/// Results of wrong definitions: equal shares, steps in the other order, states of one direction.
/// Changes the module.
std::vector<at::Tensor> wrong_results(JumpingKnowledge& module,
                                      const std::vector<at::Tensor>& layers) {
  std::vector<at::Tensor> in_float64;
  for (const at::Tensor& layer : layers) in_float64.push_back(take(layer, Numbers::kGiven));
  const std::vector<at::Tensor> turned(in_float64.rbegin(), in_float64.rend());
  std::vector<at::Tensor> results = {at::stack(in_float64).mean(0), define(module, turned)};
  at::Tensor weight = module->att->weight.detach().clone();
  const std::int64_t half = weight.size(1) / 2;
  weight.narrow(1, half, half).zero_();
  module->att->weight.set_data(weight);
  results.push_back(define(module, in_float64));
  return results;
}

TEST(JumpingKnowledge, attention_stays_within_its_rounding_in_every_dtype_also_under_autocast) {
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(setting.name());
    const at::ScalarType scalar = setting.dtype.scalar;
    JumpingKnowledge module(
        JumpingKnowledgeOptions{.mode = JumpingMode::kLstm, .in_features = 2, .num_layers = 2});
    randomise(*module, scalar, 1, scalar);
    scale_parameters(*module->lstm, 2);  // so that the shares are far from equal
    scale_parameters(*module->att, 4);
    std::vector<at::Tensor> layers;
    std::vector<Rounded> exact_layers;
    for (const at::Tensor& layer : random_layers(2, 20, 2, scalar)) {
      layers.push_back(2 * layer);
      exact_layers.push_back(exactly(layers.back()));
    }
    const Rounded expected = define(module, exact_layers);
    const at::Tensor got = run_in(setting, *module, [&](at::ScalarType dtype) {
      // Under autocast float32, promoted together with the 16-bit one.
      return module(std::vector<at::Tensor>{layers[0].to(dtype), layers[1]});
    });
    EXPECT_EQ(got.scalar_type(), setting.autocast ? at::kFloat : scalar);
    EXPECT_TRUE(near(got, expected));
    got.sum().backward();
    for (const auto& parameter : module->named_parameters()) {
      EXPECT_TRUE(parameter.value().grad().isfinite().all().item<bool>()) << parameter.key();
    }
    for (const at::Tensor& wrong : wrong_results(module, layers)) {
      EXPECT_FALSE(near(wrong, expected));
    }
  }
}

TEST(JumpingKnowledge, gradients_of_the_attention_agree_with_differences) {
  JumpingKnowledge module(
      JumpingKnowledgeOptions{.mode = JumpingMode::kLstm, .in_features = 2, .num_layers = 2});
  randomise(*module, at::kDouble);
  EXPECT_TRUE(module_gradcheck(
      *module, [&](const std::vector<at::Tensor>& inputs) { return module(inputs); },
      random_layers(2, 3, 2, at::kDouble)));
}

TEST(JumpingKnowledge, has_the_parameters_of_dgl) {
  const JumpingKnowledge module(
      JumpingKnowledgeOptions{.mode = JumpingMode::kLstm, .in_features = 5, .num_layers = 3});
  std::set<std::string> expected = {"att.weight [1, 14]", "att.bias [1]"};
  for (const std::string suffix : {"l0", "l0_reverse"}) {
    expected.insert("lstm.weight_ih_" + suffix + " [28, 5]");
    expected.insert("lstm.weight_hh_" + suffix + " [28, 7]");
    expected.insert("lstm.bias_ih_" + suffix + " [28]");
    expected.insert("lstm.bias_hh_" + suffix + " [28]");
  }
  EXPECT_EQ(parameter_shapes(*module), expected);
}

TEST(JumpingKnowledge, runs_without_nodes_in_every_dtype) {
  for (const DTypeInfo& dtype : dtypes()) {
    const at::Tensor none = at::zeros({0, 4}, on_device(dtype.scalar));
    for (const JumpingMode mode : {JumpingMode::kCat, JumpingMode::kMax, JumpingMode::kLstm}) {
      JumpingKnowledge module(
          JumpingKnowledgeOptions{.mode = mode, .in_features = 4, .num_layers = 2});
      module->to(test_device(), dtype.scalar);
      const at::Tensor got = module(std::vector<at::Tensor>(2, none));
      EXPECT_EQ(got.scalar_type(), dtype.scalar);
      EXPECT_EQ(got.size(0), 0);
      EXPECT_EQ(got.size(1), mode == JumpingMode::kCat ? 8 : 4);
    }
  }
}

TEST(JumpingKnowledge, wrong_arguments_are_errors_that_name_them) {
  const auto option_error = [](JumpingKnowledgeOptions options) {
    return error_of([&] { JumpingKnowledge module(options); });
  };
  EXPECT_TRUE(mentions(option_error({.mode = JumpingMode::kLstm, .num_layers = 2}), "in_features"));
  EXPECT_TRUE(mentions(option_error({.mode = JumpingMode::kLstm, .in_features = 2}), "num_layers"));
  EXPECT_TRUE(
      mentions(option_error({.mode = JumpingMode::kLstm, .in_features = 1, .num_layers = 1}),
               "num_layers*in_features/2"));
  const auto error = [](JumpingMode mode, const std::vector<at::Tensor>& layers) {
    JumpingKnowledge module(
        JumpingKnowledgeOptions{.mode = mode, .in_features = 4, .num_layers = 2});
    return error_of([&] { module(layers); });
  };
  const at::Tensor x = at::zeros({3, 4}, on_device());
  EXPECT_TRUE(mentions(error(JumpingMode::kCat, {}), "atleastonelayer,gotnone"));
  EXPECT_TRUE(mentions(error(JumpingMode::kCat, {x, at::zeros({2, 4}, on_device())}), "layer1"));
  EXPECT_TRUE(mentions(error(JumpingMode::kMax, {x, at::zeros({3, 5}, on_device())}), "layer1"));
  EXPECT_TRUE(mentions(error(JumpingMode::kMax, {x, at::Tensor()}), "layer1"));
  EXPECT_TRUE(mentions(error(JumpingMode::kCat, {at::zeros({3}, on_device()), x}), "layer0"));
  EXPECT_TRUE(
      mentions(error(JumpingMode::kCat, {at::zeros({3, 4}, on_device(at::kLong))}), "layer0"));
  EXPECT_TRUE(mentions(error(JumpingMode::kLstm, {at::zeros({3, 5}, on_device())}), "[N,4]"));
}

}  // namespace
}  // namespace mezzo::test::gated_graph_conv_test
