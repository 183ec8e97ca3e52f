#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10/util/Logging.h>
#include <fmt/format.h>

#include "mezzo/cli/commands/commands.h"
#include "mezzo/cli/interrupt.h"
#include "mezzo/cli/options/arguments.h"
#include "mezzo/cli/page/pages.h"
#include "mezzo/cli/run.h"
#include "mezzo/cli/runs.h"
#include "mezzo/core/error.h"
#include "mezzo/data/parts.h"
#include "mezzo/dist/group/process_group.h"
#include "mezzo/dist/rendezvous/environment.h"
#include "mezzo/runtime/memory.h"
#include "mezzo/train/data_checks.h"
#include "mezzo/train/dataset_choice.h"
#include "mezzo/train/files/checkpoint.h"
#include "mezzo/train/files/files.h"
#include "mezzo/train/report/report.h"

namespace mezzo::cli {
namespace {

constexpr std::int64_t kMostSeconds = 7 * 24 * 3600;

/// Whether a launcher started this process together with others.
bool is_one_of_several() {
  return dist::find_placement({}, [](const char* name) { return std::getenv(name); }).world_size >
         1;
}

/// c10d warns, with a stack trace, at every attempt to reach a process that has not started yet. If
/// it never starts, that is an error of this command. Keeps a level that the user set.
void silence_warnings_of_c10d() {
  ::setenv("TORCH_CPP_LOG_LEVEL", "ERROR", /*overwrite=*/0);
  c10::initLogging();  // in Python, importing torch does this
}

/// The group of processes started by `mezzo launch` or another launcher; often only this one.
dist::ProcessGroup join_group(const std::string& device, std::int64_t timeout_seconds) {
  MEZZO_CHECK(timeout_seconds >= 1 && timeout_seconds <= kMostSeconds,
              "--group-timeout: expected 1 to {}, got {}", kMostSeconds, timeout_seconds);
  MEZZO_CHECK(
      !device.starts_with("cuda:") || !is_one_of_several(),
      "--device: expected cuda with several processes, each of which has its own GPU, got {}",
      device);
  parse_device(device);  // fails before the wait for the other processes
  dist::InitOptions options;
  options.backend = device.starts_with("cuda") ? dist::Backend::kNccl : dist::Backend::kGloo;
  options.timeout = std::chrono::seconds(timeout_seconds);
  if (is_one_of_several()) silence_warnings_of_c10d();
  return dist::init(options);
}

/// Sets what differs between the processes: the device, and that only rank 0 writes files.
void set_rank_options(const dist::ProcessGroup& group, RunArguments& run) {
  if (group.world_size() > 1 && run.machine.device == "cuda") {
    run.machine.device = group.device().str();
  }
  if (group.rank() == 0) return;
  run.options.checkpoint.clear();
  run.json.clear();
  run.tensorboard.clear();
  run.report.clear();
}

/// The text of rank 0.
std::string from_first(const dist::ProcessGroup& group, const std::string& text) {
  if (group.world_size() == 1) return text;
  const at::Tensor size = at::full({1}, static_cast<std::int64_t>(text.size()), at::kLong);
  const at::Tensor length = size.to(group.device());
  group.broadcast(length);
  std::string received = text;
  received.resize(static_cast<std::size_t>(length.item<std::int64_t>()));
  const at::Tensor bytes = at::from_blob(received.data(), length.item<std::int64_t>(), at::kByte);
  const at::Tensor sent = bytes.to(group.device());
  group.broadcast(sent);
  bytes.copy_(sent);
  return received;
}

/// Takes the options of the resumed checkpoint, which rank 0 reads, but those given by hand.
void resume_options(const dist::ProcessGroup& group, const OptionParser& app, RunArguments& run) {
  const std::string path = run.options.resume;
  if (path.empty()) return;
  MEZZO_CHECK(run.runs == 1, "--resume: expected --runs 1, got {}", run.runs);
  const std::string config = from_first(group, group.rank() == 0 ? read_config(path) : "");
  const TrainOptions written = config_from_json(config);
  MEZZO_CHECK(app.given("--dataset") || !written.dataset.empty(),
              "--dataset is required: {} names no data set", path);
  TrainOptions options = written;
  copy_given(app, run.options, options);
  if (!run.precision) options.precision = written.precision;
  if (!app.given("--dataset")) run.data.dataset = written.dataset;
  if (!app.given("--split")) run.data.load.split = written.split;
  if (!app.given("--split-index")) run.data.split_index = written.split_index;
  const DatasetFacts facts = facts_from_config(config);
  LoadOptions& load = run.data.load;
  if (!load.task) load.task = facts.task;
  if (!load.metric) load.metric = facts.metric;
  take_columns(written.csv, run.data.dataset, load.csv);
  options.split = load.split;
  options.split_index = *run.data.split_index;
  check_resumable(path, written, options);
  run.options = options;
}

/// Sets the options of `chosen` that recipes set as rank 0 has them: the ranks may read other
/// parts.
void take_recipe(const dist::ProcessGroup& group, const TrainOptions& chosen,
                 TrainOptions& options) {
  const TrainOptions first = config_from_json(from_first(group, config_to_json(chosen)));
  fields::for_each(fields::kTraining, [&](const auto& field) {
    if (field.rules.in_recipe) options.*field.member = first.*field.member;
  });
  options.epochs = std::stoll(from_first(group, std::to_string(chosen.epochs)));
  const std::int64_t patience =
      std::stoll(from_first(group, std::to_string(chosen.patience.value_or(0))));
  options.patience = patience > 0 ? std::optional(patience) : std::nullopt;
}

/// `options`, with the model of the checkpoint of --init for model options not set by hand.
TrainOptions with_model_of(const std::string& config, const OptionParser& app,
                           const TrainOptions& by_hand) {
  const TrainOptions written = config_from_json(config);
  MEZZO_CHECK(!app.given("--model") || by_hand.model == written.model,
              "init: {} was written with model {}, this run has {}", by_hand.init,
              fields::to_text(written.model), fields::to_text(by_hand.model));
  TrainOptions options = by_hand;
  fields::for_each(fields::kTraining, [&](const auto& field) {
    const bool of_model = field.group == fields::Group::kModelKind ||
                          field.group == fields::Group::kModel || field.rules.in_recipe;
    if (of_model && field.rules.in_checkpoint) options.*field.member = written.*field.member;
  });
  copy_given(app, by_hand, options);
  return options;
}

/// Sets the options that were not set by hand, from the model of --init or from the recipe.
void choose_options(const dist::ProcessGroup& group, const OptionParser& app,
                    const Dataset& dataset, RunArguments& run) {
  TrainOptions& options = run.options;
  if (!options.resume.empty()) return;
  if (options.init.empty()) {
    choose_model(app, run.recipe, dataset, options.model);
    take_recipe(group, with_recipe(app, run, dataset, options), options);
  } else {
    const std::string config = group.rank() == 0 ? read_config(options.init) : "";
    options = with_model_of(from_first(group, config), app, options);
  }
}

/// Rank 0 prints what choose_options() has set.
void print_recipe(const dist::ProcessGroup& group, const Dataset& dataset,
                  const RunArguments& run) {
  const TrainOptions& options = run.options;
  if (group.rank() != 0 || !options.resume.empty()) return;
  const bool has_facts = options.init.empty() && run.recipe == RecipeKind::kAuto;
  const std::string facts =
      has_facts ? fmt::format(" ({})", to_string(recipe_facts(dataset, options.split_index))) : "";
  std::cerr << fmt::format("recipe{}: --model {} {} --precision {}\n", facts,
                           nn::to_string(options.model), recipe_flags(options),
                           amp::to_string(options.precision));
}

/// Checks the options and reads the data. On failure the other processes get the reason.
Dataset prepare(const dist::ProcessGroup& group, const OptionParser& app, RunArguments& run) {
  try {
    resume_options(group, app, run);
    set_rank_options(group, run);
    finish(app, run);
    TrainOptions& options = run.options;
    if (!run.precision && options.resume.empty()) {
      options.precision = amp::fastest_precision(options.device);
    }
    if (options.init.empty()) check_options(options);  // else the model is not known yet
    run.data.dataset = part_for_rank(run.data.dataset, group.rank(), group.world_size());
    Dataset dataset = load(run.data);
    choose_options(group, app, dataset, run);
    check_options(options);
    check_data(dataset, options);
    print_recipe(group, dataset, run);
    return dataset;
  } catch (const std::exception& error) {
    group.give_up(error.what());
    throw;
  }
}

/// Prints and writes the reports. error: what ended the later runs.
void show(const RunArguments& run, const std::vector<TrainReport>& reports,
          const page::Confusion& confusion, const std::string& error = {}) {
  std::cout << format_report(reports);
  const TrainReport& last = reports.back();
  const bool is_interrupted = last.stopped_by == StopReason::kInterrupted;
  if (is_interrupted && error.empty() && !run.options.checkpoint.empty()) {
    std::cout << fmt::format("checkpoint {}, epoch {}\n", run.options.checkpoint, last.epochs_run);
  }
  std::cout << std::flush;
  if (!run.report.empty()) {
    const std::string text = page::train_page(reports, confusion, error);
    replace_file(run.report, [&](std::ostream& file) { file << text; });
  }
  if (run.json.empty()) return;
  replace_file(run.json, [&](std::ostream& file) { file << report_to_json(reports, error); });
}

/// Trains and shows the reports, also those before an error.
std::vector<TrainReport> train_and_show(const Dataset& dataset, const RunArguments& run,
                                        const dist::ProcessGroup& group) {
  std::vector<TrainReport> reports;
  page::Confusion confusion;
  const auto on_run = [&](const TrainResult& result) {
    if (!run.report.empty()) confusion.add(dataset, result);
  };
  try {
    train_runs(dataset, run, "", reports, group, on_run);
  } catch (const Error& error) {
    if (group.rank() == 0 && !reports.empty()) show(run, reports, confusion, error.what());
    throw;
  }
  if (group.rank() == 0) show(run, reports, confusion);
  return reports;
}

}  // namespace

int train_command(const Arguments& arguments) {
  using enum fields::Group;
  RunArguments run;
  std::int64_t group_timeout = 30 * 60;
  TrainOptions& options = run.options;
  OptionParser app(
      "Trains a model on a data set, on the full graph or by mini-batches, in one precision",
      "mezzo train");
  add_data_options(app, run.data);
  add_training_options(app, options, {kModelKind});
  add_precision_option(app, run);
  add_run_options(app, run);
  add_machine_options(app, run.machine);
  OptionGroup(app, "Machine")
      .number("--group-timeout", group_timeout,
              "Several processes (see mezzo launch): seconds that each waits for the others");
  add_training_options(app, options, {kProcesses, kFiles});
  OptionGroup(app, "Files")
      .text("--tensorboard", run.tensorboard, "FOLDER",
            "Write loss, scores and times of every epoch as events for TensorBoard; with --runs in "
            "folders run_1, run_2, ...");
  add_report_options(app, run);
  if (!parse_arguments(app, arguments)) return kSuccess;
  ignore_sigpipe();
  keep_freed_pages();

  const dist::ProcessGroup group = join_group(run.machine.device, group_timeout);
  const Dataset dataset = prepare(group, app, run);
  const std::vector<TrainReport> reports = train_and_show(dataset, run, group);
  const bool stopped = reports.back().stopped_by == StopReason::kInterrupted;
  return stopped || interrupted() ? kInterrupted : kSuccess;
}

}  // namespace mezzo::cli
