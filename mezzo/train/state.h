#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/amp/scaler/grad_scaler.h"
#include "mezzo/nn/model/model.h"
#include "mezzo/train/options.h"
#include "mezzo/train/problem.h"
#include "mezzo/train/report/report.h"

namespace torch::optim {
class Optimizer;  // its header costs seconds
}

namespace mezzo {

/// An epoch that has begun and is not over; plain values.
struct BegunEpoch {
  std::int64_t batches = 0;     ///< done, by each process
  std::int64_t world_size = 1;  ///< processes that did them
  double loss_sum = 0;          ///< over their training nodes, by weight
  double weight = 0;            ///< of these
  double milliseconds = 0;      ///< of the steps

  double mean_loss() const { return loss_sum / weight; }
};

/// What a run has been through; plain values.
struct History {
  std::vector<double> losses, epoch_ms;  ///< one an epoch
  std::vector<EvaluationRecord> evaluations;
  std::int64_t steps = 0, skipped_steps = 0, skipped_in_a_row = 0;
  double evaluation_seconds = 0, total_seconds = 0, communication_seconds = 0;
  std::int64_t peak_memory_bytes = 0;
  BegunEpoch begun;  ///< the epoch after those

  /// Epochs done.
  std::int64_t epoch() const { return static_cast<std::int64_t>(losses.size()); }
};

/// The evaluation of the highest validation score, the first of equal ones, or nullptr. Those at
/// multiples of `eval_every` come first: another one, of a run's last epoch, counts only where
/// there are none, so that a run in two parts chooses as an unbroken one does. Without validation
/// scores: the last one.
MEZZO_API const EvaluationRecord* best_evaluation(const History& history, std::int64_t eval_every);

/// The parts of an epoch's mean loss, loss_sum over weight, that a step adds.
struct LossTotals {
  double loss_sum = 0;
  double weight = 0;  ///< 0: the batch had nothing to learn from, and no step was taken
};

/// Everything that moves while a model trains.
class TrainState {
 public:
  /// Seeds libtorch's generators with options.seed, then makes the model (float32, on the device;
  /// batch_normalization as in nn::ModelOptions), the optimizer and the scaler.
  TrainState(const TrainOptions& options, const Problem& problem,
             nn::NormalizationFactory batch_normalization = {});
  ~TrainState();
  TrainState(const TrainState&) = delete;
  TrainState& operator=(const TrainState&) = delete;

  nn::Model model{nullptr};
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  amp::GradScaler scaler;
  History history;
  std::vector<at::Tensor> best_weights;  ///< of the best epoch so far; empty before the first
  /// Called between the backward of a step and the scaler's part of it, to make gradients and
  /// totals those of all processes; empty for one. `meanwhile`: see take_step().
  std::function<void(LossTotals&, const std::function<void()>& meanwhile)> exchange;
};

/// The optimizer of that kind, its other options at their defaults: libtorch's on the CPU, and for
/// parameters on CUDA the fused one, which decides about a step on the device. Either reads the
/// archives of the other.
MEZZO_API std::unique_ptr<torch::optim::Optimizer> make_optimizer(
    OptimizerKind kind, double learning_rate, double weight_decay,
    std::vector<at::Tensor> parameters);

/// The scaler that `scale` asks for in a run of that precision.
amp::GradScalerOptions scaler_options(const LossScale& scale, amp::Precision precision,
                                      at::Device device);

/// The latest step of a run.
struct LatestStep {
  std::int64_t epoch = 0;  ///< in which it was, from 1
  double loss = 0;
  double loss_scale = 1;  ///< after it
  amp::Precision precision = amp::Precision::kFloat32;
  double learning_rate = 0;
};

/// Throws NumericError where the outputs for no node are finite and no loss scale mends it; warns,
/// once in the process, where those for some are not.
void check_outputs(const JudgedNodes& nodes, const TrainState& state, const TrainOptions& options);

/// Throws NumericError where a run that has come to its end has learnt nothing: every one of 16 or
/// more steps was skipped, or none of `nodes`, of its last evaluation, has a finite output.
void check_end(const History& history, amp::Precision precision, const JudgedNodes& nodes);

/// Counts a step. Throws NumericError where the run has diverged: the loss is inf or nan, which no
/// loss scale mends (for float16 with a dynamic scale: as soon as that has fallen below 2^-24), or
/// no step of many could be taken.
void count_step(History& history, const amp::GradScaler& scaler, const LatestStep& step,
                bool skipped);

/// What a report tells of any run on this machine: its steps, losses, evaluations and times, the
/// loss scale, the size of the model. The rest is as a report has it by default.
TrainReport report_of(const History& history, const torch::nn::Module& model,
                      const amp::GradScaler& scaler, const LossScale& loss_scale);

/// The parameters, then the buffers, in the order of their names' registration; not copies.
std::vector<at::Tensor> weights_of(const torch::nn::Module& model);
/// Their names.
std::vector<std::string> weight_names(const torch::nn::Module& model);
/// Copies that later steps do not change.
std::vector<at::Tensor> copy_weights(const torch::nn::Module& model);
/// Sets every weight. weights: as copy_weights gives them, for a model of the same shape.
void restore_weights(torch::nn::Module& model, const std::vector<at::Tensor>& weights);

}  // namespace mezzo
