#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "mezzo/core/export.h"
#include "mezzo/train/image_options.h"
#include "mezzo/train/report.h"

namespace mezzo {

/// What on_step is told.
struct ImageStepRecord {
  std::int64_t epoch = 0;    ///< from 1
  std::int64_t epochs = 0;   ///< how many the run may do
  std::int64_t batch = 0;    ///< of this epoch done, from 1
  std::int64_t batches = 0;  ///< of an epoch
  double loss = 0;           ///< mean over the images of this epoch so far
  double loss_scale = 1;
  std::int64_t images = 0;       ///< of this batch
  std::optional<Scores> scores;  ///< of the epoch that ended: one more call after its evaluation
};

/// Calls of the trainer to its user; empty ones are left out.
struct ImageCallbacks {
  std::function<void(const ImageStepRecord&)> on_step;
  /// Asked before every batch, of training and of evaluation; true ends the run there.
  std::function<bool()> should_stop;
};

/// Trains nn::CNN on data.train by mini-batches in a new order each epoch, the last one with what
/// is left, and evaluates it on data.test after each. Weights are float32; the loss is the cross
/// entropy. In the report `train` is the accuracy of the predictions made while training, `val` is
/// missing, best and last are the last epoch, losses are means over images, and epoch_ms counts the
/// steps alone; where no epoch was completed the times and scores are NaN and train_loss is that of
/// the batches done.
///
/// Sets the seed of libtorch's generators. The result depends on the data, the options, the number
/// of threads and, under the CPU policy of a 16-bit precision, on what it has chosen on this
/// machine (MEZZO_CPU_POLICY fixes it). A run that was interrupted, also within an epoch, and
/// resumed continues bit for bit.
///
/// The checkpoint is written at the end, also of an interrupted run, and about once a minute.
///
/// Throws InvalidArgument before any work for options out of range and data that do not fit the
/// model or each other; IoError where a file cannot be read or written; NumericError where the run
/// diverged, as train() does.
MEZZO_API TrainReport train_images(const ImageData& data, const ImageOptions& options,
                                   const ImageCallbacks& callbacks = {});

}  // namespace mezzo
