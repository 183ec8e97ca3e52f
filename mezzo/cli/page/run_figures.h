#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mezzo/cli/page/charts.h"
#include "mezzo/cli/page/page.h"
#include "mezzo/cli/page/pages.h"

/// Pictures of training runs; internal to the pages.
namespace mezzo::cli::page {

inline constexpr double kMebibyte = 1 << 20;

/// The picture of a chart with the title of the chart.
template <class Chart>
Figure figure(const Chart& chart, const std::string& caption = "") {
  return {.title = chart.title, .svg = draw(chart), .caption = caption};
}

/// The colour of a precision, as in the pictures of docs/performance.
std::size_t colour_of(std::string_view precision);

/// A series over the epochs 1, 2, ...
Line line_of(const std::string& name, const std::vector<double>& values, Look look);

/// Adds the results of runs: score, best epoch, time and memory in large; loss, scores, times and,
/// if it is not 1 throughout, loss scale by epoch, and the confusion matrix; the tables of the
/// command. runs: at least one, of one model and precision.
void add_runs(const std::vector<TrainReport>& runs, const Confusion& confusion, Page& page);

}  // namespace mezzo::cli::page
