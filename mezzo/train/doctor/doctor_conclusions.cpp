#include <algorithm>
#include <cmath>
#include <cstddef>

#include <fmt/format.h>

#include "mezzo/train/doctor/doctor_findings.h"
#include "mezzo/train/report/table.h"

namespace mezzo::detail {
namespace {

using Kind = Finding::Kind;

// Below this, a shorter time is noise, and nobody would give digits for it.
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

bool finite_losses(const Trial& trial) {
  return std::all_of(trial.losses.begin(), trial.losses.end(),
                     [](double loss) { return std::isfinite(loss); });
}

/// What the prescription's trial showed.
std::string evidence_of(const Prescription& prescription, const Diagnosis& diagnosis) {
  const Trial& trial = diagnosis.trials[prescription.trial];
  if (trial.precision == amp::Precision::kFloat32) {
    return finite_losses(trial) ? "what the others are measured by"
                                : "the loss becomes inf or nan in float32 itself";
  }
  if (trial.forward_exit) {
    return describe(*trial.forward_exit, trial.precision) +
           "; no choice of parts in float32 that leaves a layer to 16 bits mends it";
  }
  if (!finite_losses(trial)) return "the loss becomes inf or nan";
  if (trial.skipped_steps > 0 && !prescription.suited) {
    return fmt::format("{} of {} steps are skipped for inf or nan gradients", trial.skipped_steps,
                       trial.losses.size());
  }
  return fmt::format("after {} steps the loss is {} of the first loss away from float32's",
                     trial.losses.size(), percent(trial.loss_difference));
}

/// The prescription that is the fastest by a margin, or as fast and smaller; those before it are
/// the simpler ones.
std::size_t choose(const Diagnosis& diagnosis) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < diagnosis.prescriptions.size(); ++i) {
    if (!diagnosis.prescriptions[i].suited) continue;
    const Trial& trial = diagnosis.trials[diagnosis.prescriptions[i].trial];
    const Trial& rival = diagnosis.trials[diagnosis.prescriptions[best].trial];
    const bool faster = trial.step_ms * kClearlyFaster < rival.step_ms;
    const bool smaller = static_cast<double>(trial.peak_memory_bytes) * kClearlySmaller <
                         static_cast<double>(rival.peak_memory_bytes);
    if (faster || (smaller && trial.step_ms < rival.step_ms * kClearlyFaster)) best = i;
  }
  return best;
}

/// What `mezzo train` needs in this precision, or else in the recommended one, which there is.
std::string remedy_for(amp::Precision precision, const Diagnosis& diagnosis) {
  const Prescription* chosen = &diagnosis.prescriptions[diagnosis.recommended.value()];
  for (const Prescription& prescription : diagnosis.prescriptions) {
    if (prescription.precision == precision && prescription.suited) chosen = &prescription;
  }
  return diagnosis.trials[chosen->trial].options();
}

Finding finding(Kind kind, std::size_t trial, std::string evidence, const Diagnosis& diagnosis) {
  Finding made;
  made.kind = kind;
  made.trial = trial;
  made.evidence = std::move(evidence);
  made.remedy = remedy_for(diagnosis.trials[trial].precision, diagnosis);
  return made;
}

void find_overflow(std::size_t index, Diagnosis& diagnosis) {
  const Trial& trial = diagnosis.trials[index];
  const bool unscaled = trial.loss_scale.kind == LossScale::Kind::kNone;
  // Without a scale the forward is that of the scaled trial, which is told of; its backward is not.
  const std::optional<amp::WatchExit>& exit = unscaled ? trial.backward_exit : trial.forward_exit;
  if (!exit || (unscaled && trial.forward_exit)) return;
  Finding made = finding(Kind::kOverflow, index, describe(*exit, trial.precision), diagnosis);
  made.op = exit->op;
  made.place = exit->place.name();
  diagnosis.findings.push_back(std::move(made));
}

void find_underflow(std::size_t index, Diagnosis& diagnosis) {
  const Trial& trial = diagnosis.trials[index];
  if (trial.loss_scale.kind != LossScale::Kind::kNone || !trial.flushing) return;
  const FlushingOp& flushing = *trial.flushing;
  Finding made = finding(
      Kind::kUnderflow, index,
      fmt::format("{} {} flushes {} of its gradients to zero without a loss scale; float16 keeps "
                  "{} of the parameters' gradients",
                  flushing.op, where(flushing.place), percent(flushing.share),
                  percent(diagnosis.gradients.kept_unscaled)),
      diagnosis);
  made.op = flushing.op;
  made.place = flushing.place.name();
  diagnosis.findings.push_back(std::move(made));
}

/// What shows in a trial as `mezzo train` would do it by default.
void find_in_default(std::size_t index, Diagnosis& diagnosis) {
  const Trial& trial = diagnosis.trials[index];
  if (trial.loss_scale.kind != LossScale::Kind::kAutomatic || !trial.keep_float32.empty()) return;
  if (trial.forward_exit || trial.precision == amp::Precision::kFloat32) return;
  if (trial.skipped_steps > 0) {
    std::string evidence =
        fmt::format("{} of {} steps are skipped before the dynamic scale is {}",
                    trial.skipped_steps, trial.losses.size(), trial.final_loss_scale);
    if (trial.backward_exit) {
      evidence += fmt::format("; the first for {} {}", trial.backward_exit->op,
                              where(trial.backward_exit->place));
    }
    diagnosis.findings.push_back(finding(Kind::kSkipped, index, evidence, diagnosis));
  } else if (!finite_losses(trial)) {
    diagnosis.findings.push_back(
        finding(Kind::kLoss, index, "the loss becomes inf or nan", diagnosis));
  } else if (trial.loss_difference > kLossTolerance) {
    diagnosis.findings.push_back(
        finding(Kind::kLoss, index,
                fmt::format("after {} steps the loss is {} of the first loss away from float32's",
                            trial.losses.size(), percent(trial.loss_difference)),
                diagnosis));
  }
}

std::string cost_against(const Trial& trial, const Trial& float32) {
  if (!std::isfinite(trial.step_ms)) {
    return fmt::format(
        "{}: every step that was timed was skipped, so how long one takes is not known",
        amp::to_string(trial.precision));
  }
  return fmt::format("{}: a step takes {:.2f} ms and {} at most, in fp32 {:.2f} ms and {}",
                     amp::to_string(trial.precision), trial.step_ms,
                     format_bytes(trial.peak_memory_bytes), float32.step_ms,
                     format_bytes(float32.peak_memory_bytes));
}

std::string scale_reason(const Trial& trial, const GradientFacts& gradients) {
  if (trial.precision == amp::Precision::kBFloat16) {
    return "no loss scale: bfloat16 has float32's range";
  }
  if (trial.loss_scale.kind == LossScale::Kind::kConstant) {
    return fmt::format(
        "loss scale {}: leaves every gradient seen in float32 a factor of 16 below 65504, and "
        "keeps {} of the parameters' gradients ({} without a scale)",
        to_string(trial.loss_scale), percent(kept_share(gradients, trial.loss_scale.value)),
        percent(gradients.kept_unscaled));
  }
  const auto [low, high] =
      std::minmax_element(gradients.largest_per_step.begin(), gradients.largest_per_step.end());
  return fmt::format(
      "dynamic loss scale: no constant fits, the largest gradient of a step lies between {:.3g} "
      "and {:.3g}",
      *low, *high);
}

/// Why a 16-bit precision was not chosen.
std::string reason_against(const Prescription& prescription, const Diagnosis& diagnosis) {
  const Trial& trial = diagnosis.trials[prescription.trial];
  if (prescription.suited) return cost_against(trial, diagnosis.trials.front());
  return fmt::format("{}: {}", amp::to_string(prescription.precision), prescription.evidence);
}

void give_reasons(Diagnosis& diagnosis) {
  const Prescription& chosen = diagnosis.prescriptions[diagnosis.recommended.value()];
  const Trial& trial = diagnosis.trials[chosen.trial];
  if (chosen.precision == amp::Precision::kFloat32) {
    for (std::size_t i = 1; i < diagnosis.prescriptions.size(); ++i) {
      diagnosis.reasons.push_back(reason_against(diagnosis.prescriptions[i], diagnosis));
    }
    return;
  }
  diagnosis.reasons.push_back(chosen.evidence);
  diagnosis.reasons.push_back(cost_against(trial, diagnosis.trials.front()));
  diagnosis.reasons.push_back(scale_reason(trial, diagnosis.gradients));
  for (const std::string& part : trial.keep_float32) {
    diagnosis.reasons.push_back(
        fmt::format("{} in float32: it leaves {}", part, range_of(chosen.precision)));
  }
}

}  // namespace

void conclude(Diagnosis& diagnosis) {
  for (Prescription& prescription : diagnosis.prescriptions) {
    prescription.evidence = evidence_of(prescription, diagnosis);
  }
  if (!diagnosis.prescriptions.front().suited) {
    Finding diverged;
    diverged.kind = Kind::kDivergence;
    diverged.evidence = diagnosis.prescriptions.front().evidence;
    diverged.remedy = "no precision mends it: look at --lr, the data and the model";
    diagnosis.findings.push_back(std::move(diverged));
    return;
  }
  diagnosis.recommended = choose(diagnosis);
  for (std::size_t i = 1; i < diagnosis.trials.size(); ++i) {
    find_overflow(i, diagnosis);
    find_underflow(i, diagnosis);
    find_in_default(i, diagnosis);
  }
  give_reasons(diagnosis);
}

}  // namespace mezzo::detail
