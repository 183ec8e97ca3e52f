#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/amp/scaler/loss_scale_policy.h"
#include "mezzo/core/export.h"

namespace torch::optim {
class Optimizer;  // its header costs seconds
}
namespace torch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace torch::serialize

namespace mezzo::amp {

class FusedStep;
class LossScaleState;

/// The state of a GradScaler: the five fields of Python's torch.amp.GradScaler.state_dict(), with
/// `_growth_tracker` for growth_tracker, then the state of Mezzo's policies, which Python's
/// load_state_dict ignores. All zero for a disabled scaler.
struct ScalerState {
  double scale = 0.0;
  double growth_factor = 0.0;
  double backoff_factor = 0.0;
  std::int64_t growth_interval = 0;
  std::int64_t growth_tracker = 0;  ///< clean updates since the scale last changed

  std::int64_t hysteresis_spent = 0;         ///< overflows ignored since the refill
  std::int64_t updates_since_rescale = 0;    ///< counted only under a tolerance or hysteresis
  std::int64_t overflows_since_rescale = 0;  ///< updates with overflow
  std::int64_t skipped_steps = 0;            ///< total of all optimizers
  std::vector<double> rule = {};             ///< state of a custom policy

  bool operator==(const ScalerState&) const = default;

  /// Whether it is the state of a disabled scaler.
  bool empty() const { return *this == ScalerState{}; }
};

/// Writes the state as one JSON object, which Python's `scaler.load_state_dict(json.load(file))`
/// reads too. Numbers are restored bit for bit. An empty state is `{}`, as in Python.
MEZZO_API std::string to_json(const ScalerState& state);

/// Reads the output of to_json() or Python's `json.dumps(scaler.state_dict())`; fields that Python
/// lacks are optional, unknown fields are ignored. Throws IoError for text that is not a JSON
/// object, and for a field that is missing or has the wrong type.
MEZZO_API ScalerState scaler_state_from_json(std::string_view text);

enum class Precision : std::uint8_t;  // precision.h

/// Options of GradScaler.
struct GradScalerOptions {
  /// The training device. A CUDA device disables the scaler with a warning if CUDA is not
  /// available. The scale is stored on the device of the first tensor passed to scale().
  c10::Device device = c10::kCPU;
  LossScalePolicy policy = LossScalePolicy::dynamic();
  bool enabled = true;  ///< false: scale() and unscale_() do nothing; step() always steps
  /// For processes whose gradients are not all-reduced (sharding): must set the tensor (float32,
  /// 0-dim, on the device of the scale; nonzero: inf or nan in this process) to its maximum over
  /// all processes. Called once per optimizer and iteration when gradients are checked, also if
  /// this process has no gradients. Without it, such processes skip different steps and their
  /// scales diverge.
  std::function<void(at::Tensor&)> reduce_found_inf = nullptr;
};

/// The outcome of a step.
enum class StepOutcome : std::uint8_t {
  kApplied,   ///< every gradient was finite; parameters were updated
  kSkipped,   ///< some gradient was inf or nan; nothing was updated
  kDeferred,  ///< a fused optimizer decides on the device; see GradScaler::skipped_steps
};

/// Keeps float16 gradients out of the underflow range by scaling the loss: PyTorch's
/// torch.amp.GradScaler. bfloat16 has float32's exponent range and needs none.
///
/// One iteration, in the required order:
///
///     scaler.scale(loss).backward();
///     scaler.unscale_(optimizer);           // only if the gradients are read or clipped
///     const StepOutcome outcome = scaler.step(optimizer);
///     scaler.update();                      // once, however many optimizers stepped
///
/// Calls in another order throw LogicError with PyTorch's text. Several losses or optimizers must
/// share one scaler: gradients scaled by different factors cannot be separated. A parameter belongs
/// to one optimizer. With micro-batches, call scale() and backward for each, then step() and
/// update() once: an update() in between would mix gradients of two scales. update() without
/// unscale_() or step() throws. As in PyTorch, update() after unscale_() without step() is allowed;
/// the caller must then call zero_grad(), which the scaler cannot check.
///
/// Fused optimizers (subclasses of FusedStep) take the scale and the result of the check as
/// tensors: their steps do not synchronise, gradients stay scaled unless unscale_() was called, and
/// float16 gradients are allowed.
///
/// Several processes: all-reduce the gradients before unscale_() or step(). Every rank then sees
/// the same inf or nan, and scales stay equal without further communication. Otherwise set
/// GradScalerOptions::reduce_found_inf.
///
/// Differences from PyTorch: closures, LBFGS, integer outputs and invalid factors throw; if the
/// growth interval is set below the current count of clean updates, the scale grows at the next one
/// (PyTorch tests for equality and would wait for an overflow); a parameter listed twice is
/// unscaled once; bfloat16 gradients on CUDA are unscaled.
///
/// Not thread-safe. Deterministic.
class MEZZO_API GradScaler {
 public:
  /// Throws InvalidArgument if enabled and the policy's values are out of range. Allocates no
  /// tensor.
  explicit GradScaler(const GradScalerOptions& options = {});
  /// A scaler with the default policy for training in `precision`: enabled for kFloat16 alone.
  GradScaler(Precision precision, c10::Device device);

  GradScaler(const GradScaler&) = delete;  // two copies of one scale would diverge
  GradScaler& operator=(const GradScaler&) = delete;
  GradScaler(GradScaler&&) noexcept;
  GradScaler& operator=(GradScaler&&) noexcept;
  ~GradScaler();

  /// Returns outputs * scale, by libtorch's type promotion with a 0-dim float32: a 0-dim float16
  /// loss becomes float32, a float16 tensor with dimensions stays float16 and may overflow.
  /// outputs: any shape and device, floating or complex. Disabled: returns `outputs` itself.
  /// Does not synchronise. Throws InvalidArgument for undefined and integer tensors.
  at::Tensor scale(const at::Tensor& outputs);

  /// Scales each output; they may be on different devices.
  std::vector<at::Tensor> scale(const std::vector<at::Tensor>& outputs);

  /// Scales each element of a tuple.
  template <class... T>
  std::tuple<T...> scale(const std::tuple<T...>& outputs) {
    return std::apply([this](const T&... each) { return std::tuple<T...>{scale(each)...}; },
                      outputs);
  }

  /// Scales nested lists, keeping their shape.
  template <class T>
  std::vector<std::vector<T>> scale(const std::vector<std::vector<T>>& outputs) {
    std::vector<std::vector<T>> scaled;
    scaled.reserve(outputs.size());
    for (const std::vector<T>& inner : outputs) scaled.push_back(scale(inner));
    return scaled;
  }

  /// Divides the gradients of `optimizer` by the scale, in place, and records whether any is inf or
  /// nan. Gradients: float32, float64 or bfloat16; strided or sparse (stored values). Does not
  /// synchronise; bfloat16 gradients need a temporary float32 copy. Throws LogicError if called
  /// twice or after step() since the last update(), or before any scale(); InvalidArgument, before
  /// any change, for gradients of another dtype, such as float16.
  void unscale_(torch::optim::Optimizer& optimizer);

  /// Unscales, unless unscale_() was called; then steps if every gradient is finite. A skipped step
  /// does not change parameters or optimizer state; the gradients are unscaled. Synchronises once
  /// to read the outcome; a fused optimizer decides on the device (kDeferred), without
  /// synchronisation. Clears the autocast cache after a step, so that an open region sees the new
  /// weights. closure: only for a disabled scaler, which passes it to the optimizer. Throws as
  /// unscale_() does; LogicError if called twice since the last update() or if no parameter has a
  /// gradient; InvalidArgument for a closure, and for LBFGS, which needs one.
  StepOutcome step(torch::optim::Optimizer& optimizer,
                   const std::function<at::Tensor()>& closure = nullptr);

  /// Total skipped steps of all optimizers, including fused ones and a loaded state. Synchronises.
  std::int64_t skipped_steps() const;

  /// Updates the scale by the policy: down if any step() or unscale_() since the last update() saw
  /// inf or nan, up after enough clean updates in a row; it never grows past float32's largest
  /// number. With `new_scale` (> 0, finite in float32): sets the scale, clamped to the policy's
  /// floor and ceiling, and keeps the count of clean updates. Synchronises only if LossScalePolicy
  /// does. Throws LogicError before any scale(), and without `new_scale` if nothing was unscaled or
  /// stepped; InvalidArgument for an invalid scale from the caller or a rule; NumericError under
  /// the policy's at_floor, after which the next iteration can start.
  void update(std::optional<double> new_scale = std::nullopt);

  /// As update(double), with a tensor: floating, one element, on the scaler's device type or the
  /// CPU, without requires_grad. Its value is copied and not checked.
  void update(const at::Tensor& new_scale);

  /// The current scale: the initial one before the first scale(), 1 if disabled. Synchronises.
  double get_scale() const;

  /// The scale's tensor: float32, 0-dim, changed in place by update(); undefined before the first
  /// scale() and if disabled. Do not write to it.
  at::Tensor scale_tensor() const;

  /// Result of this optimizer's gradient check since the last update(): float32, 0-dim, on the
  /// device of the scale, 1 for inf or nan, else 0; undefined before the check. It reports the
  /// outcome of a fused optimizer's step without synchronisation.
  at::Tensor found_inf(const torch::optim::Optimizer& optimizer) const;

  bool is_enabled() const { return enabled_; }

  // Parameters of a dynamic scale. No synchronisation.
  double get_growth_factor() const;
  double get_backoff_factor() const;
  std::int64_t get_growth_interval() const;

  /// growth_factor: > 1, finite. Throws InvalidArgument otherwise.
  void set_growth_factor(double growth_factor);

  /// backoff_factor: in (0, 1). Throws InvalidArgument otherwise.
  void set_backoff_factor(double backoff_factor);

  /// growth_interval: in [1, 2^31). A larger or equal count of clean updates is lowered to
  /// growth_interval - 1, so that the scale grows at the next clean update. Throws InvalidArgument
  /// otherwise.
  void set_growth_interval(std::int64_t growth_interval);

  /// The state; call it right after update(). Synchronises.
  ScalerState state_dict() const;

  /// Restores `state`, before or after the first scale(); later scales are identical bit for bit.
  /// Hysteresis, tolerance, floor and ceiling come from the scaler's policy, not from the state;
  /// the scale is clamped to floor and ceiling. Does nothing if disabled. Throws InvalidArgument
  /// for an empty state, for values out of range (factors of 1 are valid, for constant policies)
  /// and for the state of a rule that this scaler does not have.
  void load_state_dict(const ScalerState& state);

  /// Writes state_dict() with the field names of to_json(); nothing if disabled. Synchronises.
  void save(torch::serialize::OutputArchive& archive) const;

  /// Reads what save() wrote; fields that Python lacks are optional. Throws as load_state_dict()
  /// does; IoError if a field is missing or has the wrong type.
  void load(torch::serialize::InputArchive& archive);

 private:
  enum class Stage : std::uint8_t { kReady, kUnscaled, kStepped };

  struct OptimizerState {
    Stage stage = Stage::kReady;
    at::Tensor
        found_inf;  // float32, 0-dim, on the scale's device; 1: inf or nan; undefined: no gradient
  };

  void require_scale(const char* caller) const;
  void record(OptimizerState& state, at::Tensor found_inf) const;
  StepOutcome apply_fused(FusedStep& fused, const OptimizerState& state);

  bool enabled_;
  c10::DeviceType device_;
  std::function<void(at::Tensor&)> reduce_found_inf_;
  std::unique_ptr<LossScaleState> scale_;
  std::int64_t skipped_ = 0;
  at::Tensor deferred_skips_;  // float64, 0-dim: skips of fused optimizers; undefined: none stepped
  std::unordered_map<const torch::optim::Optimizer*, OptimizerState> states_;
};

}  // namespace mezzo::amp
