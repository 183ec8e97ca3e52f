#include <algorithm>
#include <cmath>
#include <cstddef>

#include <fmt/format.h>

#include "mezzo/core/table.h"
#include "mezzo/train/doctor/doctor_analysis.h"

namespace mezzo::detail {
namespace {

using Kind = Issue::Kind;

// Smaller differences are noise, or not worth fewer digits.
constexpr double kClearlyFaster = 1.05;
constexpr double kClearlySmaller = 1.1;

std::string percent(double share) {
  return fmt::format("{:.3g} %", 100 * share);
}

const char* range_of(amp::Precision precision) {
  return precision == amp::Precision::kFloat16 ? "float16's range, which ends at 65504"
                                               : "bfloat16's range, which ends at 3.4e38";
}

/// "in layer0 (forward)"
std::string where(const amp::WatchPlace& place) {
  return fmt::format("{}{} ({})", place.after ? "" : "in ", place.name(),
                     place.pass == amp::Pass::kBackward ? "backward" : "forward");
}

std::string describe(const amp::WatchExit& exit, amp::Precision precision) {
  return fmt::format(
      "{} {} leaves {} in step {}: {} inf and {} nan from finite inputs of up to {:.4g}", exit.op,
      where(exit.place), range_of(precision), exit.step + 1, exit.inf, exit.nan,
      exit.largest_input);
}

bool finite_losses(const DoctorRun& run) {
  return std::all_of(run.losses.begin(), run.losses.end(),
                     [](double loss) { return std::isfinite(loss); });
}

/// A sentence about the candidate's run.
std::string evidence_of(const Candidate& candidate, const Diagnosis& diagnosis) {
  const DoctorRun& run = diagnosis.runs[candidate.run];
  if (run.precision == amp::Precision::kFloat32) {
    return finite_losses(run) ? "the baseline" : "the loss becomes inf or nan in float32 itself";
  }
  if (run.forward_exit) {
    return describe(*run.forward_exit, run.precision) +
           "; it stays so unless every layer is in float32";
  }
  if (!finite_losses(run)) return "the loss becomes inf or nan";
  if (run.skipped_steps > 0 && !candidate.suited) {
    return fmt::format("{} of {} steps are skipped for inf or nan gradients", run.skipped_steps,
                       run.losses.size());
  }
  return fmt::format("after {} steps the loss is {} of the first loss away from float32's",
                     run.losses.size(), percent(run.loss_difference));
}

/// The candidate that is clearly the fastest, or about as fast and smaller; else the first, which
/// is the simplest.
std::size_t choose(const Diagnosis& diagnosis) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < diagnosis.candidates.size(); ++i) {
    if (!diagnosis.candidates[i].suited) continue;
    const DoctorRun& run = diagnosis.runs[diagnosis.candidates[i].run];
    const DoctorRun& baseline = diagnosis.runs[diagnosis.candidates[best].run];
    const bool faster = run.step_ms * kClearlyFaster < baseline.step_ms;
    const bool smaller = static_cast<double>(run.peak_memory_bytes) * kClearlySmaller <
                         static_cast<double>(baseline.peak_memory_bytes);
    if (faster || (smaller && run.step_ms < baseline.step_ms * kClearlyFaster)) best = i;
  }
  return best;
}

/// The options of `mezzo train` for this precision if it is suited, else for the recommended one.
std::string fix_for(amp::Precision precision, const Diagnosis& diagnosis) {
  const Candidate* chosen = &diagnosis.candidates[diagnosis.recommended.value()];
  for (const Candidate& candidate : diagnosis.candidates) {
    if (candidate.precision == precision && candidate.suited) chosen = &candidate;
  }
  return diagnosis.runs[chosen->run].options();
}

Issue issue(Kind kind, std::size_t run, std::string evidence, const Diagnosis& diagnosis) {
  Issue result;
  result.kind = kind;
  result.run = run;
  result.evidence = std::move(evidence);
  result.fix = fix_for(diagnosis.runs[run].precision, diagnosis);
  return result;
}

void find_overflow(std::size_t index, Diagnosis& diagnosis) {
  const DoctorRun& run = diagnosis.runs[index];
  const bool unscaled = run.loss_scale.kind == LossScale::Kind::kNone;
  // The forward without a scale equals that of the scaled run, which is reported; the backward
  // differs.
  const std::optional<amp::WatchExit>& exit = unscaled ? run.backward_exit : run.forward_exit;
  if (!exit || (unscaled && run.forward_exit)) return;
  Issue result = issue(Kind::kOverflow, index, describe(*exit, run.precision), diagnosis);
  result.op = exit->op;
  result.place = exit->place.name();
  diagnosis.issues.push_back(std::move(result));
}

void find_underflow(std::size_t index, Diagnosis& diagnosis) {
  const DoctorRun& run = diagnosis.runs[index];
  if (run.loss_scale.kind != LossScale::Kind::kNone || !run.flushing) return;
  const FlushingOp& flushing = *run.flushing;
  Issue result = issue(
      Kind::kUnderflow, index,
      fmt::format("{} {} flushes {} of its gradients to zero without a loss scale; float16 keeps "
                  "{} of the parameters' gradients",
                  flushing.op, where(flushing.place), percent(flushing.share),
                  percent(diagnosis.gradients.kept_unscaled)),
      diagnosis);
  result.op = flushing.op;
  result.place = flushing.place.name();
  diagnosis.issues.push_back(std::move(result));
}

/// Issues of a run with the default options of `mezzo train`.
void find_in_default(std::size_t index, Diagnosis& diagnosis) {
  const DoctorRun& run = diagnosis.runs[index];
  if (run.loss_scale.kind != LossScale::Kind::kAutomatic || !run.keep_float32.empty()) return;
  if (run.forward_exit || run.precision == amp::Precision::kFloat32) return;
  if (run.skipped_steps > 0) {
    std::string evidence = fmt::format("{} of {} steps are skipped before the dynamic scale is {}",
                                       run.skipped_steps, run.losses.size(), run.final_loss_scale);
    if (run.backward_exit) {
      evidence += fmt::format("; the first for {} {}", run.backward_exit->op,
                              where(run.backward_exit->place));
    }
    diagnosis.issues.push_back(issue(Kind::kSkipped, index, evidence, diagnosis));
  } else if (!finite_losses(run)) {
    diagnosis.issues.push_back(issue(Kind::kLoss, index, "the loss becomes inf or nan", diagnosis));
  } else if (run.loss_difference > kLossTolerance) {
    diagnosis.issues.push_back(
        issue(Kind::kLoss, index,
              fmt::format("after {} steps the loss is {} of the first loss away from float32's",
                          run.losses.size(), percent(run.loss_difference)),
              diagnosis));
  }
}

std::string cost_against(const DoctorRun& run, const DoctorRun& float32) {
  if (!std::isfinite(run.step_ms)) {
    return fmt::format("{}: every timed step was skipped, so the time of a step is unknown",
                       amp::to_string(run.precision));
  }
  return fmt::format("{}: a step takes {:.2f} ms and {} at most, in fp32 {:.2f} ms and {}",
                     amp::to_string(run.precision), run.step_ms,
                     format_bytes(run.peak_memory_bytes), float32.step_ms,
                     format_bytes(float32.peak_memory_bytes));
}

std::string scale_reason(const DoctorRun& run, const GradientFacts& gradients) {
  if (run.precision == amp::Precision::kBFloat16) {
    return "no loss scale: bfloat16 has float32's range";
  }
  if (run.loss_scale.kind == LossScale::Kind::kConstant) {
    return fmt::format(
        "loss scale {}: keeps every gradient of float32 a factor of 16 below 65504, and {} of the "
        "parameters' gradients above 0 ({} without a scale)",
        to_string(run.loss_scale), percent(kept_share(gradients, run.loss_scale.value)),
        percent(gradients.kept_unscaled));
  }
  const auto [low, high] =
      std::minmax_element(gradients.largest_per_step.begin(), gradients.largest_per_step.end());
  return fmt::format(
      "dynamic loss scale: no constant fits, since the largest gradient of a step is between "
      "{:.3g} and {:.3g}",
      *low, *high);
}

/// Why a 16-bit precision was not chosen.
std::string reason_against(const Candidate& candidate, const Diagnosis& diagnosis) {
  const DoctorRun& run = diagnosis.runs[candidate.run];
  if (candidate.suited) return cost_against(run, diagnosis.runs.front());
  return fmt::format("{}: {}", amp::to_string(candidate.precision), candidate.evidence);
}

void add_reasons(Diagnosis& diagnosis) {
  const Candidate& chosen = diagnosis.candidates[diagnosis.recommended.value()];
  const DoctorRun& run = diagnosis.runs[chosen.run];
  if (chosen.precision == amp::Precision::kFloat32) {
    for (std::size_t i = 1; i < diagnosis.candidates.size(); ++i) {
      diagnosis.reasons.push_back(reason_against(diagnosis.candidates[i], diagnosis));
    }
    return;
  }
  diagnosis.reasons.push_back(chosen.evidence);
  diagnosis.reasons.push_back(cost_against(run, diagnosis.runs.front()));
  diagnosis.reasons.push_back(scale_reason(run, diagnosis.gradients));
  for (const std::string& part : run.keep_float32) {
    diagnosis.reasons.push_back(
        fmt::format("{} in float32: it leaves {}", part, range_of(chosen.precision)));
  }
}

}  // namespace

void conclude(Diagnosis& diagnosis) {
  for (Candidate& candidate : diagnosis.candidates) {
    candidate.evidence = evidence_of(candidate, diagnosis);
  }
  if (!diagnosis.candidates.front().suited) {
    Issue diverged;
    diverged.kind = Kind::kDivergence;
    diverged.evidence = diagnosis.candidates.front().evidence;
    diverged.fix = "no precision fixes it: check --lr, the data and the model";
    diagnosis.issues.push_back(std::move(diverged));
    return;
  }
  diagnosis.recommended = choose(diagnosis);
  for (std::size_t i = 1; i < diagnosis.runs.size(); ++i) {
    find_overflow(i, diagnosis);
    find_underflow(i, diagnosis);
    find_in_default(i, diagnosis);
  }
  add_reasons(diagnosis);
}

}  // namespace mezzo::detail
