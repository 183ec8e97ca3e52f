#include "mezzo/train/doctor/doctor_analysis.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

#include "mezzo/amp/scaler/loss_scale_exponent.h"

namespace mezzo::detail {
namespace {

// By how much gradients may still grow under a constant scale.
constexpr double kHeadroom = 16;
// Normal underflow (the tail of a softmax) stays below this share.
constexpr double kNotableShare = 0.01;
// The trainer gives up below 2^-24.
constexpr int kLowestExponent = -24;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

c10::ScalarType type_of(amp::Precision precision) {
  switch (precision) {
    case amp::Precision::kBFloat16:
      return c10::ScalarType::BFloat16;
    case amp::Precision::kFloat16:
      return c10::ScalarType::Half;
    case amp::Precision::kFloat32:
    case amp::Precision::kTensorFloat32:
      break;
  }
  return c10::ScalarType::Float;
}

std::string top_of(const std::string& path) {
  return path.substr(0, path.find('.'));
}

bool contains(const std::vector<std::string>& values, const std::string& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

/// Elements that are not exactly 0.
std::int64_t nonzero_elements(const amp::WatchRow& row) {
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

Tally& tally_of(std::vector<Tally>& tallies, const amp::WatchPlace& place) {
  amp::WatchPlace top = place;
  top.path = top_of(place.path);
  const std::string name = top.name();
  for (Tally& tally : tallies) {
    if (tally.shares.place == name && tally.shares.pass == place.pass) return tally;
  }
  tallies.emplace_back();
  tallies.back().shares.place = name;
  tallies.back().shares.pass = place.pass;
  return tallies.back();
}

void add_row(const amp::WatchRow& row, Tally& tally) {
  tally.shares.elements += nonzero_elements(row);
  tally.flushed += row.underflowed;
  tally.subnormal += row.numbers.subnormal;
  tally.near_top += row.numbers.near_top;
  tally.non_finite += row.numbers.non_finite();
}

void find_exits(const amp::WatchReport& report, DoctorRun& run) {
  for (const amp::WatchExit& exit : report.exits) {
    std::optional<amp::WatchExit>& first =
        exit.place.pass == amp::Pass::kBackward ? run.backward_exit : run.forward_exit;
    if (exit.place.pass != amp::Pass::kNoGrad && !first) first = exit;
  }
}

/// The largest gradient of an activation, or of a parameter before it is accumulated.
double largest_in_backward(const amp::WatchReport& float32,
                           const std::vector<std::string>& keep_float32) {
  double largest = 0;
  for (const amp::WatchRow& row : float32.rows) {
    if (row.place.pass != amp::Pass::kBackward) continue;
    if (!row.place.after && contains(keep_float32, top_of(row.place.path))) continue;
    // Scalars are gradients of the loss itself, which stay in float32.
    if (row.numbers.elements == row.calls) continue;
    largest = std::max(largest, row.numbers.largest);
  }
  return largest;
}

}  // namespace

std::optional<std::string> part_of(const amp::WatchPlace& place,
                                   const std::vector<std::string>& parts) {
  const std::string top = top_of(place.path);
  return contains(parts, top) ? std::optional(top) : std::nullopt;
}

bool keeps_every_layer(const std::vector<std::string>& keep_float32,
                       const std::vector<std::string>& parts) {
  return std::all_of(parts.begin(), parts.end(), [&](const std::string& part) {
    return !part.starts_with("layer") || contains(keep_float32, part);
  });
}

void describe_operations(const amp::WatchReport& report, DoctorRun& run) {
  find_exits(report, run);
  std::vector<Tally> tallies;
  for (const amp::WatchRow& row : report.rows) {
    if (row.place.pass == amp::Pass::kNoGrad || row.dtype != type_of(run.precision)) continue;
    add_row(row, tally_of(tallies, row.place));
    const double flushed = share(row.underflowed, nonzero_elements(row));
    if (row.place.pass == amp::Pass::kBackward && flushed >= kNotableShare && !run.flushing) {
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

double late_loss(const std::vector<double>& losses) {
  if (losses.empty()) return std::numeric_limits<double>::quiet_NaN();
  const std::size_t count = std::max<std::size_t>(1, losses.size() / 4);
  return std::accumulate(losses.end() - static_cast<std::ptrdiff_t>(count), losses.end(), 0.0) /
         static_cast<double>(count);
}

void add_gradients(const amp::GradientReport& report, GradientFacts& facts) {
  if (facts.rows.empty()) {
    facts.rows = report.rows;
    for (amp::GradientRow& row : facts.rows) row.half.reset();
  } else {
    for (std::size_t i = 0; i < facts.rows.size(); ++i) {
      facts.rows[i].numbers += report.rows[i].numbers;
      facts.rows[i].exponents += report.rows[i].exponents;
    }
  }
  facts.largest_per_step.push_back(report.all.numbers.largest);
  if (report.all.half) {
    facts.needed_loss_scale = std::max(facts.needed_loss_scale, report.all.half->loss_scale);
  }
}

void finish_gradients(GradientFacts& facts) {
  amp::ExponentHistogram all;
  facts.smallest = kInfinity;
  for (const amp::GradientRow& row : facts.rows) {
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
  std::int64_t kept = 0, total = 0;
  for (const amp::GradientRow& row : facts.rows) {
    kept += row.exponents.at_least(lowest);
    total += row.exponents.total();
  }
  return total == 0 ? 1 : share(kept, total);
}

LossScale choose_loss_scale(const GradientFacts& gradients, const amp::WatchReport& float32,
                            const std::vector<std::string>& keep_float32) {
  double largest = largest_in_backward(float32, keep_float32);
  for (const amp::GradientRow& row : gradients.rows) {
    if (!contains(keep_float32, top_of(row.name))) largest = std::max(largest, row.numbers.largest);
  }
  const auto [low, high] =
      std::minmax_element(gradients.largest_per_step.begin(), gradients.largest_per_step.end());
  const bool known = largest > 0 && std::isfinite(largest) && *low > 0;
  if (!known || *high > kHeadroom * *low) return {.kind = LossScale::Kind::kDynamic};
  const int exponent =
      amp::loss_scale_exponent(largest, kHeadroom, kLowestExponent, amp::kHighestScaleExponent);
  return {.kind = LossScale::Kind::kConstant, .value = std::ldexp(1, exponent)};
}

bool is_suited(const DoctorRun& run, std::int64_t steps, const std::vector<std::string>& parts) {
  const bool constant = run.loss_scale.kind == LossScale::Kind::kConstant;
  const bool float32 = run.precision == amp::Precision::kFloat32;
  return static_cast<std::int64_t>(run.losses.size()) == steps && (float32 || !run.forward_exit) &&
         run.loss_difference <= kLossTolerance && run.skipped_at_end == 0 &&
         (!constant || run.skipped_steps == 0) &&
         (float32 || !keeps_every_layer(run.keep_float32, parts));
}

}  // namespace mezzo::detail
