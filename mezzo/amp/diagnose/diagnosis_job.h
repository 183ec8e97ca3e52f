#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "mezzo/amp/diagnose/diagnose.h"

namespace mezzo::amp::detail {

/// The result of a step of a DiagnosisJob.
struct JobStep {
  double loss = 0;
  bool skipped = false;       ///< because of inf or nan gradients
  double loss_scale = 1;      ///< after the step
  double gradient_scale = 1;  ///< the gradients in the parameters are times this
};

/// A training that can start again from the same state.
class DiagnosisJob {
 public:
  virtual ~DiagnosisJob() = default;

  virtual c10::Device device() const = 0;

  /// Starts again with a setting. timed: without a Watch, in the way that is measured.
  virtual void start(const PrecisionSetting& setting, bool timed) = 0;

  /// Takes the next step. Leaves the gradients in the parameters.
  virtual JobStep step() = 0;

  /// The model's parameters since start().
  virtual std::vector<std::pair<std::string, at::Tensor>> named_parameters() const = 0;

  /// The paths for PrecisionSetting::keep_float32.
  virtual std::vector<std::string> parts() const = 0;
};

/// Diagnoses a job; see diagnose(). Uses steps and callbacks of `options`.
Diagnosis diagnose_job(DiagnosisJob& job, const DiagnoseOptions& options);

}  // namespace mezzo::amp::detail
