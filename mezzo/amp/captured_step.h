#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

namespace mezzo {
class DeviceGraph;
}

namespace mezzo::amp {

/// Options of CapturedStep.
struct CapturedStepOptions {
  /// Device of the step; without an index, the current CUDA device.
  c10::Device device = c10::kCUDA;
  /// Eager steps before the capture, >= 1. They create optimizer state, build graph formats and
  /// initialize libraries, which cannot be captured.
  std::int64_t warm_up = 3;
};

/// Captures a training step as a CUDA graph and replays it without host code. Use it for small
/// models, if their kernels take longer to launch than to run.
///
///     amp::FusedAdam optimizer(model->parameters());
///     amp::CapturedStep step([&] {
///       optimizer.zero_grad();
///       amp::PrecisionScope scope(amp::Precision::kFloat16, device);
///       const at::Tensor loss = torch::nll_loss(model->forward(graph, x), labels);
///       scope.backward(scaler.scale(loss));
///       scaler.step(optimizer);
///       scaler.update();
///       return loss.detach();
///     });
///     for (int epoch = 0; epoch < 200; ++epoch) step.replay();
///
/// Each replay() is one step. The first `warm_up` calls run the closure; the next call captures it
/// and replays the graph, and later calls only replay. Results equal the closure's own results bit
/// for bit, except with dropout: here mezzo's dropout draws from libtorch's CUDA generator, during
/// warm-up too, and otherwise from the CPU generator. torch::manual_seed seeds both. Every replay
/// draws new random numbers.
///
/// A replay reads and writes the memory of the captured call: change inputs in place (copy_), do
/// not replace parameters or optimizer state; each replay overwrites the same result tensor. Values
/// that the host computes are fixed at capture: sizes, learning rates, the step counts of
/// torch::optim's Adam. Therefore
///
/// - call zero_grad() inside the closure and detach the result;
/// - the optimizer must be a FusedStep, which counts and skips steps on the device;
/// - nothing may wait for the device: no item(), no copy to the CPU, no loss scale policy with a
///   rule, a warning or an error at the floor. The capture throws otherwise;
/// - the host may not draw random numbers: stochastic rounding and dropout of CPU tensors throw.
///   libtorch's CUDA generator works.
///
/// Replays run on the caller's current stream. Between replays the model can be evaluated, saved
/// and read. The tensors of the step stay allocated as long as this object lives.
///
/// Movable. Not thread-safe. While a step is captured, other threads may queue work on their own
/// streams and allocate, but not wait for the whole device.
class MEZZO_API CapturedStep {
 public:
  /// step: runs one step and returns a detached result, or an undefined tensor. Not called here.
  /// Throws InvalidArgument for an empty function, warm_up below 1, a device that is not CUDA, and
  /// if CUDA or mezzo's CUDA library is missing.
  explicit CapturedStep(std::function<at::Tensor()> step, const CapturedStepOptions& options = {});

  /// Same, with the caller's graph; ignores options.device.
  CapturedStep(std::function<at::Tensor()> step, const CapturedStepOptions& options,
               std::unique_ptr<DeviceGraph> graph);

  /// Waits for running replays.
  ~CapturedStep();
  CapturedStep(CapturedStep&&) noexcept;
  CapturedStep& operator=(CapturedStep&&) noexcept;

  /// Runs one step and returns the closure's result, which the next replay overwrites. The
  /// capturing call synchronises; later calls only queue work: no synchronisation, no allocation.
  /// Throws what the closure throws; InvalidArgument if the step cannot be captured, which leaves
  /// model and optimizer in the middle of a step; LogicError on every call after that.
  at::Tensor replay();

  /// Whether the step has been captured.
  bool is_captured() const { return captured_; }

 private:
  void check_result() const;
  void capture();

  std::function<at::Tensor()> step_;
  std::int64_t warm_up_left_;
  bool captured_ = false, failed_ = false;
  at::Tensor result_;
  std::unique_ptr<DeviceGraph> graph_;  // destroyed first
};

}  // namespace mezzo::amp
