#pragma once

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

namespace mezzo::amp {

/// What an optimizer offers that divides its gradients by the loss scale, and decides whether to
/// step at all, inside its own kernels. GradScaler::step then needs no word from the device.
class MEZZO_API FusedStep {
 public:
  virtual ~FusedStep();

  /// One step. The gradients are divided by `grad_scale` (float32, 0-dim; undefined: they are
  /// unscaled already) in place; where `found_inf` (float32, 0-dim; undefined: 0) is not 0, nothing
  /// moves: neither parameters nor gradients, moments and step counts. Does not synchronise, unless
  /// the two have to come from an accelerator to parameters on the CPU. Throws InvalidArgument for
  /// another dtype or shape.
  virtual void fused_step(const at::Tensor& grad_scale, const at::Tensor& found_inf) = 0;

 protected:
  FusedStep() = default;
  FusedStep(const FusedStep&) = default;
  FusedStep& operator=(const FusedStep&) = default;
  FusedStep(FusedStep&&) = default;
  FusedStep& operator=(FusedStep&&) = default;
};

}  // namespace mezzo::amp
