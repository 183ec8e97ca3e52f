#include <iostream>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "mezzo/cli/commands/commands.h"
#include "mezzo/cli/interrupt.h"
#include "mezzo/cli/options/arguments.h"
#include "mezzo/cli/page/pages.h"
#include "mezzo/cli/progress.h"
#include "mezzo/cli/run.h"
#include "mezzo/core/error.h"
#include "mezzo/runtime/memory.h"
#include "mezzo/train/doctor/doctor.h"
#include "mezzo/train/files/files.h"

namespace mezzo::cli {
namespace {

DoctorReport diagnose_with_progress(const Dataset& dataset, const DoctorOptions& options) {
  std::optional<Progress> progress;
  std::int64_t runs = 0;
  DoctorCallbacks callbacks;
  callbacks.on_step = [&](const std::string& run, const EpochRecord& record) {
    if (record.epoch == 1) {
      progress.emplace(std::cerr, progress_style(), fmt::format("run {} ({})", ++runs, run));
    }
    progress->show(record);
  };
  callbacks.should_stop = interrupted;
  handle_interrupts();
  return diagnose(dataset, options, callbacks);
}

}  // namespace

int doctor_command(const Arguments& arguments) {
  using enum fields::Group;
  RunArguments run;
  DoctorOptions doctor;
  OptionParser app(
      "Trains a model for some steps in fp32, bf16 and fp16, watching every operation, and "
      "recommends a precision, a loss scale and parts to keep in float32",
      "mezzo doctor");
  add_data_options(app, run.data);
  add_training_options(app, run.options, {kModelKind});
  add_recipe_option(app, run.recipe);
  add_training_options(app, run.options, {kModel});
  OptionGroup(app, "Training").number("--steps", doctor.steps, "Steps of each run");
  add_training_options(app, run.options, {kStep});
  add_sampling_options(app, run.options.sampling);
  add_machine_options(app, run.machine);
  add_report_options(app, run);
  if (!parse_arguments(app, arguments)) return kSuccess;
  ignore_sigpipe();
  keep_freed_pages();

  MEZZO_CHECK(doctor.steps >= 1, "--steps: expected at least 1, got {}", doctor.steps);
  finish(app, run);
  check_options(run.options);
  const Dataset dataset = load(run.data);
  choose_model(app, run.recipe, dataset, run.options.model);
  doctor.training = with_recipe(app, run, dataset, run.options);
  doctor.training.epochs = TrainOptions().epochs;  // the doctor runs --steps
  doctor.training.patience = std::nullopt;
  const DoctorReport report = diagnose_with_progress(dataset, doctor);

  std::cout << format_diagnosis(report) << std::flush;
  if (!run.json.empty()) {
    replace_file(run.json, [&](std::ostream& file) { file << diagnosis_to_json(report); });
  }
  if (!run.report.empty()) {
    const std::string text = page::doctor_page(report);
    replace_file(run.report, [&](std::ostream& file) { file << text; });
  }
  if (report.interrupted) return kInterrupted;
  if (!report.recommended) {
    const amp::DiagnosisIssue& diverged = report.issues.front();
    throw NumericError(fmt::format("doctor: {}; {}", diverged.evidence, fix_of(report, diverged)));
  }
  return kSuccess;
}

}  // namespace mezzo::cli
