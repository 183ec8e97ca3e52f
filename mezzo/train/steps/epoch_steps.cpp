#include "mezzo/train/steps/epoch_steps.h"

#include <optional>
#include <utility>

#include "mezzo/amp/captured_step.h"

namespace mezzo {
namespace {

class FullGraphSteps : public EpochSteps {
 public:
  FullGraphSteps(const Problem& problem, TrainingNodes nodes, const TrainOptions& options)
      : problem_(problem), nodes_(std::move(nodes)), options_(options) {}

  std::int64_t num_batches() const override { return 1; }
  void begin(std::int64_t /*epoch*/, std::int64_t /*batch*/) override {}
  StepResult next(TrainState& state) override {
    return train_step(state, problem_, nodes_, options_);
  }

 private:
  const Problem& problem_;
  TrainingNodes nodes_;
  const TrainOptions& options_;
};

/// The full-graph step as a CUDA graph.
class CapturedSteps : public EpochSteps {
 public:
  CapturedSteps(const Problem& problem, TrainingNodes nodes, const TrainOptions& options)
      : problem_(problem), nodes_(std::move(nodes)), options_(options) {}

  std::int64_t num_batches() const override { return 1; }
  void begin(std::int64_t /*epoch*/, std::int64_t /*batch*/) override {}
  StepResult next(TrainState& state) override {
    if (!step_) {
      const auto queue = [this, &state] {
        return queue_train_step(state, problem_, nodes_, options_);
      };
      step_.emplace(queue, amp::CapturedStepOptions{.device = options_.device});
    }
    return read_step(step_->replay());
  }

 private:
  const Problem& problem_;
  TrainingNodes nodes_;
  const TrainOptions& options_;
  std::optional<amp::CapturedStep> step_;
};

}  // namespace

std::unique_ptr<EpochSteps> make_epoch_steps(const Problem& problem, const Dataset& dataset,
                                             const TrainOptions& options, Ranks& ranks) {
  TrainingNodes nodes = training_nodes(problem, dataset, options);
  nodes = dataset.part ? ranks.padded(nodes) : ranks.share_of(nodes, options.seed);
  if (options.sampling) {
    return make_sampled_steps(problem, nodes, options, ranks.sampler_seed(options.seed));
  }
  if (options.capture) {
    return std::make_unique<CapturedSteps>(problem, std::move(nodes), options);
  }
  return std::make_unique<FullGraphSteps>(problem, std::move(nodes), options);
}

}  // namespace mezzo
