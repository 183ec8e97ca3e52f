#include <fmt/format.h>

#include "mezzo/amp/diagnose/diagnosis_json.h"
#include "mezzo/amp/diagnose/diagnosis_text.h"
#include "mezzo/train/doctor/doctor.h"

namespace mezzo {
namespace {

std::string cuda_text(const CudaFacts& cuda) {
  if (!cuda.problem.empty()) return fmt::format("CUDA: not usable: {}\n", cuda.problem);
  return fmt::format("CUDA: {} {}, kernels of {}\n", cuda.devices,
                     cuda.devices == 1 ? "device" : "devices", cuda.library);
}

}  // namespace

std::string fix_of(const DoctorReport& report, const amp::DiagnosisIssue& issue) {
  return amp::detail::fix_text(report, issue, command_options);
}

std::vector<Table> diagnosis_tables(const DoctorReport& report) {
  return amp::detail::diagnosis_tables(report, command_options);
}

std::string format_diagnosis(const DoctorReport& report) {
  return fmt::format("{} on {}, {}, {} CPU threads, seed {}: {} steps a run\n", report.model,
                     report.dataset, report.device, report.threads, report.seed, report.steps) +
         cuda_text(report.cuda) + amp::detail::diagnosis_text(report, command_options);
}

std::string diagnosis_to_json(const DoctorReport& report) {
  OrderedJson object = {{"dataset", report.dataset},
                        {"model", report.model},
                        {"seed", report.seed},
                        {"cuda",
                         {{"devices", report.cuda.devices},
                          {"library", text_or_null(report.cuda.library)},
                          {"problem", text_or_null(report.cuda.problem)}}}};
  object.update(amp::detail::diagnosis_json(report, command_options));
  return json_text(object);
}

}  // namespace mezzo
