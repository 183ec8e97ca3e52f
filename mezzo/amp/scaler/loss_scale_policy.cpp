#include "mezzo/amp/scaler/loss_scale_policy.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "mezzo/amp/scaler/loss_scale_exponent.h"
#include "mezzo/amp/scaler/loss_scale_state.h"
#include "mezzo/amp/scaler/unscale.h"
#include "mezzo/core/error.h"

namespace mezzo::amp {
namespace {

struct DeviceMaxima {
  at::Device device;
  std::vector<at::Tensor> maxima;  // float64, 0-dim
};

/// The largest magnitude per gradient, grouped by device; no synchronisation.
std::vector<DeviceMaxima> gradient_maxima(const std::vector<at::Tensor>& parameters) {
  std::vector<DeviceMaxima> groups;
  for (const at::Tensor& parameter : parameters) {
    if (!parameter.defined() || !parameter.grad().defined()) continue;
    const at::Tensor& gradient = parameter.grad();
    // Entries with the same index add up, so the largest entry may be smaller than the largest sum.
    const at::Tensor values =
        stored_values(gradient.is_sparse() ? gradient.coalesce() : gradient).detach();
    MEZZO_CHECK(values.is_floating_point(),
                "LossScalePolicy::from_max_gradient: expected floating gradients, got {}",
                c10::toString(values.scalar_type()));
    if (values.numel() == 0) continue;
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const DeviceMaxima& g) { return g.device == values.device(); });
    if (group == groups.end()) group = groups.insert(group, {values.device(), {}});
    group->maxima.push_back(values.abs().amax().to(at::kDouble));
  }
  return groups;
}

/// Options of a constant scale.
DynamicLossScaleOptions constant_options(double scale) {
  return {.initial_scale = scale, .growth_factor = 1.0, .backoff_factor = 1.0};
}

bool is_count(std::int64_t number) {
  return number >= 1 && number <= std::numeric_limits<std::int32_t>::max();
}

}  // namespace

void LossScaleRule::load_state(const std::vector<double>& state) {
  mezzo::detail::raise<InvalidArgument>(
      "LossScaleRule::load_state: expected no state for the rule '{}', got {} numbers", name(),
      state.size());
}

LossScalePolicy LossScalePolicy::constant(double scale) {
  return {"constant", /*dynamic=*/false, constant_options(scale)};
}

LossScalePolicy LossScalePolicy::from_rule(const LossScaleRule& rule, MakeRule make_rule) {
  LossScalePolicy policy(rule.name(), /*dynamic=*/true, constant_options(rule.initial_scale()));
  policy.make_rule_ = std::move(make_rule);
  return policy;
}

LossScalePolicy LossScalePolicy::from_max_gradient(const std::vector<at::Tensor>& parameters,
                                                   const MaxGradientOptions& options) {
  MEZZO_CHECK(std::isfinite(options.headroom) && options.headroom >= 1.0,
              "LossScalePolicy::from_max_gradient: expected a finite headroom >= 1, got {}",
              options.headroom);
  const std::vector<DeviceMaxima> groups = gradient_maxima(parameters);
  MEZZO_CHECK(!groups.empty(),
              "LossScalePolicy::from_max_gradient: expected gradients, got {} parameters without "
              "one; run an unscaled backward first",
              parameters.size());
  double largest = 0.0;
  for (const DeviceMaxima& group : groups) {
    const double device_largest = at::stack(group.maxima).max().item<double>();
    if (!std::isfinite(device_largest)) {
      mezzo::detail::raise<NumericError>(
          "LossScalePolicy::from_max_gradient: a gradient on {} is inf or nan before any scaling",
          group.device.str());
    }
    largest = std::max(largest, device_largest);
  }
  MEZZO_CHECK(largest > 0.0,
              "LossScalePolicy::from_max_gradient: expected a nonzero gradient, got only zeros");

  const int exponent =
      loss_scale_exponent(largest, options.headroom, -kHighestScaleExponent, kHighestScaleExponent);
  LossScalePolicy policy = constant(std::ldexp(1.0, exponent));
  policy.name_ = "from_max_gradient";
  return policy;
}

LossScalePolicy LossScalePolicy::dynamic(const DynamicLossScaleOptions& options) {
  return {"dynamic", /*dynamic=*/true, options};
}

void LossScalePolicy::validate() const {
  MEZZO_CHECK(is_scale(options_.initial_scale),
              "LossScalePolicy: expected a scale that is positive and finite in float32, got {}",
              options_.initial_scale);
  if (!dynamic_ || make_rule_) return;
  MEZZO_CHECK(std::isfinite(options_.growth_factor) && options_.growth_factor > 1.0,
              "LossScalePolicy: The growth factor must be > 1.0 and finite, got {}",
              options_.growth_factor);
  MEZZO_CHECK(options_.backoff_factor > 0.0 && options_.backoff_factor < 1.0,
              "LossScalePolicy: The backoff factor must be < 1.0 and > 0.0, got {}",
              options_.backoff_factor);
  MEZZO_CHECK(is_count(options_.growth_interval),
              "LossScalePolicy: expected growth_interval in [1, 2^31), got {}",
              options_.growth_interval);
  MEZZO_CHECK(is_count(options_.hysteresis),
              "LossScalePolicy: expected hysteresis in [1, 2^31), got {}", options_.hysteresis);
  MEZZO_CHECK(options_.tolerance >= 0.0 && options_.tolerance <= 1.0,
              "LossScalePolicy: expected tolerance in [0, 1], the share of overflows, got {}",
              options_.tolerance);
  MEZZO_CHECK(options_.floor >= 0.0 && options_.floor <= options_.initial_scale &&
                  options_.initial_scale <= options_.ceiling,
              "LossScalePolicy: expected 0 <= floor <= initial_scale <= ceiling, got {}, {}, {}",
              options_.floor, options_.initial_scale, options_.ceiling);
  MEZZO_CHECK(options_.at_floor == FloorAction::kKeepSkipping || options_.floor > 0.0,
              "LossScalePolicy: expected floor > 0 for this at_floor, got 0");
}

}  // namespace mezzo::amp
