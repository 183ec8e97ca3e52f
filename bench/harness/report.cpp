#include "bench/harness/report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "mezzo/core/json.h"
#include "mezzo/core/table.h"
#include "mezzo/runtime/backend_info.h"
#include "mezzo/train/report/summary.h"
#include "mezzo/version.h"

namespace mezzo::bench {
namespace {

using Row = std::vector<std::string>;

std::string format_ms(double milliseconds) {
  return std::isnan(milliseconds) ? "-" : fmt::format("{:.2f}", milliseconds);
}

/// Always in MiB: format_bytes() would show two digits of a few GiB.
std::string format_memory(std::int64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) * 0x1p-20);
}

std::string format_ratio(double ratio) {
  return std::isnan(ratio) ? "-" : fmt::format("{:.2f}x", ratio);
}

std::string title_of(const Outcome& outcome) {
  return fmt::format("{}, F={}", outcome.work, outcome.width);
}

/// The rate per second in the fastest round, from the count per round; NaN if unknown.
double a_second(std::int64_t count, const Measurement& measured) {
  if (count == 0) return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(count) / (measured.minimum() * 1e-3);
}

double bandwidth_of(const Measurement& measured) {
  return a_second(measured.cost.moved_bytes, measured);
}

bool bound_by_arithmetic(const Outcome& outcome) {
  return std::any_of(outcome.measurements.begin(), outcome.measurements.end(),
                     [](const Measurement& measured) { return measured.cost.operations > 0; });
}

const Measurement* mezzo_in(const Outcome& outcome, amp::Precision precision) {
  for (const Measurement& measured : outcome.measurements) {
    if (measured.is_mezzo && measured.precision == precision) return &measured;
  }
  return nullptr;
}

/// The comparison columns: every baseline, and Mezzo's float32.
std::vector<const Measurement*> compared_with(const Outcome& outcome) {
  std::vector<const Measurement*> others;
  for (const Measurement& measured : outcome.measurements) {
    if (!measured.is_mezzo && measured.skipped.empty()) others.push_back(&measured);
  }
  const Measurement* float32 = mezzo_in(outcome, amp::Precision::kFloat32);
  if (float32 != nullptr && float32->skipped.empty()) others.push_back(float32);
  return others;
}

/// The stages of the first candidate that ran.
Stages stages_of(const Outcome& outcome) {
  for (const Measurement& measured : outcome.measurements) {
    if (measured.skipped.empty()) return measured.stages;
  }
  return {};
}

Row header_of(const Stages& stages, bool arithmetic,
              const std::vector<const Measurement*>& others) {
  Row row = {"candidate", "min ms", "median ms", "error", "memory"};
  for (const Stage& stage : stages) row.push_back(stage.name);
  if (arithmetic) {
    row.push_back("GFLOP/s");
  } else if (stages.empty()) {
    row.insert(row.end(), {"GB/s", "of stream"});
  }
  for (const Measurement* other : others) row.push_back("vs " + other->name);
  return row;
}

Row row_of(const Measurement& measured, bool arithmetic,
           const std::vector<const Measurement*>& others, double stream_bandwidth) {
  Row row = {measured.name, format_ms(measured.minimum()), format_ms(measured.median()),
             std::isnan(measured.error) ? "-" : fmt::format("{:.1e}", measured.error),
             format_memory(measured.peak_bytes)};
  for (const Stage& stage : measured.stages) row.push_back(format_ms(median(stage.milliseconds)));
  if (arithmetic) {
    const double rate = a_second(measured.cost.operations, measured);
    row.push_back(std::isnan(rate) ? "-" : fmt::format("{:.0f}", rate * 1e-9));
  } else if (measured.stages.empty()) {
    const double bandwidth = bandwidth_of(measured);
    const bool known = !std::isnan(bandwidth);
    row.push_back(known ? fmt::format("{:.1f}", bandwidth * 1e-9) : "-");
    row.push_back(known ? fmt::format("{:.0f} %", 100 * bandwidth / stream_bandwidth) : "-");
  }
  for (const Measurement* other : others) {
    row.push_back(measured.is_mezzo ? format_ratio(speed_up(measured, *other)) : "");
  }
  return row;
}

/// A line for everything that was skipped, with its reason.
std::string skipped_lines(const Outcome& outcome, const std::string& title) {
  if (!outcome.skipped.empty()) return fmt::format("{}: skipped: {}\n", title, outcome.skipped);
  std::string lines;
  for (const Measurement& measured : outcome.measurements) {
    if (measured.skipped.empty()) continue;
    lines += fmt::format("{}: {}: skipped: {}\n", title, measured.name, measured.skipped);
  }
  return lines;
}

const Measurement* fastest_baseline(const Outcome& outcome) {
  const Measurement* best = nullptr;
  for (const Measurement& measured : outcome.measurements) {
    const bool candidate = !measured.is_mezzo && measured.skipped.empty() &&
                           measured.precision == amp::Precision::kFloat32;
    if (candidate && (best == nullptr || measured.minimum() < best->minimum())) best = &measured;
  }
  return best;
}

Row summary_row(const Outcome& outcome, const std::vector<amp::Precision>& precisions) {
  const Measurement* baseline = fastest_baseline(outcome);
  const Measurement* float32 = mezzo_in(outcome, amp::Precision::kFloat32);
  Row row = {outcome.work, std::to_string(outcome.width), baseline ? baseline->name : "-",
             baseline ? format_ms(baseline->minimum()) : "-"};
  Row ratios = {baseline && float32 ? format_ratio(speed_up(*float32, *baseline)) : "-"};
  for (const amp::Precision precision : precisions) {
    const Measurement* mezzo = mezzo_in(outcome, precision);
    row.push_back(mezzo ? format_ms(mezzo->minimum()) : "-");
    if (precision == amp::Precision::kFloat32) continue;
    ratios.push_back(mezzo && float32 ? format_ratio(speed_up(*mezzo, *float32)) : "-");
  }
  row.insert(row.end(), ratios.begin(), ratios.end());
  return row;
}

OrderedJson measurement_to_json(const Measurement& measured,
                                const std::vector<const Measurement*>& others,
                                double stream_bandwidth) {
  OrderedJson stages = OrderedJson::object(), ratios = OrderedJson::object();
  for (const Stage& stage : measured.stages) {
    stages[stage.name] = {{"rounds_ms", stage.milliseconds},
                          {"median_ms", json_number(median(stage.milliseconds))}};
  }
  for (const Measurement* other : others) {
    if (!measured.is_mezzo) break;
    ratios[other->name] = {{"min", json_number(speed_up(measured, *other))},
                           {"median", json_number(median_speed_up(measured, *other))}};
  }
  const double bandwidth = bandwidth_of(measured);
  return {{"name", measured.name},
          {"ours", measured.is_mezzo},
          {"precision", amp::to_string(measured.precision)},
          {"min_ms", json_number(measured.minimum())},
          {"median_ms", json_number(measured.median())},
          {"rounds_ms", measured.milliseconds},
          {"max_relative_error", json_number(measured.error)},
          {"peak_bytes", measured.peak_bytes},
          {"moved_bytes", measured.cost.moved_bytes},
          {"bytes_per_second", json_number(bandwidth)},
          {"share_of_stream", json_number(bandwidth / stream_bandwidth)},
          {"operations", measured.cost.operations},
          {"operations_per_second", json_number(a_second(measured.cost.operations, measured))},
          {"items", measured.cost.items},
          {"stages", stages},
          {"speed_up", ratios},
          {"skipped", text_or_null(measured.skipped)}};
}

OrderedJson outcome_to_json(const Outcome& outcome, double stream_bandwidth) {
  OrderedJson candidates = OrderedJson::array();
  const auto others = compared_with(outcome);
  for (const Measurement& measured : outcome.measurements) {
    candidates.push_back(measurement_to_json(measured, others, stream_bandwidth));
  }
  return {{"work", outcome.work},
          {"width", outcome.width},
          {"skipped", text_or_null(outcome.skipped)},
          {"candidates", candidates}};
}

}  // namespace

std::string format_conditions(const Report& report) {
  const std::string graph = report.graph.empty()
                                ? ""
                                : fmt::format("{}: {} nodes, {} edges; ", report.graph,
                                              report.num_nodes, report.num_edges);
  return fmt::format("{}{} threads, {} rounds; memory is read at {:.1f} GB/s\n{}\n", graph,
                     report.threads, report.rounds, report.stream_bandwidth * 1e-9,
                     describe_backends());
}

std::string format_outcome(const Outcome& outcome, double stream_bandwidth) {
  const std::string title = title_of(outcome);
  const Stages stages = stages_of(outcome);
  const auto others = compared_with(outcome);
  const bool arithmetic = bound_by_arithmetic(outcome);
  std::vector<Row> rows = {header_of(stages, arithmetic, others)};
  for (const Measurement& measured : outcome.measurements) {
    if (!measured.skipped.empty()) continue;
    rows.push_back(row_of(measured, arithmetic, others, stream_bandwidth));
  }
  const std::string table = rows.size() > 1 ? title + "\n" + format_table(rows) : "";
  return table + skipped_lines(outcome, title) + "\n";
}

std::string format_summary(const Report& report, const std::vector<amp::Precision>& precisions) {
  Row header = {"work", "F", "fastest baseline", "ms"};
  Row ratios = {"vs baseline"};
  for (const amp::Precision precision : precisions) {
    const std::string name(amp::to_string(precision));
    header.push_back(name + " ms");
    if (precision != amp::Precision::kFloat32) ratios.push_back(name + " vs fp32");
  }
  header.insert(header.end(), ratios.begin(), ratios.end());
  std::vector<Row> rows = {header};
  std::string skipped;
  for (const Outcome& outcome : report.outcomes) {
    if (outcome.skipped.empty()) rows.push_back(summary_row(outcome, precisions));
    skipped += skipped_lines(outcome, title_of(outcome));
  }
  return format_table(rows) + skipped;
}

std::string report_to_json(const Report& report) {
  OrderedJson results = OrderedJson::array();
  for (const Outcome& outcome : report.outcomes) {
    results.push_back(outcome_to_json(outcome, report.stream_bandwidth));
  }
  const OrderedJson object = {{"graph", report.graph},
                              {"nodes", report.num_nodes},
                              {"edges", report.num_edges},
                              {"threads", report.threads},
                              {"rounds", report.rounds},
                              {"stream_bytes_per_second", json_number(report.stream_bandwidth)},
                              {"backends", describe_backends()},
                              {"results", results},
                              {"version", kVersion}};
  return json_text(object);
}

}  // namespace mezzo::bench
