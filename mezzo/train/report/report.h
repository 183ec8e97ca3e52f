#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mezzo/core/error.h"
#include "mezzo/core/export.h"
#include "mezzo/core/table.h"

namespace mezzo {

/// The data set's metric on the three parts of a split; NaN for a part without nodes.
struct Scores {
  double train = std::numeric_limits<double>::quiet_NaN();
  double val = std::numeric_limits<double>::quiet_NaN();
  double test = std::numeric_limits<double>::quiet_NaN();
};

/// The scores after an epoch; epochs count from 1.
struct EvaluationRecord {
  std::int64_t epoch = 0;
  Scores scores;
};

/// Why a run ended.
enum class StopReason : std::uint8_t {
  kEpochs,       ///< all epochs done
  kPatience,     ///< no better validation score for too long
  kInterrupted,  ///< TrainCallbacks::should_stop
};

/// Counts and times of the mini-batches of a run, of this process alone and from its start; plain
/// values. Seconds of samples, gathers and transfers are sums over the workers, which prepare
/// batches while the trainer computes. Work of a CUDA device counts where the host next waits for
/// it.
struct SamplingReport {
  std::string sampler;
  std::string drawn_on = "host";  ///< or "device"; see SamplePlace
  std::int64_t workers = 0;       ///< 0: the trainer's own thread
  std::int64_t batches_per_epoch = 0;
  std::int64_t batches = 0;        ///< trained on
  std::int64_t sampled_edges = 0;  ///< of the batches made
  std::int64_t input_nodes = 0;    ///< rows of features gathered, of the batches made
  double sample_seconds = 0;       ///< drawing and renumbering
  double gather_seconds = 0;       ///< rows of features and labels
  double transfer_seconds = 0;     ///< copies to the device
  double compute_seconds = 0;      ///< the steps, without the wait for their batches
  double wait_seconds = 0;         ///< of the trainer, for batches

  /// Sampled edges for each second of a worker's sampling; 0 where nothing was sampled.
  double edges_per_second() const {
    return sample_seconds > 0 ? static_cast<double>(sampled_edges) / sample_seconds : 0;
  }
};

/// The result of a training run; plain values.
struct TrainReport {
  std::string dataset, model, precision, device, metric, loss_scale_policy;
  std::uint64_t seed = 0;
  std::int64_t split_index = 0;
  std::int64_t threads = 1;     ///< of each process
  std::int64_t world_size = 1;  ///< processes that trained together
  std::int64_t num_parameters = 0;

  std::int64_t epochs_run = 0;  ///< including epochs before a resume
  StopReason stopped_by = StopReason::kEpochs;
  double train_loss = std::numeric_limits<double>::quiet_NaN();  ///< of the last epoch
  std::int64_t best_epoch = 0;  ///< of the best validation score; without validation: the last
  Scores best;                  ///< at the best epoch
  Scores last;                  ///< of the last evaluation

  double epoch_ms_min = 0, epoch_ms_median = 0;  ///< training steps, without evaluation
  double evaluation_seconds = 0;                 ///< all evaluations together
  double total_seconds = 0;                      ///< everything after the data were read
  /// Of this process, from the first step on: communication and the wait for the
  /// others, without that of batch normalization.
  double communication_seconds = 0;
  std::string warning;  ///< that the run has learnt little; empty: none, and on parts of a data set
  std::int64_t peak_memory_bytes = 0;         ///< of tensors, on the device of the run
  std::int64_t steps = 0, skipped_steps = 0;  ///< skipped: inf or nan gradients
  double final_loss_scale = 1;
  std::optional<SamplingReport> sampling;  ///< of a run by mini-batches

  std::vector<double> losses, epoch_ms;       ///< one an epoch
  std::vector<double> loss_scales;            ///< after each epoch
  std::vector<EvaluationRecord> evaluations;  ///< in the order of the epochs
};

/// Base of errors at the end of a run that has a report.
class MEZZO_API EndedRun {
 public:
  explicit EndedRun(TrainReport report)
      : report_(std::make_shared<const TrainReport>(std::move(report))) {}
  const TrainReport& report() const { return *report_; }

 private:
  std::shared_ptr<const TrainReport> report_;  // copies of an exception may not throw
};

/// The run is complete, but its last checkpoint could not be written.
class MEZZO_API CheckpointError : public IoError, public EndedRun {
 public:
  CheckpointError(const std::string& text, TrainReport report)
      : IoError(text), EndedRun(std::move(report)) {}
};

/// The run is complete and its checkpoint written, but each of 16 or more steps was skipped, or no
/// output of the model is finite.
class MEZZO_API TrainingDiverged : public NumericError, public EndedRun {
 public:
  TrainingDiverged(const std::string& text, TrainReport report)
      : NumericError(text), EndedRun(std::move(report)) {}
};

/// The report as tables for people: one run in full, or one line per run and their means.
/// runs: at least one, of one model and precision.
MEZZO_API std::vector<Table> report_tables(const std::vector<TrainReport>& runs);

/// The text of report_tables().
MEZZO_API std::string format_report(const std::vector<TrainReport>& runs);

/// The report as one JSON object. One run: its fields; train, val and test are the scores at the
/// best epoch, each under the name of the metric. Several: the same fields over all
/// runs (losses and scores: means; epochs_run, steps, skipped_steps, total_seconds,
/// communication_seconds: sums; peak_memory_bytes: the largest; epoch_ms.min: the smallest;
/// epoch_ms.median, best_epoch, final_loss_scale: medians; seed: the first; sampling: sums),
/// `deviation` of the scores, and each run under `runs`. Numbers that are not finite become null.
/// error: what ended the runs after these; `error` of the object (null: empty).
MEZZO_API std::string report_to_json(const std::vector<TrainReport>& runs,
                                     const std::string& error = {});

/// One line of a comparison: some runs of one model in one precision, or the error that ended them.
struct ComparisonRow {
  std::string model, precision;
  std::vector<TrainReport> runs;  ///< the complete ones
  std::string error;              ///< empty: none
};

/// One table of all rows: score, epoch time, speed-up against fp32 of the same model, peak memory,
/// skipped steps.
MEZZO_API Table comparison_table(const std::vector<ComparisonRow>& rows);

/// The text of comparison_table().
MEZZO_API std::string format_comparison(const std::vector<ComparisonRow>& rows);

/// {"results": [...], "version": ...}; each result as report_to_json, with `speed_up` (null if
/// the model has no fp32 row) and `error` (null: none).
MEZZO_API std::string comparison_to_json(const std::vector<ComparisonRow>& rows);

}  // namespace mezzo
