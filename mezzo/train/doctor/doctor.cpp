#include "mezzo/train/doctor/doctor.h"

#include <memory>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "mezzo/amp/diagnose/diagnosis_job.h"
#include "mezzo/amp/optim/fused_optimizer.h"
#include "mezzo/core/error.h"
#include "mezzo/runtime/cuda_library.h"
#include "mezzo/train/options/option_fields.h"
#include "mezzo/train/problem.h"
#include "mezzo/train/processes.h"
#include "mezzo/train/state.h"
#include "mezzo/train/steps/epoch_steps.h"

namespace mezzo {
namespace {

CudaFacts cuda_facts() {
  const std::string problem = cuda_problem();
  return {.devices = problem.empty() ? static_cast<std::int64_t>(at::getNumGPUs()) : 0,
          .library = cuda_library().path,
          .problem = problem};
}

void check_doctor_options(const TrainOptions& training) {
  fields::for_each(fields::kTraining, [&](const auto& field) {
    using enum fields::Group;
    const bool foreign =
        field.group == kPrecision || field.group == kTraining || field.group == kFiles;
    MEZZO_CHECK(!foreign || !is_set(field, training),
                "doctor: expected the default of {}, which doctor chooses or does not use",
                field.name);
  });
  check_options(training);
}

/// The steps of train().
class TrainJob : public amp::detail::DiagnosisJob {
 public:
  TrainJob(const Dataset& dataset, const TrainOptions& options)
      : dataset_(dataset),
        given_(options),
        processes_(dist::ProcessGroup(), options.device),
        prepared_(make_problem(dataset, options)) {}

  c10::Device device() const override { return given_.device; }

  void start(const amp::PrecisionSetting& setting, bool timed) override {
    steps_.reset();
    state_.reset();
    options_ = with_setting(given_, setting);
    problem_ = prepared_;
    // Once, as in training; the watched steps show the cast.
    if (timed && !options_.sampling) problem_.features = cast_once(problem_.features, options_);
    state_ = std::make_unique<TrainState>(options_, problem_);
    steps_ = make_epoch_steps(problem_, dataset_, options_, processes_);
    batch_ = 0;
  }

  amp::detail::JobStep step() override {
    const double scale = state_->scaler.get_scale();
    const StepResult result = next_step();
    const bool fused = dynamic_cast<amp::FusedStep*>(state_->optimizer.get()) != nullptr;
    return {.loss = result.loss,
            .skipped = result.skipped,
            .loss_scale = result.loss_scale,
            .gradient_scale = fused ? scale : 1};
  }

  std::vector<std::pair<std::string, at::Tensor>> named_parameters() const override {
    return amp::detail::named_parameters_of(state_->model);
  }

  std::vector<std::string> parts() const override { return state_->model->named_children().keys(); }

 private:
  StepResult next_step() {
    const std::int64_t batches = steps_->num_batches();
    // Batches of subgraphs may have no training node; they take no step.
    for (std::int64_t tries = 0; tries <= batches; ++tries) {
      if (batch_ % batches == 0) steps_->begin(batch_ / batches, 0);
      ++batch_;
      const StepResult result = steps_->next(*state_);
      if (result.totals.weight > 0) return result;
    }
    detail::raise<InvalidArgument>("doctor: expected batches with training nodes, got none in {}",
                                   batches);
  }

  const Dataset& dataset_;
  const TrainOptions& given_;
  Processes processes_;
  const Problem prepared_;
  TrainOptions options_;  // of the run
  Problem problem_;
  std::unique_ptr<TrainState> state_;
  std::unique_ptr<EpochSteps> steps_;  // refers to the members above
  std::int64_t batch_ = 0;             // counted over all epochs
};

/// The loss scale as `mezzo train` takes it.
LossScale loss_scale_of(const amp::PrecisionSetting& setting) {
  using Kind = LossScale::Kind;
  if (!setting.loss_scale) {
    const bool needs_one = setting.precision == amp::Precision::kFloat16;
    return {.kind = needs_one ? Kind::kNone : Kind::kAutomatic};
  }
  if (setting.loss_scale->is_dynamic()) return {.kind = Kind::kDynamic};
  return {.kind = Kind::kConstant, .value = setting.loss_scale->options().initial_scale};
}

}  // namespace

std::string command_options(const amp::PrecisionSetting& setting) {
  std::string text = fmt::format("--precision {}", amp::to_string(setting.precision));
  const LossScale scale = loss_scale_of(setting);
  if (scale.kind != LossScale::Kind::kAutomatic) {
    text += fmt::format(" --loss-scale {}", to_string(scale));
  }
  if (!setting.keep_float32.empty()) {
    text += fmt::format(" --keep-float32 {}", fmt::join(setting.keep_float32, ","));
  }
  return text;
}

TrainOptions with_setting(TrainOptions options, const amp::PrecisionSetting& setting) {
  options.precision = setting.precision;
  options.loss_scale = loss_scale_of(setting);
  options.keep_float32 = setting.keep_float32;
  return options;
}

DoctorReport diagnose(const Dataset& dataset, const DoctorOptions& options,
                      const DoctorCallbacks& callbacks) {
  MEZZO_CHECK(options.steps >= 1, "steps: expected at least 1, got {}", options.steps);
  check_doctor_options(options.training);
  amp::DiagnoseOptions diagnose_options{.device = options.training.device, .steps = options.steps};
  diagnose_options.should_stop = callbacks.should_stop;
  if (callbacks.on_step) {
    diagnose_options.on_step = [&](const amp::DiagnosisProgress& progress) {
      callbacks.on_step(command_options(progress.setting), {.epoch = progress.step,
                                                            .epochs = progress.steps,
                                                            .loss = progress.loss,
                                                            .epoch_ms = progress.milliseconds,
                                                            .loss_scale = progress.loss_scale,
                                                            .scores = std::nullopt});
    };
  }
  TrainJob job(dataset, options.training);
  return {amp::detail::diagnose_job(job, diagnose_options), dataset.name,
          std::string(name_of(nn::ModelKinds{}, options.training.model)), cuda_facts(),
          options.training.seed};
}

}  // namespace mezzo
