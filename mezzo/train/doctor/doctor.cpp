#include "mezzo/train/doctor/doctor.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/ranges.h>

#include "mezzo/core/error.h"
#include "mezzo/runtime/cuda_library.h"
#include "mezzo/runtime/memory.h"
#include "mezzo/train/clock.h"
#include "mezzo/train/doctor/doctor_analysis.h"
#include "mezzo/train/option_fields.h"
#include "mezzo/train/problem.h"
#include "mezzo/train/report/summary.h"
#include "mezzo/train/state.h"
#include "mezzo/train/steps/step.h"

namespace mezzo {
namespace {

constexpr std::int64_t kTimedSteps = 10;

/// Thrown to end the diagnosis.
struct Interrupted {};

double milliseconds_since(Clock::time_point start) {
  return 1e3 * seconds_since(start);
}

/// One diagnosis.
class Doctor {
 public:
  Doctor(const Dataset& dataset, const DoctorOptions& options, const DoctorCallbacks& callbacks);
  Diagnosis run();

 private:
  void run_all();
  std::size_t run_once(amp::Precision precision, const LossScale& scale,
                       const std::vector<std::string>& keep_float32 = {});
  void time_steps(const TrainOptions& options, DoctorRun& run);
  void watch_steps(const TrainOptions& options, DoctorRun& run);
  void record(const StepResult& result, const TrainState& state, DoctorRun& run);
  bool keep_more_float32(const DoctorRun& run, std::vector<std::string>& keep_float32) const;
  std::size_t find_fix(std::size_t first);
  void add_candidate(std::size_t run);
  void check_stop() const {
    if (callbacks_.should_stop && callbacks_.should_stop()) throw Interrupted();
  }

  const DoctorOptions& options_;
  const DoctorCallbacks& callbacks_;
  Problem problem_;
  TrainingNodes nodes_;
  std::vector<std::string> parts_;  // of the model
  amp::WatchReport float32_;        // of the fp32 run
  Diagnosis diagnosis_;
};

CudaFacts cuda_facts() {
  const std::string problem = cuda_problem();
  return {.devices = problem.empty() ? static_cast<std::int64_t>(at::getNumGPUs()) : 0,
          .library = cuda_library().path,
          .problem = problem};
}

Problem checked_problem(const Dataset& dataset, const DoctorOptions& options) {
  const TrainOptions& training = options.training;
  MEZZO_CHECK(options.steps >= 1, "steps: expected at least 1, got {}", options.steps);
  fields::for_each(fields::kTraining, [&](const auto& field) {
    using enum fields::Group;
    const bool foreign =
        field.group == kPrecision || field.group == kTraining || field.group == kFiles;
    MEZZO_CHECK(!foreign || !is_set(field, training),
                "doctor: it chooses or does not use {}; expected the default", field.name);
  });
  MEZZO_CHECK(!training.sampling, "doctor: it runs the full graph; expected no sampling options");
  check_options(training);
  return make_problem(dataset, training);
}

Doctor::Doctor(const Dataset& dataset, const DoctorOptions& options,
               const DoctorCallbacks& callbacks)
    : options_(options),
      callbacks_(callbacks),
      problem_(checked_problem(dataset, options)),
      nodes_(training_nodes(problem_, dataset, options.training)) {
  diagnosis_.dataset = dataset.name;
  diagnosis_.model = name_of(nn::ModelKinds{}, options.training.model);
  diagnosis_.device = options.training.device.str();
  diagnosis_.cuda = cuda_facts();
  diagnosis_.seed = options.training.seed;
  diagnosis_.threads = at::get_num_threads();
  diagnosis_.steps = options.steps;
}

Diagnosis Doctor::run() {
  try {
    run_all();
    detail::conclude(diagnosis_);
  } catch (const Interrupted&) {
    diagnosis_.interrupted = true;
    diagnosis_.candidates.clear();
  }
  return std::move(diagnosis_);
}

void Doctor::run_all() {
  using Kind = LossScale::Kind;
  const std::size_t float32 = run_once(amp::Precision::kFloat32, {});
  add_candidate(float32);
  // No precision fixes a job that diverges in float32.
  if (!std::isfinite(diagnosis_.runs[float32].loss_difference)) return;

  const std::size_t bfloat16 = run_once(amp::Precision::kBFloat16, {});
  add_candidate(find_fix(bfloat16));
  // Without a scale, to see which gradients underflow.
  run_once(amp::Precision::kFloat16, {.kind = Kind::kNone});
  const std::size_t float16 = run_once(amp::Precision::kFloat16, {});
  add_candidate(find_fix(float16));
}

void Doctor::add_candidate(std::size_t run) {
  const DoctorRun& result = diagnosis_.runs[run];
  diagnosis_.candidates.push_back({.precision = result.precision,
                                   .run = run,
                                   .suited = detail::is_suited(result, options_.steps, parts_),
                                   .evidence = {}});
}

/// Adds the part in which the run left the range; false if there is no new one.
bool Doctor::keep_more_float32(const DoctorRun& run, std::vector<std::string>& keep_float32) const {
  if (!run.forward_exit) return false;
  const std::optional<std::string> part = detail::part_of(run.forward_exit->place, parts_);
  if (!part) return false;
  if (std::find(keep_float32.begin(), keep_float32.end(), *part) != keep_float32.end()) {
    return false;
  }
  keep_float32.push_back(*part);
  return true;
}

/// The index of the best run: `first`, or the last of those that fix the issues of the one before.
std::size_t Doctor::find_fix(std::size_t first) {
  using Kind = LossScale::Kind;
  const amp::Precision precision = diagnosis_.runs[first].precision;
  const bool scaled = precision == amp::Precision::kFloat16;
  LossScale scale = diagnosis_.runs[first].loss_scale;
  std::vector<std::string> keep_float32;
  std::size_t latest = first;
  while (true) {
    const DoctorRun& run = diagnosis_.runs[latest];
    const bool added = keep_more_float32(run, keep_float32);
    if (added && detail::keeps_every_layer(keep_float32, parts_)) return latest;
    if (scaled && scale.kind == Kind::kConstant && !added &&
        !detail::is_suited(run, options_.steps, parts_)) {
      scale = {.kind = Kind::kDynamic};
    } else if (scaled && scale.kind != Kind::kDynamic && (added || latest == first)) {
      scale = detail::choose_loss_scale(diagnosis_.gradients, float32_, keep_float32);
      // `first` was dynamic.
      if (scale.kind == Kind::kDynamic && keep_float32.empty()) return first;
    } else if (!added) {
      return latest;
    }
    latest = run_once(precision, scale, keep_float32);
  }
}

std::size_t Doctor::run_once(amp::Precision precision, const LossScale& scale,
                             const std::vector<std::string>& keep_float32) {
  TrainOptions options = options_.training;
  options.precision = precision;
  options.loss_scale = scale;
  options.keep_float32 = keep_float32;
  DoctorRun run;
  run.precision = precision;
  run.loss_scale = scale;
  run.keep_float32 = keep_float32;
  time_steps(options, run);
  watch_steps(options, run);
  const DoctorRun& float32 = diagnosis_.runs.empty() ? run : diagnosis_.runs.front();
  const double difference = detail::late_loss(run.losses) - detail::late_loss(float32.losses);
  if (run.losses.size() == static_cast<std::size_t>(options_.steps) && std::isfinite(difference)) {
    // The first loss of a job that has nothing to learn may be 0.
    const double unit = std::abs(float32.losses.front());
    run.loss_difference = difference == 0 ? 0 : std::abs(difference) / unit;
  }
  diagnosis_.runs.push_back(std::move(run));
  return diagnosis_.runs.size() - 1;
}

void Doctor::time_steps(const TrainOptions& options, DoctorRun& run) {
  Problem problem = problem_;  // cast as in training; the watched steps show the cast
  problem.features = cast_once(problem.features, options);
  TrainState state(options, problem);
  parts_ = state.model->named_children().keys();
  std::vector<double> milliseconds;
  for (std::int64_t i = 0; i <= kTimedSteps; ++i) {
    const Clock::time_point start = Clock::now();
    const StepResult result = train_step(state, problem, nodes_, options);
    // The first step allocates and chooses the faster products; a skipped one runs no optimizer.
    if (i == 0) {
      reset_peak_memory(options.device);
    } else if (!result.skipped) {
      milliseconds.push_back(milliseconds_since(start));
    }
    check_stop();
  }
  run.step_ms = median(milliseconds);
  run.peak_memory_bytes = peak_memory_bytes(options.device);
}

void Doctor::watch_steps(const TrainOptions& options, DoctorRun& run) {
  TrainState state(options, problem_);
  amp::Watch watch = amp::watch(*state.model);
  for (std::int64_t i = 0; i < options_.steps; ++i) {
    const Clock::time_point start = Clock::now();
    const StepResult result = train_step(state, problem_, nodes_, options);
    record(result, state, run);
    watch.next_step();
    if (callbacks_.on_step) {
      callbacks_.on_step(run.options(), {.epoch = i + 1,
                                         .epochs = options_.steps,
                                         .loss = result.loss,
                                         .epoch_ms = milliseconds_since(start),
                                         .loss_scale = result.loss_scale,
                                         .scores = std::nullopt});
    }
    check_stop();
    // The step was not skipped, so the weights are nan now.
    if (!std::isfinite(result.loss) && !state.scaler.is_enabled()) break;
  }
  run.final_loss_scale = state.scaler.get_scale();
  const amp::WatchReport report = watch.report();
  detail::describe_operations(report, run);
  if (run.precision != amp::Precision::kFloat32) return;
  detail::finish_gradients(diagnosis_.gradients);
  float32_ = report;
}

void Doctor::record(const StepResult& result, const TrainState& state, DoctorRun& run) {
  run.losses.push_back(result.loss);
  const auto done = static_cast<std::int64_t>(run.losses.size());
  run.skipped_steps += result.skipped ? 1 : 0;
  const std::int64_t late = std::max<std::int64_t>(1, options_.steps / 4);
  run.skipped_at_end += result.skipped && done > options_.steps - late ? 1 : 0;
  if (run.precision == amp::Precision::kFloat32) {
    detail::add_gradients(amp::gradient_report(*state.model), diagnosis_.gradients);
  }
}

}  // namespace

std::string DoctorRun::options() const {
  std::string text = fmt::format("--precision {}", amp::to_string(precision));
  if (loss_scale.kind != LossScale::Kind::kAutomatic) {
    text += fmt::format(" --loss-scale {}", to_string(loss_scale));
  } else if (precision == amp::Precision::kFloat16) {
    text += " --loss-scale dynamic";  // explicit, since it may be the fix
  }
  if (!keep_float32.empty()) {
    text += fmt::format(" --keep-float32 {}", fmt::join(keep_float32, ","));
  }
  return text;
}

Diagnosis diagnose(const Dataset& dataset, const DoctorOptions& options,
                   const DoctorCallbacks& callbacks) {
  return Doctor(dataset, options, callbacks).run();
}

}  // namespace mezzo
