#pragma once

#include <optional>
#include <vector>

#include <torch/optim/optimizer.h>

#include "mezzo/amp/optim/fused_step.h"
#include "mezzo/core/export.h"

namespace mezzo::amp {

/// Arguments of one fused kernel call: parameters of one group with the same device and dtype.
struct FusedBatch {
  const torch::optim::OptimizerOptions* options = nullptr;  ///< options of the group
  std::vector<at::Tensor> parameters;                       ///< float32 or float64, dense
  std::vector<at::Tensor> gradients;     ///< same memory layout as the parameters
  std::optional<at::Tensor> grad_scale;  ///< float32, 0-dim, on their device; nullopt: 1
  std::optional<at::Tensor> found_inf;   ///< float32, 0-dim, exactly 0 or 1; nullopt: 0
};

/// Base class of FusedAdam, FusedAdamW and FusedSGD: updates all parameters of a group with one
/// call of libtorch's fused kernels, while torch::optim makes a dozen calls per parameter.
///
/// Skips parameters without a gradient. Parameters may differ in device, dtype and memory layout.
/// They must be float32 or float64: for 16-bit parameters the kernels would store moments in 16
/// bits, which lose a decay of 0.999 and small updates to rounding. For 16-bit parameters call
/// enable_mixed_precision, which keeps float32 master weights.
///
/// Closures, groups, state(), learning rate schedulers, torch::save and torch::load work as for
/// every libtorch optimizer. A step clears autocast's cache, so that an open region sees the new
/// weights. Deterministic on the CPU for any number of threads. Not thread-safe.
class MEZZO_API FusedOptimizer : public torch::optim::Optimizer, public FusedStep {
 public:
  /// Runs one step. closure: computes the gradients and returns the loss, which step() returns;
  /// without it the result is undefined. Allocates the state at a parameter's first step. Does not
  /// synchronise. Copies gradients whose memory layout differs from their parameter's. Throws
  /// InvalidArgument, before any change, for parameters or gradients that are sparse, complex or
  /// 16-bit, parameters that overlap or have holes in memory, expanded gradients, gradients whose
  /// dtype or device differs from their parameter's, a parameter listed twice and options out of
  /// range.
  at::Tensor step(LossClosure closure = nullptr) override;

  /// See FusedStep. Throws as step() does.
  void fused_step(const at::Tensor& grad_scale, const at::Tensor& found_inf) override;

 protected:
  using torch::optim::Optimizer::Optimizer;

 private:
  virtual const char* name() const = 0;
  virtual void check_options(const torch::optim::OptimizerOptions& options) const = 0;
  virtual void step_batch(const FusedBatch& batch) = 0;

  std::vector<FusedBatch> batches() const;
};

}  // namespace mezzo::amp
