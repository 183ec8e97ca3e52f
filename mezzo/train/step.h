#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

#include "mezzo/amp/precision.h"
#include "mezzo/amp/scaler/grad_scaler.h"
#include "mezzo/core/export.h"
#include "mezzo/data/dataset.h"
#include "mezzo/train/options.h"
#include "mezzo/train/problem.h"
#include "mezzo/train/state.h"

namespace mezzo {

/// What a training step compares the logits with.
struct TrainingNodes {
  at::Tensor rows;    ///< int64 [n], their numbers
  at::Tensor labels;  ///< int64 [n], or uint8 [n, C] of multi-label data
};

/// Those of the problem that make_problem gave for `dataset`. Throws InvalidArgument where there
/// are none.
TrainingNodes training_nodes(const Problem& problem, const Dataset& dataset,
                             const TrainOptions& options);

/// Adds the gradients of what `loss` gives (float32, one element; called in that precision on
/// `device`), times the scale of `scaler`, to those in the parameters. Returns the loss, detached.
/// Does not synchronise by itself.
MEZZO_API at::Tensor scaled_backward(amp::Precision precision, at::Device device,
                                     amp::GradScaler& scaler,
                                     const std::function<at::Tensor()>& loss,
                                     const amp::PrecisionOptions& options = {});

/// How a loss counts in the mean loss of its epoch: the sum of loss * factor over that of weight,
/// which counts terms (see loss.h).
struct LossShare {
  double factor = 1;
  double weight = 1;
};

/// What came of a step, on all processes together.
struct StepResult {
  double loss = 0;        ///< as loss_of() has it, without the loss factor
  bool skipped = false;   ///< for inf or nan gradients
  double loss_scale = 1;  ///< after it
  LossTotals totals = {};
};

/// Called after a step whose loss scale is moved by `scaler` next: moves it, and gives the numbers
/// of a StepResult as float64 [3] on the device of `loss`. Does not synchronise.
at::Tensor finish_step(amp::GradScaler& scaler, const torch::optim::Optimizer& optimizer,
                       const at::Tensor& loss);

/// The numbers. Synchronises once.
StepResult read_step(const at::Tensor& numbers);

/// One step that minimises what `loss` gives (float32, one element; called in the precision of the
/// options), times the loss factor. The gradients stay in the parameters, divided by the loss
/// scale unless the optimizer is a fused one; those of the step before are dropped first.
/// Communicates where state.exchange is set, and calls `meanwhile` while the gradients travel; not
/// at all where they do not. Synchronises.
StepResult take_step(TrainState& state, const TrainOptions& options, const LossShare& share,
                     const std::function<at::Tensor()>& loss,
                     const std::function<void()>& meanwhile = {});

/// take_step() on loss_of() all training nodes.
StepResult train_step(TrainState& state, const Problem& problem, const TrainingNodes& nodes,
                      const TrainOptions& options);

/// train_step() of one process, up to what finish_step() gives. Synchronises as GradScaler::step
/// does.
at::Tensor queue_train_step(TrainState& state, const Problem& problem, const TrainingNodes& nodes,
                            const TrainOptions& options);

}  // namespace mezzo
