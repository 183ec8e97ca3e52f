#include <algorithm>
#include <cmath>
#include <cstddef>

#include <fmt/format.h>

#include "mezzo/core/table.h"
#include "mezzo/train/doctor/doctor.h"

namespace mezzo {
namespace {

using Row = std::vector<std::string>;

// Smaller shares are printed as "-".
constexpr double kSmallestShare = 0.001;

std::string share_text(double share) {
  return share < kSmallestShare ? "-" : fmt::format("{:.1f} %", 100 * share);
}

std::string runs_table(const Diagnosis& diagnosis) {
  std::vector<Row> rows = {{"options", "first loss", "last loss", "off fp32", "steps", "skipped",
                            "loss scale", "step ms", "peak memory"}};
  for (const DoctorRun& run : diagnosis.runs) {
    rows.push_back({run.options(), fmt::format("{:.4g}", run.losses.front()),
                    fmt::format("{:.4g}", run.losses.back()),
                    std::isfinite(run.loss_difference)
                        ? fmt::format("{:.2f} %", 100 * run.loss_difference)
                        : "-",
                    fmt::format("{}", run.losses.size()), fmt::format("{}", run.skipped_steps),
                    fmt::format("{}", run.final_loss_scale),
                    std::isfinite(run.step_ms) ? fmt::format("{:.2f}", run.step_ms) : "none",
                    format_bytes(run.peak_memory_bytes)});
  }
  return format_table(rows);
}

/// A table of the places where 16 bits lose numbers; empty if they lose none.
std::string places_table(const Diagnosis& diagnosis) {
  std::vector<Row> rows = {
      {"options", "place", "pass", "flushed to 0", "few digits", "near the top", "inf or nan"}};
  for (const DoctorRun& run : diagnosis.runs) {
    if (run.precision == amp::Precision::kFloat32) continue;
    for (const PlaceShares& shares : run.places) {
      const double largest =
          std::max({shares.flushed, shares.subnormal, shares.near_top, shares.non_finite});
      if (largest < kSmallestShare) continue;
      rows.push_back({run.options(), shares.place,
                      shares.pass == amp::Pass::kBackward ? "backward" : "forward",
                      share_text(shares.flushed), share_text(shares.subnormal),
                      share_text(shares.near_top), share_text(shares.non_finite)});
    }
  }
  return rows.size() == 1 ? "" : format_table(rows, 3) + '\n';
}

std::string issues_text(const Diagnosis& diagnosis) {
  if (diagnosis.issues.empty()) {
    return "Nothing is wrong: no number left its range, no step was skipped.\n";
  }
  std::string text = "Issues\n";
  for (const Issue& issue : diagnosis.issues) {
    text += fmt::format("* {}: {}\n  fix: {}\n", diagnosis.runs[issue.run].options(),
                        issue.evidence, issue.fix);
  }
  return text;
}

std::string recommendation_text(const Diagnosis& diagnosis) {
  if (!diagnosis.recommended) return "No precision is recommended.\n";
  const Candidate& chosen = diagnosis.candidates[*diagnosis.recommended];
  std::string text = fmt::format("Recommended: {}\n", diagnosis.runs[chosen.run].options());
  for (const std::string& reason : diagnosis.reasons) text += fmt::format("* {}\n", reason);
  for (const Candidate& other : diagnosis.candidates) {
    if (&other == &chosen || other.precision == amp::Precision::kFloat32 || !other.suited) continue;
    text += fmt::format("Also suited: {}\n", diagnosis.runs[other.run].options());
  }
  return text;
}

std::string cuda_text(const CudaFacts& cuda) {
  if (!cuda.problem.empty()) return fmt::format("CUDA: not usable: {}\n", cuda.problem);
  return fmt::format("CUDA: {} {}, kernels of {}\n", cuda.devices,
                     cuda.devices == 1 ? "device" : "devices", cuda.library);
}

}  // namespace

std::string format_diagnosis(const Diagnosis& diagnosis) {
  std::string text = fmt::format("{} on {}, {}, {} CPU threads, seed {}: {} steps a run\n",
                                 diagnosis.model, diagnosis.dataset, diagnosis.device,
                                 diagnosis.threads, diagnosis.seed, diagnosis.steps);
  text += cuda_text(diagnosis.cuda) + runs_table(diagnosis) + '\n' + places_table(diagnosis);
  if (diagnosis.interrupted) return text + "interrupted\n";
  return text + issues_text(diagnosis) + '\n' + recommendation_text(diagnosis);
}

}  // namespace mezzo
