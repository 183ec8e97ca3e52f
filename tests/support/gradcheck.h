#pragma once

#include <functional>

#include <torch/csrc/autograd/autograd.h>

#include "support/tensors.h"
#include "support/tolerance.h"

namespace mezzo::test {

using TensorFunction = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

/// The derivative of sum(weights * function(inputs)) by inputs[which], by central differences.
inline at::Tensor difference_quotients(const TensorFunction& function,
                                       const std::vector<at::Tensor>& inputs, std::size_t which,
                                       const at::Tensor& weights) {
  std::vector<at::Tensor> moved;
  for (const at::Tensor& input : inputs) moved.push_back(input.detach().clone().contiguous());
  const at::Tensor entries = moved[which].cpu();  // of the CPU: the moved one itself
  at::Tensor quotients = at::empty_like(entries);
  auto* entry = entries.data_ptr<double>();
  const auto value = [&] {
    moved[which].copy_(entries);
    return (weights * function(moved)).sum().item<double>();
  };
  for (std::int64_t i = 0; i < quotients.numel(); ++i) {
    const double before = entry[i];
    entry[i] = before + kDifferenceStep;
    const double above = value();
    entry[i] = before - kDifferenceStep;
    const double below = value();
    entry[i] = before;
    quotients.data_ptr<double>()[i] = (above - below) / (2 * kDifferenceStep);
  }
  return quotients;
}

/// Whether autograd's gradients of `function` agree with central differences. inputs: float64; all
/// are differentiated. The output is reduced with fixed random weights.
inline testing::AssertionResult gradcheck(const TensorFunction& function,
                                          const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : inputs) leaves.push_back(leaf(input));
  const at::Tensor output = function(leaves);
  const at::Tensor weights = uniform(output.sizes(), at::kDouble, 99);
  const auto gradients = torch::autograd::grad({output}, leaves, {weights});
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto result =
        near_difference(gradients[i], difference_quotients(function, inputs, i, weights));
    if (!result) return testing::AssertionFailure() << "input " << i << ": " << result.message();
  }
  return testing::AssertionSuccess();
}

}  // namespace mezzo::test
