#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "mezzo/data/dataset.h"
#include "mezzo/train/options/options.h"
#include "mezzo/train/problem.h"
#include "mezzo/train/processes.h"
#include "mezzo/train/report/report.h"
#include "mezzo/train/state.h"
#include "mezzo/train/steps/step.h"

/// The steps of an epoch. Internal to train; not exported.
namespace mezzo {

/// The steps of the epochs of a run: one on the full graph, or one a mini-batch.
class EpochSteps {
 public:
  virtual ~EpochSteps() = default;
  virtual std::int64_t num_batches() const = 0;  ///< of an epoch, >= 1
  /// Moves to a batch of an epoch, both counted from 0.
  virtual void begin(std::int64_t epoch, std::int64_t batch) = 0;
  /// Trains on the current batch and moves to the next one.
  virtual StepResult next(TrainState& state) = 0;
  /// Discards batches that were prepared for the epoch.
  virtual void end() {}
  /// Statistics of the mini-batches so far; nullopt on the full graph.
  virtual std::optional<SamplingReport> sampling() const { return std::nullopt; }
};

/// The steps for `options` on this process's share of the training rows of `problem`, which must
/// outlive them. All processes have equally many batches. Communicates if the data are a part.
/// Throws InvalidArgument if there are no training rows, or not enough for a batch.
std::unique_ptr<EpochSteps> make_epoch_steps(const Problem& problem, const Dataset& dataset,
                                             const TrainOptions& options, Processes& processes);

/// Part of make_epoch_steps(), for options with sampling. seed: of the sampler.
std::unique_ptr<EpochSteps> make_sampled_steps(const Problem& problem, const TrainingRows& rows,
                                               const TrainOptions& options, std::uint64_t seed);

}  // namespace mezzo
