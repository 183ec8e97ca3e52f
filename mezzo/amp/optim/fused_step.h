#pragma once

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

namespace mezzo::amp {

/// Interface of optimizers whose kernels unscale the gradients and skip steps on the device, so
/// that GradScaler::step does not synchronise.
class MEZZO_API FusedStep {
 public:
  virtual ~FusedStep();

  /// Runs one step. Divides the gradients by `grad_scale` in place (float32, 0-dim; undefined:
  /// already unscaled). If `found_inf` (float32, 0-dim; undefined: 0) is nonzero, changes nothing:
  /// neither parameters nor gradients, moments and step counts. Synchronises only to copy the two
  /// from an accelerator to CPU parameters. Throws InvalidArgument for another dtype or shape.
  virtual void fused_step(const at::Tensor& grad_scale, const at::Tensor& found_inf) = 0;

 protected:
  FusedStep() = default;
  FusedStep(const FusedStep&) = default;
  FusedStep& operator=(const FusedStep&) = default;
  FusedStep(FusedStep&&) = default;
  FusedStep& operator=(FusedStep&&) = default;
};

}  // namespace mezzo::amp
