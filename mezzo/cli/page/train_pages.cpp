#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "mezzo/cli/page/pages.h"
#include "mezzo/cli/page/run_figures.h"
#include "mezzo/train/options/recipe.h"

namespace mezzo::cli::page {
namespace {

Figure trial_figure(const TuneResult& result) {
  std::vector<std::int64_t> rungs;
  LineChart chart = {.title = "Trials",
                     .description =
                         "The validation score of each trial, in the order in which "
                         "they ran, and the best so far.",
                     .x_label = "trial",
                     .y_label = "validation score",
                     .scale = Scale::kLinear};
  Line best = {.name = "best so far", .x = {}, .y = {}, .look = {.colour = 0, .dash = 0}};
  double highest = std::nan("");
  for (std::size_t i = 0; i < result.trials.size(); ++i) {
    const Trial& trial = result.trials[i];
    if (rungs.empty() || rungs.back() != trial.epochs) {
      rungs.push_back(trial.epochs);
      chart.lines.push_back({.name = fmt::format("{} epochs", trial.epochs),
                             .x = {},
                             .y = {},
                             .look = {.colour = rungs.size(), .dash = 0},
                             .is_scatter = true});
    }
    const auto x = static_cast<double>(i + 1);
    chart.lines.back().x.push_back(x);
    chart.lines.back().y.push_back(trial.score);
    highest = std::fmax(highest, trial.score);
    if (std::isnan(highest)) continue;
    best.x.push_back(x);
    best.y.push_back(highest);
  }
  chart.lines.insert(chart.lines.begin(), best);  // below the dots
  if (result.best) {
    chart.mark = static_cast<double>(*result.best + 1);
    chart.mark_label = "chosen";
  }
  const bool has_failed = std::any_of(result.trials.begin(), result.trials.end(),
                                      [](const Trial& trial) { return std::isnan(trial.score); });
  return figure(chart, has_failed ? "A trial that failed is a cross at the top." : "");
}

Figure trial_time_figure(const TuneResult& result) {
  std::vector<double> seconds;
  double total = 0;
  for (const Trial& trial : result.trials) seconds.push_back(total += trial.seconds);
  return figure(LineChart{.title = "Time",
                          .description = "The seconds of all trials up to each.",
                          .x_label = "trial",
                          .y_label = "seconds, all trials so far",
                          .lines = {line_of("", seconds, {})},
                          .scale = Scale::kLinear});
}

/// The best trials of the most epochs first.
Table trial_table(const TuneResult& result, std::size_t most) {
  std::vector<std::size_t> order(result.trials.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto key = [&](std::size_t i) {
    const Trial& trial = result.trials[i];
    const double score =
        std::isnan(trial.score) ? -std::numeric_limits<double>::infinity() : trial.score;
    return std::pair(trial.epochs, score);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return key(a) > key(b); });
  Table table = {.rows = {{"trial", "candidate", "epochs", "val", "seconds", "options"}},
                 .left_columns = 0};
  for (std::size_t i = 0; i < std::min(most, order.size()); ++i) {
    const Trial& trial = result.trials[order[i]];
    table.rows.push_back(
        {fmt::format("{}", order[i] + 1), fmt::format("{}", trial.candidate),
         fmt::format("{}", trial.epochs), format_score(trial.score),
         fmt::format("{:.1f}", trial.seconds),
         trial.failure.empty() ? recipe_flags(trial.options) : "failed: " + trial.failure});
  }
  return table;
}

}  // namespace

std::string train_page(const std::vector<TrainReport>& runs, const Confusion& confusion,
                       const std::string& error) {
  const TrainReport& first = runs.front();
  Page page(fmt::format("{} on {} in {}", first.model, first.dataset, first.precision));
  if (!error.empty()) page.alert(error);
  if (runs.back().stopped_by == StopReason::kInterrupted) {
    page.alert(fmt::format("Interrupted after {} epochs.", runs.back().epochs_run));
  }
  add_runs(runs, confusion, page);
  return page.html();
}

std::string tune_page(const std::string& dataset, const TuneResult& result,
                      const std::vector<TrainReport>& runs, const Confusion& confusion) {
  constexpr std::size_t kMostTrials = 50;
  Page page(fmt::format("Options for {}", dataset));
  if (result.interrupted) page.alert("Interrupted: the trials so far.");
  if (result.best) {
    const Trial& best = result.trials[*result.best];
    page.paragraph(
        fmt::format("Candidate {} is the best of {} trials, with a validation score of "
                    "{} in {} epochs:",
                    best.candidate, result.trials.size(), format_score(best.score), best.epochs));
    page.paragraph(fmt::format("{} --precision {}", recipe_flags(best.options),
                               amp::to_string(best.options.precision)));
  }
  if (!result.trials.empty()) {
    page.figures({trial_figure(result), trial_time_figure(result)});
  }
  if (!runs.empty()) {
    page.heading("The full training");
    add_runs(runs, confusion, page);
  }
  page.heading(result.trials.size() > kMostTrials
                   ? fmt::format("The best {} of {} trials", kMostTrials, result.trials.size())
                   : "Trials");
  page.table(trial_table(result, kMostTrials));
  return page.html();
}

}  // namespace mezzo::cli::page
