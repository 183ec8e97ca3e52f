#include "mezzo/train/state.h"

#include <cmath>

#include <ATen/ATen.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "mezzo/core/error.h"

namespace mezzo {
namespace {

amp::GradScalerOptions scaler_options(const TrainOptions& options) {
  const LossScale& scale = options.loss_scale;
  amp::GradScalerOptions made{.device = options.device, .enabled = true};
  switch (scale.kind) {
    case LossScale::Kind::kAutomatic:
      made.enabled = options.precision == amp::Precision::kFloat16;
      break;
    case LossScale::Kind::kNone:
      made.enabled = false;
      break;
    case LossScale::Kind::kConstant:
      made.policy = amp::LossScalePolicy::constant(scale.value);
      break;
    case LossScale::Kind::kDynamic:
      break;
  }
  return made;
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const TrainOptions& options,
                                                        std::vector<at::Tensor> parameters) {
  namespace optim = torch::optim;
  const double rate = options.learning_rate;
  const double decay = options.weight_decay;
  switch (options.optimizer) {
    case OptimizerKind::kAdam:
      return std::make_unique<optim::Adam>(std::move(parameters),
                                           optim::AdamOptions(rate).weight_decay(decay));
    case OptimizerKind::kAdamW:
      return std::make_unique<optim::AdamW>(std::move(parameters),
                                            optim::AdamWOptions(rate).weight_decay(decay));
    case OptimizerKind::kSgd:
      return std::make_unique<optim::SGD>(std::move(parameters),
                                          optim::SGDOptions(rate).weight_decay(decay));
  }
  detail::raise<InvalidArgument>("optimizer: expected one of {}", names(OptimizerKinds{}));
}

}  // namespace

const EvaluationRecord* best_evaluation(const History& history, std::int64_t eval_every) {
  const EvaluationRecord* best = nullptr;
  for (const EvaluationRecord& record : history.evaluations) {
    const bool regular = record.epoch % eval_every == 0;
    const bool best_regular = best != nullptr && best->epoch % eval_every == 0;
    if (best == nullptr || std::isnan(record.scores.val)) {
      best = &record;
    } else if (regular != best_regular) {
      if (regular) best = &record;
    } else if (record.scores.val > best->scores.val) {
      best = &record;
    }
  }
  return best;
}

TrainState::TrainState(const TrainOptions& options, const Problem& problem)
    : scaler(scaler_options(options)) {
  at::manual_seed(options.seed);
  model = nn::Model(model_options(options, problem));
  model->to(options.device);
  optimizer = make_optimizer(options, model->parameters());
}

TrainState::~TrainState() = default;

std::vector<at::Tensor> weights_of(const nn::Model& model) {
  std::vector<at::Tensor> weights = model->parameters();
  for (const at::Tensor& buffer : model->buffers()) weights.push_back(buffer);
  return weights;
}

std::vector<std::string> weight_names(const nn::Model& model) {
  std::vector<std::string> names = model->named_parameters().keys();
  for (const std::string& name : model->named_buffers().keys()) names.push_back(name);
  return names;
}

std::vector<at::Tensor> copy_weights(const nn::Model& model) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& weight : weights_of(model)) copies.push_back(weight.detach().clone());
  return copies;
}

void restore_weights(nn::Model& model, const std::vector<at::Tensor>& weights) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> own = weights_of(model);
  MEZZO_DCHECK(own.size() == weights.size());
  for (std::size_t i = 0; i < own.size(); ++i) own[i].copy_(weights[i]);
}

}  // namespace mezzo
