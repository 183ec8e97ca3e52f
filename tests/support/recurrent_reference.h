#pragma once

#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include "support/nn_reference.h"
#include "support/tolerance.h"

/// What recurrent cells mean, in float64, from the parameters by their names.
namespace mezzo::test {

inline at::Tensor sigmoid64(const at::Tensor& x) {
  return 1 / (1 + (-x).exp());
}

inline at::Tensor tanh64(const at::Tensor& x) {
  return 2 * sigmoid64(2 * x) - 1;
}

/// W x + b with the parameters `weight_<name>` and `bias_<name>`; without bias where there is none.
inline at::Tensor projected(const torch::nn::Module& module, const std::string& name,
                            const at::Tensor& x) {
  const auto parameters = module.named_parameters();
  const at::Tensor* bias = parameters.find("bias_" + name);
  return dense_linear(x, parameters["weight_" + name], bias ? *bias : at::Tensor(),
                      Numbers::kGiven);
}

/// The state [N, hidden] of a GRU cell after x.
inline at::Tensor define_gru(const torch::nn::Module& cell, const at::Tensor& x,
                             const at::Tensor& h) {
  const at::Tensor a = projected(cell, "ih", x), b = projected(cell, "hh", h);
  const std::int64_t hidden = h.size(1);
  const auto part = [&](const at::Tensor& all, std::int64_t i) {
    return all.narrow(1, i * hidden, hidden);
  };
  const at::Tensor reset = sigmoid64(part(a, 0) + part(b, 0));
  const at::Tensor update = sigmoid64(part(a, 1) + part(b, 1));
  const at::Tensor candidate = tanh64(part(a, 2) + reset * part(b, 2));
  return (1 - update) * candidate + update * h;
}

/// The hidden and the cell state of layer `suffix` ("l0", "l0_reverse", ...) of an LSTM after x.
inline std::pair<at::Tensor, at::Tensor> define_lstm(const torch::nn::Module& lstm,
                                                     const std::string& suffix, const at::Tensor& x,
                                                     const at::Tensor& h, const at::Tensor& c) {
  const at::Tensor gates = projected(lstm, "ih_" + suffix, x) + projected(lstm, "hh_" + suffix, h);
  const std::int64_t hidden = h.size(1);
  const auto part = [&](std::int64_t i) { return gates.narrow(1, i * hidden, hidden); };
  const at::Tensor cell = sigmoid64(part(1)) * c + sigmoid64(part(0)) * tanh64(part(2));
  return {sigmoid64(part(3)) * tanh64(cell), cell};
}

/// Of a result in `storage` after `roundings` of intermediates whose errors no later step
/// multiplies beyond `size`.
inline SumBound rounded_bound(const at::Tensor& expected, double size, double roundings,
                              at::ScalarType storage) {
  return {.abs_sum = at::full_like(expected, size),
          .terms = 16 * roundings,
          .storage = storage,
          .operand_epsilon = roundings * info(storage).epsilon / 2};
}

/// Multiplies every parameter by a power of two, which is exact.
inline void scale_parameters(torch::nn::Module& module, double factor) {
  for (auto& parameter : module.named_parameters()) {
    parameter.value().set_data(parameter.value().detach() * factor);
  }
}

}  // namespace mezzo::test
