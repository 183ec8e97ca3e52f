#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "mezzo/core/export.h"
#include "mezzo/data/dataset.h"
#include "mezzo/dist/group/process_group.h"
#include "mezzo/train/options.h"
#include "mezzo/train/report/report.h"

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

/// What on_batch is told.
struct BatchRecord {
  std::int64_t epoch = 0;    ///< from 1
  std::int64_t epochs = 0;   ///< how many the run may do
  std::int64_t batch = 0;    ///< of this epoch done, from 1
  std::int64_t batches = 0;  ///< of an epoch
  double loss = 0;           ///< mean over this epoch so far; NaN before its first training node
};

/// Calls of the trainer to its user; empty ones are left out.
struct TrainCallbacks {
  /// Before the first step, when data, model and sampler are ready.
  std::function<void()> on_start;
  std::function<void(const EpochRecord&)> on_epoch;
  /// After every mini-batch, before the on_epoch of the epoch that it ends; not on the full graph.
  std::function<void(const BatchRecord&)> on_batch;
  /// Asked after every step, of which an epoch on the full graph has one; true ends the run: as if
  /// it were done after a whole epoch, at once and without an evaluation within one.
  std::function<bool()> should_stop;
};

/// Trains a model. On the full graph every epoch is one step on all training nodes; with
/// options.sampling it is one pass over mini-batches, with a step for each, drawn on the CPU, where
/// structure and features stay, or on the CUDA device, to which they are copied
/// (SamplingOptions::sample_on). Either is followed by an evaluation on the whole graph in the same
/// precision. Weights are float32. The best epoch by the validation score is kept for the
/// checkpoint and reported beside the last. The loss of an epoch is the mean over its training
/// nodes, in each batch before its step (saint: weighted as it minimises them).
///
/// Sets the seed of libtorch's generators. The result depends on the data, the options, the number
/// of threads that libtorch's own operations use, the kernels of this processor (MEZZO_CPU_BACKEND
/// fixes them) and, in 16 bits on the CPU, on the products that `linear` has chosen in this process
/// (MEZZO_LINEAR fixes them); not on the workers of mini-batches. Where these are the same a
/// resumed run continues bit for bit, also within an epoch.
///
/// The checkpoint is written at the end, also of an interrupted run, and about once a minute. Where
/// no epoch was evaluated before, its best weights are the latest, and best and last of the report
/// are NaN; where none was completed, so are its times, and train_loss is that of the batches done.
///
/// Throws InvalidArgument before any work for options out of range or in contradiction to one
/// another or to the data (patience without validation nodes, ...), and within an epoch whose
/// batches hold no training node; IoError where a file cannot be read or written; NumericError
/// where the run diverged: the loss is inf or nan, which no loss scale mends (for float16 with a
/// dynamic scale: as soon as that has fallen below 2^-24), or no step of many could be taken. At
/// the end of a run, with its report: CheckpointError where the last checkpoint cannot be written;
/// unless interrupted, LearntNothing where every one of 16 or more steps was skipped or no output
/// is finite.
MEZZO_API TrainReport train(const Dataset& dataset, const TrainOptions& options,
                            const TrainCallbacks& callbacks = {});

/// The same by all processes of the group, of which each calls it with equal data and options (but
/// for files, workers and the number of the device). Each trains on an equal share of the training
/// nodes, made once from the seed; batch_size is that of a process, so a step is on world_size
/// times as many nodes. The gradients of a step are averaged before the scaler checks them, so all
/// ranks hold the same weights and skip the same steps. With every neighbour and without dropout a
/// run equals, up to rounding, that of one process whose batches are those of all joined. So does
/// one with batch normalization, which is over the rows of all ranks (dist::SyncBatchNorm1d), where
/// no two ranks compute the same hidden node: such a node counts once for each.
///
/// Rank 0 evaluates, on CPUs with the threads of all processes of its machine, while the others
/// wait, which has to take less than the group's time-out; on parts (Dataset::part) every rank
/// evaluates its own nodes. Rank 0 alone reads options.resume and writes options.checkpoint. A run
/// may be resumed by another number of processes; an epoch that had begun then begins anew.
/// Callbacks are called on every rank; should_stop of any of them ends all, asked before on_batch.
/// The report is the same on all ranks but for seconds, bytes and sampling, which are each one's
/// own.
///
/// Throws as train(); also InvalidArgument, on all ranks, where data or options differ between
/// them; without sampling or with a sampler other than neighbor, labor and layer; and for fewer
/// training nodes than processes. IoError where another rank fails. A group of one process:
/// train().
MEZZO_API TrainReport train(const Dataset& dataset, const TrainOptions& options,
                            const TrainCallbacks& callbacks, const dist::ProcessGroup& group);

}  // namespace mezzo
