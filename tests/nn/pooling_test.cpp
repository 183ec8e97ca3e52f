#include "mezzo/nn/pooling.h"

#include <set>

#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/linear.h>

#include "mezzo/graph/transforms/transforms.h"
#include "mezzo/nn/conv/edge_conv.h"
#include "mezzo/nn/model/mlp.h"

#include "support/graphs.h"
#include "support/module_gradcheck.h"
#include "support/nn_reference.h"
#include "support/peer_case.h"
#include "support/recurrent_reference.h"
#include "support/running_error.h"
#include "support/settings.h"

namespace mezzo::test::pooling_test {
namespace {

using nn::GlobalAttentionPooling;
using nn::Set2Set;
using nn::Set2SetOptions;
using nn::WeightAndSum;
using torch::nn::AnyModule;
using torch::nn::Linear;

/// combine(rows of a graph) for every graph that has nodes, 0 for the others: [B, F].
template <class Combine>
at::Tensor per_graph(const Graph& graph, const at::Tensor& rows, Combine combine) {
  at::Tensor out = at::zeros({graph.batch_size(), rows.size(1)}, on_device(at::kDouble));
  std::int64_t first = 0, place = 0;
  for (const std::int64_t count : values(graph.batch_num_nodes())) {
    if (count > 0) out[place] = combine(rows.narrow(0, first, count));
    first += count;
    ++place;
  }
  return out;
}

at::Tensor sums(const Graph& graph, const at::Tensor& rows) {
  return per_graph(graph, rows, [](const at::Tensor& part) { return part.sum(0); });
}

at::Tensor means(const Graph& graph, const at::Tensor& rows) {
  return per_graph(graph, rows, [](const at::Tensor& part) { return part.mean(0); });
}

at::Tensor maxima(const Graph& graph, const at::Tensor& rows) {
  return per_graph(graph, rows, [](const at::Tensor& part) { return part.amax(0); });
}

/// [B, N]: 1 if the node belongs to the graph.
at::Tensor membership(const Graph& graph) {
  at::Tensor members = at::zeros({graph.batch_size(), graph.num_nodes()}, on_device(at::kDouble));
  std::int64_t first = 0, place = 0;
  for (const std::int64_t count : values(graph.batch_num_nodes())) {
    members[place++].narrow(0, first, count).fill_(1);
    first += count;
  }
  return members;
}

/// exp(scores) over their sum in each graph: [N, 1]. Number here and below: at::Tensor or Rounded.
template <class Number>
Number softmax_of_graphs(const Graph& graph, const Number& scores) {
  const at::Tensor members = membership(graph);
  return softmax_by(scores, [&](const at::Tensor& powers) {
    return at::matmul(members.t(), at::matmul(members, powers));
  });
}

/// The sum over the nodes of each graph of weights[v] * rows[v].
template <class Number>
Number weighted_sums(const Graph& graph, const Number& rows, const Number& weights) {
  return matmul(membership(graph), rows * weights);
}

template <class Number>
Number apply(const Linear& linear, const Number& x) {
  return applied(x, linear->weight, linear->bias);
}

TEST(Pooling, sums_and_maxima_of_small_integers_are_exact_in_every_dtype) {
  const Graph g = mixed_batch();
  nn::SumPooling sum;
  nn::MaxPooling maximum;
  EXPECT_TRUE(sum->parameters().empty());
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const at::Tensor h = integers({g.num_nodes(), 9}, dtype.scalar, 1),
                     in_float64 = h.to(at::kDouble);
    EXPECT_EQ(sum(g, h).scalar_type(), dtype.scalar);
    EXPECT_TRUE(exact(sum(g, h), sums(g, in_float64)));
    EXPECT_TRUE(exact(maximum(g, h), maxima(g, in_float64)));
  }
}

TEST(Pooling, means_round_once_in_every_dtype) {
  const Graph g = mixed_batch();
  nn::AvgPooling mean;
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const at::Tensor h = uniform({g.num_nodes(), 5}, dtype.scalar, 2),
                     in_float64 = h.to(at::kDouble);
    EXPECT_EQ(mean(g, h).scalar_type(), dtype.scalar);
    EXPECT_TRUE(near(mean(g, h), means(g, in_float64),
                     sum_bound(means(g, in_float64.abs()), 8, dtype.scalar)));
  }
}

TEST(Pooling, a_graph_that_is_no_batch_gives_one_row_and_nodes_may_have_several_dimensions) {
  const Graph g = star_graph(6);
  nn::SumPooling sum;
  const at::Tensor h = integers({7, 2, 3}, at::kFloat, 3);
  EXPECT_TRUE(exact(sum(g, h), h.to(at::kDouble).sum(0, /*keepdim=*/true)));
  for (const DTypeInfo& dtype : dtypes()) {
    const at::Tensor none = at::zeros({0, 3}, on_device(dtype.scalar));
    EXPECT_TRUE(exact(nn::SumPooling()(empty_graph(), none), at::zeros({1, 3})));
    EXPECT_TRUE(exact(nn::AvgPooling()(empty_graph(), none), at::zeros({1, 3})));
    EXPECT_TRUE(exact(nn::MaxPooling()(empty_graph(), none), at::zeros({1, 3})));
  }
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
  const at::Tensor four_features = at::zeros({12, 4}, on_device());
  EXPECT_ERROR("expectedh[12,3]", WeightAndSum(3)(g, four_features));
  EXPECT_ERROR("expectedh[12,3]", Set2Set(Set2SetOptions{.in_features = 3})(g, four_features));
}

TEST(Pooling, a_layer_and_a_readout_of_a_batch_give_what_they_give_part_by_part) {
  std::vector<Graph> parts;
  for (const std::uint64_t seed : {5U, 6U, 7U}) {
    Graph part(connected(6, 6, 12, seed));
    part.ndata()["h"] = uniform({6, 3}, at::kFloat, seed);
    parts.push_back(part);
  }
  const Graph joined = batch(parts);
  nn::EdgeConv layer(3, 4);
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
  const nn::MLP feat(3, 2, {.hidden_features = 4});
  const GlobalAttentionPooling both(AnyModule(Linear(3, 1)), AnyModule(feat));
  EXPECT_EQ(parameter_shapes(*both),
            (std::set<std::string>{"gate_nn.weight [1, 3]", "gate_nn.bias [1]",
                                   "feat_nn.layer0.weight [4, 3]", "feat_nn.layer0.bias [4]",
                                   "feat_nn.layer1.weight [2, 4]", "feat_nn.layer1.bias [2]"}));
}

TEST(GlobalAttentionPooling, wrong_modules_are_errors) {
  EXPECT_ERROR("gate_nn", GlobalAttentionPooling pool{AnyModule()});
  const Graph g = mixed_batch();
  const at::Tensor h = at::zeros({12, 3}, on_device());
  EXPECT_ERROR("gate_nntoreturn[12,1],got",
               placed(GlobalAttentionPooling(AnyModule(Linear(3, 2))))(g, h));
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
  EXPECT_ERROR("in_features", WeightAndSum none(0));
}

/// What is read of the rows: as a readout says, or otherwise.
struct Reading {
  std::int64_t num_iterations;
  double score_factor;  ///< 1; with 0 all nodes of a graph share alike
};

/// Layer by layer, of at::Tensor in float64 or of Rounded numbers.
template <class Number>
Number define(const Set2Set& readout, const Graph& graph, const Number& h, const Reading& reading) {
  const at::Tensor graph_of_node = membership(graph).argmax(0);
  const Number zeros = zero_rows(h, graph.batch_size(), readout->options.in_features);
  std::vector<std::pair<Number, Number>> states(
      static_cast<std::size_t>(readout->options.num_layers), std::pair(zeros, zeros));
  Number query = cat(std::vector<Number>{zeros, zeros}, 1);
  for (std::int64_t i = 0; i < reading.num_iterations; ++i) {
    Number question = query;
    for (std::size_t layer = 0; layer < states.size(); ++layer) {
      states[layer] = define_lstm(*readout->lstm, "l" + std::to_string(layer), question,
                                  states[layer].first, states[layer].second);
      question = states[layer].first;
    }
    const Number scores = row_sums(h * question.index_select(0, graph_of_node));
    const Number shares = softmax_of_graphs(graph, reading.score_factor * scores);
    query = cat(std::vector<Number>{question, weighted_sums(graph, h, shares)}, 1);
  }
  return query;
}

at::Tensor define(const Set2Set& readout, const Graph& graph, const at::Tensor& h) {
  return define(readout, graph, take(h, Numbers::kGiven),
                Reading{readout->options.num_iterations, 1});
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
    EXPECT_ERROR("ofatleast1", Set2Set broken(options));
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

/// `readout` in the setting and its backward, and that no `wrong` result is within the bound.
template <class Readout>
void expect_rounded(Readout& readout, const Setting& setting, const at::Tensor& h,
                    const Rounded& expected, const std::vector<at::Tensor>& wrong) {
  const Graph g = mixed_batch();
  const at::Tensor got =
      run_in(setting, *readout, [&](at::ScalarType dtype) { return readout(g, h.to(dtype)); });
  EXPECT_EQ(got.scalar_type(), setting.dtype.scalar);
  EXPECT_TRUE(near(got, expected));
  for (const at::Tensor& result : wrong) EXPECT_FALSE(near(result, expected));
  got.sum().backward();
  for (const auto& parameter : readout->named_parameters()) {
    EXPECT_TRUE(parameter.value().grad().isfinite().all().template item<bool>()) << parameter.key();
  }
}

TEST(GlobalAttentionPooling, stays_within_its_rounding_in_every_dtype_also_under_autocast) {
  const Graph g = mixed_batch();
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(setting.name());
    const at::ScalarType scalar = setting.dtype.scalar;
    Linear gate(3, 1);
    GlobalAttentionPooling pool{AnyModule(gate)};
    randomise(*pool, scalar, 1, scalar);
    const at::Tensor h = uniform({12, 3}, scalar, 13), in_float64 = take(h, Numbers::kGiven);
    const auto pooled = [&](const auto& rows, double score_factor) {
      return weighted_sums(g, rows, softmax_of_graphs(g, score_factor * apply(gate, rows)));
    };
    // Wrong: nodes that share alike, and negated scores.
    expect_rounded(pool, setting, h, pooled(exactly(h), 1),
                   {pooled(in_float64, 0), pooled(in_float64, -1)});
  }
}

TEST(WeightAndSum, stays_within_its_rounding_in_every_dtype_also_under_autocast) {
  const Graph g = mixed_batch();
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(setting.name());
    const at::ScalarType scalar = setting.dtype.scalar;
    WeightAndSum readout(3);
    randomise(*readout, scalar, 1, scalar);
    const at::Tensor h = uniform({12, 3}, scalar, 13), in_float64 = take(h, Numbers::kGiven);
    const auto parameters = readout->named_parameters();
    const auto summed = [&](const auto& rows, double score_factor) {
      const auto scores =
          applied(rows, parameters["atom_weighting.0.weight"], parameters["atom_weighting.0.bias"]);
      return weighted_sums(g, rows, sigmoid64(score_factor * scores));
    };
    // Wrong: weights of 1/2, and negated scores.
    expect_rounded(readout, setting, h, summed(exactly(h), 1),
                   {summed(in_float64, 0), summed(in_float64, -1)});
  }
}

TEST(Set2Set, stays_within_its_rounding_in_every_dtype_also_under_autocast) {
  const Graph g = mixed_batch();
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(setting.name());
    const at::ScalarType scalar = setting.dtype.scalar;
    Set2Set readout(Set2SetOptions{.in_features = 3, .num_iterations = 2});
    randomise(*readout, scalar, 1, scalar);
    const at::Tensor h = uniform({12, 3}, scalar, 13);
    // Wrong: nodes that share alike, negated scores, one iteration.
    std::vector<at::Tensor> wrong;
    for (const Reading& reading : {Reading{2, 0}, Reading{2, -1}, Reading{1, 1}}) {
      wrong.push_back(define(readout, g, take(h, Numbers::kGiven), reading));
    }
    expect_rounded(readout, setting, h, define(readout, g, exactly(h), Reading{2, 1}), wrong);
  }
}

}  // namespace
}  // namespace mezzo::test::pooling_test
