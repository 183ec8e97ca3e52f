#include "mezzo/train/image_trainer.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <torch/optim/optimizer.h>

#include "mezzo/core/error.h"
#include "mezzo/core/random.h"
#include "mezzo/message_passing/memory.h"
#include "mezzo/train/clock.h"
#include "mezzo/train/files.h"
#include "mezzo/train/image_checkpoint.h"
#include "mezzo/train/step.h"

namespace mezzo {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// The seed of an epoch's order.
std::uint64_t order_seed(std::uint64_t seed, std::int64_t epoch) {
  constexpr std::uint64_t kStream = 0x6F72646572;  // of this use of the generator
  return random_bits(seed, kStream, static_cast<std::uint64_t>(epoch));
}

void check_data(const ImageData& data, const ImageOptions& options) {
  const ImageDataset &train = data.train, &test = data.test;
  const std::int64_t height = train.images.size(2), width = train.images.size(3);
  MEZZO_CHECK(std::min(height, width) >= nn::CNNImpl::kLeastExtent,
              "dataset {}: expected images of at least {} x {}, got {} x {}", train.name,
              nn::CNNImpl::kLeastExtent, nn::CNNImpl::kLeastExtent, height, width);
  MEZZO_CHECK(test.images.sizes().slice(1) == train.images.sizes().slice(1) &&
                  test.num_classes() == train.num_classes(),
              "dataset {}: the test images have another shape or number of classes", train.name);
  const bool single = options.batch_size == 1 || train.size() % options.batch_size == 1;
  MEZZO_CHECK(!single || std::max(height, width) >= nn::CNNImpl::kLeastExtentOfOne,
              "batch-size: {} images in batches of {} leave one alone, which batch normalization "
              "cannot train on at {} x {}",
              train.size(), options.batch_size, height, width);
}

/// One run, from the options to the report.
class ImageRun {
 public:
  ImageRun(const ImageData& data, const ImageOptions& options, const ImageCallbacks& callbacks);
  TrainReport run();

 private:
  void epoch();
  std::int64_t step(const ImageBatches& batches);
  void count(const StepResult& step, const at::Tensor& logits, const at::Tensor& labels);
  bool evaluate();
  bool wants_stop();
  void tell(const ImageBatches& batches, std::int64_t images, std::optional<Scores> scores) const;
  void save();
  TrainReport report() const;

  const ImageData& data_;
  const ImageOptions& options_;
  const ImageCallbacks& callbacks_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point saved_ = start_;
  ImageState state_;
  double seconds_before_ = 0;  // of the run that is resumed
  double loss_scale_ = 1;      // after the latest step
  bool stopped_ = false;
};

const ImageOptions& checked(const ImageOptions& options, const ImageData& data) {
  check_options(options);
  check_data(data, options);
  if (!options.checkpoint.empty()) check_writable("checkpoint", options.checkpoint);
  reset_peak_memory(options.device);
  return options;
}

ImageRun::ImageRun(const ImageData& data, const ImageOptions& options,
                   const ImageCallbacks& callbacks)
    : data_(data),
      options_(checked(options, data)),
      callbacks_(callbacks),
      state_(options, data.train) {
  if (!options.resume.empty()) {
    resume_image_checkpoint(options.resume, options, data, state_);
    seconds_before_ = state_.history.total_seconds;
    MEZZO_CHECK(state_.history.epoch() < options.epochs,
                "resume: {} has done {} epochs already, and epochs is {}", options.resume,
                state_.history.epoch(), options.epochs);
  }
  loss_scale_ = state_.scaler.get_scale();
}

bool ImageRun::wants_stop() {
  stopped_ = stopped_ || (callbacks_.should_stop && callbacks_.should_stop());
  return stopped_;
}

/// Returns how many images there were.
std::int64_t ImageRun::step(const ImageBatches& batches) {
  const Clock::time_point start = Clock::now();
  const ImageBatch batch = batches[state_.partial.batches];
  const at::Tensor labels = batch.labels.to(options_.device);
  state_.model->train();
  state_.optimizer->zero_grad();
  at::Tensor logits;
  const auto forward = [&] {
    logits = state_.model->forward(batch.images.to(options_.device)).to(at::kFloat);
    return at::cross_entropy_loss(logits, labels);
  };
  const at::Tensor loss = scaled_backward(options_.precision, options_.device, state_.scaler,
                                          forward, {.cpu_policy = options_.cpu_policy});
  state_.scaler.step(*state_.optimizer);
  count(read_step(finish_step(state_.scaler, *state_.optimizer, loss)), logits.detach(), labels);
  state_.partial.milliseconds += 1e3 * seconds_since(start);
  return labels.size(0);
}

void ImageRun::count(const StepResult& step, const at::Tensor& logits, const at::Tensor& labels) {
  PartialEpoch& partial = state_.partial;
  ++partial.batches;
  partial.images += labels.size(0);
  partial.correct += count_correct(logits, labels);
  partial.loss_sum += step.loss * static_cast<double>(labels.size(0));
  History& history = state_.history;
  loss_scale_ = step.loss_scale;
  count_step(history, state_.scaler,
             {.epoch = history.epoch() + 1,
              .loss = step.loss,
              .loss_scale = step.loss_scale,
              .precision = options_.precision,
              .learning_rate = options_.learning_rate},
             step.skipped);
}

/// Adds the epoch to the history; false where it was told to stop before that.
bool ImageRun::evaluate() {
  const Clock::time_point start = Clock::now();
  std::int64_t correct = 0;
  const bool whole = for_each_batch_logits(
      state_.model, data_.test, options_, [this] { return wants_stop(); },
      [&](const at::Tensor& logits, const at::Tensor& labels) {
        correct += count_correct(logits, labels);
      });
  if (!whole) return false;
  const auto share = [](std::int64_t part, std::int64_t all) {
    return static_cast<double>(part) / static_cast<double>(all);
  };
  History& history = state_.history;
  const PartialEpoch& partial = state_.partial;
  history.losses.push_back(partial.mean_loss());
  history.epoch_ms.push_back(partial.milliseconds);
  history.evaluations.push_back({history.epoch(),
                                 {.train = share(partial.correct, partial.images),
                                  .val = kNan,
                                  .test = share(correct, data_.test.size())}});
  history.evaluation_seconds += seconds_since(start);
  return true;
}

void ImageRun::tell(const ImageBatches& batches, std::int64_t images,
                    std::optional<Scores> scores) const {
  if (!callbacks_.on_step) return;
  const PartialEpoch& partial = state_.partial;
  callbacks_.on_step({.epoch = state_.history.epoch() + (scores ? 0 : 1),
                      .epochs = options_.epochs,
                      .batch = partial.batches,
                      .batches = batches.size(),
                      .loss = partial.mean_loss(),
                      .loss_scale = loss_scale_,
                      .images = images,
                      .scores = scores});
}

void ImageRun::epoch() {
  const ImageBatches batches = data_.train.batches(
      options_.batch_size, /*shuffle=*/true, order_seed(options_.seed, state_.history.epoch() + 1));
  while (state_.partial.batches < batches.size()) {
    if (wants_stop()) return;
    const std::int64_t images = step(batches);
    tell(batches, images, std::nullopt);
    if (seconds_since(saved_) > kCheckpointSeconds) save();
  }
  if (!evaluate()) return;
  tell(batches, /*images=*/0, state_.history.evaluations.back().scores);
  state_.partial = {};
}

void ImageRun::save() {
  History& history = state_.history;
  history.peak_memory_bytes =
      std::max(history.peak_memory_bytes, peak_memory_bytes(options_.device));
  history.total_seconds = seconds_before_ + seconds_since(start_);
  if (options_.checkpoint.empty()) return;
  write_image_checkpoint(options_.checkpoint, options_, data_, state_);
  reset_peak_memory(options_.device);  // the copies for the file are none of training's
  saved_ = Clock::now();
}

TrainReport ImageRun::run() {
  while (!stopped_ && state_.history.epoch() < options_.epochs) epoch();
  std::string unsaved;
  try {
    save();
  } catch (const IoError& error) {
    unsaved = error.what();
  }
  TrainReport made = report();
  if (!unsaved.empty()) throw CheckpointError(unsaved, std::move(made));
  if (stopped_) return made;  // it may be resumed
  try {
    check_end(state_.history, options_.precision, /*nodes=*/{});
  } catch (const NumericError& error) {
    throw LearntNothing(error.what(), std::move(made));
  }
  return made;
}

TrainReport ImageRun::report() const {
  const History& history = state_.history;
  TrainReport report = report_of(history, *state_.model, state_.scaler, options_.loss_scale);
  report.dataset = data_.train.name;
  report.model = kImageModel;
  report.precision = amp::to_string(options_.precision);
  report.device = options_.device.str();
  report.metric = "accuracy";
  report.seed = options_.seed;
  report.stopped_by = stopped_ ? StopReason::kInterrupted : StopReason::kEpochs;
  report.best_epoch = history.epoch();
  report.train_loss = state_.partial.images > 0 ? state_.partial.mean_loss() : kNan;
  if (history.epoch() > 0) {
    report.train_loss = history.losses.back();
    report.best = report.last = history.evaluations.back().scores;
  }
  return report;
}

}  // namespace

TrainReport train_images(const ImageData& data, const ImageOptions& options,
                         const ImageCallbacks& callbacks) {
  return ImageRun(data, options, callbacks).run();
}

}  // namespace mezzo
