#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "mezzo/core/export.h"
#include "mezzo/data/dataset.h"
#include "mezzo/train/options.h"
#include "mezzo/train/report.h"

namespace mezzo {

/// What on_epoch is told.
struct EpochRecord {
  std::int64_t epoch = 0;   ///< from 1
  std::int64_t epochs = 0;  ///< how many the run may do
  double loss = 0;
  double epoch_ms = 0;  ///< of the training step
  double loss_scale = 1;
  std::optional<Scores> scores;  ///< where the epoch was evaluated
};

/// Calls of the trainer to its user; empty ones are left out.
struct TrainCallbacks {
  std::function<void(const EpochRecord&)> on_epoch;
  /// Asked after every epoch; true ends the run as if it were done.
  std::function<bool()> should_stop;
};

/// Trains a model on the full graph: every epoch is one step on all training nodes, followed by an
/// evaluation in the same precision. Weights are float32. The best epoch by the validation score is
/// kept for the checkpoint and reported beside the last.
///
/// Sets the seed of libtorch's generators. The result depends on the data, the options and the
/// number of threads that libtorch's own operations use, on nothing else; a resumed run continues
/// bit for bit.
///
/// The checkpoint is written at the end, also of an interrupted run, and about once a minute.
///
/// Throws InvalidArgument before any work for options out of range or in contradiction to one
/// another or to the data (patience without validation nodes, ...); IoError where a file cannot be
/// read or written; NumericError where the run diverged: the loss is inf or nan, which no loss
/// scale mends (for float16 with a dynamic scale: as soon as that has fallen below 2^-24), or no
/// step of many could be taken.
MEZZO_API TrainReport train(const Dataset& dataset, const TrainOptions& options,
                            const TrainCallbacks& callbacks = {});

}  // namespace mezzo
