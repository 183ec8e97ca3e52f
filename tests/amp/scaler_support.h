#pragma once

#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/optim/sgd.h>

#include "mezzo/amp/grad_scaler.h"

namespace mezzo::test {

/// A leaf that wants a gradient.
inline at::Tensor leaf(const std::vector<double>& values, at::ScalarType dtype = at::kFloat) {
  return at::tensor(values, at::kDouble).to(dtype).requires_grad_();
}

inline void set_gradient(at::Tensor parameter, const std::vector<double>& values) {
  parameter.mutable_grad() = at::tensor(values, at::kDouble).to(parameter.scalar_type());
}

/// Plain gradient descent with a learning rate of 1.
inline torch::optim::SGD descent(std::vector<at::Tensor> parameters) {
  return torch::optim::SGD(std::move(parameters), torch::optim::SGDOptions(1.0));
}

/// A scaler under the dynamic policy whose scale exists already.
inline amp::GradScaler started(const amp::DynamicLossScaleOptions& options) {
  amp::GradScaler scaler({.policy = amp::LossScalePolicy::dynamic(options)});
  scaler.scale(at::zeros({}));
  return scaler;
}

}  // namespace mezzo::test
