#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/amp/scaler/loss_scale_policy.h"
#include "mezzo/amp/scaler/loss_scale_state.h"
#include "mezzo/amp/scaler/scaler_state.h"
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

/// Options of GradScaler.
struct GradScalerOptions {
  /// Where the model trains. A CUDA device where CUDA is missing disables the scaler, with a
  /// warning. The scale itself lives on the device of the first tensor given to scale().
  c10::Device device = c10::kCPU;
  LossScalePolicy policy = LossScalePolicy::dynamic();
  bool enabled = true;  ///< false: scale() and unscale_() do nothing, step() steps
  /// For processes whose gradients are not all-reduced, as under sharding: sets the tensor
  /// (float32, 0-dim, beside the scale; not 0: this process met inf or nan) to its largest value
  /// over them. Called once per optimizer and iteration, where the gradients are checked, also
  /// where this process has none. Without it such processes skip and scale differently.
  std::function<void(at::Tensor&)> reduce_found_inf = nullptr;
};

/// What became of a step.
enum class StepOutcome : std::uint8_t {
  kApplied,   ///< every gradient was finite; the parameters moved
  kSkipped,   ///< some gradient was inf or nan; nothing moved
  kDeferred,  ///< a fused optimizer decides it on the device; see GradScaler::skipped_steps
};

/// Keeps float16 gradients out of the underflow range by scaling the loss: PyTorch's
/// torch.amp.GradScaler. bfloat16 has float32's exponent range and needs none.
///
/// One iteration, in the order in which the calls must be made:
///
///     scaler.scale(loss).backward();
///     scaler.unscale_(optimizer);           // only if the gradients are read or clipped
///     const StepOutcome outcome = scaler.step(optimizer);
///     scaler.update();                      // once, however many optimizers stepped
///
/// Calls in another order throw LogicError with PyTorch's text. Several losses or optimizers share
/// one scaler: two scales on one parameter's gradient cannot be told apart. A parameter belongs to
/// one optimizer. Micro-batches: scale() and backward each, then one step and update; an update in
/// between would mix gradients of two scales. Without an unscale_() that is an error. After one it
/// is not, and nothing warns: a caller who has looked at the gradients may leave out the step, as
/// in PyTorch, and the scaler cannot see whether zero_grad() follows, as then it must.
///
/// Fused optimizers (those that are a FusedStep) get the scale and the outcome of the check as
/// tensors: their steps do not synchronise, gradients stay scaled unless unscale_() was called, and
/// float16 gradients are taken.
///
/// Several processes: all-reduce the gradients before unscale_() or step(). One rank's inf or nan
/// then is every rank's, and equal scales stay equal without a message of their own. Else give
/// GradScalerOptions::reduce_found_inf.
///
/// Where it is stricter than PyTorch: closures, LBFGS, integer outputs and unusable factors are
/// refused; a growth interval set below the present count of clean updates makes the scale grow at
/// the next one (>= where PyTorch asks for equality and would wait for an overflow); a parameter
/// listed twice is unscaled once. Where it does more: bfloat16 gradients on CUDA are unscaled.
///
/// Not thread-safe. Deterministic.
class MEZZO_API GradScaler {
 public:
  /// Throws InvalidArgument if it is enabled and the policy's numbers are out of range. Allocates
  /// no tensor.
  explicit GradScaler(const GradScalerOptions& options = {});

  GradScaler(const GradScaler&) = delete;  // two copies of one scale would drift apart
  GradScaler& operator=(const GradScaler&) = delete;
  GradScaler(GradScaler&&) = default;
  GradScaler& operator=(GradScaler&&) = default;

  /// Returns outputs * scale, by libtorch's type promotion with a 0-dim float32: a 0-dim float16
  /// loss becomes float32, a float16 tensor with dimensions stays float16 and may overflow.
  /// outputs: any shape and device, floating or complex. Disabled: returns `outputs` itself.
  /// Does not synchronise. Throws InvalidArgument for undefined and integer tensors.
  at::Tensor scale(const at::Tensor& outputs);

  /// Scales each of several outputs, which may lie on several devices.
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

  /// Divides the gradients of `optimizer` by the scale, in place, and notes whether any is inf or
  /// nan. Gradients: float32, float64 or bfloat16; strided or sparse (of which the stored values).
  /// Does not synchronise; bfloat16 ones take a float32 copy for a moment. Throws LogicError if
  /// called twice or after step() since the last update(), or before any scale(); InvalidArgument
  /// for gradients of another dtype, float16 above all, before any is changed.
  void unscale_(torch::optim::Optimizer& optimizer);

  /// Unscales unless unscale_() has done so; then steps if every gradient is finite. A skipped step
  /// leaves parameters and optimizer state as they are, and the gradients unscaled. Synchronises
  /// with the device once, to learn the outcome; a fused optimizer decides by itself (kDeferred),
  /// and nothing synchronises. Clears the autocast cache after a step, so that an open region sees
  /// the new weights.
  /// closure: only for a disabled scaler, which hands it on.
  /// Throws as unscale_() does; LogicError if called twice since the last update() or if no
  /// parameter has a gradient; InvalidArgument for a closure, and for LBFGS, which needs one.
  StepOutcome step(torch::optim::Optimizer& optimizer,
                   const std::function<at::Tensor()>& closure = nullptr);

  /// Steps skipped so far, of all optimizers, fused ones included; with those of a loaded state.
  /// Synchronises.
  std::int64_t skipped_steps() const;

  /// Moves the scale by the policy: down if any step or unscale_ since the last update met inf or
  /// nan, up after enough clean updates in a row; growth past float32's largest number is left out.
  /// With `new_scale` (> 0, finite in float32): sets the scale, within the policy's floor and
  /// ceiling, and leaves the count of clean updates alone. Does not synchronise, except as
  /// LossScalePolicy says. Throws LogicError before any scale(), and without `new_scale` if nothing
  /// was unscaled or stepped; InvalidArgument for an unusable `new_scale`, given or returned by a
  /// rule; NumericError as the policy's at_floor says, ready for the next iteration.
  void update(std::optional<double> new_scale = std::nullopt);

  /// As update(double), copying the value of a tensor: floating, one element, on the scaler's
  /// device type or the CPU, without requires_grad. Its value is not checked.
  void update(const at::Tensor& new_scale);

  /// The present scale: the initial one before the first scale(), 1 if disabled. Synchronises.
  double get_scale() const;

  /// The scale where it lives: float32, 0-dim, changed in place by update(); undefined before the
  /// first scale() and if disabled. Not to be written to.
  at::Tensor scale_tensor() const { return enabled_ ? scale_.scale() : at::Tensor(); }

  /// What the check of this optimizer's gradients since the last update() found, beside the scale:
  /// float32, 0-dim, 1 for inf or nan and else 0; undefined where none was made. For programs that
  /// must not wait for the device: after a step of a fused optimizer it tells what became of it.
  at::Tensor found_inf(const torch::optim::Optimizer& optimizer) const;

  bool is_enabled() const { return enabled_; }

  // The rule of a dynamic scale, as its policy or the setters below left it. No synchronisation.
  double get_growth_factor() const { return scale_.growth_factor(); }
  double get_backoff_factor() const { return scale_.backoff_factor(); }
  std::int64_t get_growth_interval() const { return scale_.growth_interval(); }

  /// growth_factor: > 1, finite. Throws InvalidArgument outside.
  void set_growth_factor(double growth_factor);

  /// backoff_factor: in (0, 1). Throws InvalidArgument outside.
  void set_backoff_factor(double backoff_factor);

  /// growth_interval: in [1, 2^31). A count of clean updates at or past it is lowered to
  /// growth_interval - 1, so that the next clean update grows. Throws InvalidArgument outside.
  void set_growth_interval(std::int64_t growth_interval);

  /// The state, best taken right after update(). Synchronises.
  ScalerState state_dict() const;

  /// Continues from `state`, before or after the first scale(): the same scales follow, bit for
  /// bit. Hysteresis, tolerance, floor and ceiling are not in a state: they stay those of the
  /// scaler's policy, and a scale beyond floor or ceiling becomes that bound. Does nothing if
  /// disabled. Throws InvalidArgument for an empty state, for numbers out of range (factors of 1,
  /// which a constant policy has, are in) and for the state of a rule that this scaler does not
  /// have.
  void load_state_dict(const ScalerState& state);

  /// Writes state_dict() under the names of to_json(); nothing if disabled. Synchronises.
  void save(torch::serialize::OutputArchive& archive) const;

  /// Reads what save() wrote; fields beyond Python's may be missing. Throws as load_state_dict()
  /// does; IoError where a field is missing or of another type.
  void load(torch::serialize::InputArchive& archive);

 private:
  enum class Stage : std::uint8_t { kReady, kUnscaled, kStepped };

  struct OptimizerState {
    Stage stage = Stage::kReady;
    at::Tensor
        found_inf;  // float32, 0-dim, beside the scale; 1: inf or nan; undefined: no gradient
  };

  void require_scale(const char* caller) const;
  void record(OptimizerState& state, at::Tensor found_inf) const;
  StepOutcome apply_fused(FusedStep& fused, const OptimizerState& state);

  bool enabled_;
  c10::DeviceType device_;
  std::function<void(at::Tensor&)> reduce_found_inf_;
  LossScaleState scale_;
  std::int64_t skipped_ = 0;
  at::Tensor deferred_skips_;  // float64, 0-dim: those of fused optimizers; undefined: none stepped
  std::unordered_map<const torch::optim::Optimizer*, OptimizerState> states_;
};

}  // namespace mezzo::amp
