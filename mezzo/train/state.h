#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/amp/scaler/grad_scaler.h"
#include "mezzo/nn/model/model.h"
#include "mezzo/train/options/options.h"
#include "mezzo/train/problem.h"
#include "mezzo/train/report/report.h"

namespace torch::optim {
class Optimizer;  // its header costs seconds
}

namespace mezzo {

/// An unfinished epoch; plain values.
struct BegunEpoch {
  std::int64_t batches = 0;     ///< done, by each process
  std::int64_t world_size = 1;  ///< number of processes
  double loss_sum = 0;          ///< over their training nodes, by weight
  double weight = 0;            ///< of these
  double milliseconds = 0;      ///< of the steps

  double mean_loss() const { return loss_sum / weight; }
};

/// What happened in a run so far; plain values.
struct History {
  std::vector<double> losses, epoch_ms;  ///< one an epoch
  std::vector<double> loss_scales;       ///< after each epoch
  std::vector<EvaluationRecord> evaluations;
  std::int64_t steps = 0, skipped_steps = 0, skipped_in_a_row = 0;
  double evaluation_seconds = 0, total_seconds = 0, communication_seconds = 0;
  std::int64_t peak_memory_bytes = 0;
  BegunEpoch begun;  ///< the epoch in progress

  /// Epochs done.
  std::int64_t epoch() const { return static_cast<std::int64_t>(losses.size()); }
};

/// The evaluation with the best validation score (the first of equal ones), or nullptr. Epochs
/// that are multiples of `eval_every` take precedence: the extra evaluation of a run's last epoch
/// counts only if there is no other, so that a resumed run chooses the same as an unbroken run.
/// Without validation scores: the last one.
MEZZO_API const EvaluationRecord* best_evaluation(const History& history, std::int64_t eval_every,
                                                  Metric metric);

/// The parts of an epoch's mean loss, loss_sum over weight, that a step adds.
struct LossTotals {
  double loss_sum = 0;
  double weight = 0;  ///< 0: the batch had no training node, and no step was taken
};

/// Everything that changes during training.
class TrainState {
 public:
  /// Seeds libtorch's generators with options.seed, then makes the model (float32, on the device;
  /// batch_normalization as in nn::ModelOptions; `own`: see make_model()), the optimizer and the
  /// scaler.
  TrainState(const TrainOptions& options, const Problem& problem,
             nn::NormalizationFactory batch_normalization = {}, nn::Model own = nullptr);
  ~TrainState();
  TrainState(const TrainState&) = delete;
  TrainState& operator=(const TrainState&) = delete;

  nn::Model model{nullptr};
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  amp::GradScaler scaler;
  History history;
  std::vector<at::Tensor> best_weights;  ///< of the best epoch so far; empty before the first
  NumberScale number_scale;              ///< the problem's
  /// Called between the backward and the scaler's step, to reduce gradients and totals over all
  /// processes; empty for one process. `meanwhile`: see take_step().
  std::function<void(LossTotals&, const std::function<void()>& meanwhile)> exchange;
};

/// The optimizer of that kind with default options: libtorch's on the CPU; for parameters on CUDA
/// the fused one, which decides on the device whether to skip a step. Each can load the saved state
/// of the other.
MEZZO_API std::unique_ptr<torch::optim::Optimizer> make_optimizer(
    OptimizerKind kind, double learning_rate, double weight_decay,
    std::vector<at::Tensor> parameters);

/// The options of the scaler for `scale` in a run of that precision.
amp::GradScalerOptions scaler_options(const LossScale& scale, amp::Precision precision,
                                      at::Device device);

/// The latest step of a run.
struct LatestStep {
  std::int64_t epoch = 0;  ///< from 1
  double loss = 0;
  double loss_scale = 1;  ///< after it
  amp::Precision precision = amp::Precision::kFloat32;
  double learning_rate = 0;
};

/// Throws NumericError if no target has finite outputs and a smaller loss scale cannot fix it;
/// warns, once a process, if some targets have none.
void check_outputs(const EvaluatedTargets& evaluated, const TrainState& state,
                   const TrainOptions& options);

/// Checks a finished run. Throws NumericError if it diverged: it skipped all of its 16 or more
/// steps, or no target has finite outputs. evaluated: of its last evaluation.
void check_end(const History& history, amp::Precision precision, const EvaluatedTargets& evaluated);

/// Counts a step. Throws NumericError if the run has diverged: the loss is inf or nan (for float16
/// with a dynamic scale: and the scale has fallen below 2^-24), or too many steps in a row were
/// skipped.
void count_step(History& history, const amp::GradScaler& scaler, const LatestStep& step,
                bool skipped);

/// A report of what the state, the options and the metric decide. The other fields (dataset,
/// world_size, stopped_by, warning, sampling) keep their defaults.
TrainReport report_of(const TrainState& state, const TrainOptions& options, Metric metric);

/// The warning for a run on a whole data set that has learnt next to nothing; empty for others and
/// for short runs.
std::string learning_warning(const TrainReport& report, const Problem& problem);

/// The parameters, then the buffers, in the order of registration; not copies.
std::vector<at::Tensor> weights_of(const torch::nn::Module& model);
/// Their names.
std::vector<std::string> weight_names(const torch::nn::Module& model);
/// Copies of weights_of().
std::vector<at::Tensor> copy_weights(const torch::nn::Module& model);
/// Sets every weight. weights: the result of copy_weights for a model of the same shape.
void restore_weights(torch::nn::Module& model, const std::vector<at::Tensor>& weights);

}  // namespace mezzo
