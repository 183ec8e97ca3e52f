#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <optional>

#include <fmt/format.h>

#include "mezzo/cli/page/pages.h"
#include "mezzo/cli/page/run_figures.h"

namespace mezzo::cli::page {
namespace {

Bar run_bar(const DoctorReport& report, std::size_t i) {
  const amp::DiagnosisRun& run = report.runs[i];
  Bar bar;
  bar.label = amp::to_string(run.setting);
  bar.look.colour = colour_of(amp::to_string(run.setting.precision));
  return bar;
}

/// The bars of the runs. value: of a run, and its text.
std::vector<Bar> run_bars(const DoctorReport& report,
                          const std::function<void(const amp::DiagnosisRun&, Bar&)>& value) {
  std::vector<Bar> bars;
  for (std::size_t i = 0; i < report.runs.size(); ++i) {
    bars.push_back(run_bar(report, i));
    if (report.runs[i].out_of_memory) {
      bars.back().value = std::nan("");
      bars.back().text = "out of memory";
    } else {
      value(report.runs[i], bars.back());
    }
  }
  return bars;
}

Figure doctor_losses(const DoctorReport& report) {
  LineChart chart = {.title = "Training loss",
                     .description = "The loss of each watched step, by precision and setting.",
                     .x_label = "step",
                     .y_label = "loss"};
  for (std::size_t i = 0; i < report.runs.size(); ++i) {
    const amp::DiagnosisRun& run = report.runs[i];
    chart.lines.push_back(
        line_of(amp::to_string(run.setting), run.losses,
                {.colour = colour_of(amp::to_string(run.setting.precision)), .dash = i}));
  }
  return figure(chart, "Where lines coincide only the last one is visible.");
}

/// The parameters of a layer together: "layer0.weight" and "layer0.bias".
std::vector<amp::GradientRow> layers_of(const amp::GradientFacts& gradients) {
  std::vector<amp::GradientRow> layers;
  for (const amp::GradientRow& row : gradients.rows) {
    const std::string name = row.name.substr(0, row.name.find('.'));
    const auto known = std::find_if(layers.begin(), layers.end(),
                                    [&](const auto& layer) { return layer.name == name; });
    if (known == layers.end()) {
      layers.push_back(row);
      layers.back().name = name;
    } else {
      known->numbers += row.numbers;
      known->exponents += row.exponents;
    }
  }
  return layers;
}

constexpr ExponentRange kFloat16 = {.name = {}, .subnormal = -24, .normal = -14, .highest = 15};

/// The setting of the fp16 run with the best result; nullopt: it has no constant loss scale.
std::optional<double> scale_of_float16(const DoctorReport& report) {
  for (const amp::PrecisionCandidate& candidate : report.candidates) {
    if (candidate.precision != amp::Precision::kFloat16) continue;
    const double scale = report.runs[candidate.run].final_loss_scale;
    if (scale > 1 && std::isfinite(scale)) return scale;
  }
  return std::nullopt;
}

Figure gradient_figure(const DoctorReport& report) {
  constexpr std::size_t kMostLayers = 12;
  const std::optional<double> scale = scale_of_float16(report);
  const int shift = scale ? std::ilogb(*scale) : 0;
  ExponentChart chart = {.title = "Exponents of the gradients",
                         .description =
                             "How many gradients of each layer have which magnitude, in "
                             "float32, and the ranges of the 16-bit types.",
                         .x_label = "magnitude of the gradients"};
  ExponentRange half = kFloat16;
  half.name = "float16";
  if (scale) {
    ExponentRange scaled = {.name = fmt::format("float16, loss scale {}", power_of_two(shift)),
                            .subnormal = half.subnormal - shift,
                            .normal = half.normal - shift,
                            .highest = half.highest - shift};
    chart.ranges.push_back(scaled);
  }
  chart.ranges.push_back(half);
  chart.ranges.push_back({.name = "bfloat16", .subnormal = -133, .normal = -126, .highest = 127});
  const std::vector<amp::GradientRow> layers = layers_of(report.gradients);
  for (std::size_t i = 0; i < std::min(layers.size(), kMostLayers); ++i) {
    const amp::ExponentHistogram& exponents = layers[i].exponents;
    const std::int64_t total = exponents.total();
    const double kept = total == 0
                            ? 0
                            : static_cast<double>(exponents.at_least(kFloat16.subnormal - shift)) /
                                  static_cast<double>(total);
    chart.rows.push_back(
        {.name = layers[i].name,
         .note = total == 0 ? "all zero" : fmt::format("float16 keeps {:.4g} %", 100 * kept),
         .lowest = exponents.lowest,
         .counts = exponents.counts});
  }
  std::string caption =
      "Each histogram is as high as its largest count; zeros are left out. Thin parts of a range "
      "have fewer digits.";
  if (layers.size() > kMostLayers) {
    caption += fmt::format(" The first {} of {} layers.", kMostLayers, layers.size());
  }
  return figure(chart, caption);
}

std::vector<Figure> doctor_figures(const DoctorReport& report) {
  std::vector<Figure> figures;
  if (!report.gradients.rows.empty()) figures.push_back(gradient_figure(report));
  if (report.runs.empty()) return figures;
  figures.push_back(doctor_losses(report));
  figures.push_back(
      figure(BarChart{.title = "Step times",
                      .description = "The median time of a step, by precision and setting.",
                      .label = "median, ms",
                      .bars = run_bars(report,
                                       [](const amp::DiagnosisRun& run, Bar& bar) {
                                         bar.value = run.step_ms;
                                         bar.text = std::isfinite(run.step_ms)
                                                        ? fmt::format("{:.4g} ms", run.step_ms)
                                                        : "all skipped";
                                       })},
             "Steps that are not watched."));
  figures.push_back(
      figure(BarChart{.title = "Peak memory",
                      .description = "The peak memory of a step, by precision and setting.",
                      .label = "MiB",
                      .bars = run_bars(report, [](const amp::DiagnosisRun& run, Bar& bar) {
                        bar.value = static_cast<double>(run.peak_memory_bytes) / kMebibyte;
                        bar.text = format_bytes(run.peak_memory_bytes);
                      })}));
  return figures;
}

void add_conclusion(const DoctorReport& report, Page& page) {
  if (report.interrupted) {
    page.alert("Interrupted: the results of the complete runs.");
    return;
  }
  if (!report.recommended) {
    page.alert("No precision is recommended.");
  } else {
    const amp::PrecisionCandidate& chosen = report.candidates[*report.recommended];
    page.heading("Recommended: " + command_options(report.runs[chosen.run].setting));
    page.list(report.reasons);
  }
  page.heading("Issues");
  if (report.issues.empty()) {
    page.paragraph("Nothing is wrong: no number left its range, no step was skipped.");
    return;
  }
  std::vector<std::string> items;
  for (const amp::DiagnosisIssue& issue : report.issues) {
    items.push_back(fmt::format("{}: {} Fix: {}", command_options(report.runs[issue.run].setting),
                                issue.evidence, fix_of(report, issue)));
  }
  page.list(items);
}

}  // namespace

std::string doctor_page(const DoctorReport& report) {
  Page page(fmt::format("Which precision for {} on {}", report.model, report.dataset));
  page.paragraph(fmt::format("{}, {} CPU threads, seed {}: {} steps a run", report.device,
                             report.threads, report.seed, report.steps));
  add_conclusion(report, page);
  page.heading("Pictures");
  page.figures(doctor_figures(report));
  page.heading("Numbers");
  for (const Table& table : diagnosis_tables(report)) page.table(table);
  return page.html();
}

}  // namespace mezzo::cli::page
