#include "mezzo/nn/model/model.h"

#include <torch/nn/modules/linear.h>

#include "mezzo/core/parse.h"
#include "mezzo/graph/graph.h"
#include "mezzo/nn/conv/aggregation_layers.h"
#include "mezzo/nn/conv/attention_layers.h"
#include "mezzo/nn/conv/propagation_layers.h"
#include "mezzo/nn/model/mlp.h"

#include "support/nn_reference.h"

namespace mezzo::test::model_test {
namespace {

using mezzo::detail::names;

using nn::Model;
using nn::ModelKind;
using nn::ModelKinds;
using nn::ModelOptions;
using nn::Normalization;

constexpr ModelKind kKinds[] = {ModelKind::kGcn, ModelKind::kSage, ModelKind::kGat,
                                ModelKind::kGin, ModelKind::kSgc,  ModelKind::kMlp};

Model make(std::int64_t in, std::int64_t out, ModelOptions options = {}) {
  Model model(in, out, std::move(options));
  randomise(*model, at::kDouble);
  return model;
}

/// Copies the parameters of submodule `name` of the model to `part`.
template <class Part>
Part part_of(const Model& model, const std::string& name, Part part) {
  part->to(test_device());  // buffers too
  const auto parameters = model->named_parameters();
  for (auto& parameter : part->named_parameters()) {
    parameter.value().set_data(parameters[name + "." + parameter.key()].detach());
  }
  return part;
}

at::Tensor dense(const torch::nn::Linear& part, const at::Tensor& x) {
  return dense_linear(x, part->weight, part->bias, Numbers::kGiven);
}

const Topology& graph() {
  static const Topology topology = connected(12, 12, 40, 1);
  return topology;
}

at::Tensor features(std::int64_t width, std::uint64_t seed = 2) {
  return uniform({graph().num_src(), width}, at::kDouble, seed);
}

TEST(Model, gcn_is_the_stack_of_its_layers) {
  const Model model =
      make(6, 3, {.kind = ModelKind::kGcn, .hidden_features = 5, .num_layers = 3, .dropout = 0});
  auto layer = [&](const char* name, std::int64_t in, std::int64_t out) {
    return part_of(model, name, nn::GraphConv(in, out));
  };
  auto first = layer("layer0", 6, 5), second = layer("layer1", 5, 5), third = layer("layer2", 5, 3);
  const at::Tensor x = features(6);
  const at::Tensor expected =
      third(graph(), at::relu(second(graph(), at::relu(first(graph(), x)))));
  EXPECT_TRUE(exact(Model(model)(graph(), x), expected));
}

TEST(Model, sage_passes_its_aggregator_on_and_normalizes_before_skip_and_activation) {
  for (const nn::Aggregator aggregator : {nn::Aggregator::kGcn, nn::Aggregator::kPool}) {
    Model model = make(6, 5,
                       {.kind = ModelKind::kSage,
                        .hidden_features = 5,
                        .dropout = 0,
                        .normalization = Normalization::kLayer,
                        .skip = true,
                        .aggregator = aggregator});
    const auto layer = [&](const char* name, std::int64_t in) {
      return part_of(model, name, nn::SAGEConv(in, 5, {.aggregator = aggregator}));
    };
    auto first = layer("layer0", 6), second = layer("layer1", 5);
    const auto skip = part_of(model, "skip0", torch::nn::Linear(6, 5));
    const auto parameters = model->named_parameters();
    const at::Tensor x = features(6);
    at::Tensor h = at::layer_norm(first(graph(), x), {5}, parameters["norm0.weight"],
                                  parameters["norm0.bias"]);
    h = at::relu(h + dense(skip, x));
    const at::Tensor expected = second(graph(), h) + h;  // equal widths: the identity
    EXPECT_TRUE(near_terms(model(graph(), x), expected, 100));
  }
}

TEST(Model, gat_concatenates_hidden_heads_and_averages_output_heads) {
  for (const std::int64_t output_heads : {1, 3}) {
    Model model = make(6, 3,
                       {.kind = ModelKind::kGat,
                        .hidden_features = 4,
                        .num_heads = 2,
                        .dropout = 0,
                        .num_output_heads = output_heads});
    auto first = part_of(model, "layer0", nn::GATConv(6, 4, {.num_heads = 2}));
    auto second = part_of(model, "layer1", nn::GATConv(8, 3, {.num_heads = output_heads}));
    const at::Tensor x = features(6);
    const at::Tensor expected = second(graph(), at::elu(first(graph(), x).flatten(1))).mean(1);
    EXPECT_TRUE(exact(model(graph(), x), expected));
  }
}

TEST(Model, gin_is_the_stack_of_its_layers_each_with_an_mlp) {
  Model model = make(6, 3, {.kind = ModelKind::kGin, .hidden_features = 5, .dropout = 0});
  const auto layer = [&](const char* name, std::int64_t in, std::int64_t out) {
    const nn::MLP update(in, out, {.hidden_features = 5, .dropout = 0});
    return part_of(model, name, nn::GINConv(nn::GINConvOptions{}, torch::nn::AnyModule(update)));
  };
  auto first = layer("layer0", 6, 5), second = layer("layer1", 5, 3);
  const at::Tensor x = features(6);
  EXPECT_TRUE(exact(model(graph(), x), second(graph(), at::relu(first(graph(), x)))));
}

TEST(Model, sgc_is_one_layer_of_as_many_hops) {
  for (const std::int64_t hops : {1, 3}) {
    Model model = make(6, 3, {.kind = ModelKind::kSgc, .num_layers = hops, .dropout = 0});
    EXPECT_EQ(parameter_shapes(*model),
              (std::set<std::string>{"layer0.fc.weight [3, 6]", "layer0.fc.bias [3]"}));
    auto layer = part_of(model, "layer0", nn::SGConv(6, 3, {.k = hops}));
    const at::Tensor x = features(6);
    EXPECT_TRUE(exact(model(graph(), x), layer(graph(), x)));
  }
}

TEST(Model, mlp_ignores_the_edges) {
  Model model = make(6, 3, {.kind = ModelKind::kMlp, .dropout = 0});
  const auto first = part_of(model, "layer0", torch::nn::Linear(6, 16));
  const auto second = part_of(model, "layer1", torch::nn::Linear(16, 3));
  const at::Tensor x = features(6), expected = dense(second, at::relu(dense(first, x)));
  EXPECT_TRUE(near_terms(model(graph(), x), expected, 7 * 17));
  EXPECT_TRUE(near_terms(model(topology_of({}, {}, 12, 12), x), expected, 7 * 17));
}

TEST(Model, batch_normalization_uses_the_batch_in_training_and_running_statistics_after) {
  Model model = make(4, 2,
                     {.kind = ModelKind::kMlp,
                      .hidden_features = 5,
                      .dropout = 0,
                      .normalization = Normalization::kBatch});
  for (auto& buffer : model->buffers()) {
    if (buffer.is_floating_point()) buffer.set_data(buffer.to(at::kDouble));
  }
  const at::Tensor x = features(4), weight = model->named_parameters()["norm0.weight"],
                   bias = model->named_parameters()["norm0.bias"];
  const auto first = part_of(model, "layer0", torch::nn::Linear(4, 5));
  const auto second = part_of(model, "layer1", torch::nn::Linear(5, 2));
  const at::Tensor h = dense(first, x);
  const auto normalized = [&](const at::Tensor& mean, const at::Tensor& variance) {
    return (h - mean) / (variance + 1e-5).sqrt() * weight + bias;
  };
  const at::Tensor mean = h.mean(0), variance = h.var(0, /*unbiased=*/false);
  const at::Tensor expected = dense(second, at::relu(normalized(mean, variance)));
  // The normalized numbers are at most sqrt(12); the smallest variance amplifies their errors.
  EXPECT_TRUE(near_terms(model(graph(), x), expected, 1000));
  model->eval();
  const at::Tensor mean_after = 0.1 * mean, variance_after = 0.9 + 0.1 * h.var(0);
  const at::Tensor after = dense(second, at::relu(normalized(mean_after, variance_after)));
  EXPECT_TRUE(near_terms(model(graph(), x), after, 1000));
}

TEST(Model, sparse_rows_give_the_values_of_dense_ones_for_every_kind) {
  for (const ModelKind kind : kKinds) {
    for (const bool skip : {false, true}) {
      for (const std::int64_t num_layers : {1, 2}) {
        SCOPED_TRACE(std::string(name_of(ModelKinds{}, kind)) + (skip ? " with skips" : ""));
        // With one layer the skip is the identity.
        Model model = make(6, 6,
                           {.kind = kind,
                            .hidden_features = 3,
                            .num_layers = num_layers,
                            .num_heads = 2,
                            .dropout = 0,
                            .skip = skip});
        const at::Tensor x = sparse_numbers({12, 6}, 3);
        EXPECT_TRUE(near_terms(model(graph(), x.to_sparse_csr()), model(graph(), x), 1e4));
      }
    }
  }
}

TEST(Model, drops_features_while_training_only_and_sparse_ones_too) {
  for (const ModelKind kind : kKinds) {
    SCOPED_TRACE(std::string(name_of(ModelKinds{}, kind)));
    Model dropping = make(8, 4, {.kind = kind, .num_heads = 2}),
          plain = make(8, 4, {.kind = kind, .num_heads = 2, .dropout = 0});
    const at::Tensor x = sparse_numbers({12, 8}, 4), sparse = x.to_sparse_csr();
    EXPECT_FALSE(exact(dropping(graph(), x), plain(graph(), x)));
    EXPECT_FALSE(exact(dropping(graph(), sparse), plain(graph(), sparse)));
    dropping->eval();
    plain->eval();
    EXPECT_TRUE(exact(dropping(graph(), x), plain(graph(), x)));
    EXPECT_TRUE(exact(dropping(graph(), sparse), plain(graph(), sparse)));
  }
}

TEST(Model, drops_attention_while_training_only) {
  const ModelOptions without{.kind = ModelKind::kGat, .num_heads = 2, .dropout = 0};
  ModelOptions options = without;
  options.attention_dropout = 0.5;
  Model dropping = make(8, 4, options), plain = make(8, 4, without);
  const at::Tensor x = features(8);
  EXPECT_FALSE(exact(dropping(graph(), x), plain(graph(), x)));
  dropping->eval();
  EXPECT_TRUE(exact(dropping(graph(), x), plain(graph(), x)));
}

TEST(Model, every_gradient_is_reached_with_every_option) {
  for (const ModelKind kind : kKinds) {
    for (const Normalization normalization : {Normalization::kLayer, Normalization::kBatch}) {
      Model model(6, 3,
                  {.kind = kind,
                   .hidden_features = 4,
                   .num_layers = 3,
                   .num_heads = 2,
                   .normalization = normalization,
                   .skip = true,
                   .num_output_heads = 2});
      model->to(test_device());
      const at::Tensor logits = model(graph(), features(6).to(at::kFloat));
      EXPECT_EQ(logits.sizes(), at::IntArrayRef({12, 3}));
      logits.pow(2).sum().backward();
      for (const auto& parameter : model->named_parameters()) {
        ASSERT_TRUE(parameter.value().grad().defined()) << parameter.key();
        EXPECT_TRUE(parameter.value().grad().isfinite().all().item<bool>()) << parameter.key();
      }
    }
  }
}

TEST(Model, takes_a_graph_and_runs_without_edges_and_nodes) {
  for (const std::int64_t num_nodes : {0, 5}) {
    const Graph g(topology_of({}, {}, num_nodes, num_nodes));
    for (const ModelKind kind : kKinds) {
      Model model = make(6, 3, {.kind = kind, .num_heads = 2, .allow_zero_in_degree = true});
      const at::Tensor logits = model(g, uniform({num_nodes, 6}, at::kDouble, 5));
      EXPECT_EQ(logits.sizes(), at::IntArrayRef({num_nodes, 3}));
      logits.sum().backward();
    }
  }
}

TEST(Model, one_layer_maps_sources_to_destinations) {
  const Topology g = connected(9, 5, 20, 6);
  for (const ModelKind kind : kKinds) {
    if (kind == ModelKind::kSgc) continue;  // its hops need one set of nodes
    for (const bool skip : {false, true}) {
      Model model = make(6, 3, {.kind = kind, .num_layers = 1, .skip = skip});
      const at::Tensor x = uniform({9, 6}, at::kDouble, 7);
      EXPECT_EQ(model(g, x).sizes(), at::IntArrayRef({5, 3}));
      EXPECT_EQ(model(g, x.to_sparse_csr()).sizes(), at::IntArrayRef({5, 3}));
    }
  }
}

TEST(Model, activation_replaces_the_default) {
  const auto negate = [](const at::Tensor& h) { return -h; };
  Model model = make(
      4, 2, {.kind = ModelKind::kMlp, .hidden_features = 5, .dropout = 0, .activation = negate});
  const auto first = part_of(model, "layer0", torch::nn::Linear(4, 5));
  const auto second = part_of(model, "layer1", torch::nn::Linear(5, 2));
  const at::Tensor x = features(4);
  EXPECT_TRUE(near_terms(model(graph(), x), dense(second, -dense(first, x)), 36));
}

TEST(Model, has_one_named_part_per_layer_normalization_and_projection) {
  const Model model(6, 3,
                    {.kind = ModelKind::kGcn,
                     .hidden_features = 5,
                     .num_layers = 3,
                     .normalization = Normalization::kLayer,
                     .skip = true});
  const std::set<std::string> expected = {
      "layer0.weight [6, 5]", "layer0.bias [5]", "norm0.weight [5]",     "norm0.bias [5]",
      "skip0.weight [5, 6]",  "skip0.bias [5]",  "layer1.weight [5, 5]", "layer1.bias [5]",
      "norm1.weight [5]",     "norm1.bias [5]",  "layer2.weight [5, 3]", "layer2.bias [3]",
      "skip2.weight [3, 5]",  "skip2.bias [3]"};
  EXPECT_EQ(parameter_shapes(*model), expected);
}

TEST(Model, kinds_and_normalizations_parse_from_their_words) {
  EXPECT_EQ(parse(ModelKinds{}, "model", "sage"), ModelKind::kSage);
  EXPECT_EQ(names(ModelKinds{}), "gcn, sage, gat, gin, gine, sgc, mlp");
  EXPECT_EQ(names(nn::Normalizations{}), "none, layer, batch");
  EXPECT_EQ(names(nn::SageAggregators{}), "mean, gcn, pool, lstm");
}

TEST(Model, wrong_arguments_are_errors_that_name_them) {
  const auto expect_option_error = [](auto change, const std::string& name) {
    ModelOptions options{.kind = ModelKind::kGat, .in_features = 4, .out_features = 2};
    change(options);
    EXPECT_ERROR(name, Model model(options));
  };
  expect_option_error([](auto& o) { o.in_features = 0; }, "in_features");
  expect_option_error([](auto& o) { o.hidden_features = 0; }, "hidden_features");
  expect_option_error([](auto& o) { o.out_features = -1; }, "out_features");
  expect_option_error([](auto& o) { o.num_layers = 0; }, "num_layers");
  expect_option_error([](auto& o) { o.num_heads = 0; }, "num_heads");
  expect_option_error([](auto& o) { o.num_output_heads = 0; }, "num_output_heads");
  expect_option_error([](auto& o) { o.dropout = 1; }, "dropout");
  expect_option_error([](auto& o) { o.attention_dropout = -0.5; }, "attention_dropout");
  expect_option_error(
      [](auto& o) {
        o.kind = ModelKind::kGcn;
        o.attention_dropout = 0.5;
      },
      "attention_dropout");

  Model model = make(4, 2);
  EXPECT_ERROR(fragments("Model", "[12,4]", "gotfloat64[12,5]"), model(graph(), features(5)));
  const Topology rectangular = connected(9, 5, 20, 8);
  EXPECT_ERROR("onesetofnodes", model(rectangular, uniform({9, 4}, at::kDouble, 9)));
  EXPECT_ERROR("add_self_loop", model(four_nodes(), uniform({4, 4}, at::kDouble, 9)));
  Model batch = make(4, 2, {.kind = ModelKind::kMlp, .normalization = Normalization::kBatch});
  const Topology one = topology_of({0}, {0}, 1, 1);
  EXPECT_ERROR("batchnormalization", batch(one, uniform({1, 4}, at::kDouble, 9)));
}

}  // namespace
}  // namespace mezzo::test::model_test
