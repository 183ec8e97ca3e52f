#include "mezzo/amp/diagnose/analysis.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

#include <ATen/ATen.h>

#include "mezzo/amp/diagnose/module_path.h"
#include "mezzo/amp/scaler/loss_scale_exponent.h"

namespace mezzo::amp::detail {
namespace {

// Gradients may grow by this factor before a constant scale overflows.
constexpr double kHeadroom = 16;
// Normal underflow (the tail of a softmax) stays below this share.
constexpr double kNotableShare = 0.01;
// Below this, the smallest float16 number, a scale makes more gradients underflow.
constexpr int kLowestExponent = -24;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

c10::ScalarType type_of(Precision precision) {
  switch (precision) {
    case Precision::kBFloat16:
      return c10::ScalarType::BFloat16;
    case Precision::kFloat16:
      return c10::ScalarType::Half;
    case Precision::kFloat32:
    case Precision::kTensorFloat32:
      break;
  }
  return c10::ScalarType::Float;
}

bool contains(const std::vector<std::string>& values, const std::string& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

/// Elements that are not exactly 0.
std::int64_t nonzero_elements(const WatchRow& row) {
  return row.numbers.elements - row.numbers.zeros + row.underflowed;
}

double share(std::int64_t count, std::int64_t elements) {
  return elements == 0 ? 0 : static_cast<double>(count) / static_cast<double>(elements);
}

/// Counts of one place and pass.
struct Tally {
  PlaceShares shares;
  std::int64_t flushed = 0, subnormal = 0, near_top = 0, non_finite = 0;
};

Tally& tally_of(std::vector<Tally>& tallies, const WatchPlace& place,
                const std::vector<ModelPart>& parts) {
  WatchPlace in_part = place;
  in_part.path = part_of(place.path, parts).value_or(place.path);
  const std::string name = in_part.name();
  for (Tally& tally : tallies) {
    if (tally.shares.place == name && tally.shares.pass == place.pass) return tally;
  }
  tallies.emplace_back();
  tallies.back().shares.place = name;
  tallies.back().shares.pass = place.pass;
  return tallies.back();
}

void add_row(const WatchRow& row, Tally& tally) {
  tally.shares.elements += nonzero_elements(row);
  tally.flushed += row.underflowed;
  tally.subnormal += row.numbers.subnormal;
  tally.near_top += row.numbers.near_top;
  tally.non_finite += row.numbers.non_finite();
}

void find_exits(const WatchReport& report, DiagnosisRun& run) {
  for (const WatchExit& exit : report.exits) {
    std::optional<WatchExit>& first =
        exit.place.pass == Pass::kBackward ? run.backward_exit : run.forward_exit;
    if (exit.place.pass != Pass::kNoGrad && !first) first = exit;
  }
}

/// The largest gradient of an activation, or of a parameter before it is accumulated.
double largest_in_backward(const WatchReport& float32, const std::vector<std::string>& keep_float32,
                           const std::vector<ModelPart>& parts) {
  double largest = 0;
  for (const WatchRow& row : float32.rows) {
    if (row.place.pass != Pass::kBackward) continue;
    const std::optional<std::string> part = part_of(row.place.path, parts);
    if (!row.place.after && part && contains(keep_float32, *part)) continue;
    // Scalars are gradients of the loss itself, which stay in float32.
    if (row.numbers.elements == row.calls) continue;
    largest = std::max(largest, row.numbers.largest);
  }
  return largest;
}

}  // namespace

std::vector<ModelPart> model_parts(
    const std::vector<std::string>& paths,
    const std::vector<std::pair<std::string, at::Tensor>>& named_parameters) {
  std::vector<ModelPart> parts;
  for (const std::string& path : paths) {
    const bool has_weights =
        std::any_of(named_parameters.begin(), named_parameters.end(), [&](const auto& named) {
          return is_in_module(named.first, path) && named.second.dim() >= 2;
        });
    parts.push_back({.path = path, .has_weights = has_weights});
  }
  return parts;
}

std::optional<std::string> part_of(const std::string& path, const std::vector<ModelPart>& parts) {
  std::optional<std::string> longest;
  for (const ModelPart& part : parts) {
    if (!is_in_module(path, part.path)) continue;
    if (!longest || part.path.size() > longest->size()) longest = part.path;
  }
  return longest;
}

bool keeps_every_part(const std::vector<std::string>& keep_float32,
                      const std::vector<ModelPart>& parts) {
  return !keep_float32.empty() &&
         std::all_of(parts.begin(), parts.end(), [&](const ModelPart& part) {
           return !part.has_weights || contains(keep_float32, part.path);
         });
}

void describe_operations(const WatchReport& report, const std::vector<ModelPart>& parts,
                         DiagnosisRun& run) {
  find_exits(report, run);
  std::vector<Tally> tallies;
  for (const WatchRow& row : report.rows) {
    if (row.place.pass == Pass::kNoGrad || row.dtype != type_of(run.setting.precision)) continue;
    add_row(row, tally_of(tallies, row.place, parts));
    const double flushed = share(row.underflowed, nonzero_elements(row));
    if (row.place.pass == Pass::kBackward && flushed >= kNotableShare && !run.flushing) {
      run.flushing = {.op = row.op, .place = row.place, .share = flushed};
    }
  }
  for (Tally& tally : tallies) {
    PlaceShares& shares = tally.shares;
    shares.flushed = share(tally.flushed, shares.elements);
    shares.subnormal = share(tally.subnormal, shares.elements);
    shares.near_top = share(tally.near_top, shares.elements);
    shares.non_finite = share(tally.non_finite, shares.elements);
    run.places.push_back(shares);
  }
}

double gradient_difference(const std::vector<at::Tensor>& gradients, double scale,
                           const std::vector<at::Tensor>& reference) {
  double difference = 0, norm = 0;  // squared
  const auto square = [](const at::Tensor& tensor) {
    const double length = tensor.norm().item<double>();
    return length * length;
  };
  const auto wide = [](const at::Tensor& tensor) {
    return (tensor.is_sparse() ? tensor.to_dense() : tensor).to(at::kDouble);
  };
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const at::Tensor exact = reference[i].defined() ? wide(reference[i]) : at::Tensor();
    const at::Tensor rounded = gradients[i].defined() ? wide(gradients[i]) / scale : at::Tensor();
    if (exact.defined()) norm += square(exact);
    if (exact.defined() && rounded.defined()) {
      difference += square(rounded - exact);
    } else if (exact.defined() || rounded.defined()) {
      difference += square(exact.defined() ? exact : rounded);
    }
  }
  if (!std::isfinite(difference)) return kInfinity;
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

double late_loss(const std::vector<double>& losses) {
  if (losses.empty()) return std::numeric_limits<double>::quiet_NaN();
  const std::size_t count = std::max<std::size_t>(1, losses.size() / 4);
  return std::accumulate(losses.end() - static_cast<std::ptrdiff_t>(count), losses.end(), 0.0) /
         static_cast<double>(count);
}

void add_gradients(const GradientReport& report, GradientFacts& facts) {
  for (const GradientRow& row : report.rows) {
    // A step need not use every parameter.
    const auto known = std::find_if(facts.rows.begin(), facts.rows.end(),
                                    [&](const GradientRow& each) { return each.name == row.name; });
    if (known == facts.rows.end()) {
      facts.rows.push_back(row);
      facts.rows.back().half.reset();
    } else {
      known->numbers += row.numbers;
      known->exponents += row.exponents;
    }
  }
  facts.largest_per_step.push_back(report.all.numbers.largest);
  if (report.all.half) {
    facts.needed_loss_scale = std::max(facts.needed_loss_scale, report.all.half->loss_scale);
  }
}

void finish_gradients(GradientFacts& facts) {
  ExponentHistogram all;
  facts.smallest = kInfinity;
  for (const GradientRow& row : facts.rows) {
    facts.largest = std::max(facts.largest, row.numbers.largest);
    if (row.numbers.smallest_nonzero > 0) {
      facts.smallest = std::min(facts.smallest, row.numbers.smallest_nonzero);
    }
    all += row.exponents;
  }
  if (!std::isfinite(facts.smallest)) facts.smallest = 0;
  if (all.total() > 0) facts.kept_unscaled = kept_share(facts, 1);
}

double kept_share(const GradientFacts& facts, double loss_scale) {
  // float16's smallest number is 2^-24.
  const int lowest = -24 - std::ilogb(loss_scale);
  std::int64_t in_range = 0, total = 0;
  for (const GradientRow& row : facts.rows) {
    in_range += row.exponents.at_least(lowest);
    total += row.exponents.total();
  }
  return total == 0 ? 1 : share(in_range, total);
}

LossScalePolicy choose_loss_scale(const GradientFacts& gradients, const WatchReport& float32,
                                  const std::vector<std::string>& keep_float32,
                                  const std::vector<ModelPart>& parts) {
  double largest = largest_in_backward(float32, keep_float32, parts);
  for (const GradientRow& row : gradients.rows) {
    const std::optional<std::string> part = part_of(row.name, parts);
    if (!part || !contains(keep_float32, *part)) largest = std::max(largest, row.numbers.largest);
  }
  const auto [low, high] =
      std::minmax_element(gradients.largest_per_step.begin(), gradients.largest_per_step.end());
  const bool known = largest > 0 && std::isfinite(largest) && *low > 0;
  if (!known || *high > kHeadroom * *low) return LossScalePolicy::dynamic();
  const int exponent =
      loss_scale_exponent(largest, kHeadroom, kLowestExponent, kHighestScaleExponent);
  return LossScalePolicy::constant(std::ldexp(1, exponent));
}

bool is_suited(const DiagnosisRun& run, std::int64_t steps, const std::vector<ModelPart>& parts) {
  const PrecisionSetting& setting = run.setting;
  const bool constant = setting.loss_scale && !setting.loss_scale->is_dynamic();
  const bool float32 = setting.precision == Precision::kFloat32;
  return static_cast<std::int64_t>(run.losses.size()) == steps && (float32 || !run.forward_exit) &&
         run.loss_difference <= kLossTolerance &&
         run.gradient_difference.value_or(0) <= kGradientTolerance && run.skipped_at_end == 0 &&
         (!constant || run.skipped_steps == 0) &&
         (float32 || !keeps_every_part(setting.keep_float32, parts));
}

NumericProblem problem_of(const DiagnosisRun& plain, const DiagnosisRun& scaled, std::int64_t steps,
                          const std::vector<ModelPart>& parts) {
  if (is_suited(plain, steps, parts)) return NumericProblem::kNone;
  if (plain.setting.precision == Precision::kFloat32) return NumericProblem::kDivergence;
  if (plain.out_of_memory || scaled.out_of_memory) return NumericProblem::kMemory;
  const bool in_range = !plain.forward_exit && !plain.backward_exit && plain.skipped_steps == 0 &&
                        std::isfinite(plain.loss_difference);
  // A loss scale cures underflow, but not a lack of digits.
  const bool cured = is_suited(scaled, steps, parts) ||
                     scaled.gradient_difference.value_or(kInfinity) <= kGradientTolerance;
  const bool underflows = plain.flushing && cured;
  return in_range && !underflows ? NumericProblem::kDigits : NumericProblem::kRange;
}

}  // namespace mezzo::amp::detail
