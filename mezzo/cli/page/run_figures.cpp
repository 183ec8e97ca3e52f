#include "mezzo/cli/page/run_figures.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "mezzo/cli/page/charts.h"
#include "mezzo/train/report/summary.h"

namespace mezzo::cli::page {
namespace {

constexpr const char* kEpochs = "epoch";
constexpr Look kBlue = {.colour = 0, .dash = 0}, kOchre = {.colour = 1, .dash = 1},
               kGrey = {.colour = 2, .dash = 2};
constexpr std::size_t kMostRuns = 6;

std::string run_name(const TrainReport& run) {
  return fmt::format("seed {}", run.seed);
}

/// A line for each of the first runs, from one of their vectors.
std::vector<Line> lines_of(const std::vector<TrainReport>& runs,
                           std::vector<double> TrainReport::*values) {
  std::vector<Line> lines;
  for (std::size_t i = 0; i < std::min(runs.size(), kMostRuns); ++i) {
    lines.push_back(line_of(run_name(runs[i]), runs[i].*values, {.colour = i, .dash = i}));
  }
  return lines;
}

/// "", or that only some runs are shown.
std::string shown_text(const std::vector<TrainReport>& runs) {
  if (runs.size() <= kMostRuns) return "";
  return fmt::format(" The first {} of {} runs.", kMostRuns, runs.size());
}

Figure loss_figure(const std::vector<TrainReport>& runs) {
  return figure(
      LineChart{.title = "Training loss",
                .description = fmt::format("The mean loss of each epoch; {:.4g} at the end.",
                                           runs.front().train_loss),
                .x_label = kEpochs,
                .y_label = "loss",
                .lines = lines_of(runs, &TrainReport::losses)},
      shown_text(runs));
}

Line score_line(const std::string& name, const TrainReport& run, double Scores::*part, Look look) {
  Line line = {.name = name, .x = {}, .y = {}, .look = look};
  for (const EvaluationRecord& record : run.evaluations) {
    if (std::isnan(record.scores.*part)) continue;  // a part without nodes
    line.x.push_back(static_cast<double>(record.epoch));
    line.y.push_back(record.scores.*part);
  }
  return line;
}

/// Of one run all three parts, of several the validation scores.
Figure score_figure(const std::vector<TrainReport>& runs) {
  const TrainReport& first = runs.front();
  LineChart chart = {
      .title = "Scores",
      .description = fmt::format("{} after each evaluated epoch; test {} at the best epoch, {}.",
                                 first.metric, format_score(first.best.test), first.best_epoch),
      .x_label = kEpochs,
      .y_label = first.metric,
      .scale = Scale::kLinear};
  if (runs.size() > 1) {
    chart.title = "Validation scores";
    for (std::size_t i = 0; i < std::min(runs.size(), kMostRuns); ++i) {
      chart.lines.push_back(
          score_line(run_name(runs[i]), runs[i], &Scores::val, {.colour = i, .dash = i}));
    }
    return figure(chart, shown_text(runs));
  }
  chart.lines = {score_line("train", first, &Scores::train, kGrey),
                 score_line("val", first, &Scores::val, kBlue),
                 score_line("test", first, &Scores::test, kOchre)};
  std::erase_if(chart.lines, [](const Line& line) { return line.x.empty(); });
  if (first.evaluations.size() > 1) {
    chart.mark = static_cast<double>(first.best_epoch);
    chart.mark_label = fmt::format("best: {}", first.best_epoch);
  }
  return figure(chart);
}

Figure time_figure(const std::vector<TrainReport>& runs) {
  const double middle = summarize(runs).epoch_ms_median;
  return figure(
      LineChart{.title = "Epoch times",
                .description = fmt::format("Milliseconds of the training steps of each epoch; "
                                           "median {:.4g}.",
                                           middle),
                .x_label = kEpochs,
                .y_label = "ms",
                .lines = lines_of(runs, &TrainReport::epoch_ms)},
      fmt::format("Training steps, without evaluation; median {:.4g} ms.{}", middle,
                  shown_text(runs)));
}

bool has_loss_scale(const std::vector<TrainReport>& runs) {
  return std::any_of(runs.begin(), runs.end(), [](const TrainReport& run) {
    return std::any_of(run.loss_scales.begin(), run.loss_scales.end(),
                       [](double scale) { return scale != 1; });
  });
}

Figure scale_figure(const std::vector<TrainReport>& runs) {
  const RunsSummary all = summarize(runs);
  const std::string skipped =
      all.skipped_steps == 0
          ? fmt::format("None of {} steps was skipped.{}", all.steps, shown_text(runs))
          : fmt::format("{} of {} steps were skipped, because gradients were inf or nan.{}",
                        all.skipped_steps, all.steps, shown_text(runs));
  return figure(LineChart{.title = "Loss scale",
                          .description = fmt::format("After each epoch; {} at the end. {}",
                                                     all.final_loss_scale, skipped),
                          .x_label = kEpochs,
                          .y_label = "loss scale",
                          .lines = lines_of(runs, &TrainReport::loss_scales),
                          .scale = Scale::kPowersOfTwo},
                skipped);
}

std::int64_t total_of(const Confusion& confusion) {
  std::int64_t total = 0;
  for (const auto& row : confusion.counts) total += std::accumulate(row.begin(), row.end(), 0LL);
  return total;
}

Figure confusion_figure(const Confusion& all, std::size_t runs) {
  constexpr std::size_t kMostClasses = 12;
  const Confusion shown = most_frequent(all, kMostClasses);
  std::string caption = fmt::format(
      "{} {}{}, by the weights of the best epoch. Colours are shares of the true class.",
      total_of(all), all.targets, runs > 1 ? fmt::format(" of {} runs", runs) : "");
  if (shown.classes.size() < all.classes.size()) {
    caption += fmt::format(
        " The {} most frequent of {} classes; the others together are the last "
        "row and column.",
        shown.classes.size() - 1, all.classes.size());
  }
  const HeatMap map = {.title = "Confusion matrix",
                       .description = caption,
                       .x_label = "predicted class",
                       .y_label = "true class",
                       .columns = shown.classes,
                       .rows = shown.classes,
                       .counts = shown.counts};
  return figure(map, caption);
}

std::vector<Figure> figures_of(const std::vector<TrainReport>& runs, const Confusion& confusion) {
  std::vector<Figure> figures = {loss_figure(runs), score_figure(runs), time_figure(runs)};
  if (has_loss_scale(runs)) figures.push_back(scale_figure(runs));
  if (!confusion.counts.empty()) figures.push_back(confusion_figure(confusion, runs.size()));
  return figures;
}

void add_facts(const std::vector<TrainReport>& runs, Page& page) {
  const TrainReport& first = runs.front();
  const RunsSummary all = summarize(runs);
  const MeanDeviation test =
      mean_deviation(collect(runs, [](const TrainReport& run) { return run.best.test; }));
  const bool has_test = !std::isnan(test.mean);
  const MeanDeviation score =
      has_test ? test
               : mean_deviation(collect(runs, [](const TrainReport& run) { return run.best.val; }));
  std::string text = format_score(score.mean);
  if (runs.size() > 1) text += fmt::format(" ± {:.4f}", score.deviation);
  page.facts(
      {{fmt::format("{} {}", has_test ? "test" : "val", first.metric), text},
       {runs.size() > 1 ? "best epoch, median" : "best epoch",
        fmt::format("{} of {}", all.best_epoch, first.epochs_run)},
       {"median epoch time",
        std::isnan(all.epoch_ms_median) ? "-" : fmt::format("{:.4g} ms", all.epoch_ms_median)},
       {"peak memory", format_bytes(all.peak_memory_bytes)}});
}

}  // namespace

std::size_t colour_of(std::string_view precision) {
  if (precision == "bf16") return 0;
  if (precision == "fp16") return 1;
  return precision == "fp32" ? 2 : 3;
}

Line line_of(const std::string& name, const std::vector<double>& values, Look look) {
  Line line = {.name = name, .x = std::vector<double>(values.size()), .y = values, .look = look};
  std::iota(line.x.begin(), line.x.end(), 1.0);
  return line;
}

void add_runs(const std::vector<TrainReport>& runs, const Confusion& confusion, Page& page) {
  for (const TrainReport& run : runs) {
    if (!run.warning.empty()) page.alert(run.warning);
  }
  add_facts(runs, page);
  page.figures(figures_of(runs, confusion));
  page.heading("Numbers");
  for (const Table& table : report_tables(runs)) page.table(table);
}

}  // namespace mezzo::cli::page
