#include "mezzo/amp/scaler/grad_scaler.h"

#include <utility>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include "mezzo/amp/optim/fused_optimizer.h"
#include "mezzo/amp/precision.h"
#include "mezzo/amp/scaler/loss_scale_state.h"
#include "mezzo/amp/scaler/unscale.h"
#include "mezzo/core/error.h"

namespace mezzo::amp {
namespace {

/// Steps and clears autocast's cache of the old weights.
StepOutcome apply_step(torch::optim::Optimizer& optimizer,
                       const std::function<at::Tensor()>& closure) {
  optimizer.step(closure);
  at::autocast::clear_cache();
  return StepOutcome::kApplied;
}

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options)
    : enabled_(options.enabled),
      device_(options.device.type()),
      reduce_found_inf_(options.reduce_found_inf),
      scale_(std::make_unique<LossScaleState>(options.policy)) {
  if (!enabled_) return;
  options.policy.validate();
  if (device_ == at::kCUDA && !at::globalContext().hasCUDA()) {
    TORCH_WARN("mezzo: GradScaler for cuda, which is not available: disabled");
    enabled_ = false;
  }
}

GradScaler::GradScaler(GradScaler&&) noexcept = default;
GradScaler& GradScaler::operator=(GradScaler&&) noexcept = default;
GradScaler::~GradScaler() = default;

GradScaler::GradScaler(Precision precision, c10::Device device)
    : GradScaler({.device = device, .enabled = precision == Precision::kFloat16}) {}

at::Tensor GradScaler::scale(const at::Tensor& outputs) {
  if (!enabled_) return outputs;
  MEZZO_CHECK(outputs.defined(), "GradScaler::scale: expected a tensor, got an undefined one");
  MEZZO_CHECK(outputs.is_floating_point() || outputs.is_complex(),
              "GradScaler::scale: expected floating or complex outputs, got {}",
              c10::toString(outputs.scalar_type()));
  scale_->start(outputs.device());
  return outputs * scale_->scale().to(outputs.device(), /*non_blocking=*/!outputs.is_cpu());
}

std::vector<at::Tensor> GradScaler::scale(const std::vector<at::Tensor>& outputs) {
  std::vector<at::Tensor> scaled;
  scaled.reserve(outputs.size());
  for (const at::Tensor& output : outputs) scaled.push_back(scale(output));
  return scaled;
}

void GradScaler::require_scale(const char* caller) const {
  if (scale_->started()) return;
  mezzo::detail::raise<LogicError>(
      "GradScaler: Attempted {} but _scale is None.  This may indicate your script did not use "
      "scaler.scale(loss or outputs) earlier in the iteration.",
      caller);
}

/// Records the result of a check, combined over all processes.
void GradScaler::record(OptimizerState& state, at::Tensor found_inf) const {
  if (reduce_found_inf_) {
    if (!found_inf.defined()) found_inf = at::zeros_like(scale_->scale());
    reduce_found_inf_(found_inf);
    found_inf = found_inf.ne(0).to(at::kFloat);  // sums are allowed too
  }
  state.found_inf = std::move(found_inf);
}

void GradScaler::unscale_(torch::optim::Optimizer& optimizer) {
  if (!enabled_) return;
  require_scale("unscale_");
  OptimizerState& state = states_[&optimizer];
  if (state.stage == Stage::kUnscaled) {
    mezzo::detail::raise<LogicError>(
        "GradScaler: unscale_() has already been called on this optimizer since the last "
        "update(). Call it once an iteration; step() does not need it.");
  }
  if (state.stage == Stage::kStepped) {
    mezzo::detail::raise<LogicError>(
        "GradScaler: unscale_() is being called after step(). Call it before step(), or update() "
        "first, which ends the iteration.");
  }
  // float32 division is not correctly rounded on every device; float64 division rounded to float32
  // is.
  const at::NoGradGuard no_grad;
  const at::Tensor inverse = scale_->scale().to(at::kDouble).reciprocal().to(at::kFloat);
  const at::Tensor found_inf = unscale_gradients(parameters_of(optimizer), inverse);
  state.stage = Stage::kUnscaled;  // first: the hook in record() may throw
  record(state, found_inf);
}

StepOutcome GradScaler::step(torch::optim::Optimizer& optimizer,
                             const std::function<at::Tensor()>& closure) {
  if (!enabled_) return apply_step(optimizer, closure);
  MEZZO_CHECK(closure == nullptr,
              "GradScaler::step: Closure use is not currently supported if GradScaler is enabled.");
  MEZZO_CHECK(
      dynamic_cast<torch::optim::LBFGS*>(&optimizer) == nullptr,
      "GradScaler::step: LBFGS needs a closure, which an enabled GradScaler does not support");
  require_scale("step");
  OptimizerState& state = states_[&optimizer];
  if (state.stage == Stage::kStepped) {
    mezzo::detail::raise<LogicError>(
        "GradScaler: step() has already been called since the last update(). Call update() once an "
        "iteration, after the step() of every optimizer.");
  }
  auto* const fused = dynamic_cast<FusedStep*>(&optimizer);
  if (state.stage == Stage::kReady) {
    if (fused != nullptr) {
      const at::NoGradGuard no_grad;
      record(state, check_gradients(parameters_of(optimizer), scale_->scale().device()));
    } else {
      unscale_(optimizer);
    }
  }
  if (!state.found_inf.defined()) {
    mezzo::detail::raise<LogicError>(
        "GradScaler: No inf checks were recorded for this optimizer. None of its parameters has a "
        "gradient: call scale(loss).backward() first, or leave out its step().");
  }
  StepOutcome outcome = StepOutcome::kSkipped;
  if (fused != nullptr) {
    outcome = apply_fused(*fused, state);
  } else if (state.found_inf.item<float>() == 0.0F) {
    outcome = apply_step(optimizer, nullptr);
  } else {
    ++skipped_;
  }
  state.stage = Stage::kStepped;
  return outcome;
}

StepOutcome GradScaler::apply_fused(FusedStep& fused, const OptimizerState& state) {
  fused.fused_step(state.stage == Stage::kReady ? scale_->scale() : at::Tensor(), state.found_inf);
  at::autocast::clear_cache();
  if (!deferred_skips_.defined()) {
    const c10::InferenceMode normal(false);
    deferred_skips_ = at::zeros({}, scale_->scale().options().dtype(at::kDouble));
  }
  const at::NoGradGuard no_grad;
  deferred_skips_.add_(state.found_inf);
  return StepOutcome::kDeferred;
}

std::int64_t GradScaler::skipped_steps() const {
  const double deferred = deferred_skips_.defined() ? deferred_skips_.item<double>() : 0.0;
  return skipped_ + static_cast<std::int64_t>(deferred);
}

void GradScaler::update(std::optional<double> new_scale) {
  if (!enabled_) return;
  require_scale("update");
  const at::NoGradGuard no_grad;
  if (new_scale) {
    scale_->set(*new_scale);
    states_.clear();
    return;
  }
  at::Tensor found_inf;
  for (const auto& [optimizer, state] : states_) {
    if (!state.found_inf.defined()) continue;
    found_inf = found_inf.defined() ? at::maximum(found_inf, state.found_inf) : state.found_inf;
  }
  if (!found_inf.defined()) {
    mezzo::detail::raise<LogicError>(
        "GradScaler: No inf checks were recorded prior to update. Call step() or unscale_() of an "
        "optimizer whose parameters have gradients first.");
  }
  states_.clear();  // first, since the policy may throw
  scale_->update(found_inf);
}

void GradScaler::update(const at::Tensor& new_scale) {
  if (!enabled_) return;
  require_scale("update");
  MEZZO_CHECK(new_scale.defined() && new_scale.is_floating_point() && new_scale.numel() == 1 &&
                  !new_scale.requires_grad() &&
                  (new_scale.device().type() == device_ || new_scale.is_cpu()),
              "GradScaler::update: new_scale should be a float or a 1-element floating tensor on "
              "{} or the CPU with requires_grad=False.",
              c10::DeviceTypeName(device_, /*lower_case=*/true));
  scale_->set(new_scale);
  states_.clear();
}

at::Tensor GradScaler::found_inf(const torch::optim::Optimizer& optimizer) const {
  const auto state = states_.find(&optimizer);
  return state == states_.end() ? at::Tensor() : state->second.found_inf;
}

double GradScaler::get_scale() const {
  return enabled_ ? scale_->value() : 1.0;
}

at::Tensor GradScaler::scale_tensor() const {
  return enabled_ ? scale_->scale() : at::Tensor();
}

double GradScaler::get_growth_factor() const {
  return scale_->growth_factor();
}

double GradScaler::get_backoff_factor() const {
  return scale_->backoff_factor();
}

std::int64_t GradScaler::get_growth_interval() const {
  return scale_->growth_interval();
}

void GradScaler::set_growth_factor(double growth_factor) {
  scale_->set_growth_factor(growth_factor);
}

void GradScaler::set_backoff_factor(double backoff_factor) {
  scale_->set_backoff_factor(backoff_factor);
}

void GradScaler::set_growth_interval(std::int64_t growth_interval) {
  scale_->set_growth_interval(growth_interval);
}

ScalerState GradScaler::state_dict() const {
  if (!enabled_) return {};
  ScalerState state = scale_->save();
  state.skipped_steps = skipped_steps();
  return state;
}

void GradScaler::load_state_dict(const ScalerState& state) {
  if (!enabled_) return;
  MEZZO_CHECK(!state.empty(),
              "GradScaler::load_state_dict: The source state dict is empty, possibly because it "
              "was saved from a disabled instance of GradScaler.");
  scale_->load(state);
  skipped_ = state.skipped_steps;
  deferred_skips_.reset();
}

}  // namespace mezzo::amp
