#include "mezzo/cli/page/axis.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include <fmt/format.h>

#include "mezzo/cli/page/svg.h"

namespace mezzo::cli::page {
namespace {

constexpr double kMostTicks = 5;

/// 1, 2 or 5 times a power of ten, at least `step`.
double nice_step(double step) {
  const double power = std::pow(10, std::floor(std::log10(step)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= step * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

/// "0.25", "1e+07": as many digits as differ in steps of `step`.
std::string tick_text(double value, double step) {
  constexpr double kLargest = 1e6, kSmallest = 1e-4;
  if (std::abs(value) < step / 2) return "0";
  if (std::abs(value) >= kLargest || step < kSmallest) return fmt::format("{:.3g}", value);
  const int digits = static_cast<int>(std::max(0.0, -std::floor(std::log10(step) + 1e-9)));
  return fmt::format("{:.{}f}", value, digits);
}

}  // namespace

double width_of(std::string_view text) {
  return kLetter * static_cast<double>(length_of(text));
}

std::string power_of_two(int exponent) {
  constexpr std::array kDigits = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string text = "2";
  for (const char c : std::to_string(exponent)) {
    text += c == '-' ? "⁻" : kDigits.at(static_cast<std::size_t>(c - '0'));
  }
  return text;
}

Axis Axis::of(const std::vector<double>& values, Scale scale, bool whole) {
  constexpr double kRatioOfLog = 15;
  std::vector<double> finite;
  for (const double value : values) {
    if (std::isfinite(value)) finite.push_back(value);
  }
  Axis axis;
  if (finite.empty()) {
    axis.set_linear(0, 1, whole);
    axis.ticks_.clear();
    return axis;
  }
  const auto [least, largest] = std::minmax_element(finite.begin(), finite.end());
  const double low = *least, high = *largest;
  if (scale == Scale::kPowersOfTwo && low > 0) {
    axis.set_powers_of_two(low, high);
  } else if (scale == Scale::kAutomatic && low > 0 && high > kRatioOfLog * low) {
    axis.set_log(low, high);
  } else {
    axis.set_linear(low, high, whole);
  }
  return axis;
}

Axis Axis::from_zero(double largest) {
  Axis axis;
  axis.set_linear(0, largest > 0 ? largest : 1, /*whole=*/false);
  return axis;
}

void Axis::set_linear(double low, double high, bool whole) {
  if (!(high - low > 1e-9 * std::max(std::abs(low), std::abs(high)))) {  // one number
    if (whole) {
      low_ = low - 1;
      high_ = low + 1;
      ticks_.push_back({low, tick_text(low, 1)});
      return;
    }
    const double room = low == 0 ? 1 : std::abs(low) / 10;
    if (low != 0) low -= room;
    high += room;
  }
  double step = nice_step((high - low) / kMostTicks);
  if (whole) step = std::max(step, 1.0);
  low_ = whole ? low : step * std::floor(low / step + 1e-9);
  high_ = whole ? high : step * std::ceil(high / step - 1e-9);
  const double first = std::ceil(low_ / step - 1e-9);
  for (double i = first; i * step <= high_ + 1e-9 * step; ++i) {
    ticks_.push_back({i * step, tick_text(i * step, step)});
  }
}

void Axis::set_log(double low, double high) {
  constexpr double kNear = 1e-9;
  constexpr std::array kFactors = {1.0, 2.0, 5.0};
  constexpr std::size_t kMostLabels = 7;
  is_log_ = true;
  const double first = std::floor(std::log10(low)), last = std::ceil(std::log10(high));
  std::vector<double> candidates;
  for (double i = first; i <= last; ++i) {
    for (const double factor : kFactors) candidates.push_back(factor * std::pow(10, i));
  }
  for (const double candidate : candidates) {
    if (candidate <= low * (1 + kNear)) low_ = candidate;
  }
  high_ = *std::find_if(candidates.begin(), candidates.end(),
                        [high](double candidate) { return candidate >= high * (1 - kNear); });
  const auto add = [this](double value) {
    if (value < low_ * (1 - kNear) || value > high_ * (1 + kNear)) return;
    ticks_.push_back({value, tick_text(value, value)});
  };
  for (const double candidate : candidates) add(candidate);
  if (ticks_.size() <= kMostLabels) return;
  ticks_.clear();
  const double step = std::max(1.0, std::ceil((last - first) / kMostTicks));
  for (double i = first; i <= last; i += step) add(std::pow(10, i));
}

void Axis::set_powers_of_two(double low, double high) {
  is_log_ = true;
  double first = std::floor(std::log2(low)), last = std::ceil(std::log2(high));
  if (first == last) {
    first -= 1;
    last += 1;
  }
  low_ = std::exp2(first);
  high_ = std::exp2(last);
  const double step = std::max(1.0, std::ceil((last - first) / kMostTicks));
  for (double i = first; i <= last; i += step) {
    ticks_.push_back({std::exp2(i), power_of_two(static_cast<int>(i))});
  }
}

double Axis::operator()(double value) const {
  const double share =
      is_log_ ? std::log(value / low_) / std::log(high_ / low_) : (value - low_) / (high_ - low_);
  return low_place_ + share * (high_place_ - low_place_);
}

double Axis::widest_label() const {
  double widest = 0;
  for (const Tick& tick : ticks_) widest = std::max(widest, width_of(tick.label));
  return widest;
}

}  // namespace mezzo::cli::page
