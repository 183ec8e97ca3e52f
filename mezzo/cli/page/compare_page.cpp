#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <optional>

#include <fmt/format.h>

#include "mezzo/cli/page/pages.h"
#include "mezzo/cli/page/run_figures.h"
#include "mezzo/train/report/summary.h"

namespace mezzo::cli::page {
namespace {

/// A line for each row: of its first run.
std::vector<Line> lines_of(const std::vector<ComparisonRow>& rows,
                           const std::function<Line(const TrainReport&)>& line_of_run) {
  std::vector<std::string> models;
  std::vector<Line> lines;
  for (const ComparisonRow& row : rows) {
    if (row.runs.empty()) continue;
    if (models.empty() || models.back() != row.model) models.push_back(row.model);
    Line line = line_of_run(row.runs.front());
    line.name = row.model + " " + row.precision;
    line.look = {.colour = colour_of(row.precision), .dash = models.size() - 1};
    lines.push_back(line);
  }
  if (models.size() == 1) {
    for (std::size_t i = 0; i < lines.size(); ++i) {
      lines[i].name = lines[i].name.substr(models.front().size() + 1);
      lines[i].look.dash = i;
    }
  }
  return lines;
}

/// A bar for each row with runs.
std::vector<Bar> bars_of(const std::vector<ComparisonRow>& rows,
                         const std::function<Bar(const ComparisonRow&)>& bar_of_row) {
  std::vector<Bar> bars;
  for (const ComparisonRow& row : rows) {
    if (row.runs.empty()) continue;
    Bar bar = bar_of_row(row);
    bar.label = row.model + " " + row.precision;
    bar.look.colour = colour_of(row.precision);
    bars.push_back(bar);
  }
  return bars;
}

Bar memory_bar(const ComparisonRow& row) {
  const std::int64_t bytes = summarize(row.runs).peak_memory_bytes;
  return {.label = {},
          .value = static_cast<double>(bytes) / kMebibyte,
          .text = format_bytes(bytes),
          .look = {}};
}

Line validation_line(const TrainReport& run) {
  Line line;
  for (const EvaluationRecord& record : run.evaluations) {
    line.x.push_back(static_cast<double>(record.epoch));
    line.y.push_back(std::isnan(record.scores.val) ? record.scores.train : record.scores.val);
  }
  return line;
}

std::vector<Figure> comparison_figures(const std::vector<ComparisonRow>& rows) {
  const auto with_runs = std::find_if(rows.begin(), rows.end(),
                                      [](const ComparisonRow& row) { return !row.runs.empty(); });
  if (with_runs == rows.end()) return {};
  const TrainReport& first = with_runs->runs.front();
  const bool validates = !std::isnan(first.best.val);
  const std::string which =
      with_runs->runs.size() > 1 ? fmt::format("The first run of each, seed {}.", first.seed) : "";
  const auto time = [&rows](const ComparisonRow& row) {
    const double ms = summarize(row.runs).epoch_ms_median;
    const std::optional<double> faster = speed_up(row, rows);
    const std::string text = fmt::format("{:.4g} ms", ms);
    return Bar{.label = {},
               .value = ms,
               .text = faster && row.precision != "fp32"
                           ? fmt::format("{} ({:.2f}x)", text, *faster)
                           : text,
               .look = {}};
  };
  return {figure(BarChart{.title = "Epoch times",
                          .description = "The median time of an epoch of each model and precision.",
                          .label = "median, ms",
                          .bars = bars_of(rows, time)},
                 "Training steps, without evaluation; in brackets the speed-up against fp32."),
          figure(BarChart{.title = "Peak memory",
                          .description = "The peak memory of each model and precision.",
                          .label = "MiB",
                          .bars = bars_of(rows, memory_bar)},
                 "Of tensors, with data and evaluations."),
          figure(LineChart{.title = "Training loss",
                           .description = "The mean loss of each epoch, by model and precision.",
                           .x_label = "epoch",
                           .y_label = "loss",
                           .lines = lines_of(rows,
                                             [](const TrainReport& run) {
                                               return page::line_of("", run.losses, {});
                                             })},
                 which),
          figure(LineChart{.title = validates ? "Validation scores" : "Training scores",
                           .description =
                               "The score after each evaluated epoch, by model and precision.",
                           .x_label = "epoch",
                           .y_label = first.metric,
                           .lines = lines_of(rows, validation_line),
                           .scale = Scale::kLinear},
                 which)};
}

}  // namespace

std::string compare_page(const std::string& dataset, const std::vector<ComparisonRow>& rows) {
  Page page(fmt::format("Models and precisions on {}", dataset));
  for (const ComparisonRow& row : rows) {
    if (!row.error.empty()) {
      page.alert(fmt::format("{} {}: {}", row.model, row.precision, row.error));
    }
  }
  page.table(comparison_table(rows));
  page.figures(comparison_figures(rows));
  return page.html();
}

}  // namespace mezzo::cli::page
