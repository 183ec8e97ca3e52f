#include "mezzo/amp/diagnose/diagnosis_text.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mezzo/core/table.h"

namespace mezzo::amp {
namespace {

using detail::DescribeSetting;

using Row = std::vector<std::string>;

// Smaller shares are printed as "-".
constexpr double kSmallestShare = 0.001;

std::string share_text(double share) {
  return share < kSmallestShare ? "-" : fmt::format("{:.1f} %", 100 * share);
}

std::string percent(double share) {
  return std::isfinite(share) ? fmt::format("{:.2f} %", 100 * share) : "-";
}

/// A table of what goes wrong in each precision, and of the best setting found.
Table candidates_table(const Diagnosis& diagnosis, DescribeSetting describe) {
  std::vector<Row> rows = {{"precision", "problem", "trains like fp32", "with"}};
  for (const PrecisionCandidate& candidate : diagnosis.candidates) {
    rows.push_back({std::string(to_string(candidate.precision)),
                    std::string(to_string(candidate.problem)), candidate.suited ? "yes" : "no",
                    describe(diagnosis.runs[candidate.run].setting)});
  }
  return {.rows = rows, .left_columns = 4};
}

Table runs_table(const Diagnosis& diagnosis, DescribeSetting describe) {
  std::vector<Row> rows = {{"setting", "first loss", "last loss", "loss off fp32",
                            "gradient off fp32", "steps", "skipped", "loss scale", "step ms",
                            "peak memory"}};
  for (const DiagnosisRun& run : diagnosis.runs) {
    if (run.out_of_memory) {
      rows.push_back(
          {describe(run.setting), "-", "-", "-", "-", "-", "-", "-", "-", "out of memory"});
      continue;
    }
    rows.push_back({describe(run.setting), fmt::format("{:.4g}", run.losses.front()),
                    fmt::format("{:.4g}", run.losses.back()), percent(run.loss_difference),
                    run.gradient_difference ? percent(*run.gradient_difference) : "-",
                    fmt::format("{}", run.losses.size()), fmt::format("{}", run.skipped_steps),
                    fmt::format("{}", run.final_loss_scale),
                    std::isfinite(run.step_ms) ? fmt::format("{:.2f}", run.step_ms) : "none",
                    format_bytes(run.peak_memory_bytes)});
  }
  return {.rows = rows};
}

/// A table of the places where 16 bits lose numbers; only its header if they lose none.
Table places_table(const Diagnosis& diagnosis, DescribeSetting describe) {
  std::vector<Row> rows = {
      {"setting", "place", "pass", "flushed to 0", "few digits", "near the top", "inf or nan"}};
  for (const DiagnosisRun& run : diagnosis.runs) {
    if (run.setting.precision == Precision::kFloat32) continue;
    for (const PlaceShares& shares : run.places) {
      const double largest =
          std::max({shares.flushed, shares.subnormal, shares.near_top, shares.non_finite});
      if (largest < kSmallestShare) continue;
      rows.push_back({describe(run.setting), shares.place,
                      shares.pass == Pass::kBackward ? "backward" : "forward",
                      share_text(shares.flushed), share_text(shares.subnormal),
                      share_text(shares.near_top), share_text(shares.non_finite)});
    }
  }
  return {.rows = rows, .left_columns = 3};
}

std::string issues_text(const Diagnosis& diagnosis, DescribeSetting describe) {
  if (diagnosis.issues.empty()) {
    return "Nothing is wrong: no number left its range, no step was skipped.\n";
  }
  std::string text = "Issues\n";
  for (const DiagnosisIssue& issue : diagnosis.issues) {
    text += fmt::format("* {}: {}\n  fix: {}\n", describe(diagnosis.runs[issue.run].setting),
                        issue.evidence, detail::fix_text(diagnosis, issue, describe));
  }
  return text;
}

std::string recommendation_text(const Diagnosis& diagnosis, DescribeSetting describe) {
  if (!diagnosis.recommended) return "No precision is recommended.\n";
  const PrecisionCandidate& chosen = diagnosis.candidates[*diagnosis.recommended];
  std::string text = fmt::format("Recommended: {}\n", describe(diagnosis.runs[chosen.run].setting));
  for (const std::string& reason : diagnosis.reasons) text += fmt::format("* {}\n", reason);
  for (const PrecisionCandidate& other : diagnosis.candidates) {
    if (&other == &chosen || other.precision == Precision::kFloat32 || !other.suited) continue;
    text += fmt::format("Also suited: {}\n", describe(diagnosis.runs[other.run].setting));
  }
  return text;
}

}  // namespace

std::string detail::loss_scale_text(const PrecisionSetting& setting) {
  if (!setting.loss_scale) return "none";
  if (setting.loss_scale->is_dynamic()) return "dynamic";
  return fmt::format("{}", setting.loss_scale->options().initial_scale);
}

std::string to_string(const PrecisionSetting& setting) {
  std::string text(to_string(setting.precision));
  if (setting.precision == Precision::kFloat16 || setting.loss_scale) {
    const std::string scale = detail::loss_scale_text(setting);
    text += setting.loss_scale && !setting.loss_scale->is_dynamic()
                ? ", loss scale " + scale
                : fmt::format(", {} loss scale", setting.loss_scale ? scale : "no");
  }
  if (!setting.keep_float32.empty()) {
    text += fmt::format(", {} in float32", fmt::join(setting.keep_float32, " and "));
  }
  return text;
}

std::string_view to_string(NumericProblem problem) {
  switch (problem) {
    case NumericProblem::kRange:
      return "range";
    case NumericProblem::kDigits:
      return "digits";
    case NumericProblem::kDivergence:
      return "divergence";
    case NumericProblem::kMemory:
      return "memory";
    case NumericProblem::kNone:
      break;
  }
  return "none";
}

std::string detail::fix_text(const Diagnosis& diagnosis, const DiagnosisIssue& issue,
                             DescribeSetting describe) {
  if (issue.fix) return describe(diagnosis.runs[*issue.fix].setting);
  return "no precision fixes it: check the learning rate, the data and the model";
}

std::vector<Table> detail::diagnosis_tables(const Diagnosis& diagnosis, DescribeSetting describe) {
  std::vector<Table> tables = {runs_table(diagnosis, describe)};
  const Table places = places_table(diagnosis, describe);
  if (places.rows.size() > 1) tables.push_back(places);
  if (!diagnosis.interrupted) tables.push_back(candidates_table(diagnosis, describe));
  return tables;
}

std::string detail::diagnosis_text(const Diagnosis& diagnosis, DescribeSetting describe) {
  std::string text;
  for (const Table& table : diagnosis_tables(diagnosis, describe)) {
    text += format_table(table) + '\n';
  }
  if (diagnosis.interrupted) return text + "interrupted\n";
  return text + issues_text(diagnosis, describe) + '\n' + recommendation_text(diagnosis, describe);
}

std::string to_text(const Diagnosis& diagnosis) {
  return fmt::format("{}, {} CPU threads: {} steps a run\n", diagnosis.device, diagnosis.threads,
                     diagnosis.steps) +
         detail::diagnosis_text(diagnosis, to_string);
}

}  // namespace mezzo::amp
