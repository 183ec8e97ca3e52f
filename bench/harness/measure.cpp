#include "bench/harness/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "mezzo/core/dtype.h"
#include "mezzo/core/error.h"
#include "mezzo/core/table.h"
#include "mezzo/runtime/memory.h"
#include "mezzo/train/report/summary.h"

#include "bench/harness/machine.h"

namespace mezzo::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double epsilon_of(amp::Precision precision) {
  constexpr double kTensorFloat32Epsilon = 0x1p-10;
  switch (precision) {
    case amp::Precision::kBFloat16:
      return BFloat16::epsilon;
    case amp::Precision::kFloat16:
      return Float16::epsilon;
    case amp::Precision::kTensorFloat32:
      return kTensorFloat32Epsilon;
    case amp::Precision::kFloat32:
      break;
  }
  return Float32::epsilon;
}

/// The expected results of a comparison and their own error bound.
struct Truth {
  std::vector<Expected> results;
  Rounding rounding;
  double error = 0;
};

std::string no_memory(std::int64_t needed, std::int64_t available) {
  return fmt::format("needs about {}, and {} are free", format_bytes(needed),
                     format_bytes(available));
}

double error_of(const at::Tensor& got, const Expected& expected, bool has_jumps) {
  if (expected.value.numel() == 0) return 0;
  const std::int64_t rows = got.size(0);
  const at::Tensor taken = got.detach().reshape({rows, -1}).slice(0, 0, rows, expected.stride);
  const at::Tensor value = expected.value.reshape({expected.value.size(0), -1});
  const at::Tensor differences = (taken.to(at::kFloat) - value).abs_();
  const double largest = std::max(value.max().item<double>(), -value.min().item<double>());
  const double unit = largest > 0 ? largest : 1, worst = differences.max().item<double>() / unit;
  if (!has_jumps || !(worst <= 1)) return worst;
  return differences.square_().mean(at::kDouble).sqrt_().item<double>() / unit;
}

double error_of(const Tensors& results, const std::vector<Expected>& expected, bool has_jumps) {
  MEZZO_DCHECK(results.size() == expected.size());
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double error = error_of(results[i], expected[i], has_jumps);
    if (std::isnan(error)) return error;
    worst = std::max(worst, error);
  }
  return worst;
}

/// Checks the results of a candidate. If no results are expected yet, these become the expected
/// ones.
void check(const Candidate& candidate, Tensors results, const std::string& work, Truth& truth,
           Measurement& measured) {
  if (candidate.arrange) results = candidate.arrange(std::move(results));
  const double allowed = largest_error(truth.rounding, candidate.precision);
  if (truth.results.empty()) {
    for (const at::Tensor& result : results) {
      // A copy: a captured step writes its next results to the same place.
      truth.results.push_back({result.detach().to(at::kFloat, /*non_blocking=*/false, true)});
    }
    truth.error = allowed;
    return;
  }
  measured.error = error_of(results, truth.results, truth.rounding.has_jumps);
  if (candidate.is_mezzo && !(measured.error <= allowed + truth.error)) {
    mezzo::detail::raise<LogicError>(
        "bench: {}: {} is wrong by {:.2g} of the largest element; rounding explains {:.2g}", work,
        candidate.name, measured.error, allowed + truth.error);
  }
}

void synchronize(at::Device device) {
  if (device.is_cpu()) return;
  c10::impl::getDeviceGuardImpl(device.type())->synchronizeDevice(device.index());
}

void warm_up(const Candidate& candidate, const std::string& work, const MeasureOptions& options,
             Truth& truth, Measurement& measured) {
  check(candidate, candidate.run(), work, truth, measured);
  for (std::int64_t i = 1; i < options.warm_ups; ++i) candidate.run();
  synchronize(options.device);
  if (candidate.stages) {
    for (Stage& stage : *candidate.stages) stage.milliseconds.clear();
  }
}

Measurement begin(const Candidate& candidate, const std::string& work,
                  const MeasureOptions& options, Truth& truth) {
  Measurement measured{.name = candidate.name,
                       .is_mezzo = candidate.is_mezzo,
                       .precision = candidate.precision,
                       .milliseconds = {},
                       .cost = candidate.cost,
                       .stages = {},
                       .skipped = candidate.refusal};
  if (!measured.skipped.empty()) return measured;
  const std::int64_t available = available_bytes();
  // Freed blocks leave holes into which the next, larger one does not fit.
  const std::int64_t needed = candidate.cost.run_bytes / 3 * 4;
  if (needed > available) {
    measured.skipped = no_memory(needed, available);
    return measured;
  }
  const auto fail = [&](const std::string& text, bool is_failure) {
    measured.skipped = (is_failure ? "FAILED: " : "") + text.substr(0, text.find('\n'));
  };
  try {
    warm_up(candidate, work, options, truth, measured);
  } catch (const c10::OutOfMemoryError& error) {
    if (candidate.is_mezzo && options.device.is_cpu()) throw;
    fail(error.what_without_backtrace(), candidate.is_mezzo);
  } catch (const c10::Error& error) {
    if (candidate.is_mezzo && options.device.is_cpu()) throw;
    fail(error.what_without_backtrace(), !options.device.is_cpu());
  } catch (const Error& error) {  // a wrong result, or a launch or a capture that CUDA refused
    if (options.device.is_cpu()) throw;
    fail(error.what(), true);
  }
  return measured;
}

void time_round(const Candidate& candidate, const MeasureOptions& options, Measurement& measured) {
  synchronize(options.device);
  reset_peak_memory(options.device);
  const std::int64_t before = current_memory_bytes(options.device);
  const Clock::time_point start = Clock::now();
  for (std::int64_t i = 1; i < options.repeats; ++i) candidate.run();
  const Tensors results = candidate.run();
  synchronize(options.device);
  const std::chrono::duration<double, std::milli> elapsed = Clock::now() - start;
  measured.milliseconds.push_back(elapsed.count() / static_cast<double>(options.repeats));
  // From the last round: the first ones also allocate persistent data, such as a transposed
  // structure or optimizer moments.
  measured.peak_bytes = peak_memory_bytes(options.device) - before;
}

double ratio(double of, double other) {
  return of > 0 ? other / of : kNan;
}

}  // namespace

double largest_error(const Rounding& rounding, amp::Precision precision) {
  constexpr double kWrong = 0.1;
  const double epsilon = epsilon_of(precision);
  const double sums = std::sqrt(rounding.terms) * Float32::epsilon;
  return std::min(kWrong, rounding.steps * epsilon + sums);
}

double Measurement::minimum() const {
  return milliseconds.empty() ? kNan : *std::min_element(milliseconds.begin(), milliseconds.end());
}

double Measurement::median() const {
  return mezzo::median(milliseconds);
}

double speed_up(const Measurement& of, const Measurement& other) {
  return ratio(of.minimum(), other.minimum());
}

double median_speed_up(const Measurement& of, const Measurement& other) {
  return ratio(of.median(), other.median());
}

std::optional<Outcome> measure(const Plan& plan, const MeasureOptions& options) {
  const auto stopped = [&options] { return options.should_stop && options.should_stop(); };
  const auto report_progress = [&](const std::string& what) {
    if (options.on_progress) {
      options.on_progress(fmt::format("{}, F={}: {}", plan.work, plan.width, what));
    }
  };
  Outcome outcome{.work = plan.work, .width = plan.width, .measurements = {}, .skipped = {}};
  const std::int64_t available = available_bytes();
  if (plan.bytes > available) {
    outcome.skipped = no_memory(plan.bytes, available);
    return outcome;
  }
  report_progress("operands");
  at::manual_seed(0);
  Comparison comparison;
  try {
    comparison = plan.make();
  } catch (const InvalidArgument& error) {
    outcome.skipped = error.what();
    return outcome;
  } catch (const c10::OutOfMemoryError&) {
    outcome.skipped = "the operands do not fit";
    return outcome;
  }
  report_progress("warm-up");
  Truth truth{.results = std::move(comparison.expected), .rounding = comparison.rounding};
  for (const Candidate& candidate : comparison.candidates) {
    if (stopped()) return std::nullopt;
    outcome.measurements.push_back(begin(candidate, plan.work, options, truth));
  }
  truth.results.clear();
  for (std::int64_t round = 1; round <= options.rounds; ++round) {
    report_progress(fmt::format("round {}/{}", round, options.rounds));
    for (std::size_t i = 0; i < comparison.candidates.size(); ++i) {
      Measurement& measured = outcome.measurements[i];
      if (!measured.skipped.empty()) continue;
      if (stopped()) return std::nullopt;
      time_round(comparison.candidates[i], options, measured);
    }
  }
  for (std::size_t i = 0; i < comparison.candidates.size(); ++i) {
    const auto& stages = comparison.candidates[i].stages;
    if (stages) outcome.measurements[i].stages = *stages;
  }
  return outcome;
}

}  // namespace mezzo::bench
