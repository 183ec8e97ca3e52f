#include "mezzo/train/steps/epoch_steps.h"

#include <optional>
#include <utility>

#include "mezzo/amp/captured_step.h"

namespace mezzo {
namespace {

class FullGraphSteps : public EpochSteps {
 public:
  FullGraphSteps(FullGraphLoss loss, const TrainOptions& options)
      : loss_(std::move(loss)), options_(options) {}

  std::int64_t num_batches() const override { return 1; }
  void begin(std::int64_t /*epoch*/, std::int64_t /*batch*/) override {}
  StepResult next(TrainState& state) override { return train_step(state, loss_, options_); }

 private:
  FullGraphLoss loss_;
  const TrainOptions& options_;
};

/// The full-graph step as a CUDA graph.
class CapturedSteps : public EpochSteps {
 public:
  CapturedSteps(FullGraphLoss loss, const TrainOptions& options)
      : loss_(std::move(loss)), options_(options) {}

  std::int64_t num_batches() const override { return 1; }
  void begin(std::int64_t /*epoch*/, std::int64_t /*batch*/) override {}
  StepResult next(TrainState& state) override {
    if (!step_) {
      const auto queue = [this, &state] { return queue_train_step(state, loss_, options_); };
      step_.emplace(queue, amp::CapturedStepOptions{.device = options_.device});
    }
    return read_step(step_->replay());
  }

 private:
  FullGraphLoss loss_;
  const TrainOptions& options_;
  std::optional<amp::CapturedStep> step_;
};

}  // namespace

std::unique_ptr<EpochSteps> make_epoch_steps(const Problem& problem, const Dataset& dataset,
                                             const TrainOptions& options, Processes& processes) {
  TrainingRows rows = training_rows(problem, dataset, options);
  rows = dataset.part ? processes.padded(rows) : processes.share_of(rows, options.seed);
  if (options.sampling) {
    return make_sampled_steps(problem, rows, options, processes.sampler_seed(options.seed));
  }
  FullGraphLoss loss(problem, std::move(rows), options.loss);
  if (options.capture) return std::make_unique<CapturedSteps>(std::move(loss), options);
  return std::make_unique<FullGraphSteps>(std::move(loss), options);
}

}  // namespace mezzo
