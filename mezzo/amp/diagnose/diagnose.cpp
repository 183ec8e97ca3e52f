#include "mezzo/amp/diagnose/diagnose.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include "mezzo/amp/diagnose/analysis.h"
#include "mezzo/amp/diagnose/diagnosis_job.h"
#include "mezzo/amp/diagnose/step_job.h"
#include "mezzo/core/error.h"
#include "mezzo/core/median.h"
#include "mezzo/runtime/memory.h"

namespace mezzo::amp {
namespace {

using detail::JobStep;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kTimedSteps = 10;
// How much closer to float32's gradient a part in float32 must bring the model.
constexpr double kHelps = 0.5;

/// Thrown to end the diagnosis.
struct Interrupted {};

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// The setting with a constant loss scale that is small enough for gradients like the run's.
PrecisionSetting settled(const DiagnosisRun& run) {
  constexpr double kHeadroom = 16;
  PrecisionSetting setting = run.setting;
  if (setting.loss_scale && setting.loss_scale->is_dynamic()) {
    setting.loss_scale =
        LossScalePolicy::constant(std::max(run.final_loss_scale / kHeadroom, 0x1p-24));
  }
  return setting;
}

/// One diagnosis.
class Diagnoser {
 public:
  Diagnoser(detail::DiagnosisJob& job, const DiagnoseOptions& options);
  Diagnosis run();

 private:
  void run_all();
  std::size_t run_once(const PrecisionSetting& setting);
  void measure(DiagnosisRun& run);
  void time_steps(DiagnosisRun& run);
  void watch_steps(DiagnosisRun& run);
  void record(const JobStep& result, DiagnosisRun& run);
  double first_gradient_difference(const PrecisionSetting& setting);
  std::vector<at::Tensor> gradients() const;
  bool keep_part_that_overflows(const DiagnosisRun& run, std::vector<std::string>& parts) const;
  bool keep_part_that_loses_digits(const DiagnosisRun& run, std::vector<std::string>& parts);
  std::size_t find_fix(std::size_t first);
  void add_candidate(std::size_t plain, std::size_t first, std::size_t best);
  bool is_suited(const DiagnosisRun& run) const {
    return detail::is_suited(run, options_.steps, parts_);
  }
  void check_stop() const {
    if (options_.should_stop && options_.should_stop()) throw Interrupted();
  }

  detail::DiagnosisJob& job_;
  const DiagnoseOptions& options_;
  std::vector<detail::ModelPart> parts_;
  WatchReport float32_;                     // of the fp32 run
  std::vector<at::Tensor> first_gradient_;  // of the fp32 run
  Diagnosis diagnosis_;
};

Diagnoser::Diagnoser(detail::DiagnosisJob& job, const DiagnoseOptions& options)
    : job_(job), options_(options) {
  diagnosis_.device = job.device().str();
  diagnosis_.threads = at::get_num_threads();
  diagnosis_.steps = options.steps;
}

Diagnosis Diagnoser::run() {
  try {
    run_all();
    detail::conclude(diagnosis_);
  } catch (const Interrupted&) {
    diagnosis_.interrupted = true;
    diagnosis_.candidates.clear();
  }
  return std::move(diagnosis_);
}

void Diagnoser::run_all() {
  const std::size_t float32 = run_once({});
  add_candidate(float32, float32, float32);
  // No precision fixes a job whose loss or gradient is not finite in float32.
  if (!diagnosis_.candidates[float32].suited) return;

  if (job_.device().is_cuda()) {
    const std::size_t tensor_float32 = run_once({.precision = Precision::kTensorFloat32});
    add_candidate(tensor_float32, tensor_float32, tensor_float32);
  }
  const std::size_t bfloat16 = run_once({.precision = Precision::kBFloat16});
  add_candidate(bfloat16, bfloat16, find_fix(bfloat16));
  // Without a scale, to see which gradients underflow.
  const std::size_t unscaled = run_once({.precision = Precision::kFloat16});
  const std::size_t float16 =
      run_once({.precision = Precision::kFloat16, .loss_scale = LossScalePolicy::dynamic()});
  add_candidate(unscaled, float16, find_fix(float16));
}

/// plain: without fixes. first: the run whose fixes led to `best`.
void Diagnoser::add_candidate(std::size_t plain, std::size_t first, std::size_t best) {
  const std::vector<DiagnosisRun>& runs = diagnosis_.runs;
  const std::size_t scaled = runs[best].setting.keep_float32.empty() ? best : first;
  diagnosis_.candidates.push_back(
      {.precision = runs[plain].setting.precision,
       .problem = detail::problem_of(runs[plain], runs[scaled], options_.steps, parts_),
       .run = best,
       .suited = is_suited(runs[best]),
       .evidence = {}});
}

/// Adds the part that left the range in the run; false if it is already in `parts` or unknown.
bool Diagnoser::keep_part_that_overflows(const DiagnosisRun& run,
                                         std::vector<std::string>& parts) const {
  if (!run.forward_exit) return false;
  const std::optional<std::string> part = detail::part_of(run.forward_exit->place.path, parts_);
  if (!part || std::find(parts.begin(), parts.end(), *part) != parts.end()) return false;
  parts.push_back(*part);
  return true;
}

/// Adds the part that, kept in float32, brings the first gradient closest to float32's; false if
/// none helps.
bool Diagnoser::keep_part_that_loses_digits(const DiagnosisRun& run,
                                            std::vector<std::string>& parts) {
  const double difference_now =
      run.gradient_difference.value_or(std::numeric_limits<double>::infinity());
  const bool has_digits = difference_now <= detail::kGradientTolerance;
  if (is_suited(run) || run.forward_exit || has_digits) return false;
  double best = kHelps * difference_now;
  std::optional<std::string> choice;
  for (const detail::ModelPart& part : parts_) {
    if (std::find(parts.begin(), parts.end(), part.path) != parts.end()) continue;
    PrecisionSetting setting = settled(run);
    setting.keep_float32 = parts;
    setting.keep_float32.push_back(part.path);
    if (detail::keeps_every_part(setting.keep_float32, parts_)) continue;
    double difference = best;
    try {
      difference = first_gradient_difference(setting);
    } catch (const c10::OutOfMemoryError&) {  // another part may fit
    }
    if (difference >= best) continue;
    best = difference;
    choice = part.path;
  }
  if (choice) parts.push_back(*choice);
  return choice.has_value();
}

/// The index of the best run: `first`, or the last run that fixes an issue of the run before it.
std::size_t Diagnoser::find_fix(std::size_t first) {
  const Precision precision = diagnosis_.runs[first].setting.precision;
  const bool scaled = precision == Precision::kFloat16;
  PrecisionSetting setting = diagnosis_.runs[first].setting;
  std::vector<std::string>& parts = setting.keep_float32;
  std::size_t latest = first;
  while (true) {
    const DiagnosisRun run = diagnosis_.runs[latest];
    if (run.out_of_memory) return latest;
    const bool added = keep_part_that_overflows(run, parts);
    if (added && detail::keeps_every_part(parts, parts_)) return latest;
    const bool constant = scaled && !setting.loss_scale->is_dynamic();
    if (constant && !added && !is_suited(run)) {
      if (!keep_part_that_loses_digits(run, parts)) setting.loss_scale = LossScalePolicy::dynamic();
    } else if (scaled && (latest == first || (constant && added))) {
      setting.loss_scale = detail::choose_loss_scale(diagnosis_.gradients, float32_, parts, parts_);
      // `first` was dynamic.
      const bool unchanged = setting.loss_scale->is_dynamic() && parts.empty();
      if (unchanged && !keep_part_that_loses_digits(run, parts)) return first;
    } else if (!added && !keep_part_that_loses_digits(run, parts)) {
      return latest;
    }
    latest = run_once(setting);
  }
}

std::size_t Diagnoser::run_once(const PrecisionSetting& setting) {
  DiagnosisRun run;
  run.setting = setting;
  try {
    measure(run);
  } catch (const c10::OutOfMemoryError&) {
    if (diagnosis_.runs.empty()) throw;  // float32, with which the others are compared
    run = DiagnosisRun();
    run.setting = setting;
    run.out_of_memory = true;
    run.step_ms = std::numeric_limits<double>::quiet_NaN();
  }
  diagnosis_.runs.push_back(std::move(run));
  return diagnosis_.runs.size() - 1;
}

void Diagnoser::measure(DiagnosisRun& run) {
  time_steps(run);
  watch_steps(run);
  if (!run.gradient_difference && run.skipped_steps < options_.steps) {
    run.gradient_difference = first_gradient_difference(settled(run));
  }
  const DiagnosisRun& float32 = diagnosis_.runs.empty() ? run : diagnosis_.runs.front();
  const double difference = detail::late_loss(run.losses) - detail::late_loss(float32.losses);
  if (run.losses.size() == static_cast<std::size_t>(options_.steps) && std::isfinite(difference)) {
    // The first loss of a job that has nothing to learn may be 0.
    const double unit = std::abs(float32.losses.front());
    run.loss_difference = difference == 0 ? 0 : std::abs(difference) / unit;
  }
}

void Diagnoser::time_steps(DiagnosisRun& run) {
  job_.start(run.setting, /*timed=*/true);
  std::vector<double> milliseconds;
  for (std::int64_t i = 0; i <= kTimedSteps; ++i) {
    const Clock::time_point start = Clock::now();
    const JobStep result = job_.step();
    // The first step allocates and chooses the faster products; a skipped one runs no optimizer.
    if (i == 0) {
      reset_peak_memory(job_.device());
    } else if (!result.skipped) {
      milliseconds.push_back(milliseconds_since(start));
    }
    check_stop();
  }
  run.step_ms = median(milliseconds);
  run.peak_memory_bytes = peak_memory_bytes(job_.device());
}

void Diagnoser::watch_steps(DiagnosisRun& run) {
  job_.start(run.setting, /*timed=*/false);
  parts_ = detail::model_parts(job_.parts(), job_.named_parameters());
  Watch watch(job_.named_parameters());
  for (std::int64_t i = 0; i < options_.steps; ++i) {
    const Clock::time_point start = Clock::now();
    const JobStep result = job_.step();
    record(result, run);
    watch.next_step();
    if (options_.on_step) {
      options_.on_step({.setting = run.setting,
                        .step = i + 1,
                        .steps = options_.steps,
                        .loss = result.loss,
                        .milliseconds = milliseconds_since(start),
                        .loss_scale = result.loss_scale});
    }
    check_stop();
    // The step was not skipped, so the weights are nan now.
    if (!std::isfinite(result.loss) && !result.skipped) break;
  }
  const WatchReport report = watch.report();
  detail::describe_operations(report, parts_, run);
  if (run.setting.precision != Precision::kFloat32) return;
  detail::finish_gradients(diagnosis_.gradients);
  float32_ = report;
}

void Diagnoser::record(const JobStep& result, DiagnosisRun& run) {
  run.losses.push_back(result.loss);
  run.final_loss_scale = result.loss_scale;
  const auto done = static_cast<std::int64_t>(run.losses.size());
  run.skipped_steps += result.skipped ? 1 : 0;
  const std::int64_t late = std::max<std::int64_t>(1, options_.steps / 4);
  run.skipped_at_end += result.skipped && done > options_.steps - late ? 1 : 0;
  const bool float32 = run.setting.precision == Precision::kFloat32;
  if (done == 1 && float32) {
    for (const at::Tensor& gradient : gradients()) {
      first_gradient_.push_back(gradient.defined() ? gradient.clone() : gradient);
    }
  }
  if (done == 1 && !result.skipped) {
    run.gradient_difference =
        detail::gradient_difference(gradients(), result.gradient_scale, first_gradient_);
  }
  if (float32) {
    detail::add_gradients(gradient_report(job_.named_parameters()), diagnosis_.gradients);
  }
}

std::vector<at::Tensor> Diagnoser::gradients() const {
  std::vector<at::Tensor> all;
  for (const auto& [name, parameter] : job_.named_parameters()) all.push_back(parameter.grad());
  return all;
}

/// inf if the step is skipped.
double Diagnoser::first_gradient_difference(const PrecisionSetting& setting) {
  job_.start(setting, /*timed=*/false);
  const JobStep result = job_.step();
  check_stop();
  if (result.skipped) return std::numeric_limits<double>::infinity();
  return detail::gradient_difference(gradients(), result.gradient_scale, first_gradient_);
}

}  // namespace

const PrecisionCandidate& Diagnosis::candidate(Precision precision) const {
  const auto match = std::find_if(
      candidates.begin(), candidates.end(),
      [precision](const PrecisionCandidate& each) { return each.precision == precision; });
  MEZZO_CHECK(match != candidates.end(), "Diagnosis::candidate: {} was not tried",
              to_string(precision));
  return *match;
}

const PrecisionSetting& Diagnosis::setting() const {
  if (!recommended) {
    mezzo::detail::raise<NumericError>(
        "Diagnosis::setting: expected a recommendation, got none: {}",
        interrupted ? "the diagnosis was interrupted" : issues.front().evidence);
  }
  return runs[candidates[*recommended].run].setting;
}

Diagnosis detail::diagnose_job(DiagnosisJob& job, const DiagnoseOptions& options) {
  MEZZO_CHECK(options.steps >= 1, "steps: expected at least 1, got {}", options.steps);
  return Diagnoser(job, options).run();
}

Diagnosis diagnose(const std::function<at::Tensor(std::int64_t step)>& step,
                   const DiagnosedModel& model, const DiagnoseOptions& options) {
  detail::StepJob job(step, model, options);
  return detail::diagnose_job(job, options);
}

}  // namespace mezzo::amp
