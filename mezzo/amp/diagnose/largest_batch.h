#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "mezzo/amp/diagnose/diagnose.h"
#include "mezzo/amp/precision.h"
#include "mezzo/core/export.h"

namespace mezzo::amp {

/// Options of largest_batches().
struct LargestBatchOptions {
  c10::Device device = c10::kCPU;  ///< of model and data
  /// For the tensors that live at the peak of a step, those outside of the step too (see
  /// peak_memory_bytes()), >= 1.
  std::int64_t memory_limit_bytes = 0;
  std::int64_t max_batch_size = 65536;  ///< >= 1
  /// As in DiagnoseOptions.
  std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)> make_optimizer =
      nullptr;
};

/// The largest batch of a precision.
struct LargestBatch {
  Precision precision = Precision::kFloat32;
  std::int64_t batch_size = 0;         ///< 0: a batch of 1 does not fit
  std::int64_t peak_memory_bytes = 0;  ///< of a step with it
  double samples_per_second = 0;       ///< median of steps with it
};

/// Finds, for fp32, tf32 (on CUDA), bf16 and fp16, the largest batch whose training step stays
/// within a memory limit, and its throughput.
///
/// loss: computes the loss (floating, one element) of a batch of that size, and nothing else, as
/// the step of diagnose(). The memory must grow with the size: sizes are doubled until one does not
/// fit, then bisected, with two steps for each size. A CUDA out-of-memory error counts as not
/// fitting. The model is restored as in diagnose(). Deterministic except for the throughput. Throws
/// InvalidArgument for options out of range and as diagnose(); what the loss throws.
MEZZO_API std::vector<LargestBatch> largest_batches(
    const std::function<at::Tensor(std::int64_t batch_size)>& loss, const DiagnosedModel& model,
    const LargestBatchOptions& options);

/// Same for a torch::nn::Module or a holder.
template <detail::HasNamedParameters Module>
std::vector<LargestBatch> largest_batches(
    const std::function<at::Tensor(std::int64_t batch_size)>& loss, const Module& model,
    const LargestBatchOptions& options) {
  return largest_batches(loss, diagnosed_model(model), options);
}

}  // namespace mezzo::amp
