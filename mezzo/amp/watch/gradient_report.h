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
  double scale = 1.0;     ///< by which the gradients at hand are multiplied: they are divided by it
  double keep = 0.999;    ///< share of the non-zero gradients that float16 shall keep, in (0, 1]
  double headroom = 2.0;  ///< the largest stays this factor below float16's largest, >= 1
};

/// How many finite, non-zero values have each binary exponent: value v counts at floor(log2 |v|).
struct ExponentHistogram {
  int lowest = 0;                    ///< exponent of the first bucket
  std::vector<std::int64_t> counts;  ///< consecutive; the first and the last are not 0

  MEZZO_API ExponentHistogram& operator+=(const ExponentHistogram& other);

  std::int64_t total() const { return at_least(lowest); }

  /// How many values are at least 2^exponent.
  MEZZO_API std::int64_t at_least(int exponent) const;

  bool operator==(const ExponentHistogram&) const = default;
};

/// The loss scale that float16 gradients need, within [2^-126, 2^126]. Kept is what is at least
/// 2^-24, float16's smallest subnormal number, after scaling; exact is what is at least 2^-14, its
/// smallest normal number.
struct HalfLossScale {
  /// The smallest power of two >= 1 at which the asked share is exact; where the largest gradient
  /// does not allow that, the largest power of two, also below 1, that it does allow.
  double loss_scale = 1.0;
  double largest_loss_scale = 1.0;  ///< largest S = 2^k: S * headroom * max|g| <= 65504
  double kept = 1.0;                ///< share of the non-zero gradients kept at loss_scale
  double exact = 1.0;               ///< share of them that is exact, up to float16's 11 digits
  double kept_unscaled = 1.0;       ///< share kept without a loss scale
  bool enough = true;               ///< whether `kept` reaches the asked share
};

/// The gradient of one parameter, or of all. Magnitudes are those of the unscaled loss.
struct GradientRow {
  std::string name;
  std::int64_t parameters = 0;  ///< how many tensors are counted here
  NumberCounts numbers;  ///< subnormal and near_top: of the gradients at hand, in their own dtype
  ExponentHistogram exponents;
  std::optional<HalfLossScale> half;  ///< nullopt: no finite gradient but 0
};

/// What the gradients look like. Plain values.
struct GradientReport {
  std::vector<GradientRow> rows;  ///< one a parameter that has a gradient, in the given order
  std::vector<std::string> without_gradient;
  GradientRow all;  ///< all rows together, named "all"
};

/// Describes the gradients that a backward left in `named_parameters`: dense or sparse (of which
/// the stored values), float16, bfloat16, float32 or float64, on any device (copied to the host,
/// which synchronises). Measure in float32 or bfloat16, without a loss scale, to choose one: what
/// float16 has already flushed to 0 is not seen. The gradients of activations, which `amp::watch`
/// shows, may be larger or smaller than these. Throws InvalidArgument for an undefined parameter, a
/// gradient of another dtype, a scale that is not positive and finite, and options out of range.
/// Deterministic; changes nothing.
MEZZO_API GradientReport
gradient_report(const std::vector<std::pair<std::string, at::Tensor>>& named_parameters,
                const GradientReportOptions& options = {});

/// As above for a torch::nn::Module, a module holder, or anything with its named_parameters(), of
/// which one that is listed twice counts once, under its first name.
template <detail::HasNamedParameters Module>
GradientReport gradient_report(const Module& model, const GradientReportOptions& options = {}) {
  return gradient_report(detail::named_parameters_of(model), options);
}

}  // namespace mezzo::amp
