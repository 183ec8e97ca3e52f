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

/// When the overflows that hysteresis has let pass are forgotten.
enum class HysteresisRefill : std::uint8_t {
  kOnGrowth,       ///< when the scale is due to grow: overflows far apart add up
  kOnCleanUpdate,  ///< at each update without overflow: only overflows in a row add up
};

/// What happens where the scale has to fall and stands at its floor already.
enum class FloorAction : std::uint8_t {
  kKeepSkipping,  ///< nothing: steps are skipped until the gradients are finite again
  kWarn,          ///< one warning, the first time
  kThrow,         ///< GradScaler::update throws NumericError
};

/// Options of LossScalePolicy::dynamic; the defaults are PyTorch's. An overflow is an update after
/// a step, or an unscale_, that met inf or nan.
struct DynamicLossScaleOptions {
  double initial_scale = 65536.0;       ///< > 0, finite in float32
  double growth_factor = 2.0;           ///< > 1
  double backoff_factor = 0.5;          ///< in (0, 1)
  std::int64_t growth_interval = 2000;  ///< clean updates in a row before growing, >= 1
  /// Overflows that lower the scale together; then, until the refill, each further one does. In
  /// [1, 2^31).
  std::int64_t hysteresis = 1;
  HysteresisRefill hysteresis_refill = HysteresisRefill::kOnGrowth;
  /// An overflow counts only if at least this share of the updates since the scale last moved,
  /// itself included, overflowed. In [0, 1]; 0: each counts.
  double tolerance = 0.0;
  /// The scale is kept within [floor, ceiling]. Without a floor, a run that overflows at every step
  /// sinks the scale to 0, from which it cannot recover.
  double floor = 0.0;
  double ceiling = std::numeric_limits<float>::max();
  FloorAction at_floor = FloorAction::kKeepSkipping;  ///< the others need a floor above 0
};

/// Options of LossScalePolicy::from_max_gradient.
struct MaxGradientOptions {
  /// The largest gradient stays this factor below float16's largest number, >= 1. The margin has to
  /// cover the gradients of activations, which parameters do not show, and those of later steps.
  double headroom = 16.0;
};

/// The base of a policy of the user's own: derive, copyable, and hand one to
/// LossScalePolicy::custom. Each scaler works on a copy.
class MEZZO_API LossScaleRule {
 public:
  virtual ~LossScaleRule() = default;

  /// For reports, errors and checkpoints.
  virtual std::string_view name() const = 0;

  /// > 0, finite in float32.
  virtual double initial_scale() const = 0;

  /// The scale after an update. scale: the present one; overflowed: a step or unscale_ since the
  /// last update met inf or nan. Returns a number > 0, finite in float32.
  virtual double next(double scale, bool overflowed) = 0;

  /// What a checkpoint keeps beside the scale.
  virtual std::vector<double> state() const { return {}; }

  /// Takes back what state() gave; not called for a state that holds nothing. Throws
  /// InvalidArgument for numbers that it cannot use, and by default for any.
  virtual void load_state(const std::vector<double>& state);
};

/// How the factor that a GradScaler puts on the loss starts and moves. A plain value.
///
/// Powers of two keep the scaling itself exact. A GradScaler skips a step with inf or nan gradients
/// under every policy; to replay the batch instead, repeat it after update() until a step is
/// applied. The ranges given above are checked by the scaler that takes the policy, if it is
/// enabled.
class MEZZO_API LossScalePolicy {
 public:
  /// A scale that never moves by itself; > 0, finite in float32.
  static LossScalePolicy constant(double scale);

  /// A constant scale from measured gradients: the largest power of two S with
  /// S * headroom * max|g| <= 65504 (float16's largest number), kept within [2^-126, 2^126] so that
  /// S and 1/S are normal float32 numbers.
  /// parameters: after an unscaled backward, at best in float32; those without a gradient and
  /// empty ones are passed over; gradients of any floating dtype, device and sparsity.
  /// Synchronises once per device. Throws InvalidArgument where headroom is below 1 or not finite,
  /// no parameter has a gradient or all gradients are zero; NumericError where one is inf or nan.
  static LossScalePolicy from_max_gradient(const std::vector<at::Tensor>& parameters,
                                           const MaxGradientOptions& options = {});

  /// A scale that falls by `backoff_factor` at every overflow that tolerance and hysteresis let
  /// count, and grows by `growth_factor` after `growth_interval` updates in a row without overflow.
  /// It moves on the device: GradScaler::update does not synchronise, except under
  /// FloorAction::kWarn and kThrow, for which it reads one flag.
  static LossScalePolicy dynamic(const DynamicLossScaleOptions& options = {});

  /// A policy of the user's own. GradScaler::update synchronises, to tell the rule what happened.
  template <class Rule>
  requires std::derived_from<Rule, LossScaleRule> && std::copy_constructible<Rule>
  static LossScalePolicy custom(const Rule& rule) {
    return from_rule(rule, [rule] { return std::make_unique<Rule>(rule); });
  }

  /// "constant", "from_max_gradient", "dynamic", or the name of the rule.
  std::string_view name() const { return name_; }

  /// Whether the scale moves by itself.
  bool is_dynamic() const { return dynamic_; }

  /// The numbers behind the policy. A constant or custom one has growth and backoff factors of 1.
  const DynamicLossScaleOptions& options() const { return options_; }

  /// A new copy of the rule of a custom policy; null for the others.
  std::unique_ptr<LossScaleRule> make_rule() const { return make_rule_ ? make_rule_() : nullptr; }

  /// Throws InvalidArgument that names the first number outside its range.
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
