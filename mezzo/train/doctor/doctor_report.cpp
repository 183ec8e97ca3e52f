#include <algorithm>
#include <cmath>
#include <cstddef>

#include <fmt/format.h>

#include "mezzo/train/doctor/doctor.h"
#include "mezzo/train/report/table.h"

namespace mezzo {
namespace {

using Row = std::vector<std::string>;

// Smaller shares are printed as none.
constexpr double kSmallestShare = 0.001;

std::string share_text(double share) {
  return share < kSmallestShare ? "-" : fmt::format("{:.1f} %", 100 * share);
}

std::string trials_table(const Diagnosis& diagnosis) {
  std::vector<Row> rows = {{"options", "first loss", "last loss", "off fp32", "steps", "skipped",
                            "loss scale", "step ms", "peak memory"}};
  for (const Trial& trial : diagnosis.trials) {
    rows.push_back({trial.options(), fmt::format("{:.4g}", trial.losses.front()),
                    fmt::format("{:.4g}", trial.losses.back()),
                    std::isfinite(trial.loss_difference)
                        ? fmt::format("{:.2f} %", 100 * trial.loss_difference)
                        : "-",
                    fmt::format("{}", trial.losses.size()), fmt::format("{}", trial.skipped_steps),
                    fmt::format("{}", trial.final_loss_scale),
                    std::isfinite(trial.step_ms) ? fmt::format("{:.2f}", trial.step_ms) : "none",
                    format_bytes(trial.peak_memory_bytes)});
  }
  return format_table(rows);
}

/// The places where 16 bits lose numbers, or nothing.
std::string places_table(const Diagnosis& diagnosis) {
  std::vector<Row> rows = {
      {"options", "place", "pass", "flushed to 0", "few digits", "near the top", "inf or nan"}};
  for (const Trial& trial : diagnosis.trials) {
    if (trial.precision == amp::Precision::kFloat32) continue;
    for (const PlaceShares& shares : trial.places) {
      const double largest =
          std::max({shares.flushed, shares.subnormal, shares.near_top, shares.non_finite});
      if (largest < kSmallestShare) continue;
      rows.push_back({trial.options(), shares.place,
                      shares.pass == amp::Pass::kBackward ? "backward" : "forward",
                      share_text(shares.flushed), share_text(shares.subnormal),
                      share_text(shares.near_top), share_text(shares.non_finite)});
    }
  }
  return rows.size() == 1 ? "" : format_table(rows, 3) + '\n';
}

std::string findings_text(const Diagnosis& diagnosis) {
  if (diagnosis.findings.empty()) {
    return "Nothing is wrong: no number left its range, no step was skipped.\n";
  }
  std::string text = "Findings\n";
  for (const Finding& finding : diagnosis.findings) {
    text += fmt::format("* {}: {}\n  remedy: {}\n", diagnosis.trials[finding.trial].options(),
                        finding.evidence, finding.remedy);
  }
  return text;
}

std::string recommendation_text(const Diagnosis& diagnosis) {
  if (!diagnosis.recommended) return "No precision is recommended.\n";
  const Prescription& chosen = diagnosis.prescriptions[*diagnosis.recommended];
  std::string text = fmt::format("Recommended: {}\n", diagnosis.trials[chosen.trial].options());
  for (const std::string& reason : diagnosis.reasons) text += fmt::format("* {}\n", reason);
  for (const Prescription& other : diagnosis.prescriptions) {
    if (&other == &chosen || other.precision == amp::Precision::kFloat32 || !other.suited) continue;
    text += fmt::format("Also suited: {}\n", diagnosis.trials[other.trial].options());
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
  std::string text = fmt::format("{} on {}, {}, {} CPU threads, seed {}: {} steps a trial\n",
                                 diagnosis.model, diagnosis.dataset, diagnosis.device,
                                 diagnosis.threads, diagnosis.seed, diagnosis.steps);
  text += cuda_text(diagnosis.cuda) + trials_table(diagnosis) + '\n' + places_table(diagnosis);
  if (diagnosis.interrupted) return text + "interrupted\n";
  return text + findings_text(diagnosis) + '\n' + recommendation_text(diagnosis);
}

}  // namespace mezzo
