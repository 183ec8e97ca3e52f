#include <chrono>
#include <optional>

#include <c10/util/Exception.h>

#include "mezzo/amp/diagnose/diagnose.h"
#include "mezzo/amp/diagnose/step_job.h"
#include "mezzo/core/error.h"
#include "mezzo/core/median.h"
#include "mezzo/runtime/memory.h"

namespace mezzo::amp {
namespace {

constexpr int kMeasuredSteps = 5;

/// The steps of one precision.
class BatchSearch {
 public:
  BatchSearch(const std::function<at::Tensor(std::int64_t)>& loss, const DiagnosedModel& model,
              const LargestBatchOptions& options, Precision precision)
      : options_(options),
        setting_{.precision = precision},  // fp16 without a scale skips no step here
        loss_of_step_([this, &loss](std::int64_t /*step*/) { return loss(batch_size_); }),
        diagnose_options_{.device = options.device, .make_optimizer = options.make_optimizer},
        job_(loss_of_step_, model, diagnose_options_) {}

  LargestBatch run() {
    LargestBatch result{.precision = setting_.precision};
    const std::int64_t most = options_.max_batch_size;
    std::int64_t fits = 0;
    std::optional<std::int64_t> too_large;
    for (std::int64_t size = 1; size > fits;) {
      const std::optional<std::int64_t> peak = peak_of(size);
      if (peak && *peak <= options_.memory_limit_bytes) {
        fits = size;
        result.peak_memory_bytes = *peak;
      } else {
        too_large = size;
      }
      if (too_large) {
        size = fits + (*too_large - fits) / 2;
      } else {
        size = fits > most / 2 ? most : 2 * fits;
      }
    }
    result.batch_size = fits;
    if (fits > 0) result.samples_per_second = static_cast<double>(fits) / seconds_of(fits);
    return result;
  }

 private:
  /// nullopt if the device has too little memory.
  std::optional<std::int64_t> peak_of(std::int64_t size) {
    batch_size_ = size;
    try {
      job_.start(setting_, /*timed=*/true);
      job_.step();  // creates the state of the optimizer
      reset_peak_memory(options_.device);
      job_.step();
      return peak_memory_bytes(options_.device);
    } catch (const c10::OutOfMemoryError&) {
      return std::nullopt;
    }
  }

  /// The time of one step.
  double seconds_of(std::int64_t size) {
    batch_size_ = size;
    job_.start(setting_, /*timed=*/true);
    job_.step();
    std::vector<double> seconds;
    for (int i = 0; i < kMeasuredSteps; ++i) {
      const auto start = std::chrono::steady_clock::now();
      job_.step();
      seconds.push_back(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return median(seconds);
  }

  const LargestBatchOptions& options_;
  PrecisionSetting setting_;
  std::int64_t batch_size_ = 1;
  std::function<at::Tensor(std::int64_t)> loss_of_step_;
  DiagnoseOptions diagnose_options_;
  detail::StepJob job_;
};

}  // namespace

std::vector<LargestBatch> largest_batches(
    const std::function<at::Tensor(std::int64_t batch_size)>& loss, const DiagnosedModel& model,
    const LargestBatchOptions& options) {
  MEZZO_CHECK(loss != nullptr,
              "largest_batches: expected a function that returns the loss of a batch");
  MEZZO_CHECK(options.memory_limit_bytes >= 1,
              "largest_batches: expected memory_limit_bytes of at least 1, got {}",
              options.memory_limit_bytes);
  MEZZO_CHECK(options.max_batch_size >= 1,
              "largest_batches: expected max_batch_size of at least 1, got {}",
              options.max_batch_size);
  std::vector<LargestBatch> results;
  for (const Precision precision : kPrecisions) {
    if (precision == Precision::kTensorFloat32 && !options.device.is_cuda()) continue;
    results.push_back(BatchSearch(loss, model, options, precision).run());
  }
  return results;
}

}  // namespace mezzo::amp
