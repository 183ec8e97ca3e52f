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

namespace mezzo {

/// The data set's metric on the three parts of a split; NaN where a part has
/// no nodes.
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
  kInterrupted,  ///< the caller asked
};

/// What the mini-batches of a run took; plain values. Of the process that reports alone: a run that
/// was resumed counts anew. Seconds of samples, gathers and transfers are sums over the workers,
/// which prepare batches while the trainer computes; what a CUDA device is given to do counts where
/// the host next waits for it.
struct SamplingReport {
  std::string sampler;
  std::string drawn_on = "host";  ///< or "device"; see SamplePlace
  std::int64_t workers = 0;       ///< 0: the trainer's own thread
  std::int64_t batches_per_epoch = 0;
  std::int64_t batches = 0;        ///< trained on
  std::int64_t sampled_edges = 0;  ///< of the batches made
  std::int64_t input_nodes = 0;    ///< of which features were gathered, likewise
  double sample_seconds = 0;       ///< drawing and renumbering
  double gather_seconds = 0;       ///< rows of features and labels
  double transfer_seconds = 0;     ///< copies to the device
  double compute_seconds = 0;      ///< the steps, without the wait for their batches
  double wait_seconds = 0;         ///< the trainer waited for a batch

  /// Sampled edges for each second of a worker's sampling; 0 where nothing was sampled.
  double edges_per_second() const {
    return sample_seconds > 0 ? static_cast<double>(sampled_edges) / sample_seconds : 0;
  }
};

/// What came of a training run; plain values.
struct TrainReport {
  std::string dataset, model, precision, device, metric, loss_scale_policy;
  std::uint64_t seed = 0;
  std::int64_t split_index = 0;
  std::int64_t threads = 1;     ///< of each process
  std::int64_t world_size = 1;  ///< processes that trained together
  std::int64_t num_parameters = 0;

  std::int64_t epochs_run = 0;  ///< those of the runs that were resumed included
  StopReason stopped_by = StopReason::kEpochs;
  double train_loss = std::numeric_limits<double>::quiet_NaN();  ///< of the last epoch
  std::int64_t best_epoch = 0;  ///< of the best validation score; without validation: the last
  Scores best;                  ///< at the best epoch
  Scores last;                  ///< of the last evaluation

  double epoch_ms_min = 0, epoch_ms_median = 0;  ///< training steps, without evaluation
  double evaluation_seconds = 0;                 ///< all evaluations together
  double total_seconds = 0;                      ///< everything after the data were read
  /// Of this rank: exchange of gradients and numbers with other processes, with
  /// the wait for them, from the first step on; without what batch normalization exchanges within
  /// a step.
  double communication_seconds = 0;
  std::int64_t peak_memory_bytes = 0;         ///< of tensors, on the device of the run
  std::int64_t steps = 0, skipped_steps = 0;  ///< skipped: for inf or nan gradients
  double final_loss_scale = 1;
  std::optional<SamplingReport> sampling;  ///< of a run by mini-batches

  std::vector<double> losses;                 ///< one an epoch
  std::vector<EvaluationRecord> evaluations;  ///< in the order of the epochs
};

/// Part of an error that came at the end of a run, of which there is a report all the same.
class MEZZO_API EndedRun {
 public:
  explicit EndedRun(TrainReport report)
      : report_(std::make_shared<const TrainReport>(std::move(report))) {}
  const TrainReport& report() const { return *report_; }

 private:
  std::shared_ptr<const TrainReport> report_;  // copies of an exception may not throw
};

/// A run came to its end, but the checkpoint there could not be written.
class MEZZO_API CheckpointError : public IoError, public EndedRun {
 public:
  CheckpointError(const std::string& text, TrainReport report)
      : IoError(text), EndedRun(std::move(report)) {}
};

/// A run came to its end and wrote its checkpoint, but has learnt nothing: every one of 16 or more
/// steps was skipped, or no output of the model is finite.
class MEZZO_API LearntNothing : public NumericError, public EndedRun {
 public:
  LearntNothing(const std::string& text, TrainReport report)
      : NumericError(text), EndedRun(std::move(report)) {}
};

/// The report as a table for people: one run in full, or one line per run and their means.
/// runs: at least one, of one model and precision.
MEZZO_API std::string format_report(const std::vector<TrainReport>& runs);

/// The report as one JSON object. One run: its fields; train_accuracy, val_accuracy, test_accuracy
/// are the data set's metric at the best epoch, whatever it is. Several: the same fields over all
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
  std::vector<TrainReport> runs;  ///< those that came to an end
  std::string error;              ///< empty: none
};

/// One table of all rows: score, epoch time, speed-up against fp32 of the same model, peak memory,
/// skipped steps.
MEZZO_API std::string format_comparison(const std::vector<ComparisonRow>& rows);

/// {"results": [...], "version": ...}; each result as report_to_json, with `speed_up` (null where
/// the model has no fp32 row) and `error` (null: none).
MEZZO_API std::string comparison_to_json(const std::vector<ComparisonRow>& rows);

}  // namespace mezzo
