#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include "mezzo/amp/scaler/grad_scaler.h"

namespace mezzo::amp {

/// Whether `scale` is positive and finite in float32.
bool is_scale(double scale);

/// The scale of a GradScaler, on its device, and the state of its LossScalePolicy.
class LossScaleState {
 public:
  explicit LossScaleState(const LossScalePolicy& policy);

  /// Creates the tensors on `device`, unless they exist.
  void start(at::Device device);
  bool started() const { return scale_.defined(); }

  /// float32, 0-dim; undefined before start().
  const at::Tensor& scale() const { return scale_; }

  /// The scale as a number; valid before start(). Synchronises.
  double value() const;

  /// Sets the scale, clamped to floor and ceiling. Requires start().
  void set(double scale);
  void set(const at::Tensor& scale);

  /// Updates the scale by the policy. found_inf: float32, 0-dim, on the scale's device; nonzero:
  /// overflow. Synchronises for a custom rule and if the policy warns or throws at the floor.
  /// Throws NumericError at the floor, after the update, and InvalidArgument for an invalid result
  /// of a rule. Requires start().
  void update(const at::Tensor& found_inf);

  double growth_factor() const { return numbers_.growth_factor; }
  double backoff_factor() const { return numbers_.backoff_factor; }
  std::int64_t growth_interval() const { return numbers_.growth_interval; }

  /// Throw InvalidArgument for values out of range; the message names `GradScaler`.
  void set_growth_factor(double growth_factor);
  void set_backoff_factor(double backoff_factor);
  void set_growth_interval(std::int64_t growth_interval);

  /// The state without skipped_steps. Synchronises.
  ScalerState save() const;

  /// Restores a state; clamps its scale to floor and ceiling. Throws InvalidArgument, before any
  /// change, for values out of range.
  void load(const ScalerState& state);

 private:
  bool counts_overflows() const { return hysteresis_ > 1 || tolerance_ > 0.0; }
  void fill_tensors();
  void clamp_tracker();
  void clamp_scale();
  at::Tensor count_overflow(const at::Tensor& overflow);
  void reset_counts(const at::Tensor& overflow, const at::Tensor& due);
  void update_by_rule(const at::Tensor& found_inf);
  void report_floor();

  ScalerState numbers_;  // fields held by the tensors below are stale once those exist
  std::int64_t hysteresis_;
  HysteresisRefill refill_;
  double tolerance_, floor_, ceiling_;
  FloorAction at_floor_;
  bool warned_ = false;
  std::unique_ptr<LossScaleRule> rule_;
  at::Tensor scale_;    // float32, 0-dim
  at::Tensor tracker_;  // int32, 0-dim
  at::Tensor counts_;   // int64, [3]: spent, updates, overflows; only if counts_overflows()
};

}  // namespace mezzo::amp
