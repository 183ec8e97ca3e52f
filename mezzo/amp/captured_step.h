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
  /// Where the step computes; without an index the current CUDA device.
  c10::Device device = c10::kCUDA;
  /// Steps taken before the one that is captured, >= 1: in these, states are made, formats of
  /// graphs built and libraries started, none of which can be captured.
  std::int64_t warm_up = 3;
};

/// A training step that is captured as a CUDA graph and then repeated without the host's part: for
/// small models, where launching kernels takes longer than running them.
///
///     amp::FusedAdam optimizer(model->parameters());
///     amp::CapturedStep step([&] {
///       optimizer.zero_grad();
///       at::Tensor loss;
///       {
///         const amp::PrecisionScope scope(amp::Precision::kFloat16, device);
///         loss = torch::nll_loss(model->forward(graph, x), labels);
///       }
///       scaler.scale(loss).backward();
///       scaler.step(optimizer);
///       scaler.update();
///       return loss.detach();
///     });
///     for (int epoch = 0; epoch < 200; ++epoch) step.replay();
///
/// Each replay() is one step: the first `warm_up` ones call the closure, the next one captures what
/// it queues, and all from that one on repeat it. Numbers are those of the closure called as often,
/// bit for bit; but mezzo's dropout draws from libtorch's generator of the device here, in the
/// steps before the capture too, where it otherwise draws from the one of the CPU: other elements
/// drop. torch::manual_seed rules both generators, and every replay draws anew.
///
/// A replay reads and writes the memory that the captured call used: inputs are changed in place
/// (copy_), parameters and states stay the tensors that they are, and the result is one tensor that
/// each replay overwrites. What the host computes is done once and stays: sizes, learning rates,
/// the step counts of torch::optim's Adam. Hence
///
/// - gradients are dropped by zero_grad() inside the closure, and the result is detached;
/// - the optimizer is a FusedStep, whose step counts, and decision to skip, are on the device;
/// - nothing waits for the device: no item(), no copy to the CPU, no loss scale policy with a
///   rule, a warning or an error at the floor. The capture throws where something does;
/// - the host draws no random numbers, as stochastic rounding does, and dropout of a tensor on the
///   CPU: they are refused. libtorch's generator of the device is fine.
///
/// Between replays the model can be evaluated, saved and read; the replay is queued on the caller's
/// current stream. The tensors of the step stay allocated as long as this object.
///
/// Movable. Not thread-safe; no other thread may use the device while a step is captured.
class MEZZO_API CapturedStep {
 public:
  /// step: takes one step and returns what is to be read of it, detached, or an undefined tensor.
  /// Throws InvalidArgument for an empty function, warm_up below 1, a device that is not CUDA, and
  /// where CUDA or mezzo's library for it is missing. Does not call it.
  explicit CapturedStep(std::function<at::Tensor()> step, const CapturedStepOptions& options = {});

  /// The same on a graph of the caller's; options.device is not looked at.
  CapturedStep(std::function<at::Tensor()> step, const CapturedStepOptions& options,
               std::unique_ptr<DeviceGraph> graph);

  /// Waits for the replays that are under way.
  ~CapturedStep();
  CapturedStep(CapturedStep&&) noexcept;
  CapturedStep& operator=(CapturedStep&&) noexcept;

  /// Takes one step, and returns the result of the closure, which the next replay overwrites. From
  /// the capture on it only queues work: does not synchronise, allocates nothing. The one call that
  /// captures synchronises. Throws what the closure throws; InvalidArgument where the step cannot
  /// be captured, after which model and optimizer are as in the middle of a step; LogicError when
  /// called again after that.
  at::Tensor replay();

  /// Whether the next replay() needs no host.
  bool is_captured() const { return captured_; }

 private:
  void check_result() const;
  void capture();

  std::function<at::Tensor()> step_;
  std::int64_t warm_up_left_;
  bool captured_ = false, failed_ = false;
  at::Tensor result_;
  std::unique_ptr<DeviceGraph> graph_;  // ends first
};

}  // namespace mezzo::amp
