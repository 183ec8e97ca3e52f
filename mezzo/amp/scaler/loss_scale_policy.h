#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

namespace mezzo::amp {

/// When the count of overflows ignored by hysteresis resets.
enum class HysteresisRefill : std::uint8_t {
  kOnGrowth,       ///< when the scale is due to grow: separate overflows add up
  kOnCleanUpdate,  ///< at each update without overflow: only consecutive overflows add up
};

/// What happens if the scale must fall but is already at its floor.
enum class FloorAction : std::uint8_t {
  kKeepSkipping,  ///< nothing: steps are skipped until gradients are finite
  kWarn,          ///< warn once
  kThrow,         ///< GradScaler::update throws NumericError
};

/// Options of LossScalePolicy::dynamic; the defaults are PyTorch's. An overflow is an update after
/// a step() or unscale_() that saw inf or nan.
struct DynamicLossScaleOptions {
  double initial_scale = 65536.0;       ///< > 0, finite in float32
  double growth_factor = 2.0;           ///< > 1
  double backoff_factor = 0.5;          ///< in (0, 1)
  std::int64_t growth_interval = 2000;  ///< clean updates in a row before growing, >= 1
  /// Number of overflows until the scale falls; then, until the refill, each further one lowers it.
  /// From 1 to 2^31 - 1.
  std::int64_t hysteresis = 1;
  HysteresisRefill hysteresis_refill = HysteresisRefill::kOnGrowth;
  /// An overflow counts only if at least this share of the updates since the last change of the
  /// scale overflowed, including this one. In [0, 1]; 0: each counts.
  double tolerance = 0.0;
  /// The scale is clamped to [floor, ceiling]. Without a floor, overflows at every step reduce the
  /// scale to 0, which is permanent.
  double floor = 0.0;
  double ceiling = std::numeric_limits<float>::max();
  FloorAction at_floor = FloorAction::kKeepSkipping;  ///< other actions need floor > 0
};

/// Options of LossScalePolicy::from_max_gradient.
struct MaxGradientOptions {
  /// Factor between the largest gradient and float16's largest number, >= 1. It must cover
  /// gradients of activations, which are not measured, and of later steps.
  double headroom = 16.0;
};

/// Base class of custom policies. Derive a copyable class and pass an object to
/// LossScalePolicy::custom. Each scaler copies it.
class MEZZO_API LossScaleRule {
 public:
  virtual ~LossScaleRule() = default;

  /// For reports, errors and checkpoints.
  virtual std::string_view name() const = 0;

  /// > 0, finite in float32.
  virtual double initial_scale() const = 0;

  /// Returns the scale after an update: > 0, finite in float32. scale: the current one; overflowed:
  /// a step() or unscale_() since the last update saw inf or nan.
  virtual double next(double scale, bool overflowed) = 0;

  /// State for checkpoints, in addition to the scale.
  virtual std::vector<double> state() const { return {}; }

  /// Restores the result of state(); not called with an empty one. Throws InvalidArgument for
  /// invalid values; the default rejects all.
  virtual void load_state(const std::vector<double>& state);
};

/// The initial value and the update rule of a GradScaler's loss scale. A plain value.
///
/// Scaling by powers of two is exact. A GradScaler skips steps with inf or nan gradients under
/// every policy; to repeat the batch instead, run it again after update() until a step is applied.
/// An enabled scaler checks the ranges above.
class MEZZO_API LossScalePolicy {
 public:
  /// A constant scale; > 0, finite in float32.
  static LossScalePolicy constant(double scale);

  /// A constant scale from measured gradients: the largest power of two S with S * headroom *
  /// max|g| <= 65504 (float16's largest number), clamped to [2^-126, 2^126] so that S and 1/S are
  /// normal float32 numbers. parameters: after an unscaled backward, preferably in float32;
  /// gradients of any floating dtype, device and sparsity; parameters without a gradient and empty
  /// ones are skipped. Synchronises once per device. Throws InvalidArgument if headroom is below 1
  /// or not finite, no parameter has a gradient or all gradients are zero; NumericError if one is
  /// inf or nan.
  static LossScalePolicy from_max_gradient(const std::vector<at::Tensor>& parameters,
                                           const MaxGradientOptions& options = {});

  /// A scale that is multiplied by `backoff_factor` at every overflow that counts under tolerance
  /// and hysteresis, and by `growth_factor` after `growth_interval` updates in a row without
  /// overflow. Computed on the device: GradScaler::update does not synchronise, except under
  /// FloorAction::kWarn and kThrow, which read one flag.
  static LossScalePolicy dynamic(const DynamicLossScaleOptions& options = {});

  /// A custom policy. GradScaler::update synchronises to pass the overflow flag to the rule.
  template <class Rule>
  requires std::derived_from<Rule, LossScaleRule> && std::copy_constructible<Rule>
  static LossScalePolicy custom(const Rule& rule) {
    return from_rule(rule, [rule] { return std::make_unique<Rule>(rule); });
  }

  /// "constant", "from_max_gradient", "dynamic", or the name of the rule.
  std::string_view name() const { return name_; }

  /// Whether updates can change the scale.
  bool is_dynamic() const { return dynamic_; }

  /// The policy's options. Constant and custom policies have growth and backoff factors of 1.
  const DynamicLossScaleOptions& options() const { return options_; }

  /// Copies the rule of a custom policy; null for other policies.
  std::unique_ptr<LossScaleRule> make_rule() const { return make_rule_ ? make_rule_() : nullptr; }

  /// Throws InvalidArgument that names the first option out of range.
  void validate() const;

 private:
  using MakeRule = std::function<std::unique_ptr<LossScaleRule>()>;

  LossScalePolicy(std::string_view name, bool dynamic, const DynamicLossScaleOptions& options)
      : name_(name), dynamic_(dynamic), options_(options) {}

  static LossScalePolicy from_rule(const LossScaleRule& rule, MakeRule make_rule);

  std::string name_;
  bool dynamic_;
  DynamicLossScaleOptions options_;
  MakeRule make_rule_;
};

}  // namespace mezzo::amp
