#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "mezzo/data/dataset.h"
#include "mezzo/train/options.h"
#include "mezzo/train/problem.h"
#include "mezzo/train/ranks.h"
#include "mezzo/train/report/report.h"
#include "mezzo/train/state.h"
#include "mezzo/train/step.h"

/// What an epoch consists of. Internal to train; not exported.
namespace mezzo {

/// The steps of the epochs of a run: one on the full graph, or one a mini-batch.
class EpochSteps {
 public:
  virtual ~EpochSteps() = default;
  virtual std::int64_t num_batches() const = 0;  ///< of an epoch, >= 1
  /// Goes to a batch of an epoch, both from 0.
  virtual void begin(std::int64_t epoch, std::int64_t batch) = 0;
  /// Takes the step of the batch, and goes to the next one.
  virtual StepResult next(TrainState& state) = 0;
  /// Drops what was prepared of the epoch.
  virtual void end() {}
  /// What the mini-batches so far took; nothing on the full graph.
  virtual std::optional<SamplingReport> sampling() const { return std::nullopt; }
};

/// Those that the options ask for, on this process's share of the training nodes of `problem`,
/// which outlives them. As many batches on all ranks. Communicates where the data are a part.
/// Throws InvalidArgument where there are no training nodes, or no batches of them.
std::unique_ptr<EpochSteps> make_epoch_steps(const Problem& problem, const Dataset& dataset,
                                             const TrainOptions& options, Ranks& ranks);

/// Of make_epoch_steps(), for options with sampling. seed: of the draws.
std::unique_ptr<EpochSteps> make_sampled_steps(const Problem& problem, const TrainingNodes& nodes,
                                               const TrainOptions& options, std::uint64_t seed);

}  // namespace mezzo
