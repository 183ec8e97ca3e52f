#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

namespace mezzo::amp {

/// Options of LossScalePolicy::dynamic; the defaults are PyTorch's.
struct DynamicLossScaleOptions {
  double initial_scale = 65536.0;
  double growth_factor = 2.0;           ///< > 1
  double backoff_factor = 0.5;          ///< in (0, 1)
  std::int64_t growth_interval = 2000;  ///< clean updates in a row before growing, >= 1
  /// The scale is kept within [floor, ceiling]. Without a floor, a run that overflows at every step
  /// sinks the scale to 0, from which it cannot recover.
  double floor = 0.0;
  double ceiling = std::numeric_limits<float>::max();
};

/// Options of LossScalePolicy::from_max_gradient.
struct MaxGradientOptions {
  /// The largest gradient stays this factor below float16's largest number, >= 1. The margin has to
  /// cover the gradients of activations, which parameters do not show, and those of later steps.
  double headroom = 16.0;
};

/// How the factor that a GradScaler puts on the loss starts and moves. A plain value.
///
/// Powers of two keep the scaling itself exact. A GradScaler skips a step with inf or nan gradients
/// under every policy. The ranges given above are checked by the scaler that takes the policy, if
/// it is enabled.
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

  /// A scale that falls by `backoff_factor` at every update after a step with inf or nan gradients
  /// and grows by `growth_factor` after `growth_interval` updates in a row without.
  static LossScalePolicy dynamic(const DynamicLossScaleOptions& options = {});

  /// "constant", "from_max_gradient" or "dynamic".
  std::string_view name() const { return name_; }

  /// Whether the scale moves by itself.
  bool is_dynamic() const { return dynamic_; }

  /// The numbers behind the policy. A constant one has growth and backoff factors of 1.
  const DynamicLossScaleOptions& options() const { return options_; }

  /// Throws InvalidArgument that names the first number outside its range.
  void validate() const;

 private:
  LossScalePolicy(std::string_view name, bool dynamic, const DynamicLossScaleOptions& options)
      : name_(name), dynamic_(dynamic), options_(options) {}

  std::string_view name_;  // a literal
  bool dynamic_;
  DynamicLossScaleOptions options_;
};

}  // namespace mezzo::amp
