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
#include "mezzo/train/doctor/doctor_findings.h"
#include "mezzo/train/option_fields.h"
#include "mezzo/train/problem.h"
#include "mezzo/train/report/summary.h"
#include "mezzo/train/state.h"
#include "mezzo/train/step.h"

namespace mezzo {
namespace {

constexpr std::int64_t kTimedSteps = 10;

/// Ends a diagnosis from within a trial.
struct Interrupted {};

double milliseconds_since(Clock::time_point start) {
  return 1e3 * seconds_since(start);
}

/// The job, and what is known of it so far.
class Doctor {
 public:
  Doctor(const Dataset& dataset, const DoctorOptions& options, const DoctorCallbacks& callbacks);
  Diagnosis run();

 private:
  void run_trials();
  std::size_t try_out(amp::Precision precision, const LossScale& scale,
                      const std::vector<std::string>& keep_float32 = {});
  void time_steps(const TrainOptions& options, Trial& trial);
  void watch_steps(const TrainOptions& options, Trial& trial);
  void record(const StepResult& result, const TrainState& state, Trial& trial);
  bool widen(const Trial& trial, std::vector<std::string>& keep_float32) const;
  std::size_t find_remedy(std::size_t first);
  void prescribe(std::size_t trial);
  void stop_if_asked() const {
    if (callbacks_.should_stop && callbacks_.should_stop()) throw Interrupted();
  }

  const DoctorOptions& options_;
  const DoctorCallbacks& callbacks_;
  Problem problem_;
  TrainingNodes nodes_;
  std::vector<std::string> parts_;  // of the model
  amp::WatchReport float32_;        // of the fp32 trial
  Diagnosis found_;
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
                "doctor: it has no option {}, or chooses it itself; expected the default",
                field.name);
  });
  MEZZO_CHECK(!training.sampling,
              "doctor: it runs the full graph and takes no sampling options; expected their "
              "defaults");
  check_options(training);
  return make_problem(dataset, training);
}

Doctor::Doctor(const Dataset& dataset, const DoctorOptions& options,
               const DoctorCallbacks& callbacks)
    : options_(options),
      callbacks_(callbacks),
      problem_(checked_problem(dataset, options)),
      nodes_(training_nodes(problem_, dataset, options.training)) {
  found_.dataset = dataset.name;
  found_.model = name_of(nn::ModelKinds{}, options.training.model);
  found_.device = options.training.device.str();
  found_.cuda = cuda_facts();
  found_.seed = options.training.seed;
  found_.threads = at::get_num_threads();
  found_.steps = options.steps;
}

Diagnosis Doctor::run() {
  try {
    run_trials();
    detail::conclude(found_);
  } catch (const Interrupted&) {
    found_.interrupted = true;
    found_.prescriptions.clear();
  }
  return std::move(found_);
}

void Doctor::run_trials() {
  using Kind = LossScale::Kind;
  const std::size_t float32 = try_out(amp::Precision::kFloat32, {});
  prescribe(float32);
  // No precision mends a job that diverges in float32.
  if (!std::isfinite(found_.trials[float32].loss_difference)) return;

  const std::size_t bfloat16 = try_out(amp::Precision::kBFloat16, {});
  prescribe(find_remedy(bfloat16));
  // Without a scale, for what becomes of the gradients then.
  try_out(amp::Precision::kFloat16, {.kind = Kind::kNone});
  const std::size_t float16 = try_out(amp::Precision::kFloat16, {});
  prescribe(find_remedy(float16));
}

void Doctor::prescribe(std::size_t trial) {
  const Trial& tried = found_.trials[trial];
  found_.prescriptions.push_back({.precision = tried.precision,
                                  .trial = trial,
                                  .suited = detail::is_suited(tried, options_.steps, parts_),
                                  .evidence = {}});
}

/// Adds the part in which the trial left the range, and says whether there is a new one.
bool Doctor::widen(const Trial& trial, std::vector<std::string>& keep_float32) const {
  if (!trial.forward_exit) return false;
  const std::optional<std::string> part = detail::part_of(trial.forward_exit->place, parts_);
  if (!part) return false;
  if (std::find(keep_float32.begin(), keep_float32.end(), *part) != keep_float32.end()) {
    return false;
  }
  keep_float32.push_back(*part);
  return true;
}

/// The trial to go by: `first`, or the last one of those that mend what went wrong before.
std::size_t Doctor::find_remedy(std::size_t first) {
  using Kind = LossScale::Kind;
  const amp::Precision precision = found_.trials[first].precision;
  const bool scaled = precision == amp::Precision::kFloat16;
  LossScale scale = found_.trials[first].loss_scale;
  std::vector<std::string> keep_float32;
  std::size_t latest = first;
  while (true) {
    const Trial& trial = found_.trials[latest];
    const bool wider = widen(trial, keep_float32);
    if (wider && detail::keeps_every_layer(keep_float32, parts_)) return latest;
    if (scaled && scale.kind == Kind::kConstant && !wider &&
        !detail::is_suited(trial, options_.steps, parts_)) {
      scale = {.kind = Kind::kDynamic};
    } else if (scaled && scale.kind != Kind::kDynamic && (wider || latest == first)) {
      scale = detail::choose_loss_scale(found_.gradients, float32_, keep_float32);
      // `first` was dynamic.
      if (scale.kind == Kind::kDynamic && keep_float32.empty()) return first;
    } else if (!wider) {
      return latest;
    }
    latest = try_out(precision, scale, keep_float32);
  }
}

std::size_t Doctor::try_out(amp::Precision precision, const LossScale& scale,
                            const std::vector<std::string>& keep_float32) {
  TrainOptions options = options_.training;
  options.precision = precision;
  options.loss_scale = scale;
  options.keep_float32 = keep_float32;
  Trial trial;
  trial.precision = precision;
  trial.loss_scale = scale;
  trial.keep_float32 = keep_float32;
  time_steps(options, trial);
  watch_steps(options, trial);
  const Trial& float32 = found_.trials.empty() ? trial : found_.trials.front();
  const double difference = detail::late_loss(trial.losses) - detail::late_loss(float32.losses);
  if (trial.losses.size() == static_cast<std::size_t>(options_.steps) &&
      std::isfinite(difference)) {
    // The first loss of a job that has nothing to learn may be 0.
    const double unit = std::abs(float32.losses.front());
    trial.loss_difference = difference == 0 ? 0 : std::abs(difference) / unit;
  }
  found_.trials.push_back(std::move(trial));
  return found_.trials.size() - 1;
}

void Doctor::time_steps(const TrainOptions& options, Trial& trial) {
  Problem problem = problem_;  // as training has it; what is watched shows the cast as well
  problem.features = cast_once(problem.features, options);
  TrainState state(options, problem);
  parts_ = state.model->named_children().keys();
  std::vector<double> milliseconds;
  for (std::int64_t i = 0; i <= kTimedSteps; ++i) {
    const Clock::time_point start = Clock::now();
    const StepResult result = train_step(state, problem, nodes_, options);
    // The first one allocates, and measures which products are the faster ones; a skipped one does
    // without the optimizer.
    if (i == 0) {
      reset_peak_memory(options.device);
    } else if (!result.skipped) {
      milliseconds.push_back(milliseconds_since(start));
    }
    stop_if_asked();
  }
  trial.step_ms = median(milliseconds);
  trial.peak_memory_bytes = peak_memory_bytes(options.device);
}

void Doctor::watch_steps(const TrainOptions& options, Trial& trial) {
  TrainState state(options, problem_);
  amp::Watch watch = amp::watch(*state.model);
  for (std::int64_t i = 0; i < options_.steps; ++i) {
    const Clock::time_point start = Clock::now();
    const StepResult result = train_step(state, problem_, nodes_, options);
    record(result, state, trial);
    watch.next_step();
    if (callbacks_.on_step) {
      callbacks_.on_step(trial.options(), {.epoch = i + 1,
                                           .epochs = options_.steps,
                                           .loss = result.loss,
                                           .epoch_ms = milliseconds_since(start),
                                           .loss_scale = result.loss_scale,
                                           .scores = std::nullopt});
    }
    stop_if_asked();
    // Nothing has skipped this step: the weights are nan from here on.
    if (!std::isfinite(result.loss) && !state.scaler.is_enabled()) break;
  }
  trial.final_loss_scale = state.scaler.get_scale();
  const amp::WatchReport report = watch.report();
  detail::describe_operations(report, trial);
  if (trial.precision != amp::Precision::kFloat32) return;
  detail::finish_gradients(found_.gradients);
  float32_ = report;
}

void Doctor::record(const StepResult& result, const TrainState& state, Trial& trial) {
  trial.losses.push_back(result.loss);
  const auto done = static_cast<std::int64_t>(trial.losses.size());
  trial.skipped_steps += result.skipped ? 1 : 0;
  const std::int64_t late = std::max<std::int64_t>(1, options_.steps / 4);
  trial.skipped_at_end += result.skipped && done > options_.steps - late ? 1 : 0;
  if (trial.precision == amp::Precision::kFloat32) {
    detail::add_gradients(amp::gradient_report(*state.model), found_.gradients);
  }
}

}  // namespace

std::string Trial::options() const {
  std::string text = fmt::format("--precision {}", amp::to_string(precision));
  if (loss_scale.kind != LossScale::Kind::kAutomatic) {
    text += fmt::format(" --loss-scale {}", to_string(loss_scale));
  } else if (precision == amp::Precision::kFloat16) {
    text += " --loss-scale dynamic";  // said aloud: it may be the remedy
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
