#include <algorithm>
#include <cmath>
#include <cstddef>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "mezzo/amp/scaler/loss_scale_exponent.h"
#include "mezzo/amp/scaler/unscale.h"
#include "mezzo/amp/watch/watch.h"
#include "mezzo/core/error.h"

namespace mezzo::amp {
namespace {

constexpr int kHalfNormal = -14;     // float16's smallest normal number is 2^-14,
constexpr int kHalfSubnormal = -24;  // its smallest subnormal one 2^-24
constexpr int kLowestExponent = -1074;
constexpr int kHighestExponent = 1023;

void check_options(const GradientReportOptions& options) {
  MEZZO_CHECK(std::isfinite(options.scale) && options.scale > 0.0,
              "gradient_report: expected a positive finite scale, got {}", options.scale);
  MEZZO_CHECK(options.keep > 0.0 && options.keep <= 1.0,
              "gradient_report: expected keep in (0, 1], got {}", options.keep);
  MEZZO_CHECK(std::isfinite(options.headroom) && options.headroom >= 1.0,
              "gradient_report: expected a finite headroom >= 1, got {}", options.headroom);
}

ExponentHistogram exponents_of(const at::Tensor& gradient, double scale) {
  const at::Tensor values = stored_values(gradient).cpu().to(at::kDouble).contiguous();
  const double* numbers = values.const_data_ptr<double>();
  std::vector<std::int64_t> counts(kHighestExponent - kLowestExponent + 1, 0);
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    const double value = numbers[i] / scale;
    if (value == 0.0 || !std::isfinite(value)) continue;
    ++counts[static_cast<std::size_t>(std::ilogb(value) - kLowestExponent)];
  }
  const auto is_used = [](std::int64_t count) { return count != 0; };
  const auto first = std::find_if(counts.begin(), counts.end(), is_used);
  if (first == counts.end()) return {};
  const auto last = std::find_if(counts.rbegin(), counts.rend(), is_used).base();
  return {.lowest = kLowestExponent + static_cast<int>(first - counts.begin()),
          .counts = std::vector<std::int64_t>(first, last)};
}

HalfLossScale half_loss_scale(const GradientRow& row, const GradientReportOptions& options) {
  const ExponentHistogram& exponents = row.exponents;
  const double total = static_cast<double>(exponents.total());
  // Scaling by 2^s shifts every bucket by s, so the shares are exact.
  const auto share = [&](int lowest) {
    return static_cast<double>(exponents.at_least(lowest)) / total;
  };
  const int limit = loss_scale_exponent(row.numbers.largest, options.headroom,
                                        -kHighestScaleExponent, kHighestScaleExponent);
  int exponent = std::min(0, limit);
  while (exponent < limit && share(kHalfNormal - exponent) < options.keep) ++exponent;
  HalfLossScale half;
  half.loss_scale = std::ldexp(1.0, exponent);
  half.largest_loss_scale = std::ldexp(1.0, limit);
  half.representable = share(kHalfSubnormal - exponent);
  half.exact = share(kHalfNormal - exponent);
  half.representable_unscaled = share(kHalfSubnormal);
  half.enough = half.representable >= options.keep;
  return half;
}

GradientRow make_row(const std::string& name, const at::Tensor& gradient,
                     const GradientReportOptions& options) {
  MEZZO_CHECK(has_countable_numbers(gradient),
              "gradient_report: expected a float16, bfloat16, float32 or float64 gradient of {}, "
              "strided or sparse, got {}",
              name, c10::toString(gradient.scalar_type()));
  GradientRow row{.name = name,
                  .parameters = 1,
                  .numbers = count_numbers(gradient),
                  .exponents = exponents_of(gradient, options.scale),
                  .half = {}};
  row.numbers.largest /= options.scale;
  row.numbers.smallest_nonzero /= options.scale;
  return row;
}

}  // namespace

ExponentHistogram& ExponentHistogram::operator+=(const ExponentHistogram& other) {
  if (other.counts.empty()) return *this;
  if (counts.empty()) return *this = other;
  if (other.lowest < lowest) {
    counts.insert(counts.begin(), static_cast<std::size_t>(lowest - other.lowest), 0);
    lowest = other.lowest;
  }
  const auto shift = static_cast<std::size_t>(other.lowest - lowest);
  counts.resize(std::max(counts.size(), shift + other.counts.size()), 0);
  for (std::size_t i = 0; i < other.counts.size(); ++i) counts[shift + i] += other.counts[i];
  return *this;
}

std::int64_t ExponentHistogram::at_least(int exponent) const {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (lowest + static_cast<int>(i) >= exponent) sum += counts[i];
  }
  return sum;
}

GradientReport gradient_report(
    const std::vector<std::pair<std::string, at::Tensor>>& named_parameters,
    const GradientReportOptions& options) {
  check_options(options);
  const at::NoGradGuard no_grad;
  GradientReport report;
  report.all.name = "all";
  for (const auto& [name, parameter] : named_parameters) {
    MEZZO_CHECK(parameter.defined(),
                "gradient_report: expected a tensor for {}, got an undefined one", name);
    if (!parameter.grad().defined()) {
      report.without_gradient.push_back(name);
      continue;
    }
    GradientRow row = make_row(name, parameter.grad(), options);
    report.all.parameters += row.parameters;
    report.all.numbers += row.numbers;
    report.all.exponents += row.exponents;
    if (!row.exponents.counts.empty()) row.half = half_loss_scale(row, options);
    report.rows.push_back(std::move(row));
  }
  if (!report.all.exponents.counts.empty()) {
    report.all.half = half_loss_scale(report.all, options);
  }
  return report;
}

}  // namespace mezzo::amp
