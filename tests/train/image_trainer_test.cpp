#include "mezzo/train/image_trainer.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "mezzo/core/error.h"
#include "mezzo/train/checkpoint.h"
#include "mezzo/train/image_checkpoint.h"
#include "mezzo/train/trainer.h"

#include "support/idx_writer.h"
#include "support/tolerance.h"
#include "train/synthetic.h"

namespace mezzo {
namespace {

using test::throws;

ImageDataset squares(std::uint32_t count, std::uint64_t seed) {
  constexpr std::uint32_t kExtent = 12;
  const std::string pixels = test::square_pixels(count, kExtent, seed);
  at::Tensor images = at::empty({count, 1, kExtent, kExtent});
  auto* value = images.data_ptr<float>();
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    value[i] = static_cast<float>(static_cast<unsigned char>(pixels[i])) / 255;
  }
  return {images, at::arange(static_cast<std::int64_t>(count)).remainder(2), 2, "squares"};
}

/// 22 images in batches of 8, 8 and 6.
const ImageData& data() {
  static const ImageData made{.train = squares(22, 1), .test = squares(10, 2)};
  return made;
}

ImageOptions quick_image_options() {
  ImageOptions options;
  options.epochs = 2;
  options.batch_size = 8;
  options.optimizer = OptimizerKind::kSgd;  // its steps on 15 million parameters are the cheapest
  options.learning_rate = 0.05;
  options.seed = 3;
  return options;
}

TEST(ImageTrainer, learns_squares_in_every_precision_and_layout) {
  bool channels_last = false;
  for (const amp::Precision precision :
       {amp::Precision::kFloat32, amp::Precision::kBFloat16, amp::Precision::kFloat16}) {
    SCOPED_TRACE(amp::to_string(precision));
    ImageOptions options = quick_image_options();
    options.precision = precision;
    options.channels_last = std::exchange(channels_last, !channels_last);
    options.epochs = 14;  // running statistics take some steps to follow
    const TrainReport report = train_images(data(), options);
    EXPECT_EQ(report.last.train, 1);
    EXPECT_EQ(report.last.test, 1);
    EXPECT_LT(report.train_loss, report.losses.front());
    EXPECT_EQ(report.epochs_run, 14);
    EXPECT_EQ(report.steps, 42);
    EXPECT_EQ(report.model, "cnn");
    EXPECT_EQ(report.evaluations.size(), 14U);
    EXPECT_TRUE(std::isnan(report.last.val));
    EXPECT_GT(report.peak_memory_bytes, 4 * report.num_parameters);
    const bool scaled = precision == amp::Precision::kFloat16;
    EXPECT_EQ(report.loss_scale_policy, scaled ? "dynamic" : "none");
  }
}

TEST(ImageTrainer, tells_every_batch_and_the_scores_after_the_epoch) {
  ImageOptions options = quick_image_options();
  options.epochs = 1;
  std::vector<ImageStepRecord> records;
  ImageCallbacks callbacks;
  callbacks.on_step = [&](const ImageStepRecord& record) { records.push_back(record); };
  const TrainReport report = train_images(data(), options, callbacks);
  ASSERT_EQ(records.size(), 4U);
  EXPECT_EQ(records[0].images, 8);
  EXPECT_EQ(records[2].images, 6);
  EXPECT_EQ(records[2].batch, 3);
  EXPECT_EQ(records[2].batches, 3);
  EXPECT_FALSE(records[2].scores);
  ASSERT_TRUE(records[3].scores);
  EXPECT_EQ(records[3].epoch, 1);
  EXPECT_EQ(records[3].scores->test, report.last.test);
  EXPECT_EQ(report.train_loss, records[3].loss);
}

TEST(ImageTrainer, equal_options_give_equal_bits_and_another_seed_others) {
  ImageOptions options = quick_image_options();
  const TrainReport a = train_images(data(), options), b = train_images(data(), options);
  EXPECT_EQ(a.losses, b.losses);
  options.seed += 1;
  EXPECT_NE(train_images(data(), options).losses, a.losses);
}

/// Two epochs at once against ones that are stopped at a question of `stops` and resumed.
void expect_unbroken(ImageOptions options, const std::vector<std::int64_t>& stops) {
  const test::TempFolder folder;
  options.checkpoint = folder.path("whole");
  const TrainReport whole = train_images(data(), options);
  const ImageCheckpoint expected = read_image_checkpoint(folder.path("whole"));
  for (const std::int64_t stop : stops) {
    SCOPED_TRACE(stop);
    options.resume.clear();
    options.checkpoint = folder.path("part");
    std::int64_t asked = 0;
    ImageCallbacks callbacks;
    callbacks.should_stop = [&] { return ++asked >= stop; };
    const TrainReport part = train_images(data(), options, callbacks);
    EXPECT_EQ(part.stopped_by, StopReason::kInterrupted);
    EXPECT_LT(part.epochs_run, options.epochs);

    options.resume = folder.path("part");
    options.checkpoint = folder.path("resumed");
    const TrainReport resumed = train_images(data(), options);
    EXPECT_EQ(resumed.losses, whole.losses);
    EXPECT_EQ(resumed.last.train, whole.last.train);
    EXPECT_EQ(resumed.last.test, whole.last.test);
    EXPECT_EQ(resumed.steps, whole.steps);
    EXPECT_EQ(resumed.skipped_steps, whole.skipped_steps);
    EXPECT_EQ(resumed.final_loss_scale, whole.final_loss_scale);
    const ImageCheckpoint given = read_image_checkpoint(folder.path("resumed"));
    EXPECT_EQ(given.epoch, options.epochs);
    ASSERT_EQ(given.names, expected.names);
    for (std::size_t i = 0; i < given.weights.size(); ++i) {
      EXPECT_TRUE(test::same_bits(given.weights[i], expected.weights[i])) << given.names[i];
    }
  }
}

TEST(ImageTrainer, a_run_stopped_anywhere_and_resumed_equals_an_unbroken_one) {
  // Questions 1 to 3 come before the batches of an epoch, 4 and 5 before those of its evaluation.
  expect_unbroken(quick_image_options(), {1, 3, 5, 8});
}

TEST(ImageTrainer, a_resumed_float16_run_with_adam_and_channels_last_equals_an_unbroken_one) {
  ImageOptions options = quick_image_options();
  options.precision = amp::Precision::kFloat16;
  options.channels_last = true;
  options.optimizer = OptimizerKind::kAdam;
  expect_unbroken(options, {3});
}

TEST(ImageTrainer, a_run_stopped_in_its_first_epoch_reports_what_there_is) {
  ImageCallbacks callbacks;
  std::int64_t asked = 0;
  callbacks.should_stop = [&] { return ++asked == 3; };
  const TrainReport report = train_images(data(), quick_image_options(), callbacks);
  EXPECT_EQ(report.epochs_run, 0);
  EXPECT_EQ(report.steps, 2);
  EXPECT_TRUE(std::isfinite(report.train_loss));
  EXPECT_TRUE(std::isnan(report.epoch_ms_min));
  EXPECT_TRUE(std::isnan(report.last.test));
  EXPECT_FALSE(format_report({report}).empty());
}

TEST(ImageTrainer, checkpoints_evaluate_and_predict) {
  const test::TempFolder folder;
  ImageOptions options = quick_image_options();
  options.checkpoint = folder.path("c");
  const TrainReport report = train_images(data(), options);
  EXPECT_TRUE(is_image_checkpoint(folder.path("c")));
  const ImageCheckpoint checkpoint = read_image_checkpoint(folder.path("c"));
  EXPECT_EQ(checkpoint.options.batch_size, 8);
  EXPECT_EQ(evaluate(data().test, checkpoint), report.last.test);
  const Predictions predictions = predict(data().test, checkpoint);
  const double right =
      predictions.classes.eq(data().test.labels).to(at::kDouble).mean().item<double>();
  EXPECT_EQ(right, report.last.test);
  EXPECT_EQ(predictions.probabilities.sizes(), data().test.labels.sizes());
  const ImageDataset other(at::zeros({2, 3, 12, 12}), at::zeros({2}, at::kLong), 2);
  EXPECT_TRUE(throws<InvalidArgument>([&] { evaluate(other, checkpoint); }, {"channels"}));
  EXPECT_TRUE(throws<IoError>([&] { read_checkpoint(folder.path("c")); }, {"images"}));
}

TEST(ImageTrainer, a_checkpoint_of_another_run_is_refused) {
  const test::TempFolder folder;
  ImageOptions options = quick_image_options();
  options.epochs = 1;
  options.checkpoint = folder.path("c");
  train_images(data(), options);
  options.checkpoint.clear();
  options.resume = folder.path("c");
  EXPECT_TRUE(
      throws<InvalidArgument>([&] { train_images(data(), options); }, {"1 epochs already"}));
  options.epochs = 2;
  const auto refused = [&](const ImageOptions& changed, const std::string& part) {
    return throws<InvalidArgument>([&] { train_images(data(), changed); }, {"resume", part});
  };
  ImageOptions changed = options;
  changed.batch_size = 11;
  EXPECT_TRUE(refused(changed, "batch-size 8"));
  changed = options;
  changed.channels_last = true;
  EXPECT_TRUE(refused(changed, "channels-last"));
  const ImageData fewer{.train = data().train.first(16), .test = data().test};
  EXPECT_TRUE(throws<InvalidArgument>([&] { train_images(fewer, options); }, {"train 22"}));

  TrainOptions graph = test::quick_options();
  graph.checkpoint = folder.path("g");
  train(test::two_rings(), graph);
  EXPECT_FALSE(is_image_checkpoint(folder.path("g")));
  options.resume = folder.path("g");
  EXPECT_TRUE(refused(options, "this run has"));
  EXPECT_TRUE(throws<IoError>([&] { read_image_checkpoint(folder.path("g")); }, {"cnn", "gcn"}));
}

TEST(ImageTrainer, names_that_are_not_utf8_are_written_with_replacements) {
  const test::TempFolder folder;
  ImageData named = data();
  named.train.name = "caf\xe9";
  ImageOptions options = quick_image_options();
  options.epochs = 1;
  options.dataset = "/data/caf\xe9";
  options.checkpoint = folder.path("c");
  train_images(named, options);
  EXPECT_EQ(read_image_checkpoint(options.checkpoint).options.dataset, "/data/caf\xef\xbf\xbd");
  options.epochs = 2;
  options.resume = options.checkpoint;
  EXPECT_EQ(train_images(named, options).epochs_run, 2);
}

TEST(ImageTrainer, a_run_that_diverges_is_a_numeric_error) {
  ImageOptions options = quick_image_options();
  options.learning_rate = 1e38;
  EXPECT_TRUE(throws<NumericError>([&] { train_images(data(), options); }, {"diverged"}));
}

TEST(ImageTrainer, options_and_data_that_do_not_fit_are_invalid_arguments) {
  const auto refused = [](void (*change)(ImageOptions&), const std::string& part) {
    ImageOptions options = quick_image_options();
    change(options);
    return throws<InvalidArgument>([&] { train_images(data(), options); }, {part});
  };
  EXPECT_TRUE(refused([](ImageOptions& o) { o.epochs = 0; }, "epochs"));
  EXPECT_TRUE(refused([](ImageOptions& o) { o.batch_size = 0; }, "batch-size"));
  EXPECT_TRUE(refused([](ImageOptions& o) { o.batch_size = 7; }, "one alone"));
  EXPECT_TRUE(refused([](ImageOptions& o) { o.learning_rate = 0; }, "lr"));
  EXPECT_TRUE(refused([](ImageOptions& o) { o.weight_decay = -1; }, "weight-decay"));
  EXPECT_TRUE(refused([](ImageOptions& o) { o.images = 0; }, "images"));
  const ImageDataset small(at::zeros({4, 1, 8, 8}), at::zeros({4}, at::kLong), 2);
  EXPECT_TRUE(throws<InvalidArgument>(
      [&] { train_images({.train = small, .test = small}, quick_image_options()); },
      {"at least 12"}));
  EXPECT_TRUE(throws<InvalidArgument>(
      [&] { train_images({.train = data().train, .test = small}, quick_image_options()); },
      {"test"}));
}

TEST(LoadImages, reads_both_parts_and_limits_the_training_images) {
  const test::TempFolder folder;
  ImageOptions options;
  options.dataset = test::write_squares(folder, 9, 4);
  options.images = 5;
  const ImageData read = load_images(options);
  EXPECT_EQ(read.train.size(), 5);
  EXPECT_EQ(read.test.size(), 4);
  EXPECT_EQ(read.train.name, "squares");
  options.images = 10;
  EXPECT_TRUE(throws<InvalidArgument>([&] { load_images(options); }, {"1 to 9", "got 10"}));
}

}  // namespace
}  // namespace mezzo
