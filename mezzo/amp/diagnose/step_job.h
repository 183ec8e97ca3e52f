#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include "mezzo/amp/diagnose/diagnosis_job.h"
#include "mezzo/amp/diagnose/keep_float32.h"
#include "mezzo/amp/optim/mixed_precision_optimizer.h"

namespace mezzo::amp::detail {

/// The job of a function that computes the loss. Restores the state of the model and of the random
/// numbers when destroyed.
class StepJob : public DiagnosisJob {
 public:
  /// Throws as diagnose(). step, model and options must outlive the job.
  StepJob(const std::function<at::Tensor(std::int64_t)>& step, const DiagnosedModel& model,
          const DiagnoseOptions& options);
  ~StepJob() override;
  StepJob(const StepJob&) = delete;
  StepJob& operator=(const StepJob&) = delete;

  c10::Device device() const override { return options_.device; }
  void start(const PrecisionSetting& setting, bool timed) override;
  JobStep step() override;
  std::vector<std::pair<std::string, at::Tensor>> named_parameters() const override {
    return model_.parameters;
  }
  /// The modules with parameters of their own.
  std::vector<std::string> parts() const override;

 private:
  void restore();

  const std::function<at::Tensor(std::int64_t)>& loss_of_step_;
  const DiagnosedModel& model_;
  const DiagnoseOptions& options_;
  std::vector<at::Tensor> tensors_, values_;  // parameters and buffers, and copies of them
  std::vector<at::Tensor> gradients_;         // of the parameters, before the diagnosis
  std::vector<std::pair<at::Generator, at::Tensor>> random_states_;

  // Of the current run; destroyed from the last to the first.
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::optional<MixedPrecisionOptimizer> mixed_;
  std::optional<KeepFloat32> kept_;
  std::int64_t next_step_ = 0;
  std::int64_t skipped_ = 0;
};

}  // namespace mezzo::amp::detail
