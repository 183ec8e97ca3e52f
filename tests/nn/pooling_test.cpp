#include "mezzo/nn/pooling.h"

#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/linear.h>

#include "mezzo/amp/autocast.h"
#include "mezzo/graph/batch.h"
#include "mezzo/nn/edge_conv.h"
#include "mezzo/nn/mlp.h"

#include "support/graphs.h"
#include "support/module_gradcheck.h"
#include "support/nn_reference.h"
#include "support/recurrent_reference.h"

namespace mezzo::test::pooling_test {
namespace {

using nn::GlobalAttentionPooling;
using nn::Set2Set;
using nn::Set2SetOptions;
using nn::WeightAndSum;
using torch::nn::AnyModule;
using torch::nn::Linear;

/// Graphs of 4, 0, 1, 7 and 0 nodes.
Graph mixed_batch() {
  return batch({four_node_graph(), empty_graph(), one_node_graph(), cycle_graph(7), empty_graph()});
}

/// combine(rows of graph k, k) for every graph that has nodes, 0 for the others: [B, width].
template <class Combine>
at::Tensor per_graph(const Graph& graph, const at::Tensor& rows, std::int64_t width,
                     Combine combine) {
  const std::vector<std::int64_t> counts = values(graph.batch_num_nodes());
  at::Tensor out = at::zeros({graph.batch_size(), width}, on_device(at::kDouble));
  std::int64_t first = 0;
  for (std::size_t k = 0; k < counts.size(); ++k) {
    const auto place = static_cast<std::int64_t>(k);
    if (counts[k] > 0) out[place] = combine(rows.narrow(0, first, counts[k]), place);
    first += counts[k];
  }
  return out;
}

at::Tensor sums(const Graph& graph, const at::Tensor& rows) {
  return per_graph(graph, rows, rows.size(1),
                   [](const at::Tensor& part, std::int64_t) { return part.sum(0); });
}

at::Tensor means(const Graph& graph, const at::Tensor& rows) {
  return per_graph(graph, rows, rows.size(1),
                   [](const at::Tensor& part, std::int64_t) { return part.mean(0); });
}

at::Tensor maxima(const Graph& graph, const at::Tensor& rows) {
  return per_graph(graph, rows, rows.size(1),
                   [](const at::Tensor& part, std::int64_t) { return part.amax(0); });
}

/// exp(scores) over their sum in each graph: [N, 1].
at::Tensor softmax_of_graphs(const Graph& graph, const at::Tensor& scores) {
  const at::Tensor powers = scores.exp(), totals = sums(graph, powers);
  at::Tensor shares = powers.clone();
  std::int64_t first = 0, k = 0;
  for (const std::int64_t count : values(graph.batch_num_nodes())) {
    shares.narrow(0, first, count).div_(totals[k++]);
    first += count;
  }
  return shares;
}

at::Tensor apply(const Linear& linear, const at::Tensor& x) {
  return dense_linear(x, linear->weight, linear->bias, Numbers::kGiven);
}

TEST(Pooling, sums_and_maxima_of_small_integers_are_exact_in_every_dtype) {
  const Graph g = mixed_batch();
  nn::SumPooling sum;
  nn::MaxPooling maximum;
  EXPECT_TRUE(sum->parameters().empty());
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const at::Tensor h = integers({g.num_nodes(), 9}, dtype.scalar, 1), wide = h.to(at::kDouble);
    EXPECT_EQ(sum(g, h).scalar_type(), dtype.scalar);
    EXPECT_TRUE(exact(sum(g, h), sums(g, wide)));
    EXPECT_TRUE(exact(maximum(g, h), maxima(g, wide)));
  }
}

TEST(Pooling, means_round_once_in_every_dtype) {
  const Graph g = mixed_batch();
  nn::AvgPooling mean;
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const at::Tensor h = uniform({g.num_nodes(), 5}, dtype.scalar, 2), wide = h.to(at::kDouble);
    EXPECT_EQ(mean(g, h).scalar_type(), dtype.scalar);
    EXPECT_TRUE(near(mean(g, h), means(g, wide), sum_bound(means(g, wide.abs()), 8, dtype.scalar)));
  }
}

TEST(Pooling, a_graph_that_is_no_batch_gives_one_row_and_nodes_may_have_several_dimensions) {
  const Graph g = star_graph(6);
  nn::SumPooling sum;
  const at::Tensor h = integers({7, 2, 3}, at::kFloat, 3);
  EXPECT_TRUE(exact(sum(g, h), h.to(at::kDouble).sum(0, /*keepdim=*/true)));
  EXPECT_TRUE(
      exact(nn::MaxPooling()(empty_graph(), at::zeros({0, 3}, on_device())), at::zeros({1, 3})));
}

TEST(Pooling, infinities_and_what_is_not_a_number_stay_in_their_graph) {
  const Graph g = batch({cycle_graph(2), cycle_graph(2), cycle_graph(2)});
  const double infinity = std::numeric_limits<double>::infinity();
  const at::Tensor h =
      numbers({1, 2, 3, -infinity, 4, std::numeric_limits<double>::quiet_NaN()}).view({6, 1});
  EXPECT_TRUE(exact(nn::SumPooling()(g, h), sums(g, h)));
  EXPECT_TRUE(exact(nn::AvgPooling()(g, h), means(g, h)));
  EXPECT_TRUE(exact(nn::MaxPooling()(g, h), maxima(g, h)));
}

TEST(Pooling, gradients_agree_with_differences) {
  const Graph g = mixed_batch();
  nn::SumPooling sum;
  nn::AvgPooling mean;
  nn::MaxPooling maximum;
  const std::vector<at::Tensor> h = {uniform({g.num_nodes(), 2}, at::kDouble, 4)};
  using Inputs = std::vector<at::Tensor>;
  EXPECT_TRUE(gradcheck([&](const Inputs& inputs) { return sum(g, inputs[0]); }, h));
  EXPECT_TRUE(gradcheck([&](const Inputs& inputs) { return mean(g, inputs[0]); }, h));
  EXPECT_TRUE(gradcheck([&](const Inputs& inputs) { return maximum(g, inputs[0]); }, h));
}

TEST(Pooling, wrong_rows_are_errors_that_name_the_layer) {
  const Graph g = mixed_batch();
  for (const at::Tensor& h :
       {at::zeros({11, 3}, on_device()), at::zeros({12, 3}, on_device(at::kLong)), at::Tensor(),
        at::zeros({12, 3}, on_device()).to_sparse_csr()}) {
    const auto check = [](const std::string& text, const std::string& layer) {
      EXPECT_TRUE(mentions(text, layer + ":expectedfloating,stridedh[12,...],onerowpernode,got"));
    };
    check(error_of([&] { nn::SumPooling()(g, h); }), "SumPooling");
    check(error_of([&] { nn::AvgPooling()(g, h); }), "AvgPooling");
    check(error_of([&] { nn::MaxPooling()(g, h); }), "MaxPooling");
    check(error_of([&] { GlobalAttentionPooling(AnyModule(Linear(3, 1)))(g, h); }),
          "GlobalAttentionPooling");
    check(error_of([&] { WeightAndSum(3)(g, h); }), "WeightAndSum");
    check(error_of([&] { Set2Set(Set2SetOptions{.in_features = 3})(g, h); }), "Set2Set");
  }
  const at::Tensor wide = at::zeros({12, 4}, on_device());
  EXPECT_TRUE(mentions(error_of([&] { WeightAndSum(3)(g, wide); }), "expectedh[12,3]"));
  EXPECT_TRUE(mentions(error_of([&] { Set2Set(Set2SetOptions{.in_features = 3})(g, wide); }),
                       "expectedh[12,3]"));
}

TEST(Pooling, a_layer_and_a_readout_of_a_batch_give_what_they_give_part_by_part) {
  std::vector<Graph> parts;
  for (const std::uint64_t seed : {5U, 6U, 7U}) {
    Graph part(connected(6, 6, 12, seed));
    part.ndata()["h"] = uniform({6, 3}, at::kFloat, seed);
    parts.push_back(part);
  }
  const Graph joined = batch(parts);
  nn::EdgeConv layer(nn::EdgeConvOptions{.in_features = 3, .out_features = 4});
  WeightAndSum readout(4);
  layer->to(test_device());
  readout->to(test_device());
  const at::Tensor got = readout(joined, layer(joined, joined.ndata().at("h")));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const at::Tensor alone = readout(parts[i], layer(parts[i], parts[i].ndata().at("h")));
    // The dense products may sum in another order for another number of rows.
    const at::Tensor size = at::full({1, 4}, 100, on_device(at::kDouble));
    EXPECT_TRUE(near(got.narrow(0, static_cast<std::int64_t>(i), 1), alone.to(at::kDouble),
                     sum_bound(size, 16, at::kFloat)));
  }
}

TEST(GlobalAttentionPooling, equals_the_definition_with_and_without_a_module_for_the_rows) {
  const Graph g = mixed_batch();
  const at::Tensor h = uniform({12, 3}, at::kDouble, 8);
  Linear gate(3, 1), feat(3, 5);
  randomise(*gate, at::kDouble, 1);
  randomise(*feat, at::kDouble, 5);
  const at::Tensor shares = softmax_of_graphs(g, apply(gate, h));

  GlobalAttentionPooling plain{AnyModule(gate)};
  EXPECT_TRUE(near_terms(plain(g, h), sums(g, h * shares), 60));
  GlobalAttentionPooling both{AnyModule(gate), AnyModule(feat)};
  EXPECT_TRUE(near_terms(both(g, h), sums(g, apply(feat, h) * shares), 60));
  const auto [value, attention] = both->forward_with_attention(g, h);
  EXPECT_TRUE(same_bits(value, both(g, h)));
  EXPECT_TRUE(near_terms(attention, shares, 60));
}

TEST(GlobalAttentionPooling, has_the_parameters_of_its_modules) {
  const GlobalAttentionPooling plain{AnyModule(Linear(3, 1))};
  EXPECT_EQ(parameter_shapes(*plain),
            (std::set<std::string>{"gate_nn.weight [1, 3]", "gate_nn.bias [1]"}));
  const nn::MLP feat(nn::MLPOptions{.in_features = 3, .hidden_features = 4, .out_features = 2});
  const GlobalAttentionPooling both(AnyModule(Linear(3, 1)), AnyModule(feat));
  EXPECT_EQ(parameter_shapes(*both),
            (std::set<std::string>{"gate_nn.weight [1, 3]", "gate_nn.bias [1]",
                                   "feat_nn.layer0.weight [4, 3]", "feat_nn.layer0.bias [4]",
                                   "feat_nn.layer1.weight [2, 4]", "feat_nn.layer1.bias [2]"}));
}

TEST(GlobalAttentionPooling, wrong_modules_are_errors) {
  EXPECT_TRUE(mentions(error_of([] { GlobalAttentionPooling pool{AnyModule()}; }), "gate_nn"));
  const Graph g = mixed_batch();
  const at::Tensor h = at::zeros({12, 3}, on_device());
  EXPECT_TRUE(
      mentions(error_of([&] { placed(GlobalAttentionPooling(AnyModule(Linear(3, 2))))(g, h); }),
               "gate_nntoreturn[12,1],got"));
}

TEST(GlobalAttentionPooling, gradients_agree_with_differences) {
  const Graph g = mixed_batch();
  GlobalAttentionPooling pool(AnyModule(Linear(2, 1)), AnyModule(Linear(2, 3)));
  randomise(*pool, at::kDouble);
  EXPECT_TRUE(module_gradcheck(
      *pool, [&](const std::vector<at::Tensor>& inputs) { return pool(g, inputs[0]); },
      {uniform({12, 2}, at::kDouble, 9)}));
}

TEST(WeightAndSum, equals_the_definition_and_has_the_parameters_of_dgl) {
  const Graph g = mixed_batch();
  const at::Tensor h = uniform({12, 3}, at::kDouble, 10);
  WeightAndSum readout(3);
  EXPECT_EQ(parameter_shapes(*readout),
            (std::set<std::string>{"atom_weighting.0.weight [1, 3]", "atom_weighting.0.bias [1]"}));
  randomise(*readout, at::kDouble);
  const auto parameters = readout->named_parameters();
  const at::Tensor weights =
      sigmoid64(dense_linear(h, parameters["atom_weighting.0.weight"],
                             parameters["atom_weighting.0.bias"], Numbers::kGiven));
  EXPECT_TRUE(near_terms(readout(g, h), sums(g, h * weights), 60));
  EXPECT_TRUE(module_gradcheck(
      *readout, [&](const std::vector<at::Tensor>& inputs) { return readout(g, inputs[0]); }, {h}));
  EXPECT_TRUE(mentions(error_of([] { WeightAndSum none(0); }), "in_features"));
}

/// Layer by layer and graph by graph.
at::Tensor define(const Set2Set& readout, const Graph& graph, const at::Tensor& rows) {
  const auto& options = readout->options;
  const at::Tensor h = take(rows, Numbers::kGiven);
  const std::int64_t width = options.in_features;
  const at::Tensor zeros = at::zeros({graph.batch_size(), width}, on_device(at::kDouble));
  std::vector<std::pair<at::Tensor, at::Tensor>> states(
      static_cast<std::size_t>(options.num_layers), {zeros, zeros});
  at::Tensor query = at::cat({zeros, zeros}, 1);
  for (std::int64_t i = 0; i < options.num_iterations; ++i) {
    at::Tensor question = query;
    for (std::size_t layer = 0; layer < states.size(); ++layer) {
      states[layer] = define_lstm(*readout->lstm, "l" + std::to_string(layer), question,
                                  states[layer].first, states[layer].second);
      question = states[layer].first;
    }
    const at::Tensor answer =
        per_graph(graph, h, width, [&](const at::Tensor& part, std::int64_t k) {
          const at::Tensor powers = at::matmul(part, question[k]).exp();
          return at::matmul(powers / powers.sum(), part);
        });
    query = at::cat({question, answer}, 1);
  }
  return query;
}

TEST(Set2Set, equals_the_definition_for_every_number_of_iterations_and_layers) {
  const Graph g = mixed_batch();
  const at::Tensor h = uniform({12, 3}, at::kDouble, 11);
  for (const std::int64_t iterations : {1, 4}) {
    for (const std::int64_t layers : {1, 3}) {
      Set2Set readout(
          Set2SetOptions{.in_features = 3, .num_iterations = iterations, .num_layers = layers});
      randomise(*readout, at::kDouble);
      EXPECT_TRUE(near_terms(readout(g, h), define(readout, g, h), 1e3));
      const Graph alone = cycle_graph(12);
      EXPECT_TRUE(near_terms(readout(alone, h), define(readout, alone, h), 1e3));
    }
  }
}

TEST(Set2Set, has_the_parameters_of_dgl) {
  Set2Set readout(Set2SetOptions{.in_features = 5, .num_iterations = 2, .num_layers = 2});
  EXPECT_EQ(parameter_shapes(*readout),
            (std::set<std::string>{"lstm.weight_ih_l0 [20, 10]", "lstm.weight_hh_l0 [20, 5]",
                                   "lstm.bias_ih_l0 [20]", "lstm.bias_hh_l0 [20]",
                                   "lstm.weight_ih_l1 [20, 5]", "lstm.weight_hh_l1 [20, 5]",
                                   "lstm.bias_ih_l1 [20]", "lstm.bias_hh_l1 [20]"}));
  for (const Set2SetOptions& options :
       {Set2SetOptions{}, Set2SetOptions{.in_features = 2, .num_iterations = 0},
        Set2SetOptions{.in_features = 2, .num_layers = 0}}) {
    EXPECT_TRUE(mentions(error_of([&] { Set2Set broken(options); }), "ofatleast1"));
  }
}

TEST(Set2Set, gradients_agree_with_differences) {
  const Graph g = mixed_batch();
  Set2Set readout(Set2SetOptions{.in_features = 2, .num_iterations = 2, .num_layers = 2});
  randomise(*readout, at::kDouble);
  EXPECT_TRUE(module_gradcheck(
      *readout, [&](const std::vector<at::Tensor>& inputs) { return readout(g, inputs[0]); },
      {uniform({12, 2}, at::kDouble, 12)}));
}

/// Runs `readout` in `dtype`, or in float32 under autocast to it, and its backward.
template <class Readout>
void expect_rounded(Readout& readout, const Graph& g, const at::Tensor& expected,
                    const DTypeInfo& dtype, bool autocast) {
  const at::Tensor h = uniform({12, 3}, dtype.scalar, 13);
  at::Tensor got;
  if (autocast) {
    readout->to(at::kFloat);
    const amp::Autocast scope(test_device().type(), dtype.scalar);
    got = readout(g, h.to(at::kFloat));
  } else {
    got = readout(g, h);
  }
  EXPECT_EQ(got.scalar_type(), dtype.scalar);
  // Rows are at most 1, a sum of them at most the 7 of the largest graph.
  EXPECT_TRUE(near(got, expected, rounded_bound(expected, 7, 6, dtype.scalar)));
  got.to(at::kFloat).sum().backward();
  for (const auto& parameter : readout->named_parameters()) {
    EXPECT_TRUE(parameter.value().grad().isfinite().all().template item<bool>()) << parameter.key();
  }
}

TEST(Pooling, weighted_readouts_stay_within_their_rounding_also_under_autocast) {
  const Graph g = mixed_batch();
  for (const DTypeInfo& dtype : narrow_dtypes()) {
    for (const bool autocast : {false, true}) {
      SCOPED_TRACE(testing::Message() << dtype.name << ", autocast " << autocast);
      const at::Tensor h = uniform({12, 3}, dtype.scalar, 13).to(at::kDouble);
      const auto prepare = [&](torch::nn::Module& module) {
        randomise(module, dtype.scalar, 1, dtype.scalar);
        scale_parameters(module, 0.25);
      };
      Linear gate(3, 1);
      GlobalAttentionPooling attention{AnyModule(gate)};
      prepare(*attention);
      expect_rounded(attention, g, sums(g, h * softmax_of_graphs(g, apply(gate, h))), dtype,
                     autocast);

      WeightAndSum weighted(3);
      prepare(*weighted);
      const auto parameters = weighted->named_parameters();
      const at::Tensor weights =
          sigmoid64(dense_linear(h, parameters["atom_weighting.0.weight"],
                                 parameters["atom_weighting.0.bias"], Numbers::kGiven));
      expect_rounded(weighted, g, sums(g, h * weights), dtype, autocast);

      Set2Set set(Set2SetOptions{.in_features = 3, .num_iterations = 2});
      prepare(*set);
      expect_rounded(set, g, define(set, g, h), dtype, autocast);
    }
  }
}

}  // namespace
}  // namespace mezzo::test::pooling_test
