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

const char* kind_word(Issue::Kind kind) {
  switch (kind) {
    case Issue::Kind::kDivergence:
      return "divergence";
    case Issue::Kind::kOverflow:
      return "overflow";
    case Issue::Kind::kUnderflow:
      return "underflow";
    case Issue::Kind::kSkipped:
      return "skipped";
    case Issue::Kind::kLoss:
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

OrderedJson run_to_json(const DoctorRun& run) {
  OrderedJson flushing = nullptr;
  if (run.flushing) {
    flushing = {{"op", run.flushing->op},
                {"place", run.flushing->place.name()},
                {"share", run.flushing->share}};
  }
  return {{"options", run.options()},
          {"precision", amp::to_string(run.precision)},
          {"loss_scale", to_string(run.loss_scale)},
          {"keep_float32", run.keep_float32},
          {"losses", numbers(run.losses)},
          {"loss_difference", json_number(run.loss_difference)},
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

OrderedJson issues_to_json(const Diagnosis& diagnosis) {
  OrderedJson list = OrderedJson::array();
  for (const Issue& issue : diagnosis.issues) {
    list.push_back({{"kind", kind_word(issue.kind)},
                    {"options", diagnosis.runs[issue.run].options()},
                    {"op", text_or_null(issue.op)},
                    {"place", text_or_null(issue.place)},
                    {"evidence", issue.evidence},
                    {"fix", issue.fix}});
  }
  return list;
}

OrderedJson candidates_to_json(const Diagnosis& diagnosis) {
  OrderedJson list = OrderedJson::array();
  for (const Candidate& candidate : diagnosis.candidates) {
    list.push_back({{"precision", amp::to_string(candidate.precision)},
                    {"options", diagnosis.runs[candidate.run].options()},
                    {"suited", candidate.suited},
                    {"evidence", candidate.evidence}});
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
  const DoctorRun& run = diagnosis.runs[diagnosis.candidates[*diagnosis.recommended].run];
  return {{"options", run.options()},
          {"precision", amp::to_string(run.precision)},
          {"loss_scale", to_string(run.loss_scale)},
          {"keep_float32", run.keep_float32},
          {"reasons", diagnosis.reasons}};
}

}  // namespace

std::string diagnosis_to_json(const Diagnosis& diagnosis) {
  OrderedJson runs = OrderedJson::array();
  for (const DoctorRun& run : diagnosis.runs) runs.push_back(run_to_json(run));
  const OrderedJson object = {{"dataset", diagnosis.dataset},
                              {"model", diagnosis.model},
                              {"device", diagnosis.device},
                              {"cuda", cuda_to_json(diagnosis.cuda)},
                              {"threads", diagnosis.threads},
                              {"seed", diagnosis.seed},
                              {"steps", diagnosis.steps},
                              {"interrupted", diagnosis.interrupted},
                              {"recommendation", recommendation_to_json(diagnosis)},
                              {"issues", issues_to_json(diagnosis)},
                              {"candidates", candidates_to_json(diagnosis)},
                              {"gradients", gradients_to_json(diagnosis.gradients)},
                              {"runs", runs},
                              {"version", kVersion}};
  return json_text(object);
}

}  // namespace mezzo
