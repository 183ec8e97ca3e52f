#include "mezzo/train/step.h"

#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <torch/optim/optimizer.h>

#include "mezzo/amp/precision.h"
#include "mezzo/core/error.h"

namespace mezzo {

TrainingNodes training_nodes(const Problem& problem, const Dataset& dataset,
                             const TrainOptions& options) {
  const at::Tensor rows = problem.masks.train.nonzero().squeeze(1);
  MEZZO_CHECK(rows.numel() > 0, "dataset {}: split {} has no training nodes", dataset.name,
              options.split_index);
  return {.rows = rows, .labels = problem.labels.index_select(0, rows)};
}

StepResult take_step(TrainState& state, const TrainOptions& options, const LossShare& share,
                     const std::function<at::Tensor()>& loss) {
  state.model->train();
  state.optimizer->zero_grad();
  std::optional<amp::PrecisionScope> scope(std::in_place, options.precision, options.device);
  const at::Tensor value = loss();
  const at::Tensor minimised = options.loss_factor == 1 ? value : value * options.loss_factor;
  // The backward of autocast belongs outside the region, that of TF32 inside.
  if (options.precision != amp::Precision::kTensorFloat32) scope.reset();
  state.scaler.scale(minimised).backward();
  StepResult result;
  if (state.exchange) {
    result.totals = {.loss_sum = value.item<double>() * share.factor, .weight = share.weight};
    state.exchange(result.totals);
    result.loss = result.totals.loss_sum / result.totals.weight;
  }
  result.skipped = state.scaler.step(*state.optimizer) == amp::StepOutcome::kSkipped;
  state.scaler.update();
  if (!state.exchange) {
    result.loss = value.item<double>();
    result.totals = {.loss_sum = result.loss * share.factor, .weight = share.weight};
  }
  return result;
}

StepResult train_step(TrainState& state, const Problem& problem, const TrainingNodes& nodes,
                      const TrainOptions& options) {
  return take_step(state, options, {}, [&] {
    const at::Tensor logits = state.model->forward(problem.topology, problem.features);
    return at::cross_entropy_loss(logits.index_select(0, nodes.rows).to(at::kFloat), nodes.labels);
  });
}

}  // namespace mezzo
