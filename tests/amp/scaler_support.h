#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/optim/sgd.h>

#include "mezzo/amp/optim/fused_optimizer.h"
#include "mezzo/amp/scaler/grad_scaler.h"

#include "support/devices.h"

namespace mezzo::test {

/// A leaf that requires a gradient.
inline at::Tensor leaf(const std::vector<double>& values, at::ScalarType dtype = at::kFloat) {
  return on_device(at::tensor(values, at::kDouble)).to(dtype).requires_grad_();
}

inline void set_gradient(at::Tensor parameter, const std::vector<double>& values) {
  parameter.mutable_grad() = on_device(at::tensor(values, at::kDouble)).to(parameter.scalar_type());
}

/// Gradient descent with learning rate 1.
inline torch::optim::SGD descent(std::vector<at::Tensor> parameters) {
  return torch::optim::SGD(std::move(parameters), torch::optim::SGDOptions(1.0));
}

/// Gradient descent with learning rate 1 that unscales and skips itself, and records its arguments.
class FusedDescent : public torch::optim::SGD, public amp::FusedStep {
 public:
  explicit FusedDescent(std::vector<at::Tensor> parameters)
      : torch::optim::SGD(std::move(parameters), torch::optim::SGDOptions(1.0)) {}

  void fused_step(const at::Tensor& grad_scale, const at::Tensor& found_inf) override {
    const at::NoGradGuard no_grad;
    given_scale = grad_scale.defined() ? grad_scale.clone() : at::Tensor();
    given_found_inf = found_inf.clone();
    num_calls += 1;
    num_steps.add_(found_inf.eq(0));
    for (const at::Tensor& parameter : param_groups()[0].params()) {
      if (!parameter.grad().defined()) continue;
      at::Tensor gradient = parameter.grad();
      if (gradient.is_sparse()) gradient = gradient.to_dense();
      gradient = gradient.to(at::kFloat);
      const at::Tensor moved =
          parameter - (grad_scale.defined() ? gradient / grad_scale : gradient);
      parameter.copy_(at::where(found_inf.ne(0), parameter, moved.to(parameter.scalar_type())));
    }
  }

  at::Tensor given_scale, given_found_inf;
  std::int64_t num_calls = 0;
  at::Tensor num_steps = at::zeros({}, on_device(at::kLong));
};

/// A scaler with the dynamic policy, after its first scale().
inline amp::GradScaler started(const amp::DynamicLossScaleOptions& options) {
  amp::GradScaler scaler(
      {.device = test_device(), .policy = amp::LossScalePolicy::dynamic(options)});
  scaler.scale(at::zeros({}, on_device()));
  return scaler;
}

}  // namespace mezzo::test
