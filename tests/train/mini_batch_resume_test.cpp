

#include "mezzo/train/files/checkpoint.h"
#include "mezzo/train/trained_model.h"
#include "mezzo/train/trainer.h"

#include "support/npy_writer.h"
#include "support/tolerance.h"
#include "train/checkpoints.h"
#include "train/link_data.h"
#include "train/mini_batches.h"
#include "train/targets.h"

namespace mezzo {
namespace {

using test::sampled_options;
using test::two_rings;

/// Trains until `batches` batches are done.
TrainReport train_batches(const Dataset& data, const TrainOptions& options, std::int64_t batches) {
  std::int64_t done = 0;
  TrainCallbacks callbacks;
  callbacks.should_stop = [&] { return ++done == batches; };
  return train(data, options, callbacks);
}

/// Compares 3 epochs of 3 or 4 batches with a run that is interrupted after `batches` batches and
/// resumed.
void expect_unbroken(TrainOptions options, std::int64_t batches,
                     const Dataset& data = two_rings()) {
  SCOPED_TRACE(batches);
  const test::TempFolder folder;
  options.epochs = 3;
  TrainReport part;
  const TrainReport whole = test::expect_unbroken(
      folder, data, options,
      [&](const TrainOptions& first) { part = train_batches(data, first, batches); });
  EXPECT_EQ(part.stopped_by, StopReason::kInterrupted);
  EXPECT_EQ(part.epochs_run, batches / whole.sampling->batches_per_epoch);
  EXPECT_LE(part.steps, batches);
}

TEST(MiniBatchResume, a_run_interrupted_in_an_epoch_equals_an_unbroken_one_in_every_precision) {
  for (const amp::Precision precision :
       {amp::Precision::kFloat32, amp::Precision::kBFloat16, amp::Precision::kFloat16}) {
    for (const std::int64_t workers : {0, 2}) {
      SCOPED_TRACE(std::string(amp::to_string(precision)) + " " + std::to_string(workers));
      TrainOptions options = sampled_options(SamplerKind::kNeighbor);
      options.model = nn::ModelKind::kSage;
      options.precision = precision;
      options.sampling->num_workers = workers;
      // Stops in the first epoch, at its end, in the second and in the last.
      for (const std::int64_t batches : {1, 3, 4, 8}) expect_unbroken(options, batches);
    }
  }
}

TEST(MiniBatchResume, a_run_interrupted_in_an_epoch_equals_an_unbroken_one_for_every_sampler) {
  mezzo::detail::for_each(SamplerKinds{}, []<class Sampler>() {
    SCOPED_TRACE(Sampler::name);
    TrainOptions options = sampled_options(Sampler::kind);
    options.dropout = 0.5;
    expect_unbroken(options, 2);
    expect_unbroken(options, 5);
  });
}

TEST(MiniBatchResume, a_run_on_links_equals_an_unbroken_one) {
  TrainOptions options = test::link_options(nn::Decoder::kDistMult);
  options.dropout = 0.5;
  options.sampling = test::link_batches();
  for (const std::int64_t batches : {1, 3, 4, 8}) {
    expect_unbroken(options, batches, test::links_within_groups(true));
  }
}

TEST(MiniBatchResume, a_run_on_edges_or_graphs_equals_an_unbroken_one) {
  for (const LabelKind kind : test::kLabelKinds) {
    for (const Dataset& data : {test::edges_with_labels(kind), test::graphs_with_labels(kind)}) {
      SCOPED_TRACE(name_of(Tasks{}, data.task()));
      TrainOptions options = test::task_options(data.target);
      options.dropout = 0.5;
      options.sampling = test::target_batches(data.target);
      for (const std::int64_t batches : {1, 3, 4, 8}) expect_unbroken(options, batches, data);
    }
  }
}

TEST(MiniBatchResume, layer_sampling_and_unshuffled_seeds_equal_an_unbroken_run) {
  for (const nn::ModelKind model : {nn::ModelKind::kGcn, nn::ModelKind::kSage}) {
    for (const std::int64_t workers : {0, 2}) {
      TrainOptions options = sampled_options(SamplerKind::kLayer);
      options.model = model;
      options.sampling->num_workers = workers;
      options.sampling->shuffle = false;
      for (const std::int64_t batches : {1, 4, 8}) expect_unbroken(options, batches);
    }
  }
}

TEST(MiniBatchResume, a_run_may_be_interrupted_twice_between_evaluations) {
  const test::TempFolder folder;
  const Dataset data = two_rings();
  TrainOptions options = sampled_options(SamplerKind::kNeighbor);
  options.epochs = 4;
  options.eval_every = 2;
  options.normalization = nn::Normalization::kBatch;
  options.checkpoint = folder.path("whole");
  const TrainReport whole = train(data, options);
  options.checkpoint = folder.path("part");
  // After a batch of the second epoch; after the third epoch; after a batch of the fourth.
  train_batches(data, options, 4);
  options.resume = options.checkpoint;
  train_batches(data, options, 5);
  train_batches(data, options, 1);
  const TrainReport resumed = train(data, options);
  EXPECT_EQ(resumed.losses, whole.losses);
  EXPECT_EQ(resumed.evaluations.size(), whole.evaluations.size());
  test::expect_same_weights(read_checkpoint(folder.path("whole")),
                            read_checkpoint(folder.path("part")));
}

TEST(MiniBatchResume, before_the_first_evaluation_the_latest_weights_are_the_best) {
  const test::TempFolder folder;
  const Dataset data = two_rings();
  TrainOptions options = sampled_options(SamplerKind::kNeighbor);
  options.checkpoint = folder.path("c");
  const TrainReport report = train_batches(data, options, 2);
  EXPECT_EQ(report.epochs_run, 0);
  EXPECT_EQ(report.best_epoch, 0);
  EXPECT_TRUE(std::isnan(report.best.val));
  EXPECT_TRUE(std::isnan(report.epoch_ms_min));
  EXPECT_TRUE(std::isfinite(report.train_loss));
  const std::string table = format_report({report});
  EXPECT_NE(table.find("interrupted"), std::string::npos) << table;

  const Checkpoint checkpoint = read_checkpoint(options.checkpoint);
  EXPECT_EQ(checkpoint.epoch, 0);
  for (std::size_t i = 0; i < checkpoint.weights.size(); ++i) {
    EXPECT_TRUE(test::same_bits(checkpoint.weights[i], checkpoint.best_weights[i]));
  }
  EXPECT_TRUE(std::isfinite(evaluate(data, load_checkpoint(options.checkpoint)).test));
}

TEST(MiniBatchResume, the_workers_may_change_and_the_batches_may_not) {
  const test::TempFolder folder;
  const Dataset data = two_rings();
  TrainOptions options = sampled_options(SamplerKind::kNeighbor);
  options.checkpoint = folder.path("c");
  train_batches(data, options, 4);
  options.resume = options.checkpoint;
  const auto expect_refused = [&](const std::string& field, auto change) {
    TrainOptions changed = options;
    change(changed.sampling);
    EXPECT_THROWS(InvalidArgument, test::fragments("resume", field), train(data, changed));
  };
  expect_refused("sampling batch-size", [](auto& sampling) { sampling->batch_size = 9; });
  expect_refused("sampling fanout", [](auto& sampling) { sampling->fanouts[0] = 3; });
  expect_refused("sampling sampler",
                 [](auto& sampling) { sampling->sampler = SamplerKind::kLabor; });
  expect_refused("sampling shuffle", [](auto& sampling) { sampling->shuffle = false; });
  expect_refused("sampling", [](auto& sampling) { sampling.reset(); });
  TrainOptions other = options;
  other.sampling->num_workers = 3;
  other.sampling->prefetch = 1;
  EXPECT_EQ(train(data, other).epochs_run, 10);
}

}  // namespace
}  // namespace mezzo
