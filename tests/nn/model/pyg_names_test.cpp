// nn::load_state_dict of files that PyG wrote: the layers compute PyG's formulas.
#include "mezzo/nn/model/pyg_names.h"

#include <map>
#include <memory>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "mezzo/nn/conv/aggregation_layers.h"
#include "mezzo/nn/conv/attention_layers.h"
#include "mezzo/nn/conv/gated_graph_conv.h"
#include "mezzo/nn/conv/graph_conv.h"
#include "mezzo/nn/conv/propagation_layers.h"
#include "mezzo/nn/model/model.h"
#include "mezzo/nn/model/state_dict.h"

#include "support/edge_attention.h"
#include "support/nn_reference.h"
#include "support/npy_writer.h"
#include "support/saved_state.h"

namespace mezzo::test::pyg_names_test {
namespace {

using Shapes = std::vector<std::pair<std::string, std::vector<std::int64_t>>>;
using State = std::map<std::string, at::Tensor>;

constexpr std::int64_t kNodes = 9, kIn = 5, kOut = 3, kHeads = 2, kWidth = kHeads * kOut;

/// Random float64 numbers under PyG's names.
State state_of(const Shapes& shapes) {
  State state;
  std::uint64_t seed = 10;
  for (const auto& [name, sizes] : shapes) state[name] = uniform(sizes, at::kDouble, ++seed);
  return state;
}

State with(State state, const std::string& name, const at::Tensor& tensor) {
  state[name] = tensor;
  return state;
}

State without(State state, const std::string& name) {
  state.erase(name);
  return state;
}

/// The module in float64, with this state.
template <class Module>
Module loaded(Module module, const State& state) {
  const TempFolder folder;
  module->to(test_device());
  module->to(at::kDouble);
  nn::load_state_dict(*module,
                      folder.write("model.pt", saved(Entries(state.begin(), state.end()))));
  module->eval();
  return module;
}

template <class Module>
std::string refusal(const Module& module, const State& state) {
  return error_of([&] { loaded(module, state); });
}

/// A directed graph with a loop at each node, as PyG's layers add them.
Topology graph() {
  return connected(kNodes, kNodes, 30, 1);
}

at::Tensor features() {
  return uniform({kNodes, kIn}, at::kDouble, 2);
}

/// x W^T + b of PyG's linear part `name`; the bias may be missing.
at::Tensor linear_part(const State& state, const std::string& name, const at::Tensor& x) {
  const auto bias = state.find(name + ".bias");
  return dense_linear(x, state.at(name + ".weight"),
                      bias == state.end() ? at::Tensor() : bias->second, Numbers::kGiven);
}

/// Rows at the ends of the edges: [E, ...].
at::Tensor at_sources(const Topology& g, const at::Tensor& rows) {
  return rows.index_select(0, g.src().to(at::kLong));
}
at::Tensor at_destinations(const Topology& g, const at::Tensor& rows) {
  return rows.index_select(0, g.dst().to(at::kLong));
}

/// Concatenated or averaged heads, and PyG's residual and bias of the result.
at::Tensor finished(const at::Tensor& heads, const State& state, const at::Tensor& x, bool concat) {
  at::Tensor out = concat ? heads.flatten(1) : heads.mean(1);
  if (state.count("res.weight") != 0) out = out + linear_part(state, "res", x);
  return state.count("bias") == 0 ? out : out + state.at("bias");
}

at::Tensor gcn_of_pyg(const State& state, const Topology& g, const at::Tensor& x) {
  const at::Tensor a = adjacency(g), scale = a.sum(1).pow(-0.5);
  return at::matmul(scale.unsqueeze(1) * a * scale, linear_part(state, "lin", x)) +
         state.at("bias");
}

at::Tensor sage_of_pyg(const State& state, const Topology& g, const at::Tensor& x) {
  const at::Tensor a = adjacency(g);
  const at::Tensor mean = at::matmul(a, x) / a.sum(1, /*keepdim=*/true).clamp_min(1);
  return linear_part(state, "lin_l", mean) + linear_part(state, "lin_r", x);
}

at::Tensor gat_of_pyg(const State& state, const Topology& g, const at::Tensor& x, bool concat) {
  const at::Tensor z = linear_part(state, state.count("lin.weight") != 0 ? "lin" : "lin_src", x);
  const auto score = [&](const std::string& name) {
    return (z.view({kNodes, kHeads, kOut}) * state.at(name)).sum(-1);
  };
  const at::Tensor scores =
      at::leaky_relu(at_sources(g, score("att_src")) + at_destinations(g, score("att_dst")), 0.2);
  return finished(attended(g, scores, at_sources(g, z)), state, x, concat);
}

at::Tensor gatv2_of_pyg(const State& state, const Topology& g, const at::Tensor& x, bool concat) {
  const at::Tensor sent = at_sources(g, linear_part(state, "lin_l", x));
  const at::Tensor received = at_destinations(g, linear_part(state, "lin_r", x));
  const at::Tensor rows = at::leaky_relu(sent + received, 0.2).view({-1, kHeads, kOut});
  const at::Tensor heads = attended(g, (rows * state.at("att")).sum(-1), sent);
  return finished(heads, state, x, concat);
}

/// The rounding steps of attention: a logit has kOut products of sums of rows, each of kIn products
/// and three biases.
double attention_terms(const Topology& g) {
  const double rows = static_cast<double>(2 * kIn + 4);
  return 2 * rows * rows * static_cast<double>(kOut) + max_in_degree(g) + 8;
}

TEST(PygNames, gcn_conv_equals_pyg_on_undirected_graphs_and_with_weights_by_in_degrees) {
  const State state = state_of({{"bias", {kOut}}, {"lin.weight", {kOut, kIn}}});
  const Topology g = graph(), back = g.reverse();
  const Topology both = Topology::from_coo(at::cat({g.src(), back.src()}),
                                           at::cat({g.dst(), back.dst()}), kNodes, kNodes);
  const at::Tensor x = features();
  const auto terms = static_cast<double>(kIn + 1) * (max_in_degree(both) + 4);
  auto layer = loaded(nn::GraphConv(kIn, kOut), state);
  EXPECT_TRUE(near_terms(layer->forward(both, x), gcn_of_pyg(state, both, x), terms));

  auto plain = loaded(nn::GraphConv(kIn, kOut, {.norm = nn::DegreeNorm::kNone}), state);
  const at::Tensor scale = g.in_degrees().to(at::kDouble).rsqrt();
  const at::Tensor weight = at_sources(g, scale) * at_destinations(g, scale);
  EXPECT_TRUE(near_terms(plain->forward(g, x, weight), gcn_of_pyg(state, g, x), terms));
}

TEST(PygNames, sage_conv_equals_pyg) {
  const Shapes shapes = {
      {"lin_l.bias", {kOut}}, {"lin_l.weight", {kOut, kIn}}, {"lin_r.weight", {kOut, kIn}}};
  const Topology g = graph();
  const at::Tensor x = features();
  const auto terms = static_cast<double>(2 * kIn) * (max_in_degree(g) + 2);
  const State state = state_of(shapes);
  EXPECT_TRUE(near_terms(loaded(nn::SAGEConv(kIn, kOut), state)->forward(g, x),
                         sage_of_pyg(state, g, x), terms));

  Shapes projected = shapes;  // aggr="max", project=True
  projected.insert(projected.end(), {{"lin.weight", {kIn, kIn}}, {"lin.bias", {kIn}}});
  const State pool = state_of(projected);
  const at::Tensor sent = linear_part(pool, "lin", x).relu();
  at::Tensor largest = at::zeros_like(sent);
  for (std::int64_t v = 0; v < kNodes; ++v) {
    largest[v] = sent.index_select(0, sources_of(g, v)).amax(0);
  }
  const auto layer = nn::SAGEConv(kIn, kOut, {.aggregator = nn::Aggregator::kPool});
  EXPECT_TRUE(near_terms(loaded(layer, pool)->forward(g, x),
                         linear_part(pool, "lin_l", largest) + linear_part(pool, "lin_r", x),
                         static_cast<double>(kIn + 1) * terms));
}

TEST(PygNames, gat_conv_equals_pyg) {
  const Shapes shapes = {{"att_src", {1, kHeads, kOut}},
                         {"att_dst", {1, kHeads, kOut}},
                         {"lin.weight", {kWidth, kIn}}};
  const Topology g = graph();
  const at::Tensor x = features();
  const auto expect_equal = [&](const State& state, bool residual, bool concat) {
    auto layer = loaded(nn::GATConv(kIn, kOut, {.num_heads = kHeads, .residual = residual}), state);
    const at::Tensor out = layer->forward(g, x);
    EXPECT_TRUE(near_terms(concat ? out.flatten(1) : out.mean(1), gat_of_pyg(state, g, x, concat),
                           attention_terms(g)));
  };
  const State state = state_of(shapes);
  const State concat = with(state, "bias", uniform({kWidth}, at::kDouble, 3));
  expect_equal(concat, false, true);
  expect_equal(with(concat, "res.weight", uniform({kWidth, kIn}, at::kDouble, 4)), true, true);
  const State mean = with(state, "bias", uniform({kOut}, at::kDouble, 3));
  expect_equal(mean, false, false);
  expect_equal(with(mean, "res.weight", uniform({kOut, kIn}, at::kDouble, 4)), true, false);
  // Older versions of PyG store the linear part under two names.
  const at::Tensor weight = state.at("lin.weight");
  const State older = without(with(concat, "lin_src.weight", weight), "lin.weight");
  expect_equal(with(older, "lin_dst.weight", weight.clone()), false, true);
  EXPECT_TRUE(
      mentions(refusal(nn::GATConv(kIn, kOut, {.num_heads = kHeads}),
                       with(older, "lin_dst.weight", weight + 1)),
               "'fc.weight(inthefile:lin_src.weight,lin_dst.weight)'asthemodule'sfloat64[6,5],"
               "gotfloat64[6,5]andfloat64[6,5],whichdonotfittogether"));
}

TEST(PygNames, gat_conv_has_two_linear_parts_for_pairs) {
  const State state = state_of({{"att_dst", {1, kHeads, kOut}},
                                {"att_src", {1, kHeads, kOut}},
                                {"bias", {kWidth}},
                                {"lin_dst.weight", {kWidth, 4}},
                                {"lin_src.weight", {kWidth, kIn}}});
  const auto layer =
      loaded(nn::GATConv(kIn, kOut, {.in_features_dst = 4, .num_heads = kHeads}), state);
  EXPECT_TRUE(exact(layer->fc_src->weight, state.at("lin_src.weight")));
  EXPECT_TRUE(exact(layer->fc_dst->weight, state.at("lin_dst.weight")));
  EXPECT_TRUE(exact(layer->attn_l, state.at("att_src")));
  EXPECT_TRUE(exact(layer->attn_r, state.at("att_dst")));
}

TEST(PygNames, gatv2_conv_equals_pyg_with_the_bias_of_the_result_in_others) {
  const Shapes weights = {
      {"att", {1, kHeads, kOut}}, {"lin_l.weight", {kWidth, kIn}}, {"lin_r.weight", {kWidth, kIn}}};
  Shapes shapes = weights;
  shapes.insert(shapes.end(), {{"lin_l.bias", {kWidth}}, {"lin_r.bias", {kWidth}}});
  const Topology g = graph();
  const at::Tensor x = features();
  const auto expect_equal = [&](const State& state, nn::GATv2ConvOptions options, bool concat) {
    options.in_features = kIn;
    options.out_features = kOut;
    options.num_heads = kHeads;
    const at::Tensor out = loaded(nn::GATv2Conv(options), state)->forward(g, x);
    EXPECT_TRUE(near_terms(concat ? out.flatten(1) : out.mean(1), gatv2_of_pyg(state, g, x, concat),
                           attention_terms(g)));
  };
  const State state = state_of(shapes);
  const State concat = with(state, "bias", uniform({kWidth}, at::kDouble, 3));
  expect_equal(concat, {}, true);
  expect_equal(with(state, "bias", uniform({kOut}, at::kDouble, 3)), {}, false);
  expect_equal(with(concat, "res.weight", uniform({kWidth, kIn}, at::kDouble, 4)),
               {.residual = true}, true);
  const State plain = state_of(weights);
  expect_equal(plain, {.bias = false}, true);
  const State shared = with(plain, "lin_r.weight", plain.at("lin_l.weight"));
  expect_equal(shared, {.bias = false, .share_weights = true}, true);
  // With shared biases none can take the bias of the result.
  const State biased = with(concat, "lin_r.weight", concat.at("lin_l.weight"));
  EXPECT_TRUE(
      mentions(refusal(nn::GATv2Conv(kIn, kOut, {.num_heads = kHeads, .share_weights = true}),
                       with(biased, "lin_r.bias", concat.at("lin_l.bias"))),
               "missingnames[]andunexpectednames[bias]"));
}

TEST(PygNames, a_missing_part_of_a_weight_is_named) {
  const State state = state_of({{"bias", {kOut}},
                                {"lins.0.weight", {kOut, kIn}},
                                {"lins.1.weight", {kOut, kIn}},
                                {"lins.2.weight", {kOut, kIn}}});
  const nn::TAGConv layer = loaded(nn::TAGConv(kIn, kOut), state);
  EXPECT_TRUE(exact(layer->lin->weight.narrow(1, kIn, kIn), state.at("lins.1.weight")));
  const std::string fault = refusal(layer, without(state, "lins.1.weight"));
  EXPECT_TRUE(
      mentions(fault, "missingnames[lin.weight(inthefile:lins.1.weight)]andunexpectednames[]"));
  EXPECT_TRUE(mentions(refusal(nn::TAGConv(kIn, kOut, {.k = 1}), state),
                       "missingnames[]andunexpectednames[lins.2.weight]"));
  const State other = with(state, "lins.1.weight", at::ones({kOut + 1, kIn}));
  EXPECT_TRUE(mentions(refusal(layer, other), "gotfloat64[3,5]andfloat32[4,5]andfloat64[3,5]"));
}

TEST(PygNames, weights_of_several_steps_are_no_gated_graph_conv) {
  State state = state_of({{"weight", {2, kIn, kIn}}});
  for (const std::string cell : {"_ih", "_hh"}) {
    state["rnn.weight" + cell] = at::ones({3 * kIn, kIn});
    state["rnn.bias" + cell] = at::ones({3 * kIn});
  }
  EXPECT_TRUE(mentions(refusal(nn::GatedGraphConv(kIn, kIn), state),
                       "'linears.0.weight(inthefile:weight)'asthemodule'sfloat64[5,5],"
                       "gotfloat64[2,5,5]"));
  EXPECT_TRUE(mentions(refusal(nn::GatedGraphConv(kIn, kIn, {.num_steps = 2}), state),
                       "unexpectednames[rnn.bias_hh"));
}

TEST(PygNames, gin_conv_equals_pyg) {
  const State state = state_of({{"eps", {1}},
                                {"nn.0.bias", {kOut}},
                                {"nn.0.weight", {kOut, kIn}},
                                {"nn.2.bias", {2}},
                                {"nn.2.weight", {2, kOut}}});
  const Topology g = graph();
  const at::Tensor x = features();
  for (const bool learn_eps : {false, true}) {
    auto layer =
        loaded(nn::GINConv({.learn_eps = learn_eps},
                           torch::nn::Sequential(torch::nn::Linear(kIn, kOut), torch::nn::ReLU(),
                                                 torch::nn::Linear(kOut, 2))),
               state);
    const at::Tensor sum = (1 + state.at("eps")) * x + at::matmul(adjacency(g), x);
    const at::Tensor hidden = linear_part(state, "nn.0", sum).relu();
    const double terms = static_cast<double>(kIn * (kOut + 1)) * (max_in_degree(g) + 3);
    EXPECT_TRUE(near_terms(layer->forward(g, x), linear_part(state, "nn.2", hidden), terms));
  }
}

/// The entries with this prefix in their names, which loses it.
State part(const State& state, const std::string& prefix) {
  State entries;
  for (const auto& [name, tensor] : state) {
    if (name.starts_with(prefix)) entries[name.substr(prefix.size())] = tensor;
  }
  return entries;
}

State graph_sage_state() {
  return state_of({{"convs.0.lin_l.bias", {kOut}},
                   {"convs.0.lin_l.weight", {kOut, kIn}},
                   {"convs.0.lin_r.weight", {kOut, kIn}},
                   {"convs.1.lin_l.bias", {2}},
                   {"convs.1.lin_l.weight", {2, kOut}},
                   {"convs.1.lin_r.weight", {2, kOut}}});
}

TEST(PygNames, a_model_equals_graph_sage_of_pyg) {
  const State state = graph_sage_state();
  const Topology g = graph();
  const at::Tensor x = features();
  auto model =
      loaded(nn::Model(kIn, 2, {.kind = nn::ModelKind::kSage, .hidden_features = kOut}), state);
  const at::Tensor hidden = sage_of_pyg(part(state, "convs.0."), g, x).relu();
  const double terms = static_cast<double>(4 * kIn * kOut) * (max_in_degree(g) + 2);
  EXPECT_TRUE(
      near_terms(model->forward(g, x), sage_of_pyg(part(state, "convs.1."), g, hidden), terms));
}

/// PyG's names of the tensors of a GIN model of two layers, by own names.
std::map<std::string, std::string> names_of_gin() {
  std::map<std::string, std::string> names;
  for (const std::string i : {"0", "1"}) {
    names["layer" + i + ".eps"] = "convs." + i + ".eps";
    for (const std::string tensor : {"0.weight", "0.bias", "1.weight", "1.bias"}) {
      names["layer" + i + ".apply_func.layer" + tensor] = "convs." + i + ".nn.lins." + tensor;
    }
  }
  for (const std::string tensor :
       {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}) {
    names["norm0." + tensor] = "norms.0.module." + tensor;
  }
  return names;
}

TEST(PygNames, a_model_of_gin_has_the_names_of_pyg_also_in_its_mlps_and_normalizations) {
  const nn::Model model(kIn, 2,
                        {.kind = nn::ModelKind::kGin,
                         .hidden_features = kOut,
                         .normalization = nn::Normalization::kBatch});
  const auto names = names_of_gin();
  State state, expected;
  std::uint64_t seed = 0;
  const auto add = [&](const auto& items) {
    for (const auto& item : items) {
      const at::Tensor numbers = integers(item.value().sizes(), at::kLong, ++seed);
      state[names.at(item.key())] = expected[item.key()] = numbers;
    }
  };
  add(model->named_parameters());
  add(model->named_buffers());
  EXPECT_EQ(state.size(), names.size());
  const nn::Model got = loaded(model, state);
  for (const auto& item : got->named_parameters()) {
    EXPECT_TRUE(exact(item.value(), expected.at(item.key()))) << item.key();
  }
}

struct Encoder : torch::nn::Module {
  Encoder() {
    convs->push_back(nn::SAGEConv(kIn, kOut));
    convs->push_back(nn::SAGEConv(kOut, 2));
    register_module("convs", convs);
    register_module("lin", lin);
  }
  torch::nn::ModuleList convs;
  torch::nn::Linear lin{2, 1};
};

TEST(PygNames, layers_are_found_inside_a_module_whose_other_names_stay) {
  State state = graph_sage_state();
  state["lin.weight"] = uniform({1, 2}, at::kDouble, 5);
  state["lin.bias"] = uniform({1}, at::kDouble, 6);
  const auto encoder = loaded(std::make_shared<Encoder>(), state);
  const auto* first = encoder->convs[0]->as<nn::SAGEConv>();
  EXPECT_TRUE(exact(first->fc_neigh->weight, state.at("convs.0.lin_l.weight")));
  EXPECT_TRUE(exact(first->fc_self->weight, state.at("convs.0.lin_r.weight")));
  EXPECT_TRUE(exact(first->fc_self->bias, state.at("convs.0.lin_l.bias")));
  EXPECT_TRUE(exact(encoder->lin->weight, state.at("lin.weight")));

  const std::string missing =
      refusal(std::make_shared<Encoder>(), without(state, "convs.1.lin_r.weight"));
  EXPECT_TRUE(mentions(missing,
                       "missingnames[convs.1.fc_self.weight(inthefile:convs.1.lin_r.weight)]"
                       "andunexpectednames[]"));
  const std::string shape =
      refusal(std::make_shared<Encoder>(), with(state, "convs.0.lin_l.bias", at::ones({kIn})));
  EXPECT_TRUE(
      mentions(shape,
               "'convs.0.fc_self.bias(inthefile:convs.0.lin_l.bias)'asthemodule'sfloat64[3],"
               "got"));
  const std::string other =
      refusal(std::make_shared<Encoder>(), with(state, "convs.0.lin.weight", at::ones({kIn, kIn})));
  EXPECT_TRUE(mentions(other, "missingnames[]andunexpectednames[convs.0.lin.weight]"));
}

}  // namespace
}  // namespace mezzo::test::pyg_names_test
