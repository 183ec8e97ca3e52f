#include "mezzo/train/steps/step.h"

#include <utility>

#include <ATen/ATen.h>
#include <torch/optim/optimizer.h>

#include "mezzo/core/error.h"
#include "mezzo/train/links.h"
#include "mezzo/train/steps/loss.h"

namespace mezzo {

TrainingRows training_rows(const Problem& problem, const Dataset& dataset,
                           const TrainOptions& options) {
  at::Tensor mask = problem.masks.train;
  // The negative pairs of the problem are for evaluations then.
  if (draws_negatives(problem)) mask = mask.logical_and(problem.labels.select(1, 0));
  const at::Tensor rows = mask.nonzero().squeeze(1);
  MEZZO_CHECK(rows.numel() > 0, "dataset {}: split {} has no training {}s", dataset.name,
              options.split_index, name_of(TaskTargets{}, problem.task.target));
  return {.rows = rows, .labels = problem.loss_labels.index_select(0, rows)};
}

at::Tensor scaled_backward(amp::Precision precision, at::Device device, amp::GradScaler& scaler,
                           const std::function<at::Tensor()>& loss,
                           const amp::PrecisionOptions& options) {
  amp::PrecisionScope scope(precision, device, options);
  const at::Tensor value = loss();
  scope.backward(scaler.scale(value));
  return value.detach();
}

namespace {

/// Computes the scaled gradients and returns the loss without its factor.
at::Tensor backward_of(TrainState& state, const TrainOptions& options,
                       const std::function<at::Tensor()>& loss) {
  state.model->train();
  state.optimizer->zero_grad();
  at::Tensor value;
  scaled_backward(options.precision, options.device, state.scaler, [&] {
    value = loss();
    return options.loss_factor == 1 ? value : value * options.loss_factor;
  });
  return value.detach();
}

}  // namespace

FullGraphLoss::FullGraphLoss(const Problem& problem, TrainingRows rows, LossKind loss)
    : problem_(problem), rows_(std::move(rows)), loss_(loss) {
  if (has_pairs(problem)) edges_ = problem.head_targets.edges_at(rows_.rows);
  if (draws_negatives(problem)) {
    negatives_.emplace(problem.topology.to(at::kCPU), kNegativeLinks);
    rows_.labels = at::cat({rows_.labels, at::zeros_like(rows_.labels)});
  }
}

at::Tensor FullGraphLoss::operator()(nn::Model& model) const {
  nn::ModelInput input = full_input(problem_);
  if (has_pairs(problem_)) {
    const nn::HeadTargets targets =
        negatives_ ? with_negatives(edges_, draw_negatives(*negatives_, edges_.edges.src()))
                   : edges_;
    const at::Tensor outputs =
        model->forward(std::move(input).with_targets(targets), problem_.features);
    return loss_of(outputs, rows_.labels, loss_);
  }
  const at::Tensor outputs = model->forward(std::move(input), problem_.features);
  return loss_of(outputs.index_select(0, rows_.rows), rows_.labels, loss_);
}

at::Tensor finish_step(amp::GradScaler& scaler, const torch::optim::Optimizer& optimizer,
                       const at::Tensor& loss) {
  const auto options = at::TensorOptions(loss.device()).dtype(at::kDouble);
  const at::Tensor found_inf = scaler.found_inf(optimizer);
  scaler.update();
  const at::Tensor scale = scaler.scale_tensor();
  const auto number = [&](const at::Tensor& value, double otherwise) {
    return value.defined() ? value.to(options) : at::full({}, otherwise, options);
  };
  return at::stack({number(loss.detach().reshape({}), 0), number(found_inf, 0), number(scale, 1)});
}

StepResult read_step(const at::Tensor& numbers) {
  const at::Tensor on_host = numbers.cpu();
  const double* number = on_host.const_data_ptr<double>();
  return {.loss = number[0],
          .skipped = number[1] != 0,
          .loss_scale = number[2],
          .totals = {.loss_sum = number[0], .weight = 1}};
}

at::Tensor queue_train_step(TrainState& state, const FullGraphLoss& loss,
                            const TrainOptions& options) {
  const at::Tensor value = backward_of(state, options, [&] { return loss(state.model); });
  state.scaler.step(*state.optimizer);
  return finish_step(state.scaler, *state.optimizer, value);
}

StepResult take_step(TrainState& state, const TrainOptions& options, const LossShare& share,
                     const std::function<at::Tensor()>& loss,
                     const std::function<void()>& meanwhile) {
  const at::Tensor value = backward_of(state, options, loss);
  LossTotals totals;
  if (state.exchange) {
    totals = {.loss_sum = value.item<double>() * share.factor, .weight = share.weight};
    state.exchange(totals, meanwhile);
  }
  state.scaler.step(*state.optimizer);
  StepResult result = read_step(finish_step(state.scaler, *state.optimizer, value));
  if (state.exchange) {
    result.loss = totals.loss_sum / totals.weight;
  } else {
    totals = {.loss_sum = result.loss * share.factor, .weight = share.weight};
  }
  result.totals = totals;
  return result;
}

StepResult train_step(TrainState& state, const FullGraphLoss& loss, const TrainOptions& options) {
  return take_step(state, options, {}, [&] { return loss(state.model); });
}

}  // namespace mezzo
