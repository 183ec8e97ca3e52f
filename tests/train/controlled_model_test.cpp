#include "mezzo/train/steps/controlled_model.h"

#include <torch/csrc/autograd/autograd.h>

#include "mezzo/graph/transforms/transforms.h"
#include "mezzo/sampling/blocks/block_sampler.h"
#include "mezzo/train/trainer.h"

#include "support/graphs.h"
#include "support/nn_reference.h"
#include "support/npy_writer.h"
#include "support/tolerance.h"
#include "train/mini_batches.h"

namespace mezzo::test::controlled_model_test {
namespace {

const CpuOnlySuite kControlledModelOnCpu("ControlledModel", "stored activations are on the CPU");

constexpr std::int64_t kNodes = 40, kFeatures = 5, kLayers = 3;
const std::vector<nn::ModelKind> kKinds = {nn::ModelKind::kGcn, nn::ModelKind::kSage};

nn::ModelOptions small_options(nn::ModelKind kind) {
  return {.kind = kind,
          .in_features = kFeatures,
          .hidden_features = 4,
          .out_features = 3,
          .num_layers = kLayers,
          .dropout = 0,
          .skip = true,
          .allow_zero_in_degree = true};
}

/// Draws with all neighbours in the first layer.
Blocks draw(const Graph& graph, nn::ModelKind kind, std::int64_t fanout, const at::Tensor& seeds) {
  const BlockSampler sampler(graph.topology(), {.fanouts = {kAllNeighbors, fanout, fanout},
                                                .parent_degrees = kind == nn::ModelKind::kGcn});
  return sampler.sample(seeds, BatchKey{.seed = 5});
}

/// Allows some thousands of roundings at the size of the largest number.
testing::AssertionResult same_sums(const at::Tensor& got, const at::Tensor& expected) {
  const at::Tensor size = at::full_like(expected, 1 + expected.abs().max().item<double>());
  return near(got, expected, sum_bound(size, 1e4, at::kDouble));
}

at::Tensor gradient(const at::Tensor& logits, const at::Tensor& parameter) {
  const at::Tensor weights = uniform(logits.sizes(), at::kDouble, 9);
  return torch::autograd::grad({logits}, {parameter}, {weights})[0];
}

// Compares in float64 with the model on the whole graph; other tests compare that with definitions.
TEST(ControlledModel, is_the_whole_graph_if_the_stored_activations_are_those_of_the_weights) {
  const Graph graph = add_self_loop(power_law_graph(kNodes, 400, 13));
  const at::Tensor x = uniform({kNodes, kFeatures}, at::kDouble, 2), seeds = ids({7, 0, 23, 39});
  for (const nn::ModelKind kind : kKinds) {
    SCOPED_TRACE(name_of(nn::ModelKinds{}, kind));
    nn::Model model(small_options(kind));
    randomise(*model, at::kDouble);
    ControlledModel controlled(graph, model->options, at::kDouble);
    const auto run = [&](const Blocks& blocks) {
      return controlled.forward(*model, blocks, x.index_select(0, blocks.front().src_nodes()));
    };
    const Blocks few = draw(graph, kind, 1, seeds);
    const at::Tensor whole = model(graph, x);
    const at::Tensor expected = whole.index_select(0, seeds);
    EXPECT_FALSE(same_sums(run(few), expected));  // nothing is stored yet
    EXPECT_TRUE(same_sums(run(draw(graph, kind, kAllNeighbors, at::arange(kNodes))), whole));
    EXPECT_FALSE(same_sums(run(few), expected));  // nothing was stored
    run(draw(graph, kind, kAllNeighbors, at::arange(kNodes)));
    controlled.update();
    const at::Tensor logits = run(few);
    EXPECT_TRUE(same_sums(logits, expected));
    // What the last layer receives is exact, and so is the gradient of its weights.
    for (const auto& parameter : model->named_parameters()) {
      if (parameter.key().rfind("layer2.", 0) != 0) continue;
      EXPECT_TRUE(same_sums(gradient(run(few), parameter.value()),
                            gradient(model(graph, x).index_select(0, seeds), parameter.value())))
          << parameter.key();
    }
    // Activations of other weights do no harm if every neighbour is there.
    randomise(*model, at::kDouble, 100);
    const at::Tensor changed = model(graph, x).index_select(0, seeds);
    EXPECT_TRUE(same_sums(run(draw(graph, kind, kAllNeighbors, seeds)), changed));
    EXPECT_FALSE(same_sums(run(few), changed));
  }
}

TrainOptions controlled_options(nn::ModelKind model) {
  TrainOptions options = sampled_options(SamplerKind::kNeighbor);
  options.model = model;
  options.epochs = 30;
  options.learning_rate = 0.05;
  options.dropout = 0.1;
  options.sampling->fanouts = {-1, 1};
  options.sampling->control_variates = true;
  return options;
}

TEST(ControlledModel, learns_two_rings_in_every_precision) {
  for (const nn::ModelKind model : kKinds) {
    for (const amp::Precision precision : amp::kPrecisions) {
      SCOPED_TRACE(std::string(name_of(nn::ModelKinds{}, model)) + " " +
                   std::string(amp::to_string(precision)));
      TrainOptions options = controlled_options(model);
      options.precision = precision;
      const TrainReport report = train(two_rings(), options);
      EXPECT_EQ(report.best.val, 1);
      EXPECT_EQ(report.last.test, 1);
      EXPECT_LT(report.train_loss, report.losses.front());
      options.sampling->control_variates = false;
      EXPECT_NE(train(two_rings(), options).losses, report.losses);
    }
  }
}

TEST(ControlledModel, threads_and_workers_change_nothing) {
  for (const amp::Precision precision :
       {amp::Precision::kFloat32, amp::Precision::kBFloat16, amp::Precision::kFloat16}) {
    TrainOptions options = controlled_options(nn::ModelKind::kGcn);
    options.precision = precision;
    options.epochs = 4;
    options.sampling->num_workers = 0;
    const std::vector<double> losses = train(two_rings(), options).losses;
    for (const int threads : {1, 2}) {
      const ThreadCount thread_count(threads);
      for (const std::int64_t workers : {0, 1, 3}) {
        options.sampling->num_workers = workers;
        EXPECT_EQ(train(two_rings(), options).losses, losses) << threads << " " << workers;
      }
    }
  }
}

TEST(ControlledModel, what_control_variates_cannot_do_is_refused) {
  const auto refused = [](const TrainOptions& options, const std::string& text) {
    return throws<InvalidArgument>([&] { check_options(options); }, {text});
  };
  EXPECT_NO_THROW(check_options(controlled_options(nn::ModelKind::kGcn)));
  EXPECT_TRUE(refused(controlled_options(nn::ModelKind::kGat),
                      "control-variates: expected the model gcn or sage, got gat"));
  TrainOptions options = controlled_options(nn::ModelKind::kSage);
  options.device = at::Device(at::kCUDA, 0);
  EXPECT_TRUE(refused(options, "control-variates: expected the device cpu, got cuda:0"));
  options = controlled_options(nn::ModelKind::kSage);
  options.resume = "c";
  EXPECT_TRUE(refused(options, "resume: a run with control-variates cannot be resumed"));
  options = controlled_options(nn::ModelKind::kSage);
  options.layers = 1;
  options.hidden.reset();
  options.sampling->fanouts = {2};
  EXPECT_TRUE(refused(options, "control-variates: expected at least 2 layers"));
  options = sampled_options(SamplerKind::kLabor);
  options.sampling->control_variates = true;
  EXPECT_TRUE(refused(options, "control-variates: the sampler labor has no such option"));
}

}  // namespace
}  // namespace mezzo::test::controlled_model_test
