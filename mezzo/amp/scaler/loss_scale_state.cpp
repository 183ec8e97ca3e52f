#include "mezzo/amp/scaler/loss_scale_state.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "mezzo/core/error.h"

namespace mezzo::amp {
namespace {

constexpr std::int64_t kLargestCount = std::numeric_limits<std::int32_t>::max();

void check_scale(const char* caller, double scale) {
  MEZZO_CHECK(is_scale(scale),
              "GradScaler::{}: expected a scale that is positive and finite in float32, got {}",
              caller, scale);
}

void check_interval(const char* caller, std::int64_t interval) {
  MEZZO_CHECK(interval >= 1 && interval <= kLargestCount,
              "GradScaler::{}: expected growth_interval in [1, 2^31), got {}", caller, interval);
}

void check_count(const char* name, std::int64_t count, std::int64_t largest) {
  MEZZO_CHECK(count >= 0 && count <= largest,
              "GradScaler::load_state_dict: expected {} in [0, {}], got {}", name, largest, count);
}

void check_state(const ScalerState& state) {
  check_scale("load_state_dict", state.scale);
  check_interval("load_state_dict", state.growth_interval);
  MEZZO_CHECK(std::isfinite(state.growth_factor) && state.growth_factor >= 1.0,
              "GradScaler::load_state_dict: expected a finite growth_factor >= 1, got {}",
              state.growth_factor);
  MEZZO_CHECK(state.backoff_factor > 0.0 && state.backoff_factor <= 1.0,
              "GradScaler::load_state_dict: expected backoff_factor in (0, 1], got {}",
              state.backoff_factor);
  check_count("growth_tracker", state.growth_tracker, kLargestCount);
  check_count("hysteresis_spent", state.hysteresis_spent, kLargestCount);
  constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
  check_count("updates_since_rescale", state.updates_since_rescale, kAny);
  check_count("overflows_since_rescale", state.overflows_since_rescale,
              state.updates_since_rescale);
  check_count("skipped_steps", state.skipped_steps, kAny);
}

}  // namespace

bool is_scale(double scale) {
  const auto stored = static_cast<float>(scale);
  return std::isfinite(stored) && stored > 0.0F;
}

LossScaleState::LossScaleState(const LossScalePolicy& policy)
    : numbers_{.scale = policy.options().initial_scale,
               .growth_factor = policy.options().growth_factor,
               .backoff_factor = policy.options().backoff_factor,
               .growth_interval = policy.options().growth_interval},
      hysteresis_(policy.options().hysteresis),
      refill_(policy.options().hysteresis_refill),
      tolerance_(policy.options().tolerance),
      floor_(policy.options().floor),
      ceiling_(policy.options().ceiling),
      at_floor_(policy.options().at_floor),
      rule_(policy.make_rule()) {}

void LossScaleState::start(at::Device device) {
  if (started()) return;
  // Tensors created in inference mode cannot be updated outside it.
  const c10::InferenceMode normal(false);
  const auto options = at::TensorOptions(device);
  scale_ = at::empty({}, options.dtype(at::kFloat));
  tracker_ = at::empty({}, options.dtype(at::kInt));
  if (counts_overflows()) counts_ = at::empty({3}, options.dtype(at::kLong));
  fill_tensors();
}

void LossScaleState::fill_tensors() {
  if (!started()) return;
  scale_.fill_(numbers_.scale);
  tracker_.fill_(numbers_.growth_tracker);
  if (!counts_overflows()) return;
  counts_.select(0, 0).fill_(numbers_.hysteresis_spent);
  counts_.select(0, 1).fill_(numbers_.updates_since_rescale);
  counts_.select(0, 2).fill_(numbers_.overflows_since_rescale);
}

double LossScaleState::value() const {
  return started() ? scale_.item<double>() : numbers_.scale;
}

void LossScaleState::set(double scale) {
  check_scale("update", scale);
  scale_.fill_(scale);
  clamp_scale();
}

void LossScaleState::set(const at::Tensor& scale) {
  scale_.copy_(scale.reshape({}));
  clamp_scale();
}

void LossScaleState::clamp_scale() {
  const bool bounded = floor_ > 0.0 || ceiling_ < std::numeric_limits<float>::max();
  if (bounded) scale_.clamp_(floor_, ceiling_);
}

void LossScaleState::clamp_tracker() {
  numbers_.growth_tracker = std::min(numbers_.growth_tracker, numbers_.growth_interval - 1);
  if (started()) tracker_.clamp_max_(numbers_.growth_interval - 1);
}

void LossScaleState::update(const at::Tensor& found_inf) {
  if (rule_) {
    update_by_rule(found_inf);
    return;
  }
  const bool counts = counts_overflows();
  const at::Tensor overflow = counts ? found_inf.ne(0) : at::Tensor();
  const at::Tensor due = counts ? count_overflow(overflow) : found_inf;
  at::Tensor stuck;
  if (at_floor_ != FloorAction::kKeepSkipping) {
    stuck = scale_.le(static_cast<double>(static_cast<float>(floor_))).logical_and(due);
  }
  at::_amp_update_scale_(scale_, tracker_, due, numbers_.growth_factor, numbers_.backoff_factor,
                         numbers_.growth_interval);
  if (counts) reset_counts(overflow, due);
  clamp_scale();
  if (stuck.defined() && stuck.item<bool>()) report_floor();
}

/// Counts the update. Returns whether the scale must fall: float32, 0-dim, 1 or 0.
at::Tensor LossScaleState::count_overflow(const at::Tensor& overflow) {
  const at::Tensor spent = counts_.select(0, 0), updates = counts_.select(0, 1),
                   overflows = counts_.select(0, 2);
  updates.add_(1);
  overflows.add_(overflow);
  const at::Tensor share = overflows.to(at::kDouble).div_(updates);
  const at::Tensor counted = overflow.logical_and(share.ge(tolerance_));
  spent.add_(counted).clamp_max_(hysteresis_);
  tracker_.masked_fill_(overflow, -1);  // the next increment makes it 0
  return counted.logical_and(spent.ge(hysteresis_)).to(at::kFloat);
}

/// Call after the scale update; `due`: whether the scale fell.
void LossScaleState::reset_counts(const at::Tensor& overflow, const at::Tensor& due) {
  const at::Tensor clean = overflow.logical_not();
  const at::Tensor grown = clean.logical_and(tracker_.eq(0));
  counts_.select(0, 0).masked_fill_(refill_ == HysteresisRefill::kOnGrowth ? grown : clean, 0);
  counts_.slice(0, 1).masked_fill_(grown.logical_or(due), 0);
}

void LossScaleState::update_by_rule(const at::Tensor& found_inf) {
  const double next = rule_->next(value(), found_inf.item<float>() != 0.0F);
  MEZZO_CHECK(is_scale(next),
              "GradScaler::update: expected the rule '{}' to return a scale that is positive and "
              "finite in float32, got {}",
              rule_->name(), next);
  scale_.fill_(next);
}

void LossScaleState::report_floor() {
  constexpr std::string_view kText =
      "GradScaler::update: gradients are inf or nan although the loss scale is at its floor, "
      "{}: no scale helps. Look for inf or nan in the inputs and the forward pass, lower the "
      "learning rate, keep the operation that overflows in float32, or train in bfloat16";
  if (at_floor_ == FloorAction::kThrow) mezzo::detail::raise<NumericError>(kText, floor_);
  if (!warned_) TORCH_WARN("mezzo: ", fmt::format(kText, floor_));
  warned_ = true;
}

void LossScaleState::set_growth_factor(double growth_factor) {
  MEZZO_CHECK(std::isfinite(growth_factor) && growth_factor > 1.0,
              "GradScaler: The growth factor must be > 1.0 and finite, got {}", growth_factor);
  numbers_.growth_factor = growth_factor;
}

void LossScaleState::set_backoff_factor(double backoff_factor) {
  MEZZO_CHECK(backoff_factor > 0.0 && backoff_factor < 1.0,
              "GradScaler: The backoff factor must be < 1.0 and > 0.0, got {}", backoff_factor);
  numbers_.backoff_factor = backoff_factor;
}

void LossScaleState::set_growth_interval(std::int64_t growth_interval) {
  check_interval("set_growth_interval", growth_interval);
  numbers_.growth_interval = growth_interval;
  clamp_tracker();
}

ScalerState LossScaleState::save() const {
  ScalerState state = numbers_;
  state.rule = rule_ ? rule_->state() : std::vector<double>();
  if (!started()) return state;
  state.scale = value();
  state.growth_tracker = tracker_.item<std::int64_t>();
  if (!counts_overflows()) return state;
  const at::Tensor counts = counts_.cpu();
  const auto* numbers = counts.const_data_ptr<std::int64_t>();
  state.hysteresis_spent = numbers[0];
  state.updates_since_rescale = numbers[1];
  state.overflows_since_rescale = numbers[2];
  return state;
}

void LossScaleState::load(const ScalerState& state) {
  check_state(state);
  MEZZO_CHECK(rule_ || state.rule.empty(),
              "GradScaler::load_state_dict: expected a state without a rule, got that of a custom "
              "policy, which this scaler does not have");
  if (!state.rule.empty()) rule_->load_state(state.rule);
  numbers_ = state;
  numbers_.scale = std::clamp(state.scale, floor_, ceiling_);
  fill_tensors();
  clamp_tracker();
}

}  // namespace mezzo::amp
