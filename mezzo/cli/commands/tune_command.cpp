#include <algorithm>
#include <cstddef>
#include <iostream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "mezzo/cli/commands/commands.h"
#include "mezzo/cli/interrupt.h"
#include "mezzo/cli/options/arguments.h"
#include "mezzo/cli/options/option_file.h"
#include "mezzo/cli/page/pages.h"
#include "mezzo/cli/progress.h"
#include "mezzo/cli/run.h"
#include "mezzo/cli/runs.h"
#include "mezzo/core/error.h"
#include "mezzo/core/table.h"
#include "mezzo/data/convert.h"
#include "mezzo/runtime/memory.h"
#include "mezzo/train/clock.h"
#include "mezzo/train/files/files.h"
#include "mezzo/train/tune/tune.h"

namespace mezzo::cli {
namespace {

/// A line for each trial, or on a terminal a bar of its epochs.
class TrialProgress {
 public:
  /// minutes: of the search.
  explicit TrialProgress(double minutes) : minutes_(minutes) {}

  void show(const Trial& trial, const EpochRecord& record) {
    if (!is_bar_) return;
    constexpr double kSecondsOfMinute = 60;
    const double left = kSecondsOfMinute * minutes_ - used_ - seconds_since(begin_);
    const std::string count = fmt::format("{}/{}", record.epoch, record.epochs);
    const std::string time = fmt::format("  {} left", duration(std::max(left, 0.0)));
    row_.show(bar_row(fmt::format("trial {}  candidate {}  ", shown_ + 1, trial.candidate),
                      record.epoch, record.epochs, {count + best_ + time, count + time, count},
                      terminal_columns()));
  }
  void show(const TuneResult& result) {
    const Trial& trial = result.trials.back();
    ++shown_;
    used_ += trial.seconds;
    begin_ = Clock::now();
    if (result.best) {
      const Trial& best = result.trials[*result.best];
      best_ =
          fmt::format("  best val {} of candidate {}", format_score(best.score), best.candidate);
    }
    if (is_bar_) return;
    const std::string score =
        trial.failure.empty() ? "val " + format_score(trial.score) : "failed: " + trial.failure;
    std::cerr << fmt::format("trial {}  candidate {}  {} epochs  {:.1f} s  {}{}", shown_,
                             trial.candidate, trial.epochs, trial.seconds, score, best_)
              << std::endl;
  }

 private:
  bool is_bar_ = progress_style() == Progress::Style::kBar;
  double minutes_, used_ = 0;               // used_: seconds
  Clock::time_point begin_ = Clock::now();  // of the trial
  StatusRow row_{std::cerr};
  std::size_t shown_ = 0;
  std::string best_;
};

TuneResult tune_with_progress(const Dataset& dataset, const RunArguments& run,
                              const TuneOptions& options, const std::string& output) {
  TrialProgress progress(options.minutes);
  TuneCallbacks callbacks;
  callbacks.on_epoch = [&](const Trial& trial, const EpochRecord& record) {
    progress.show(trial, record);
  };
  callbacks.on_trial = [&](const TuneResult& result) {
    progress.show(result);
    if (!result.best || *result.best + 1 != result.trials.size()) return;
    const TrainOptions& best = result.trials.back().options;
    replace_file(output, [&](std::ostream& file) {
      file << option_file(run.data, run.machine, best, options.fixed);
    });
  };
  callbacks.should_stop = interrupted;
  handle_interrupts();
  return tune(dataset, options, callbacks);
}

/// Options from the recipe are those that tune searches; a file that it wrote has them.
void refuse_recipe(OptionParser& app) {
  const auto refuse = [](const std::string& /*text*/) {
    detail::raise<InvalidArgument>(
        "--recipe: tune chooses the options of a recipe; of a file that tune wrote, remove what is "
        "below '{}' to search again with the others fixed",
        kChosenByTune);
  };
  OptionGroup(app, /*title=*/"").value("--recipe", "", refuse, "");  // not in the help
}

/// Checks what does not need the data.
void check_tune(const OptionParser& app, RunArguments& run, const std::string& output,
                const std::string& trials) {
  finish(app, run);
  const std::string origin = data::origin_of(run.data.dataset);
  for (const std::string& path : {output, trials}) {
    check_writable("--output", path);
    check_not_read("--output", path, origin);
    check_distinct("--json", run.json, "--output", path);
    check_distinct("--report", run.report, "--output", path);
  }
  static_cast<void>(option_file(run.data, run.machine, run.options, {}));  // unsuitable texts
}

}  // namespace

int tune_command(const Arguments& arguments) {
  using enum fields::Group;
  RunArguments run;
  TuneOptions tuning;
  std::string output = "tune.toml";
  OptionParser app(
      "Searches the options with the best validation score, then trains with them; options given "
      "here are not varied",
      "mezzo tune");
  add_data_options(app, run.data);
  add_training_options(app, run.options, {kModelKind, kModel});
  OptionGroup(app, "Search")
      .number("--minutes", tuning.minutes, "Time for all trials, checked between them")
      .text("--output", output, "FILE.toml",
            "Options for 'mezzo train --config'; FILE.toml.trials.json has the trials, which the "
            "next call with this file reuses");
  add_precision_option(app, run);
  add_training_options(app, run.options, {kStep, kTraining});
  add_sampling_options(app, run.options.sampling);
  add_machine_options(app, run.machine);
  add_report_options(app, run);
  refuse_recipe(app);
  if (!parse_arguments(app, arguments)) return kSuccess;
  ignore_sigpipe();
  keep_freed_pages();

  tuning.trials = output + ".trials.json";
  check_tune(app, run, output, tuning.trials);
  tuning.training = run.options;
  tuning.fixed = given_options(app);
  if (!run.precision) std::erase(tuning.fixed, "precision");  // auto
  const Dataset dataset = load(run.data);
  choose_model(app, run.recipe, dataset, tuning.training.model);
  const TuneResult result = tune_with_progress(dataset, run, tuning, output);
  std::vector<TrainReport> reports;
  page::Confusion confusion;
  if (!result.interrupted) {
    run.options = result.trials[*result.best].options;
    train_runs(dataset, run, "", reports, {}, [&](const TrainResult& trained) {
      if (!run.report.empty()) confusion.add(dataset, trained);
    });
    std::cout << format_report(reports);
  }
  if (result.best) {
    const Trial& best = result.trials[*result.best];
    std::cout << fmt::format("{}: candidate {} with val {} in {} epochs, after {} trials\n", output,
                             best.candidate, format_score(best.score), best.epochs,
                             result.trials.size());
  }
  std::cout << std::flush;
  if (!run.json.empty()) {
    replace_file(run.json, [&](std::ostream& file) { file << tune_to_json(result, reports); });
  }
  if (!run.report.empty()) {
    const std::string text = page::tune_page(dataset.name, result, reports, confusion);
    replace_file(run.report, [&](std::ostream& file) { file << text; });
  }
  return interrupted() ? kInterrupted : kSuccess;
}

}  // namespace mezzo::cli
