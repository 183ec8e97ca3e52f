#include "mezzo/core/json.h"
#include "mezzo/train/doctor/doctor.h"
#include "mezzo/version.h"

namespace mezzo {
namespace {

OrderedJson numbers(const std::vector<double>& values) {
  OrderedJson list = OrderedJson::array();
  for (const double value : values) list.push_back(json_number(value));
  return list;
}

const char* pass_word(amp::Pass pass) {
  switch (pass) {
    case amp::Pass::kBackward:
      return "backward";
    case amp::Pass::kNoGrad:
      return "no_grad";
    case amp::Pass::kForward:
      break;
  }
  return "forward";
}

const char* kind_word(Finding::Kind kind) {
  switch (kind) {
    case Finding::Kind::kDivergence:
      return "divergence";
    case Finding::Kind::kOverflow:
      return "overflow";
    case Finding::Kind::kUnderflow:
      return "underflow";
    case Finding::Kind::kSkipped:
      return "skipped";
    case Finding::Kind::kLoss:
      break;
  }
  return "loss";
}

OrderedJson exit_to_json(const std::optional<amp::WatchExit>& exit) {
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

OrderedJson trial_to_json(const Trial& trial) {
  OrderedJson flushing = nullptr;
  if (trial.flushing) {
    flushing = {{"op", trial.flushing->op},
                {"place", trial.flushing->place.name()},
                {"share", trial.flushing->share}};
  }
  return {{"options", trial.options()},
          {"precision", amp::to_string(trial.precision)},
          {"loss_scale", to_string(trial.loss_scale)},
          {"keep_float32", trial.keep_float32},
          {"losses", numbers(trial.losses)},
          {"loss_difference", json_number(trial.loss_difference)},
          {"skipped_steps", trial.skipped_steps},
          {"final_loss_scale", json_number(trial.final_loss_scale)},
          {"step_ms", json_number(trial.step_ms)},
          {"peak_memory_bytes", trial.peak_memory_bytes},
          {"first_out_of_range",
           {{"forward", exit_to_json(trial.forward_exit)},
            {"backward", exit_to_json(trial.backward_exit)}}},
          {"first_flushing", flushing},
          {"places", places_to_json(trial.places)}};
}

OrderedJson gradients_to_json(const GradientFacts& gradients) {
  OrderedJson parameters = OrderedJson::array();
  for (const amp::GradientRow& row : gradients.rows) {
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

OrderedJson findings_to_json(const Diagnosis& diagnosis) {
  OrderedJson list = OrderedJson::array();
  for (const Finding& finding : diagnosis.findings) {
    list.push_back({{"kind", kind_word(finding.kind)},
                    {"options", diagnosis.trials[finding.trial].options()},
                    {"op", text_or_null(finding.op)},
                    {"place", text_or_null(finding.place)},
                    {"evidence", finding.evidence},
                    {"remedy", finding.remedy}});
  }
  return list;
}

OrderedJson prescriptions_to_json(const Diagnosis& diagnosis) {
  OrderedJson list = OrderedJson::array();
  for (const Prescription& prescription : diagnosis.prescriptions) {
    list.push_back({{"precision", amp::to_string(prescription.precision)},
                    {"options", diagnosis.trials[prescription.trial].options()},
                    {"suited", prescription.suited},
                    {"evidence", prescription.evidence}});
  }
  return list;
}

OrderedJson cuda_to_json(const CudaFacts& cuda) {
  return {{"devices", cuda.devices},
          {"library", text_or_null(cuda.library)},
          {"problem", text_or_null(cuda.problem)}};
}

OrderedJson recommendation_to_json(const Diagnosis& diagnosis) {
  if (!diagnosis.recommended) return nullptr;
  const Trial& trial = diagnosis.trials[diagnosis.prescriptions[*diagnosis.recommended].trial];
  return {{"options", trial.options()},
          {"precision", amp::to_string(trial.precision)},
          {"loss_scale", to_string(trial.loss_scale)},
          {"keep_float32", trial.keep_float32},
          {"reasons", diagnosis.reasons}};
}

}  // namespace

std::string diagnosis_to_json(const Diagnosis& diagnosis) {
  OrderedJson trials = OrderedJson::array();
  for (const Trial& trial : diagnosis.trials) trials.push_back(trial_to_json(trial));
  const OrderedJson object = {{"dataset", diagnosis.dataset},
                              {"model", diagnosis.model},
                              {"device", diagnosis.device},
                              {"cuda", cuda_to_json(diagnosis.cuda)},
                              {"threads", diagnosis.threads},
                              {"seed", diagnosis.seed},
                              {"steps", diagnosis.steps},
                              {"interrupted", diagnosis.interrupted},
                              {"recommendation", recommendation_to_json(diagnosis)},
                              {"findings", findings_to_json(diagnosis)},
                              {"prescriptions", prescriptions_to_json(diagnosis)},
                              {"gradients", gradients_to_json(diagnosis.gradients)},
                              {"trials", trials},
                              {"version", kVersion}};
  return json_text(object);
}

}  // namespace mezzo
