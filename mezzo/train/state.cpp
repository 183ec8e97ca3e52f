#include "mezzo/train/state.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "mezzo/amp/optim/fused_optimizer.h"
#include "mezzo/core/error.h"
#include "mezzo/train/report/summary.h"

namespace mezzo {
namespace {

// Below this, the smallest float16 number, a scale makes more gradients underflow, not fewer.
constexpr double kSmallestScale = 0x1p-24;
// A dynamic scale falls from 2^16 to kSmallestScale in this many steps; also the limit for a
// constant scale.
constexpr std::int64_t kMostSkippedInARow = 40;

}  // namespace

const EvaluationRecord* best_evaluation(const History& history, std::int64_t eval_every,
                                        Metric metric) {
  const EvaluationRecord* best = nullptr;
  for (const EvaluationRecord& record : history.evaluations) {
    const bool regular = record.epoch % eval_every == 0;
    const bool best_regular = best != nullptr && best->epoch % eval_every == 0;
    if (best == nullptr || std::isnan(record.scores.val)) {
      best = &record;
    } else if (regular != best_regular) {
      if (regular) best = &record;
    } else if (is_better(metric, record.scores.val, best->scores.val)) {
      best = &record;
    }
  }
  return best;
}

TrainState::TrainState(const TrainOptions& options, const Problem& problem,
                       nn::NormalizationFactory batch_normalization, nn::Model own)
    : scaler(scaler_options(options.loss_scale, options.precision, options.device)),
      number_scale(problem.number_scale) {
  at::manual_seed(options.seed);
  nn::ModelOptions architecture = model_options(options, problem);
  architecture.batch_normalization = std::move(batch_normalization);
  model = make_model(options, std::move(architecture), std::move(own));
  model->to(options.device);
  optimizer = make_optimizer(options.optimizer, options.learning_rate, options.weight_decay,
                             model->parameters());
}

TrainState::~TrainState() = default;

std::unique_ptr<torch::optim::Optimizer> make_optimizer(OptimizerKind kind, double learning_rate,
                                                        double weight_decay,
                                                        std::vector<at::Tensor> parameters) {
  namespace optim = torch::optim;
  using Result = std::unique_ptr<optim::Optimizer>;
  const bool fused = !parameters.empty() && parameters.front().is_cuda();
  const auto make = [&]<class Plain, class Fused>(auto options) -> Result {
    options.weight_decay(weight_decay);
    if (fused) return std::make_unique<Fused>(std::move(parameters), options);
    return std::make_unique<Plain>(std::move(parameters), options);
  };
  switch (kind) {
    case OptimizerKind::kAdam:
      return make.operator()<optim::Adam, amp::FusedAdam>(optim::AdamOptions(learning_rate));
    case OptimizerKind::kAdamW:
      return make.operator()<optim::AdamW, amp::FusedAdamW>(optim::AdamWOptions(learning_rate));
    case OptimizerKind::kSgd:
      return make.operator()<optim::SGD, amp::FusedSGD>(optim::SGDOptions(learning_rate));
  }
  detail::raise<InvalidArgument>("optimizer: expected one of {}", detail::names(OptimizerKinds{}));
}

amp::GradScalerOptions scaler_options(const LossScale& scale, amp::Precision precision,
                                      at::Device device) {
  amp::GradScalerOptions options{.device = device, .enabled = true};
  switch (scale.kind) {
    case LossScale::Kind::kAutomatic:
      options.enabled = precision == amp::Precision::kFloat16;
      break;
    case LossScale::Kind::kNone:
      options.enabled = false;
      break;
    case LossScale::Kind::kConstant:
      options.policy = amp::LossScalePolicy::constant(scale.value);
      break;
    case LossScale::Kind::kDynamic:
      break;
  }
  return options;
}

namespace {

bool can_fall(const amp::GradScaler& scaler) {
  return scaler.is_enabled() && scaler.get_backoff_factor() < 1;
}

/// Whether a smaller loss scale may make the numbers finite; if not, the run ends at the floor.
bool can_recover(const amp::GradScaler& scaler, amp::Precision precision) {
  return precision == amp::Precision::kFloat16 && can_fall(scaler);
}

void check_progress(const History& history, const amp::GradScaler& scaler, const LatestStep& step) {
  const std::string_view precision = amp::to_string(step.precision);
  if (!std::isfinite(step.loss) && !can_recover(scaler, step.precision)) {
    detail::raise<NumericError>("training diverged: the loss is {} in epoch {} ({}, lr {})",
                                step.loss, step.epoch, precision, step.learning_rate);
  }
  const double scale = step.loss_scale;
  if (can_fall(scaler) && scale < kSmallestScale) {
    detail::raise<NumericError>(
        "training diverged: the loss scale fell to {} in epoch {}, loss {} ({})", scale, step.epoch,
        step.loss, precision);
  }
  if (history.skipped_in_a_row > kMostSkippedInARow) {
    detail::raise<NumericError>(
        "training diverged: {} steps in a row had inf or nan gradients, up to epoch {}, at the "
        "loss scale {} ({})",
        history.skipped_in_a_row, step.epoch, scale, precision);
  }
}

}  // namespace

void check_outputs(const EvaluatedTargets& evaluated, const TrainState& state,
                   const TrainOptions& options) {
  if (evaluated.not_finite == 0) return;
  const std::string text =
      fmt::format("the model's outputs for {} of {} {}s are not finite in epoch {} ({}, lr {})",
                  evaluated.not_finite, evaluated.count, name_of(TaskTargets{}, evaluated.target),
                  state.history.epoch(), amp::to_string(options.precision), options.learning_rate);
  if (evaluated.not_finite == evaluated.count && !can_recover(state.scaler, options.precision)) {
    detail::raise<NumericError>("training diverged: {}", text);
  }
  TORCH_WARN_ONCE("mezzo: ", text);
}

void check_end(const History& history, amp::Precision precision,
               const EvaluatedTargets& evaluated) {
  const std::string_view name = amp::to_string(precision);
  // In a shorter run the scale may still be falling: 16 steps bring 65536 down to 1.
  constexpr std::int64_t kFewestSteps = 16;
  if (history.steps >= kFewestSteps && history.skipped_steps == history.steps) {
    detail::raise<NumericError>(
        "training diverged: all {} steps had inf or nan gradients and were skipped ({})",
        history.steps, name);
  }
  if (evaluated.count > 0 && evaluated.not_finite == evaluated.count) {
    detail::raise<NumericError>(
        "training diverged: the model's outputs for {} of {} {}s are not finite at the end ({})",
        evaluated.not_finite, evaluated.count, name_of(TaskTargets{}, evaluated.target), name);
  }
}

void count_step(History& history, const amp::GradScaler& scaler, const LatestStep& step,
                bool skipped) {
  ++history.steps;
  history.skipped_steps += skipped ? 1 : 0;
  history.skipped_in_a_row = skipped ? history.skipped_in_a_row + 1 : 0;
  check_progress(history, scaler, step);
}

TrainReport report_of(const TrainState& state, const TrainOptions& options, Metric metric) {
  const History& history = state.history;
  TrainReport report;
  report.model = nn::to_string(options.model);
  report.precision = amp::to_string(options.precision);
  report.device = options.device.str();
  report.seed = options.seed;
  report.split_index = options.split_index;
  const bool is_constant = options.loss_scale.kind == LossScale::Kind::kConstant;
  report.loss_scale_policy =
      state.scaler.is_enabled() ? (is_constant ? "constant" : "dynamic") : "none";
  report.threads = at::get_num_threads();
  for (const at::Tensor& parameter : state.model->parameters()) {
    report.num_parameters += parameter.numel();
  }
  report.epochs_run = history.epoch();
  const auto fastest = std::min_element(history.epoch_ms.begin(), history.epoch_ms.end());
  report.epoch_ms_min =
      fastest != history.epoch_ms.end() ? *fastest : std::numeric_limits<double>::quiet_NaN();
  report.epoch_ms_median = median(history.epoch_ms);
  report.evaluation_seconds = history.evaluation_seconds;
  report.total_seconds = history.total_seconds;
  report.communication_seconds = history.communication_seconds;
  report.peak_memory_bytes = history.peak_memory_bytes;
  report.steps = history.steps;
  report.skipped_steps = history.skipped_steps;
  report.final_loss_scale = state.scaler.get_scale();
  report.train_loss = history.epoch() > 0 ? history.losses.back() : history.begun.mean_loss();
  if (const EvaluationRecord* best = best_evaluation(history, options.eval_every, metric)) {
    report.best_epoch = best->epoch;
    report.best = best->scores;
    report.last = history.evaluations.back().scores;
  }
  report.metric = metric_name(metric);
  report.losses = history.losses;
  report.epoch_ms = history.epoch_ms;
  report.loss_scales = history.loss_scales;
  report.evaluations = history.evaluations;
  return report;
}

std::string learning_warning(const TrainReport& report, const Problem& problem) {
  constexpr std::int64_t kFewestEpochs = 20;
  constexpr double kLittle = 0.1;  // of the way from chance to a perfect score
  const std::optional<double> chance = chance_score(problem);
  const double score = std::max(report.best.train, report.last.train);
  if (!chance || *chance >= 1 || report.epochs_run < kFewestEpochs) return {};
  if (!(score - *chance < kLittle * (1 - *chance))) return {};
  return fmt::format(
      "the model has learnt little: {} {:.3f} on the training {}s, where one that ignores its "
      "input reaches {:.3f}; try the automatic recipe, a layer norm, another learning rate, or "
      "mezzo tune",
      report.metric, score, name_of(TaskTargets{}, problem.task.target), *chance);
}

std::vector<at::Tensor> weights_of(const torch::nn::Module& model) {
  std::vector<at::Tensor> weights = model.parameters();
  for (const at::Tensor& buffer : model.buffers()) weights.push_back(buffer);
  return weights;
}

std::vector<std::string> weight_names(const torch::nn::Module& model) {
  std::vector<std::string> names = model.named_parameters().keys();
  for (const std::string& name : model.named_buffers().keys()) names.push_back(name);
  return names;
}

std::vector<at::Tensor> copy_weights(const torch::nn::Module& model) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& weight : weights_of(model)) copies.push_back(weight.detach().clone());
  return copies;
}

void restore_weights(torch::nn::Module& model, const std::vector<at::Tensor>& weights) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> own = weights_of(model);
  MEZZO_DCHECK(own.size() == weights.size());
  for (std::size_t i = 0; i < own.size(); ++i) own[i].copy_(weights[i]);
}

}  // namespace mezzo
