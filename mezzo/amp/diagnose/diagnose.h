#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "mezzo/amp/precision.h"
#include "mezzo/amp/scaler/loss_scale_policy.h"
#include "mezzo/amp/watch/watch.h"
#include "mezzo/core/export.h"

namespace torch::optim {
class Optimizer;  // its header costs seconds
}

namespace mezzo::amp {

/// How a model trains.
struct PrecisionSetting {
  Precision precision = Precision::kFloat32;
  std::optional<LossScalePolicy> loss_scale = std::nullopt;  ///< unset: no loss scale
  std::vector<std::string> keep_float32 = {};                ///< paths for amp::keep_float32
};

/// "fp16, loss scale 1024, encoder in float32"
MEZZO_API std::string to_string(const PrecisionSetting& setting);

/// Why a precision does not train like float32.
enum class NumericProblem : std::uint8_t {
  kNone,
  kRange,       ///< numbers overflow, or gradients underflow to 0
  kDigits,      ///< all numbers are in range, but rounding changes the gradients or the loss
  kDivergence,  ///< float32 itself diverges
  kMemory,      ///< none of numbers: its steps exceed the memory of the CUDA device
};

/// "none", "range", "digits", "divergence" or "memory".
MEZZO_API std::string_view to_string(NumericProblem problem);

/// How the floating outputs of a place in the model fit the range of their type; shares of
/// `elements`.
struct PlaceShares {
  std::string place;  ///< "encoder", "after encoder"
  Pass pass = Pass::kForward;
  std::int64_t elements = 0;
  double flushed = 0;     ///< zero by underflow, for operations that Watch checks
  double subnormal = 0;   ///< subnormal
  double near_top = 0;    ///< at least a sixteenth of the largest number
  double non_finite = 0;  ///< inf or nan
};

/// An operation that flushed at least 1 % of its outputs to zero.
struct FlushingOp {
  std::string op;
  WatchPlace place;
  double share = 0;
};

/// Some training steps with one setting.
struct DiagnosisRun {
  PrecisionSetting setting;

  bool out_of_memory = false;  ///< of the CUDA device; the members below have no values
  std::vector<double> losses;  ///< one a step; fewer if the weights became nan
  std::int64_t skipped_steps = 0;
  std::int64_t skipped_at_end = 0;  ///< of the last quarter of the steps
  double final_loss_scale = 1;
  /// Median of steps without Watch, without skipped ones; nan if all were skipped.
  double step_ms = 0;
  std::int64_t peak_memory_bytes = 0;  ///< of these steps, with the data
  /// Absolute difference to float32's mean loss over the last quarter of the steps, divided by
  /// float32's first loss; inf if one of them is not finite.
  double loss_difference = std::numeric_limits<double>::infinity();
  /// Norm of the difference to float32's gradient of the first step, divided by the norm of that;
  /// inf if not finite; unset if all steps were skipped. If the first was, measured again with a
  /// smaller loss scale.
  std::optional<double> gradient_difference;

  /// Shares of the outputs in the 16-bit type (float32 for fp32); in the order of first use.
  std::vector<PlaceShares> places;
  /// Where finite numbers first became inf or nan; in the backward this is normal while a dynamic
  /// scale settles.
  std::optional<WatchExit> forward_exit, backward_exit;
  std::optional<FlushingOp> flushing;  ///< the first in the backward
};

/// Something that went wrong in a run.
struct DiagnosisIssue {
  enum class Kind : std::uint8_t {
    kDivergence,  ///< in float32 too: not caused by the precision
    kOverflow,    ///< numbers left the range
    kUnderflow,   ///< gradients became zero
    kSkipped,     ///< steps were skipped while the scale settled
    kDigits,      ///< loss or gradients differ from float32's
  };
  Kind kind = Kind::kOverflow;
  std::size_t run = 0;             ///< index of the run
  std::string op, place;           ///< the operation and the layer, if known
  std::string evidence;            ///< one sentence
  std::optional<std::size_t> fix;  ///< index of the run without the problem
};

/// A precision: what is wrong with it, and the best setting found for it.
struct PrecisionCandidate {
  Precision precision = Precision::kFloat32;
  NumericProblem problem = NumericProblem::kNone;  ///< without loss scale and float32 modules
  std::size_t run = 0;                             ///< index of the run with the best setting
  bool suited = false;                             ///< that run trained like float32
  std::string evidence;                            ///< one sentence
};

/// The gradients of the parameters in float32, of all steps together.
struct GradientFacts {
  std::vector<GradientRow> rows;         ///< one a parameter, without `half`
  std::vector<double> largest_per_step;  ///< finite ones
  double largest = 0;                    ///< absolute, of all
  double smallest = 0;                   ///< absolute, not 0
  double needed_loss_scale = 1;  ///< power of two that keeps 99.9 % of them exact in float16
  double kept_unscaled = 1;      ///< share that float16 keeps without a loss scale
};

/// The result of diagnose(). Plain values.
struct Diagnosis {
  std::string device;
  std::int64_t threads = 1;
  std::int64_t steps = 0;  ///< of each run

  std::vector<DiagnosisRun> runs;  ///< the first is fp32
  GradientFacts gradients;
  std::vector<DiagnosisIssue> issues;          ///< empty: nothing was wrong
  std::vector<PrecisionCandidate> candidates;  ///< fp32, tf32 (CUDA only), bf16, fp16
  std::optional<std::size_t> recommended;      ///< index in `candidates`; unset if fp32 diverges
  std::vector<std::string> reasons;            ///< for the recommendation, one sentence each
  bool interrupted = false;                    ///< only `runs` is set, to the complete ones

  /// The candidate of a precision. Throws InvalidArgument if it was not tried.
  MEZZO_API const PrecisionCandidate& candidate(Precision precision) const;

  /// The recommended setting. Throws NumericError if float32 diverges or the diagnosis was
  /// interrupted.
  MEZZO_API const PrecisionSetting& setting() const;
};

/// A watched step.
struct DiagnosisProgress {
  const PrecisionSetting& setting;
  std::int64_t step = 0;   ///< from 1
  std::int64_t steps = 0;  ///< of the run
  double loss = 0;
  double milliseconds = 0;
  double loss_scale = 1;
};

/// Options of diagnose().
struct DiagnoseOptions {
  c10::Device device = c10::kCPU;  ///< of model and data
  std::int64_t steps = 20;         ///< of each run, >= 1
  /// Makes the optimizer of a run. Unset: torch::optim::Adam with its defaults.
  std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)> make_optimizer =
      nullptr;
  /// Called after every watched step; may be empty.
  std::function<void(const DiagnosisProgress&)> on_step = nullptr;
  /// Called after every step; true ends the diagnosis; may be empty.
  std::function<bool()> should_stop = nullptr;
};

/// A model as diagnose() sees it.
struct DiagnosedModel {
  std::vector<std::pair<std::string, at::Tensor>> parameters;  ///< float32 or float64
  std::vector<at::Tensor> buffers;
};

/// The parameters and buffers of a torch::nn::Module or a holder.
template <detail::HasNamedParameters Module>
DiagnosedModel diagnosed_model(const Module& model) {
  if constexpr (requires { model.named_parameters(); }) {
    return {detail::named_parameters_of(model), model.buffers()};
  } else {
    return {detail::named_parameters_of(model), model->buffers()};
  }
}

/// Trains a model for some steps in fp32, tf32 (on CUDA), bf16 and fp16, from the same parameters,
/// buffers and random numbers, under a Watch; finds where a precision leaves the range or loses
/// digits; tries modules in float32 and loss scales one by one, and recommends the fastest setting
/// that trains like float32.
///
/// step: computes the loss (floating, one element) of a training step, counted from 0, and nothing
/// else; diagnose() opens the precision's scope, runs the backward and steps the optimizer. Equal
/// steps must use equal data, e.g. `batches[step % batches.size()]`; the numbers of steps are below
/// max(steps, 11).
///
/// At the end, also after an exception, parameters, buffers, gradients and libtorch's random number
/// generators of the CPU and of the device are as before. Training mode is the caller's. Takes a
/// run for each precision, a second one for fp16 and one more for each fix that it tries (only one
/// run if float32 diverges); a run has `steps` watched steps (see Watch for their cost) and 11
/// others. For a precision that loses digits, also one step for each module. Memory: a copy of
/// parameters, buffers and gradients. All numbers except times are as deterministic as the step.
///
/// Throws InvalidArgument for steps < 1, an empty step, parameters that are not float32 or float64,
/// and as enable_mixed_precision(); what the step throws. After the fp32 run a
/// c10::OutOfMemoryError is not thrown: it means that the precision is not suited.
MEZZO_API Diagnosis diagnose(const std::function<at::Tensor(std::int64_t step)>& step,
                             const DiagnosedModel& model, const DiagnoseOptions& options = {});

/// Same for a torch::nn::Module or a holder.
template <detail::HasNamedParameters Module>
Diagnosis diagnose(const std::function<at::Tensor(std::int64_t step)>& step, const Module& model,
                   const DiagnoseOptions& options = {}) {
  return diagnose(step, diagnosed_model(model), options);
}

/// Tables of precisions, runs and layers, the issues and the recommendation, for people.
MEZZO_API std::string to_text(const Diagnosis& diagnosis);

/// One JSON object with everything. Numbers that are not finite become null.
MEZZO_API std::string to_json(const Diagnosis& diagnosis);

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
