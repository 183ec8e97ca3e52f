#include "mezzo/amp/grad_scaler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include "mezzo/amp/unscale.h"
#include "mezzo/core/error.h"

namespace mezzo::amp {
namespace {

void check_scale(const char* caller, double scale) {
  const auto stored = static_cast<float>(scale);
  MEZZO_CHECK(std::isfinite(stored) && stored > 0.0F,
              "GradScaler::{}: expected a scale that is positive and finite in float32, got {}",
              caller, scale);
}

void check_interval(const char* caller, std::int64_t interval) {
  MEZZO_CHECK(interval >= 1 && interval <= std::numeric_limits<std::int32_t>::max(),
              "GradScaler::{}: expected growth_interval in [1, 2^31), got {}", caller, interval);
}

/// Ends the casts of the weights that a step has just changed.
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
      initial_scale_(options.policy.options().initial_scale),
      growth_factor_(options.policy.options().growth_factor),
      backoff_factor_(options.policy.options().backoff_factor),
      growth_interval_(options.policy.options().growth_interval),
      floor_(options.policy.options().floor),
      ceiling_(options.policy.options().ceiling) {
  if (!enabled_) return;
  options.policy.validate();
  if (device_ == at::kCUDA && !at::globalContext().hasCUDA()) {
    TORCH_WARN("mezzo: GradScaler for cuda, which is not available: disabled");
    enabled_ = false;
  }
}

at::Tensor GradScaler::scale(const at::Tensor& outputs) {
  if (!enabled_) return outputs;
  MEZZO_CHECK(outputs.defined(), "GradScaler::scale: expected a tensor, got an undefined one");
  MEZZO_CHECK(outputs.is_floating_point() || outputs.is_complex(),
              "GradScaler::scale: expected floating or complex outputs, got {}",
              c10::toString(outputs.scalar_type()));
  if (!scale_.defined()) {
    // A tensor made in inference mode could never be updated outside it.
    const c10::InferenceMode normal(false);
    const auto on_device = at::TensorOptions(outputs.device());
    scale_ = at::full({}, initial_scale_, on_device.dtype(at::kFloat));
    tracker_ = at::full({}, initial_tracker_, on_device.dtype(at::kInt));
  }
  return outputs * scale_.to(outputs.device(), /*non_blocking=*/true);
}

std::vector<at::Tensor> GradScaler::scale(const std::vector<at::Tensor>& outputs) {
  std::vector<at::Tensor> scaled;
  scaled.reserve(outputs.size());
  for (const at::Tensor& output : outputs) scaled.push_back(scale(output));
  return scaled;
}

void GradScaler::require_scale(const char* caller) const {
  if (scale_.defined()) return;
  detail::raise<LogicError>(
      "GradScaler: Attempted {} but _scale is None.  This may indicate your script did not use "
      "scaler.scale(loss or outputs) earlier in the iteration.",
      caller);
}

void GradScaler::unscale_(torch::optim::Optimizer& optimizer) {
  if (!enabled_) return;
  require_scale("unscale_");
  OptimizerState& state = states_[&optimizer];
  if (state.stage == Stage::kUnscaled) {
    detail::raise<LogicError>(
        "GradScaler: unscale_() has already been called on this optimizer since the last "
        "update().");
  }
  if (state.stage == Stage::kStepped) {
    detail::raise<LogicError>("GradScaler: unscale_() is being called after step().");
  }
  std::vector<at::Tensor> parameters;
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    parameters.insert(parameters.end(), group.params().begin(), group.params().end());
  }
  // A float32 division may be imprecise on some devices; a float64 one rounded once is not.
  const at::NoGradGuard no_grad;
  const at::Tensor inverse = scale_.to(at::kDouble).reciprocal().to(at::kFloat);
  state.found_inf = unscale_gradients(parameters, inverse);
  state.stage = Stage::kUnscaled;
}

at::Tensor GradScaler::any_found_inf(const std::vector<at::Tensor>& found_inf) const {
  at::Tensor any = found_inf.front().to(scale_.device(), /*non_blocking=*/true);
  for (std::size_t i = 1; i < found_inf.size(); ++i) {
    any = at::maximum(any, found_inf[i].to(scale_.device(), /*non_blocking=*/true));
  }
  return any;
}

StepOutcome GradScaler::step(torch::optim::Optimizer& optimizer,
                             const std::function<at::Tensor()>& closure) {
  if (!enabled_) return apply_step(optimizer, closure);
  MEZZO_CHECK(closure == nullptr,
              "GradScaler::step: Closure use is not currently supported if GradScaler is enabled.");
  MEZZO_CHECK(dynamic_cast<torch::optim::LBFGS*>(&optimizer) == nullptr,
              "GradScaler::step: LBFGS needs a closure, which an enabled GradScaler refuses");
  require_scale("step");
  OptimizerState& state = states_[&optimizer];
  if (state.stage == Stage::kStepped) {
    detail::raise<LogicError>(
        "GradScaler: step() has already been called since the last update().");
  }
  if (state.stage == Stage::kReady) unscale_(optimizer);
  if (state.found_inf.empty()) {
    detail::raise<LogicError>("GradScaler: No inf checks were recorded for this optimizer.");
  }
  const bool finite = any_found_inf(state.found_inf).item<float>() == 0.0F;
  const StepOutcome outcome = finite ? apply_step(optimizer, nullptr) : StepOutcome::kSkipped;
  state.stage = Stage::kStepped;
  return outcome;
}

void GradScaler::update(std::optional<double> new_scale) {
  if (!enabled_) return;
  require_scale("update");
  const at::NoGradGuard no_grad;
  if (new_scale) {
    check_scale("update", *new_scale);
    scale_.fill_(*new_scale);
  } else {
    std::vector<at::Tensor> found_inf;
    for (const auto& [optimizer, state] : states_) {
      found_inf.insert(found_inf.end(), state.found_inf.begin(), state.found_inf.end());
    }
    if (found_inf.empty()) {
      detail::raise<LogicError>("GradScaler: No inf checks were recorded prior to update.");
    }
    at::_amp_update_scale_(scale_, tracker_, any_found_inf(found_inf), growth_factor_,
                           backoff_factor_, growth_interval_);
  }
  clamp_scale();
  states_.clear();
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
  scale_.copy_(new_scale.reshape({}));
  clamp_scale();
  states_.clear();
}

void GradScaler::clamp_scale() {
  const bool bounded = floor_ > 0.0 || ceiling_ < std::numeric_limits<float>::max();
  if (bounded) scale_.clamp_(floor_, ceiling_);
}

void GradScaler::clamp_tracker() {
  initial_tracker_ = std::min(initial_tracker_, growth_interval_ - 1);
  if (tracker_.defined()) tracker_.clamp_max_(growth_interval_ - 1);
}

double GradScaler::get_scale() const {
  if (!enabled_) return 1.0;
  return scale_.defined() ? scale_.item<double>() : initial_scale_;
}

void GradScaler::set_growth_factor(double growth_factor) {
  MEZZO_CHECK(std::isfinite(growth_factor) && growth_factor > 1.0,
              "GradScaler: The growth factor must be > 1.0 and finite, got {}", growth_factor);
  growth_factor_ = growth_factor;
}

void GradScaler::set_backoff_factor(double backoff_factor) {
  MEZZO_CHECK(backoff_factor > 0.0 && backoff_factor < 1.0,
              "GradScaler: The backoff factor must be < 1.0 and > 0.0, got {}", backoff_factor);
  backoff_factor_ = backoff_factor;
}

void GradScaler::set_growth_interval(std::int64_t growth_interval) {
  check_interval("set_growth_interval", growth_interval);
  growth_interval_ = growth_interval;
  clamp_tracker();
}

ScalerState GradScaler::state_dict() const {
  if (!enabled_) return {};
  return {.scale = get_scale(),
          .growth_factor = growth_factor_,
          .backoff_factor = backoff_factor_,
          .growth_interval = growth_interval_,
          .growth_tracker = tracker_.defined() ? tracker_.item<std::int64_t>() : initial_tracker_};
}

void GradScaler::load_state_dict(const ScalerState& state) {
  if (!enabled_) return;
  MEZZO_CHECK(!state.empty(),
              "GradScaler::load_state_dict: The source state dict is empty, possibly because it "
              "was saved from a disabled instance of GradScaler.");
  check_scale("load_state_dict", state.scale);
  check_interval("load_state_dict", state.growth_interval);
  MEZZO_CHECK(std::isfinite(state.growth_factor) && state.growth_factor >= 1.0,
              "GradScaler::load_state_dict: expected a finite growth_factor >= 1, got {}",
              state.growth_factor);
  MEZZO_CHECK(state.backoff_factor > 0.0 && state.backoff_factor <= 1.0,
              "GradScaler::load_state_dict: expected backoff_factor in (0, 1], got {}",
              state.backoff_factor);
  MEZZO_CHECK(
      state.growth_tracker >= 0 && state.growth_tracker <= std::numeric_limits<std::int32_t>::max(),
      "GradScaler::load_state_dict: expected growth_tracker in [0, 2^31), got {}",
      state.growth_tracker);
  initial_scale_ = state.scale;
  growth_factor_ = state.growth_factor;
  backoff_factor_ = state.backoff_factor;
  growth_interval_ = state.growth_interval;
  initial_tracker_ = state.growth_tracker;
  if (scale_.defined()) {
    scale_.fill_(initial_scale_);
    tracker_.fill_(initial_tracker_);
  }
  clamp_tracker();
}

}  // namespace mezzo::amp
