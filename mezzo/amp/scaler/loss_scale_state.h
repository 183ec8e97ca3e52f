#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include "mezzo/amp/scaler/loss_scale_policy.h"
#include "mezzo/amp/scaler/scaler_state.h"

namespace mezzo::amp {

/// Whether float32 holds `scale` as a positive finite number.
bool is_scale(double scale);

/// The scale of a GradScaler, on its device, and what a LossScalePolicy remembers to move it.
class LossScaleState {
 public:
  explicit LossScaleState(const LossScalePolicy& policy);

  /// Makes the tensors on `device`, unless they exist.
  void start(at::Device device);
  bool started() const { return scale_.defined(); }

  /// float32, 0-dim; undefined before start().
  const at::Tensor& scale() const { return scale_; }

  /// The scale as a number, before start() too. Synchronises.
  double value() const;

  /// Sets the scale, within floor and ceiling. Started only.
  void set(double scale);
  void set(const at::Tensor& scale);

  /// Moves the scale by the policy. found_inf: float32, 0-dim, beside the scale; not 0: an
  /// overflow. Synchronises for a custom rule and where the policy warns or throws at the floor.
  /// Throws NumericError at the floor, with everything moved, and InvalidArgument for what a rule
  /// must not return. Started only.
  void update(const at::Tensor& found_inf);

  double growth_factor() const { return numbers_.growth_factor; }
  double backoff_factor() const { return numbers_.backoff_factor; }
  std::int64_t growth_interval() const { return numbers_.growth_interval; }

  /// Throw InvalidArgument for numbers out of range, naming `GradScaler`.
  void set_growth_factor(double growth_factor);
  void set_backoff_factor(double backoff_factor);
  void set_growth_interval(std::int64_t growth_interval);

  /// All of a state but skipped_steps. Synchronises.
  ScalerState save() const;

  /// Takes a state over, its scale within floor and ceiling. Throws InvalidArgument for numbers out
  /// of range, changing nothing.
  void load(const ScalerState& state);

 private:
  bool counts_overflows() const { return hysteresis_ > 1 || tolerance_ > 0.0; }
  void fill_tensors();
  void clamp_tracker();
  void clamp_scale();
  at::Tensor count_overflow(const at::Tensor& overflow);
  void settle_counts(const at::Tensor& overflow, const at::Tensor& due);
  void update_by_rule(const at::Tensor& found_inf);
  void report_floor();

  ScalerState numbers_;  // those of the tensors below are out of date once they exist
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
