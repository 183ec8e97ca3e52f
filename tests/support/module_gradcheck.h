#pragma once

#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>

#include "support/gradcheck.h"
#include "support/tensors.h"

namespace mezzo::test {

/// gradcheck for the inputs and for every parameter (float64) of the module that `function` calls.
inline testing::AssertionResult module_gradcheck(torch::nn::Module& module,
                                                 const TensorFunction& function,
                                                 const std::vector<at::Tensor>& inputs) {
  const testing::AssertionResult by_inputs = gradcheck(function, inputs);
  if (!by_inputs) return by_inputs;
  for (auto& entry : module.named_parameters()) {
    at::Tensor parameter = entry.value();
    const at::Tensor output = function(inputs);
    const at::Tensor weights = uniform(output.sizes(), at::kDouble, 99);
    const at::Tensor gradient = torch::autograd::grad({output}, {parameter}, {weights})[0];
    const at::Tensor original = parameter.detach();
    const auto with_parameter = [&](const std::vector<at::Tensor>& moved) {
      parameter.set_data(moved[0]);
      return function(inputs).detach();
    };
    const at::Tensor differences = difference_quotients(with_parameter, {original}, 0, weights);
    parameter.set_data(original);
    const auto result = near_difference(gradient, differences);
    if (!result) {
      return testing::AssertionFailure() << entry.key() << ": " << result.message();
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace mezzo::test
