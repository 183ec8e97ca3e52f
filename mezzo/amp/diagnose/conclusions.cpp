#include <algorithm>
#include <cmath>
#include <cstddef>

#include <fmt/format.h>

#include "mezzo/amp/diagnose/analysis.h"
#include "mezzo/core/table.h"

namespace mezzo::amp::detail {
namespace {

using Kind = DiagnosisIssue::Kind;

// Smaller differences are noise, or not worth fewer digits.
constexpr double kClearlyFaster = 1.05;
constexpr double kClearlySmaller = 1.1;

std::string percent(double share) {
  return fmt::format("{:.3g} %", 100 * share);
}

std::string range_of(Precision precision) {
  if (precision == Precision::kFloat16) return "float16's range, which ends at 65504";
  return fmt::format("{}'s range, which ends at 3.4e38", to_string(precision));
}

/// "in layer0 (forward)"
std::string where(const WatchPlace& place) {
  return fmt::format("{}{} ({})", place.after ? "" : "in ", place.name(),
                     place.pass == Pass::kBackward ? "backward" : "forward");
}

std::string describe(const WatchExit& exit, Precision precision) {
  return fmt::format(
      "{} {} leaves {} in step {}: {} inf and {} nan from finite inputs of up to {:.4g}", exit.op,
      where(exit.place), range_of(precision), exit.step + 1, exit.inf, exit.nan,
      exit.largest_input);
}

bool finite_losses(const DiagnosisRun& run) {
  return std::all_of(run.losses.begin(), run.losses.end(),
                     [](double loss) { return std::isfinite(loss); });
}

std::string distance(const DiagnosisRun& run) {
  std::string text =
      fmt::format("after {} steps the loss is {} of the first loss away from float32's",
                  run.losses.size(), percent(run.loss_difference));
  if (run.gradient_difference) {
    text += fmt::format(", the first gradient {} of its norm", percent(*run.gradient_difference));
  }
  return text;
}

std::string float32_evidence(const DiagnosisRun& run) {
  const bool gradient_is_finite = std::isfinite(run.gradient_difference.value_or(0));
  if (std::isfinite(run.losses.front()) && !gradient_is_finite) {
    return "the gradient of the first step has inf or nan in float32 itself";
  }
  return finite_losses(run) ? "the baseline" : "the loss becomes inf or nan in float32 itself";
}

/// A sentence about the candidate's run.
std::string evidence_of(const PrecisionCandidate& candidate, const Diagnosis& diagnosis) {
  const DiagnosisRun& run = diagnosis.runs[candidate.run];
  if (run.setting.precision == Precision::kFloat32) return float32_evidence(run);
  if (run.out_of_memory) return "its steps do not fit in the memory of the device";
  if (run.forward_exit) {
    return describe(*run.forward_exit, run.setting.precision) + "; no part in float32 fixes it";
  }
  if (!finite_losses(run)) return "the loss becomes inf or nan";
  if (run.skipped_steps > 0 && !candidate.suited) {
    return fmt::format("{} of {} steps are skipped for inf or nan gradients", run.skipped_steps,
                       run.losses.size());
  }
  return distance(run);
}

/// The candidate that is clearly the fastest, or about as fast and smaller; else the first, which
/// is the simplest.
std::size_t choose(const Diagnosis& diagnosis) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < diagnosis.candidates.size(); ++i) {
    if (!diagnosis.candidates[i].suited) continue;
    const DiagnosisRun& run = diagnosis.runs[diagnosis.candidates[i].run];
    const DiagnosisRun& baseline = diagnosis.runs[diagnosis.candidates[best].run];
    const bool faster = run.step_ms * kClearlyFaster < baseline.step_ms;
    const bool smaller = static_cast<double>(run.peak_memory_bytes) * kClearlySmaller <
                         static_cast<double>(baseline.peak_memory_bytes);
    if (faster || (smaller && run.step_ms < baseline.step_ms * kClearlyFaster)) best = i;
  }
  return best;
}

/// The run of this precision's best setting if it is suited, else of the recommended one.
std::size_t fix_for(Precision precision, const Diagnosis& diagnosis) {
  const PrecisionCandidate& candidate = diagnosis.candidate(precision);
  return candidate.suited ? candidate.run : diagnosis.candidates[*diagnosis.recommended].run;
}

bool is_scaled(const DiagnosisRun& run) {
  return run.setting.loss_scale.has_value();
}

DiagnosisIssue issue(Kind kind, std::size_t run, std::string evidence, const Diagnosis& diagnosis) {
  DiagnosisIssue result;
  result.kind = kind;
  result.run = run;
  result.evidence = std::move(evidence);
  result.fix = fix_for(diagnosis.runs[run].setting.precision, diagnosis);
  return result;
}

void find_overflow(std::size_t index, Diagnosis& diagnosis) {
  const DiagnosisRun& run = diagnosis.runs[index];
  // The scaled run is reported, because its forward equals the forward of float16 without a scale;
  // the backward differs.
  const bool unscaled = run.setting.precision == Precision::kFloat16 && !is_scaled(run);
  const std::optional<WatchExit>& exit = unscaled ? run.backward_exit : run.forward_exit;
  if (!exit || (unscaled && run.forward_exit)) return;
  DiagnosisIssue result =
      issue(Kind::kOverflow, index, describe(*exit, run.setting.precision), diagnosis);
  result.op = exit->op;
  result.place = exit->place.name();
  diagnosis.issues.push_back(std::move(result));
}

/// Underflow that changes the training.
void find_underflow(std::size_t index, Diagnosis& diagnosis) {
  const DiagnosisRun& run = diagnosis.runs[index];
  const Precision precision = run.setting.precision;
  if (precision != Precision::kFloat16 || is_scaled(run) || !run.flushing) return;
  if (diagnosis.candidate(precision).problem != NumericProblem::kRange) return;
  const FlushingOp& flushing = *run.flushing;
  DiagnosisIssue result = issue(
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

/// Steps that a dynamic loss scale skips while it settles.
void find_skipped(std::size_t index, Diagnosis& diagnosis) {
  const DiagnosisRun& run = diagnosis.runs[index];
  if (run.forward_exit || run.skipped_steps == 0) return;
  const bool known =
      std::any_of(diagnosis.issues.begin(), diagnosis.issues.end(),
                  [](const DiagnosisIssue& other) { return other.kind == Kind::kSkipped; });
  if (known) return;
  std::string evidence = fmt::format("{} of {} steps are skipped before the dynamic scale is {}",
                                     run.skipped_steps, run.losses.size(), run.final_loss_scale);
  if (run.backward_exit) {
    evidence += fmt::format("; the first for {} {}", run.backward_exit->op,
                            where(run.backward_exit->place));
  }
  diagnosis.issues.push_back(issue(Kind::kSkipped, index, evidence, diagnosis));
}

/// A loss or gradient that rounding changes. The place is the part that helps if kept in float32.
void find_digits(std::size_t index, Diagnosis& diagnosis) {
  const DiagnosisRun& run = diagnosis.runs[index];
  const PrecisionCandidate& candidate = diagnosis.candidate(run.setting.precision);
  if (candidate.problem != NumericProblem::kDigits) return;
  DiagnosisIssue result = issue(Kind::kDigits, index, distance(run), diagnosis);
  const std::vector<std::string>& kept = diagnosis.runs[candidate.run].setting.keep_float32;
  if (!kept.empty()) {
    result.place = kept.front();
    result.evidence += fmt::format("; {} loses the digits", kept.front());
  }
  diagnosis.issues.push_back(std::move(result));
}

/// Issues of a run without float32 parts; the others try fixes.
void find_issues(std::size_t index, Diagnosis& diagnosis) {
  const PrecisionSetting& setting = diagnosis.runs[index].setting;
  const bool constant = setting.loss_scale && !setting.loss_scale->is_dynamic();
  find_overflow(index, diagnosis);
  if (!setting.keep_float32.empty() || constant) return;
  find_underflow(index, diagnosis);
  if (setting.loss_scale) {
    find_skipped(index, diagnosis);
  } else {
    find_digits(index, diagnosis);
  }
}

std::string cost_against(const DiagnosisRun& run, const DiagnosisRun& float32) {
  if (!std::isfinite(run.step_ms)) {
    return fmt::format("{}: every timed step was skipped, so the time of a step is unknown",
                       to_string(run.setting.precision));
  }
  return fmt::format("{}: a step takes {:.2f} ms and {} at most, in fp32 {:.2f} ms and {}",
                     to_string(run.setting.precision), run.step_ms,
                     format_bytes(run.peak_memory_bytes), float32.step_ms,
                     format_bytes(float32.peak_memory_bytes));
}

std::string scale_reason(const DiagnosisRun& run, const GradientFacts& gradients) {
  if (!is_scaled(run)) {
    return fmt::format("no loss scale: {} has float32's range", to_string(run.setting.precision));
  }
  const LossScalePolicy& scale = *run.setting.loss_scale;
  if (!scale.is_dynamic()) {
    const double factor = scale.options().initial_scale;
    return fmt::format(
        "loss scale {}: keeps every gradient of float32 a factor of 16 below 65504, and {} of the "
        "parameters' gradients above 0 ({} without a scale)",
        factor, percent(kept_share(gradients, factor)), percent(gradients.kept_unscaled));
  }
  const auto [low, high] =
      std::minmax_element(gradients.largest_per_step.begin(), gradients.largest_per_step.end());
  return fmt::format(
      "dynamic loss scale: no constant fits, since the largest gradient of a step is between "
      "{:.3g} and {:.3g}",
      *low, *high);
}

/// Why a 16-bit precision was not chosen.
std::string reason_against(const PrecisionCandidate& candidate, const Diagnosis& diagnosis) {
  const DiagnosisRun& run = diagnosis.runs[candidate.run];
  if (candidate.suited) return cost_against(run, diagnosis.runs.front());
  return fmt::format("{}: {}", to_string(candidate.precision), candidate.evidence);
}

void add_reasons(Diagnosis& diagnosis) {
  const PrecisionCandidate& chosen = diagnosis.candidates[*diagnosis.recommended];
  const DiagnosisRun& run = diagnosis.runs[chosen.run];
  if (chosen.precision == Precision::kFloat32) {
    for (std::size_t i = 1; i < diagnosis.candidates.size(); ++i) {
      diagnosis.reasons.push_back(reason_against(diagnosis.candidates[i], diagnosis));
    }
    return;
  }
  diagnosis.reasons.push_back(chosen.evidence);
  diagnosis.reasons.push_back(cost_against(run, diagnosis.runs.front()));
  diagnosis.reasons.push_back(scale_reason(run, diagnosis.gradients));
  const bool digits = chosen.problem == NumericProblem::kDigits;
  for (const std::string& part : run.setting.keep_float32) {
    diagnosis.reasons.push_back(
        fmt::format("{} in float32: it {}", part,
                    digits ? "loses digits" : "leaves " + range_of(chosen.precision)));
  }
}

}  // namespace

void conclude(Diagnosis& diagnosis) {
  for (PrecisionCandidate& candidate : diagnosis.candidates) {
    candidate.evidence = evidence_of(candidate, diagnosis);
  }
  if (!diagnosis.candidates.front().suited) {
    DiagnosisIssue diverged;
    diverged.kind = Kind::kDivergence;
    diverged.evidence = diagnosis.candidates.front().evidence;
    diagnosis.issues.push_back(std::move(diverged));
    return;
  }
  diagnosis.recommended = choose(diagnosis);
  for (std::size_t i = 1; i < diagnosis.runs.size(); ++i) {
    find_issues(i, diagnosis);
  }
  add_reasons(diagnosis);
}

}  // namespace mezzo::amp::detail
