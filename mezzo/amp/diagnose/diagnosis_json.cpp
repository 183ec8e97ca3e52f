#include "mezzo/amp/diagnose/diagnosis_json.h"

#include "mezzo/core/json.h"
#include "mezzo/version.h"

namespace mezzo::amp {
namespace {

using detail::DescribeSetting;
using detail::loss_scale_text;

OrderedJson numbers(const std::vector<double>& values) {
  OrderedJson list = OrderedJson::array();
  for (const double value : values) list.push_back(json_number(value));
  return list;
}

const char* pass_word(Pass pass) {
  switch (pass) {
    case Pass::kBackward:
      return "backward";
    case Pass::kNoGrad:
      return "no_grad";
    case Pass::kForward:
      break;
  }
  return "forward";
}

const char* kind_word(DiagnosisIssue::Kind kind) {
  switch (kind) {
    case DiagnosisIssue::Kind::kDivergence:
      return "divergence";
    case DiagnosisIssue::Kind::kOverflow:
      return "overflow";
    case DiagnosisIssue::Kind::kUnderflow:
      return "underflow";
    case DiagnosisIssue::Kind::kSkipped:
      return "skipped";
    case DiagnosisIssue::Kind::kDigits:
      break;
  }
  return "digits";
}

OrderedJson exit_to_json(const std::optional<WatchExit>& exit) {
  if (!exit) return nullptr;
  return {{"op", exit->op},
          {"place", exit->place.name()},
          {"pass", pass_word(exit->place.pass)},
          {"step", exit->step + 1},
          {"inf", exit->inf},
          {"nan", exit->nan},
          {"largest_input", json_number(exit->largest_input)}};
}

OrderedJson places_to_json(const std::vector<PlaceShares>& places) {
  OrderedJson list = OrderedJson::array();
  for (const PlaceShares& place : places) {
    list.push_back({{"place", place.place},
                    {"pass", pass_word(place.pass)},
                    {"elements", place.elements},
                    {"flushed", place.flushed},
                    {"subnormal", place.subnormal},
                    {"near_top", place.near_top},
                    {"non_finite", place.non_finite}});
  }
  return list;
}

OrderedJson run_to_json(const DiagnosisRun& run, DescribeSetting describe) {
  OrderedJson flushing = nullptr;
  if (run.flushing) {
    flushing = {{"op", run.flushing->op},
                {"place", run.flushing->place.name()},
                {"share", run.flushing->share}};
  }
  return {{"options", describe(run.setting)},
          {"precision", to_string(run.setting.precision)},
          {"loss_scale", loss_scale_text(run.setting)},
          {"keep_float32", run.setting.keep_float32},
          {"out_of_memory", run.out_of_memory},
          {"losses", numbers(run.losses)},
          {"loss_difference", json_number(run.loss_difference)},
          {"gradient_difference",
           run.gradient_difference ? json_number(*run.gradient_difference) : nullptr},
          {"skipped_steps", run.skipped_steps},
          {"final_loss_scale", json_number(run.final_loss_scale)},
          {"step_ms", json_number(run.step_ms)},
          {"peak_memory_bytes", run.peak_memory_bytes},
          {"first_out_of_range",
           {{"forward", exit_to_json(run.forward_exit)},
            {"backward", exit_to_json(run.backward_exit)}}},
          {"first_flushing", flushing},
          {"places", places_to_json(run.places)}};
}

OrderedJson gradients_to_json(const GradientFacts& gradients) {
  OrderedJson parameters = OrderedJson::array();
  for (const GradientRow& row : gradients.rows) {
    parameters.push_back({{"name", row.name},
                          {"elements", row.numbers.elements},
                          {"zeros", row.numbers.zeros},
                          {"largest", json_number(row.numbers.largest)},
                          {"smallest", json_number(row.numbers.smallest_nonzero)},
                          {"lowest_exponent", row.exponents.lowest},
                          {"exponent_counts", row.exponents.counts}});
  }
  return {{"largest", json_number(gradients.largest)},
          {"smallest", json_number(gradients.smallest)},
          {"largest_per_step", numbers(gradients.largest_per_step)},
          {"kept_unscaled", gradients.kept_unscaled},
          {"needed_loss_scale", json_number(gradients.needed_loss_scale)},
          {"parameters", parameters}};
}

OrderedJson issues_to_json(const Diagnosis& diagnosis, DescribeSetting describe) {
  OrderedJson list = OrderedJson::array();
  for (const DiagnosisIssue& issue : diagnosis.issues) {
    list.push_back(
        {{"kind", kind_word(issue.kind)},
         {"options", describe(diagnosis.runs[issue.run].setting)},
         {"op", text_or_null(issue.op)},
         {"place", text_or_null(issue.place)},
         {"evidence", issue.evidence},
         {"fix", issue.fix ? OrderedJson(describe(diagnosis.runs[*issue.fix].setting)) : nullptr}});
  }
  return list;
}

OrderedJson candidates_to_json(const Diagnosis& diagnosis, DescribeSetting describe) {
  OrderedJson list = OrderedJson::array();
  for (const PrecisionCandidate& candidate : diagnosis.candidates) {
    list.push_back({{"precision", to_string(candidate.precision)},
                    {"problem", to_string(candidate.problem)},
                    {"options", describe(diagnosis.runs[candidate.run].setting)},
                    {"suited", candidate.suited},
                    {"evidence", candidate.evidence}});
  }
  return list;
}

OrderedJson recommendation_to_json(const Diagnosis& diagnosis, DescribeSetting describe) {
  if (!diagnosis.recommended) return nullptr;
  const DiagnosisRun& run = diagnosis.runs[diagnosis.candidates[*diagnosis.recommended].run];
  return {{"options", describe(run.setting)},
          {"precision", to_string(run.setting.precision)},
          {"loss_scale", loss_scale_text(run.setting)},
          {"keep_float32", run.setting.keep_float32},
          {"reasons", diagnosis.reasons}};
}

}  // namespace

OrderedJson detail::diagnosis_json(const Diagnosis& diagnosis, DescribeSetting describe) {
  OrderedJson runs = OrderedJson::array();
  for (const DiagnosisRun& run : diagnosis.runs) runs.push_back(run_to_json(run, describe));
  return {{"device", diagnosis.device},
          {"threads", diagnosis.threads},
          {"steps", diagnosis.steps},
          {"interrupted", diagnosis.interrupted},
          {"recommendation", recommendation_to_json(diagnosis, describe)},
          {"issues", issues_to_json(diagnosis, describe)},
          {"candidates", candidates_to_json(diagnosis, describe)},
          {"gradients", gradients_to_json(diagnosis.gradients)},
          {"runs", runs},
          {"version", kVersion}};
}

std::string to_json(const Diagnosis& diagnosis) {
  return json_text(detail::diagnosis_json(diagnosis, to_string));
}

}  // namespace mezzo::amp
