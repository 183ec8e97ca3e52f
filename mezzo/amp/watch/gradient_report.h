#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/amp/optim/named_parameters.h"
#include "mezzo/amp/watch/watch_numbers.h"
#include "mezzo/core/export.h"

namespace mezzo::amp {

/// Options of gradient_report().
struct GradientReportOptions {
  double scale = 1.0;     ///< loss scale of the gradients; they are divided by it
  double keep = 0.999;    ///< target share of nonzero gradients representable in float16, in (0, 1]
  double headroom = 2.0;  ///< factor between the largest gradient and float16's largest, >= 1
};

/// Number of finite, nonzero values per binary exponent: floor(log2 |v|).
struct ExponentHistogram {
  int lowest = 0;                    ///< exponent of the first bucket
  std::vector<std::int64_t> counts;  ///< consecutive exponents; first and last are not 0

  MEZZO_API ExponentHistogram& operator+=(const ExponentHistogram& other);

  std::int64_t total() const { return at_least(lowest); }

  /// Number of values that are at least 2^exponent.
  MEZZO_API std::int64_t at_least(int exponent) const;

  bool operator==(const ExponentHistogram&) const = default;
};

/// The loss scale for float16 gradients, in [2^-126, 2^126]. After scaling, a gradient is kept if
/// it is at least 2^-24 (float16's smallest subnormal number) and exact if at least 2^-14 (the
/// smallest normal).
struct HalfLossScale {
  /// The smallest power of two >= 1 that makes the target share exact, but at most
  /// largest_loss_scale, which may be below 1.
  double loss_scale = 1.0;
  double largest_loss_scale = 1.0;  ///< largest S = 2^k: S * headroom * max|g| <= 65504
  double kept = 1.0;                ///< share of nonzero gradients kept at loss_scale
  double exact = 1.0;               ///< share that is exact, to float16's 11 binary digits
  double kept_unscaled = 1.0;       ///< share kept without a loss scale
  bool enough = true;               ///< whether `kept` reaches the target share
};

/// The gradient of one parameter, or of all. Magnitudes refer to the unscaled loss.
struct GradientRow {
  std::string name;
  std::int64_t parameters = 0;  ///< number of tensors
  NumberCounts numbers;  ///< subnormal and near_top: before unscaling, in the gradients' dtype
  ExponentHistogram exponents;
  std::optional<HalfLossScale> half;  ///< nullopt: no nonzero finite gradient
};

/// Statistics of gradients. Plain values.
struct GradientReport {
  std::vector<GradientRow> rows;  ///< one per parameter with a gradient, in input order
  std::vector<std::string> without_gradient;
  GradientRow all;  ///< all rows together, named "all"
};

/// Analyses the gradients of `named_parameters`: dense or sparse (stored values), float16,
/// bfloat16, float32 or float64, on any device (copied to the host, which synchronises). To choose
/// a loss scale, run in float32 or bfloat16 without one: float16 underflow is invisible here.
/// Gradients of activations may be larger or smaller; see `amp::watch`. Throws InvalidArgument for
/// an undefined parameter, a gradient of another dtype, a scale that is not positive and finite,
/// and options out of range. Deterministic; changes nothing.
MEZZO_API GradientReport
gradient_report(const std::vector<std::pair<std::string, at::Tensor>>& named_parameters,
                const GradientReportOptions& options = {});

/// As above for a torch::nn::Module, a module holder, or any type with named_parameters(). A
/// parameter that is listed twice counts once, under its first name.
template <detail::HasNamedParameters Module>
GradientReport gradient_report(const Module& model, const GradientReportOptions& options = {}) {
  return gradient_report(detail::named_parameters_of(model), options);
}

}  // namespace mezzo::amp
