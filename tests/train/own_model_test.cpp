#include <cstdint>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "mezzo/core/error.h"
#include "mezzo/nn/conv/aggregation_layers.h"
#include "mezzo/nn/conv/graph_conv.h"
#include "mezzo/train/options/recipe.h"
#include "mezzo/train/trainer.h"

#include "support/npy_writer.h"
#include "support/tolerance.h"
#include "train/checkpoints.h"
#include "train/mini_batches.h"
#include "train/synthetic.h"

/// Training of a module of the user's, compared with nn::Model of the same layers.
namespace mezzo {
namespace {

using test::quick_options;
using test::sampled_options;
using test::throws;
using test::two_rings;

constexpr std::int64_t kFeatures = 6, kHidden = 8, kClasses = 2;

struct SageImpl : torch::nn::Module {
  explicit SageImpl(std::int64_t hidden = kHidden, const std::string& second_name = "second") {
    first = register_module("first", nn::SAGEConv(kFeatures, hidden));
    second = register_module(second_name, nn::SAGEConv(hidden, kClasses));
  }
  std::int64_t num_layers() const { return 2; }
  at::Tensor forward_layer(std::int64_t index, const Topology& topology, const at::Tensor& h) {
    return index == 0 ? at::relu(first(topology, h)) : second(topology, h);
  }
  nn::SAGEConv first{nullptr}, second{nullptr};
};
TORCH_MODULE(Sage);

struct GcnImpl : torch::nn::Module {
  GcnImpl() {
    const nn::GraphConvOptions options{.allow_zero_in_degree = true, .parent_degrees = true};
    first = register_module("first", nn::GraphConv(kFeatures, kHidden, options));
    second = register_module("second", nn::GraphConv(kHidden, kClasses, options));
  }
  std::int64_t num_layers() const { return 2; }
  at::Tensor forward_layer(std::int64_t index, const Topology& topology, const at::Tensor& h) {
    return index == 0 ? at::relu(first(topology, h)) : second(topology, h);
  }
  nn::GraphConv first{nullptr}, second{nullptr};
};
TORCH_MODULE(Gcn);

/// One linear layer on the destinations, in a dtype, or without any weight; its result is cut to
/// the rows and columns.
struct CutImpl : torch::nn::Module {
  CutImpl(std::int64_t rows, std::int64_t columns, at::ScalarType dtype = at::kFloat,
          bool has_weight = true)
      : kept_rows(rows), kept_columns(columns) {
    if (has_weight) weight = register_parameter("weight", at::ones({kFeatures, 3}, dtype));
  }
  std::int64_t num_layers() const { return 1; }
  at::Tensor forward_layer(std::int64_t /*index*/, const Topology& topology, const at::Tensor& h) {
    const at::Tensor rows = h.narrow(0, 0, topology.num_dst()).matmul(weight);
    return rows.slice(0, 0, kept_rows).slice(1, 0, kept_columns);
  }
  std::int64_t kept_rows, kept_columns;
  at::Tensor weight;
};
TORCH_MODULE(Cut);

/// A model with the weights that a run of nn::Model with the seed begins with.
template <class Holder>
Holder of_seed(std::uint64_t seed) {
  at::manual_seed(seed);
  return Holder();
}

/// quick_options() or others without what describes nn::Model.
TrainOptions without_model(TrainOptions options) {
  const TrainOptions defaults;
  options.model = defaults.model;
  options.hidden = defaults.hidden;
  options.dropout = defaults.dropout;
  return options;
}

template <class A, class B>
void expect_same_weights(const A& a, const B& b) {
  const std::vector<at::Tensor> left = a->parameters(), right = b->parameters();
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t i = 0; i < left.size(); ++i)
    EXPECT_TRUE(test::same_bits(left[i], right[i])) << i;
}

/// Expects the run of `Holder` to equal that of nn::Model of this kind bit for bit.
template <class Holder>
void expect_equal(nn::ModelKind kind, TrainOptions options) {
  options.model = kind;
  options.hidden = kHidden;
  options.dropout = 0;
  options.learning_rate = 0.1;
  const TrainResult expected = train(two_rings(), options);

  Holder own = of_seed<Holder>(options.seed);
  options = without_model(options);
  options.self_loops = kind == nn::ModelKind::kGcn;
  const TrainResult run = train(two_rings(), own, options);
  EXPECT_EQ(run.losses, expected.losses);
  EXPECT_NE(run.losses.front(), run.losses.back());
  EXPECT_EQ(run.best_epoch, expected.best_epoch);
  EXPECT_EQ(run.last.test, expected.last.test);
  EXPECT_EQ(run.skipped_steps, expected.skipped_steps);
  EXPECT_EQ(run.num_parameters, expected.num_parameters);
  EXPECT_EQ(run.model, "own");
  EXPECT_FALSE(own->is_training());
  expect_same_weights(own, expected.trained.model);
  EXPECT_TRUE(
      test::same_bits(run.trained.logits(two_rings()), expected.trained.logits(two_rings())));
  const at::Tensor nodes = at::tensor({39, 0, 7, 0}, at::kInt);
  EXPECT_TRUE(test::same_bits(run.trained.logits(two_rings(), nodes),
                              expected.trained.logits(two_rings(), nodes)));
  EXPECT_EQ(evaluate(two_rings(), run.trained).val, run.best.val);
}

TEST(OwnModel, equals_the_model_of_the_same_layers_in_every_precision) {
  for (const auto precision : {amp::Precision::kFloat32, amp::Precision::kTensorFloat32,
                               amp::Precision::kBFloat16, amp::Precision::kFloat16}) {
    SCOPED_TRACE(amp::to_string(precision));
    for (TrainOptions options : {quick_options(), sampled_options(SamplerKind::kNeighbor)}) {
      options.precision = precision;
      expect_equal<Sage>(nn::ModelKind::kSage, options);
      expect_equal<Gcn>(nn::ModelKind::kGcn, options);
    }
  }
}

TEST(OwnModel, equals_the_model_of_the_same_layers_with_every_sampler) {
  mezzo::detail::for_each(SamplerKinds{}, [&]<class Sampler>() {
    if (Sampler::kind == SamplerKind::kLayer) return;
    SCOPED_TRACE(Sampler::name);
    expect_equal<Sage>(nn::ModelKind::kSage, sampled_options(Sampler::kind));
    expect_equal<Gcn>(nn::ModelKind::kGcn, sampled_options(Sampler::kind));
  });
}

TEST(OwnModel, may_be_a_model_that_the_program_has_made) {
  const nn::Model made(kFeatures, kClasses,
                       {.kind = nn::ModelKind::kSage,
                        .hidden_features = kHidden,
                        .dropout = 0,
                        .activation = [](const at::Tensor& h) { return h.tanh(); }});
  const TrainResult run = train(two_rings(), made, without_model(quick_options()));
  EXPECT_EQ(run.trained.model.ptr(), made.ptr());
  EXPECT_LT(run.losses.back(), run.losses.front());
  EXPECT_TRUE(throws<InvalidArgument>(
      [] { train(two_rings(), nn::Model(kFeatures, 3), without_model(quick_options())); },
      {"model: expected logits of 2 classes, got out_features 3"}));
}

TEST(OwnModel, resumes_bit_for_bit) {
  const test::TempFolder folder;
  for (TrainOptions options : {quick_options(), sampled_options(SamplerKind::kSaintNode)}) {
    options = without_model(options);
    options.precision = amp::Precision::kFloat16;
    options.checkpoint = folder.path("whole");
    const Sage whole = of_seed<Sage>(5);
    const TrainResult expected = train(two_rings(), whole, options);

    options.epochs = 5;
    options.checkpoint = folder.path("half");
    train(two_rings(), of_seed<Sage>(5), options);
    options.epochs = 10;
    options.resume = options.checkpoint;
    const Sage resumed = of_seed<Sage>(6);  // other weights, which the checkpoint replaces
    EXPECT_EQ(train(two_rings(), resumed, options).losses, expected.losses);
    expect_same_weights(resumed, whole);
    test::expect_same_weights(read_checkpoint(folder.path("half")),
                              read_checkpoint(folder.path("whole")));
  }
}

TEST(OwnModel, is_read_from_its_checkpoint_and_starts_another_run) {
  const test::TempFolder folder;
  TrainOptions options = without_model(quick_options());
  options.checkpoint = folder.path("c");
  const TrainResult run = train(two_rings(), Sage(), options);
  const Sage read;
  const TrainedModel trained = load_checkpoint(options.checkpoint, read);
  expect_same_weights(read, run.trained.model);
  EXPECT_FALSE(read->is_training());
  EXPECT_EQ(trained.epoch, run.best_epoch);
  EXPECT_EQ(trained.options.layers, 2);
  EXPECT_TRUE(test::same_bits(trained.logits(two_rings()), run.trained.logits(two_rings())));
  EXPECT_EQ(evaluate(two_rings(), trained).test, run.best.test);

  // A run that changes nothing: the first loss is that of the weights read.
  TrainOptions start = trained.options;
  start.init = options.checkpoint;
  start.epochs = 1;
  start.learning_rate = 1e-30;
  start.weight_decay = 0;
  const Sage started;
  train(two_rings(), started, start);
  expect_same_weights(started, read);
}

TEST(OwnModel, its_checkpoint_needs_the_same_model) {
  const test::TempFolder folder;
  TrainOptions options = without_model(quick_options());
  const std::string own = options.checkpoint = folder.path("own");
  train(two_rings(), Sage(), options);
  EXPECT_TRUE(throws<IoError>(
      [&] { load_checkpoint(own); },
      {own, "expected one of gcn, sage,", "got a model of your own", "load_checkpoint()"}));
  EXPECT_TRUE(throws<IoError>([&] { load_checkpoint(own, Cut(40, 2)); },
                              {own, "expected 2 layers, got 1"}));
  EXPECT_TRUE(throws<IoError>([&] { load_checkpoint(own, Sage(4)); }, {own, "own.first."}));
  EXPECT_TRUE(throws<IoError>([&] { load_checkpoint(own, Sage(kHidden, "last")); },
                              {"expected the weight 'own.last.", "got 'own.second."}));
  TrainOptions resumed = quick_options();
  resumed.resume = own;
  EXPECT_TRUE(throws<InvalidArgument>([&] { train(two_rings(), resumed); },
                                      {R"(model "own", this run has "gcn")"}));

  TrainOptions gcn = quick_options();
  const std::string of_kind = gcn.checkpoint = folder.path("gcn");
  train(two_rings(), gcn);
  EXPECT_TRUE(throws<IoError>([&] { load_checkpoint(of_kind, Sage()); },
                              {of_kind, "expected a model of your own, got gcn"}));
  options.checkpoint.clear();
  options.resume = of_kind;
  EXPECT_TRUE(throws<InvalidArgument>([&] { train(two_rings(), Sage(), options); },
                                      {R"(model "gcn", this run has "own")"}));
  options.resume.clear();
  options.init = of_kind;
  EXPECT_TRUE(throws<InvalidArgument>([&] { train(two_rings(), Sage(), options); },
                                      {"init:", "model gcn, this run has own"}));
}

TEST(OwnModel, takes_the_recommended_options_of_training) {
  TrainOptions options =
      recommended_options(two_rings(), {.model = nn::ModelKind::kOwn, .learning_rate = 7});
  const TrainOptions of_gcn = recommended_options(two_rings(), {});
  EXPECT_EQ(options.epochs, of_gcn.epochs);
  EXPECT_EQ(options.patience, of_gcn.patience);
  EXPECT_EQ(options.learning_rate, of_gcn.learning_rate);
  EXPECT_EQ(options.weight_decay, 0);
  options.epochs = 2;
  EXPECT_EQ(train(two_rings(), Sage(), options).epochs_run, 2);
}

TEST(OwnModel, takes_no_options_that_it_does_not_read) {
  const auto refusal = [](const std::string& text, auto change) {
    TrainOptions options = without_model(quick_options());
    options.precision = amp::Precision::kBFloat16;
    change(options);
    return throws<InvalidArgument>([&] { train(two_rings(), Sage(), options); }, {text});
  };
  EXPECT_TRUE(refusal("hidden: expected the default", [](auto& o) { o.hidden = 8; }));
  EXPECT_TRUE(refusal("heads: expected the default", [](auto& o) { o.heads = 2; }));
  EXPECT_TRUE(refusal("output-heads: expected the default", [](auto& o) { o.output_heads = 2; }));
  EXPECT_TRUE(refusal("dropout: expected the default", [](auto& o) { o.dropout = 0; }));
  EXPECT_TRUE(refusal("attention-dropout: expected the default",
                      [](auto& o) { o.attention_dropout = 0.5; }));
  EXPECT_TRUE(refusal("norm: expected the default",
                      [](auto& o) { o.normalization = nn::Normalization::kLayer; }));
  EXPECT_TRUE(refusal("skip: expected the default", [](auto& o) { o.skip = true; }));
  EXPECT_TRUE(
      refusal("keep-float32: expected the default", [](auto& o) { o.keep_float32 = {"layer0"}; }));
  EXPECT_TRUE(refusal("model: expected the default with a model of your own, got sage",
                      [](auto& o) { o.model = nn::ModelKind::kSage; }));
  EXPECT_TRUE(refusal("layers: expected the default or the 2 layers of the model, got 3",
                      [](auto& o) { o.layers = 3; }));
  EXPECT_TRUE(refusal("fanout: expected one number for each of the 2 layers, got 1", [](auto& o) {
    o.sampling = SamplingOptions{.batch_size = 4, .fanouts = {2}};
  }));
  EXPECT_TRUE(refusal("sampler: layer needs a model that takes edge weights",
                      [](auto& o) { o.sampling = sampled_options(SamplerKind::kLayer).sampling; }));
  EXPECT_TRUE(refusal("control-variates: expected the model gcn or sage, got own", [](auto& o) {
    o.sampling = sampled_options(SamplerKind::kNeighbor).sampling;
    o.sampling->control_variates = true;
  }));
  TrainOptions missing = without_model(quick_options());
  missing.model = nn::ModelKind::kOwn;
  EXPECT_TRUE(throws<InvalidArgument>([&] { train(two_rings(), missing); },
                                      {"expected one of gcn, sage,", "pass it to train()"}));
}

TEST(OwnModel, wrong_modules_are_errors_that_say_why) {
  const TrainOptions options = without_model(quick_options());
  const auto refusal = [&](const nn::Model& model, const std::string& text) {
    return throws<InvalidArgument>([&] { train(two_rings(), model, options); }, {text});
  };
  EXPECT_TRUE(refusal(Cut(40, 3), "expected layer 0 of 1 to return [40, 2], one row per"));
  EXPECT_TRUE(refusal(Cut(39, 2), "expected layer 0 of 1 to return [40, 2], one row per"));
  EXPECT_TRUE(refusal(Cut(40, 2, at::kDouble), "model: expected float32 parameters, got"));
  EXPECT_TRUE(refusal(Cut(40, 2, at::kFloat, false), "model: expected parameters, got none"));
  EXPECT_TRUE(refusal(Sage(nullptr), "train: expected a model, got none"));
  TrainOptions sampled = options;
  sampled.sampling = SamplingOptions{.batch_size = 4, .fanouts = {2}};
  EXPECT_TRUE(throws<InvalidArgument>([&] { train(two_rings(), Cut(40, 1), sampled); },
                                      {"expected layer 0 of 1 to return [4, 2], one row per"}));
}

}  // namespace
}  // namespace mezzo
