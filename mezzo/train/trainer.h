#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "mezzo/core/export.h"
#include "mezzo/data/dataset.h"
#include "mezzo/dist/group/process_group.h"
#include "mezzo/train/options/options.h"
#include "mezzo/train/report/report.h"
#include "mezzo/train/trained_model.h"

namespace mezzo {

/// The argument of on_epoch.
struct EpochRecord {
  std::int64_t epoch = 0;   ///< from 1
  std::int64_t epochs = 0;  ///< of the run, at most
  double loss = 0;
  double epoch_ms = 0;  ///< of the training step
  double loss_scale = 1;
  std::int64_t skipped_steps = 0;  ///< of the run so far: inf or nan gradients
  std::optional<Scores> scores;    ///< if the epoch was evaluated
};

/// The argument of on_batch.
struct BatchRecord {
  std::int64_t epoch = 0;    ///< from 1
  std::int64_t epochs = 0;   ///< of the run, at most
  std::int64_t batch = 0;    ///< of the epoch, from 1
  std::int64_t batches = 0;  ///< of an epoch
  double loss = 0;           ///< mean over this epoch so far; NaN before its first training node
};

/// Callbacks of a run; empty ones are skipped.
struct TrainCallbacks {
  /// Called before the first step, when data, model and sampler are ready.
  std::function<void()> on_start;
  std::function<void(const EpochRecord&)> on_epoch;
  /// Called after every mini-batch, before on_epoch; not on the full graph.
  std::function<void(const BatchRecord&)> on_batch;
  /// Called after every step. true ends the run: with an evaluation if an epoch is complete,
  /// without one within an epoch.
  std::function<bool()> should_stop;
};

/// The result of train(): its report, and the model.
struct TrainResult : TrainReport {
  /// The weights of best_epoch, those that the checkpoint has as its best: of the best validation
  /// score; without validation nodes, or before the first evaluation, the last ones.
  TrainedModel trained;
};

/// Trains a model and returns it. On the full graph an epoch is one step on all training nodes;
/// with options.sampling it is one pass over mini-batches, with a step for each, drawn on the CPU
/// or on the CUDA device (SamplingOptions::sample_on). After it the whole graph is evaluated in the
/// same precision. Weights are float32. The checkpoint and the report have both the best epoch by
/// the validation score and the last one. The loss of an epoch is the mean over its training nodes,
/// each before the step of its batch (saint: with the weights of the minimised loss).
///
/// Seeds libtorch's generators. The result depends on the data, the options, libtorch's number of
/// threads, the CPU backend (MEZZO_CPU_BACKEND selects it) and, in 16 bits on the CPU, on the
/// products that `linear` has chosen in this process (MEZZO_LINEAR selects them); not on the
/// workers of mini-batches. If these are equal, a resumed run continues bit for bit, also within an
/// epoch; its learning rate may be another. options.init starts from the best weights of a
/// checkpoint, whose data may differ in all but the numbers of features and classes.
///
/// The checkpoint is written at the end, also of an interrupted run, and about once a minute. If no
/// epoch has been evaluated, its best weights are the latest, and best and last of the report are
/// NaN. If no epoch is complete, its times are NaN too, and train_loss is that of the batches so
/// far.
///
/// Throws InvalidArgument before any work for options that are out of range or contradict one
/// another or the data (patience without validation nodes, ...), and for an epoch whose batches
/// hold no training node; IoError if a file cannot be read or written; NumericError if the run
/// diverged: the loss is inf or nan (for float16 with a dynamic scale: and the scale has fallen
/// below 2^-24), or too many steps in a row were skipped. At the end of a run, with its report:
/// CheckpointError if the last checkpoint cannot be written; unless interrupted, TrainingDiverged
/// if each of 16 or more steps was skipped or no output is finite.
MEZZO_API TrainResult train(const Dataset& dataset, const TrainOptions& options,
                            const TrainCallbacks& callbacks = {});

/// The same by all processes of the group. Each calls it with equal data and options (except for
/// files, workers and the index of the device) and trains on an equal share of the training nodes,
/// drawn once from the seed. batch_size is that of a process, so a step is on world_size times as
/// many nodes. Gradients are averaged before the scaler checks them, so all processes have the same
/// weights and skip the same steps. With all neighbours and without dropout a run equals, up to
/// rounding, that of one process with the joined batches. With batch normalization, which is over
/// the rows of all processes (dist::SyncBatchNorm1d), this holds if no two processes compute the
/// same hidden node; such a node counts once for each process.
///
/// Process 0 evaluates (on CPUs with the threads of all processes of its machine) while the others
/// wait; an evaluation must take less than the group's time-out. On parts (Dataset::part) every
/// process evaluates its own nodes. Only process 0 reads options.resume and options.init, and
/// writes options.checkpoint. Another number of processes may resume a run; an unfinished epoch
/// then starts again. Callbacks are called on every process; should_stop on any process ends all,
/// and is called before on_batch. The reports of the processes differ only in seconds, bytes and
/// sampling; each process has the model.
///
/// Throws as train(); also InvalidArgument, on all processes, if their data or options differ,
/// without sampling, with a sampler other than neighbor, labor and layer, and for fewer training
/// nodes than processes; IoError if another process fails. With one process: the same as train()
/// without group.
MEZZO_API TrainResult train(const Dataset& dataset, const TrainOptions& options,
                            const TrainCallbacks& callbacks, const dist::ProcessGroup& group);

/// The same for a model of your own (nn::LayeredModule, nn::GraphModule, or an nn::Model that you
/// have made), from its own weights, float32. It is trained in place, on options.device, and has
/// the best weights in evaluation mode at the end; the result shares it.
///
///     LayeredModule    labels of nodes; with a head (nn::HasHead) of edges, links and graphs
///     GraphModule      labels of nodes, edges and graphs; with a head also of links. On the full
///                      graph, and by batches of graphs for labels of graphs
///
/// Edge rows are the features of the data's edges. Of `options`, model and layers may stay at their
/// defaults: they become the kind and the layers of the model, as for sampling.fanouts.
/// recommended_options(dataset, {.model = nn::ModelKind::kOwn}) returns options that fit. Self
/// loops are off by default. Batches of blocks have Topology::parent_in_degrees. Checkpoints are
/// read with the model: `resume` and `init` by this function, else load_checkpoint(path, model).
/// With several processes the weights of process 0 count, and batch normalization is over the rows
/// of a process unless the model has dist::SyncBatchNorm1d.
///
/// Throws as train(); also InvalidArgument for options of the kinds of nn::Model (hidden, heads,
/// dropout, normalization, skip, readout, decoder, keep_float32, ...), for a model without
/// parameters or with others than float32, for a head that the labels need, do not need or that
/// does not fit them, for ranks of links (MRR, hits) without an nn::Head, for edge weights, for the
/// sampler layer and control variates, which need edge weights or corrections in the layers, for
/// self loops if edge rows are read, and for a layer or head that returns another shape.
MEZZO_API TrainResult train(const Dataset& dataset, nn::Model model, const TrainOptions& options,
                            const TrainCallbacks& callbacks = {});
MEZZO_API TrainResult train(const Dataset& dataset, nn::Model model, const TrainOptions& options,
                            const TrainCallbacks& callbacks, const dist::ProcessGroup& group);

}  // namespace mezzo
