#pragma once

#include <optional>
#include <vector>

#include <torch/optim/optimizer.h>

#include "mezzo/amp/optim/fused_step.h"
#include "mezzo/core/export.h"

namespace mezzo::amp {

/// What one call of a fused kernel takes: parameters of one group that share a device and a dtype.
struct FusedBatch {
  const torch::optim::OptimizerOptions* options = nullptr;  ///< of the group
  std::vector<at::Tensor> parameters;                       ///< float32 or float64, without holes
  std::vector<at::Tensor> gradients;     ///< each laid out in memory as its parameter
  std::optional<at::Tensor> grad_scale;  ///< float32, 0-dim, on their device; none: 1
  std::optional<at::Tensor> found_inf;   ///< likewise, exactly 0 or 1, as the kernels want; none: 0
};

/// What FusedAdam, FusedAdamW and FusedSGD share: an optimizer that moves all parameters of a group
/// by one call of libtorch's fused kernels, where torch::optim makes a dozen calls a parameter.
///
/// Parameters without a gradient are passed over. They may differ in device, dtype and layout in
/// memory. They have to be float32 or float64: the kernels keep the moments of 16-bit parameters in
/// 16 bits, where neither a second moment that decays by 0.999 nor a small update moves anything;
/// enable_mixed_precision keeps float32 master weights for them.
///
/// Closures, groups, state(), learning rate schedulers, torch::save and torch::load work as for
/// every libtorch optimizer. A step ends libtorch's cached casts of the weights, so that an open
/// autocast region sees the new ones. Deterministic on the CPU for any number of threads. Not
/// thread-safe.
class MEZZO_API FusedOptimizer : public torch::optim::Optimizer, public FusedStep {
 public:
  /// One step by the gradients as they are. closure: computes them, and the loss that is returned;
  /// without it the result is undefined. Allocates the state at a parameter's first step. Does not
  /// synchronise. Before anything moves, throws InvalidArgument for parameters or gradients that
  /// are sparse, complex or 16-bit, parameters that overlap or have holes in memory, expanded
  /// gradients, which keep several elements in one place, gradients of another dtype or device than
  /// their parameter's, a parameter listed twice and options out of range. A gradient that is laid
  /// out otherwise than its parameter, with holes too, goes through a copy.
  at::Tensor step(LossClosure closure = nullptr) override;

  /// As FusedStep says; throws as step() does.
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
