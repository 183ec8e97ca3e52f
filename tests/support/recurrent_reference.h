#pragma once

#include <torch/nn/module.h>

#include "support/running_error.h"

/// References for recurrent cells in float64, from named parameters, with at::Tensor or Rounded
/// numbers.
namespace mezzo::test {

inline at::Tensor sigmoid64(const at::Tensor& x) {
  return 1 / (1 + (-x).exp());
}

inline at::Tensor tanh64(const at::Tensor& x) {
  return 2 * sigmoid64(2 * x) - 1;
}

inline Rounded sigmoid64(const Rounded& x) {
  return increasing(x, [](const at::Tensor& at_end) { return sigmoid64(at_end); });
}

inline Rounded tanh64(const Rounded& x) {
  return increasing(x, [](const at::Tensor& at_end) { return tanh64(at_end); });
}

/// W x + b with the parameters `weight_<name>` and `bias_<name>`; without bias if it does not
/// exist.
template <class Number>
Number projected(const torch::nn::Module& module, const std::string& name, const Number& x) {
  const auto parameters = module.named_parameters();
  const at::Tensor* bias = parameters.find("bias_" + name);
  return applied(x, parameters["weight_" + name], bias ? *bias : at::Tensor());
}

/// The state [N, hidden] of a GRU cell after x.
template <class Number>
Number define_gru(const torch::nn::Module& cell, const Number& x, const Number& h) {
  const Number a = projected(cell, "ih", x), b = projected(cell, "hh", h);
  const std::int64_t hidden = h.size(1);
  const auto part = [&](const Number& all, std::int64_t i) {
    return all.narrow(1, i * hidden, hidden);
  };
  const Number reset = sigmoid64(part(a, 0) + part(b, 0));
  const Number update = sigmoid64(part(a, 1) + part(b, 1));
  const Number candidate = tanh64(part(a, 2) + reset * part(b, 2));
  return candidate + update * (h - candidate);
}

/// The hidden and the cell state of layer `suffix` ("l0", "l0_reverse", ...) of an LSTM after x.
template <class Number>
std::pair<Number, Number> define_lstm(const torch::nn::Module& lstm, const std::string& suffix,
                                      const Number& x, const Number& h, const Number& c) {
  const Number gates = projected(lstm, "ih_" + suffix, x) + projected(lstm, "hh_" + suffix, h);
  const std::int64_t hidden = h.size(1);
  const auto part = [&](std::int64_t i) { return gates.narrow(1, i * hidden, hidden); };
  const Number cell = sigmoid64(part(1)) * c + sigmoid64(part(0)) * tanh64(part(2));
  return {sigmoid64(part(3)) * tanh64(cell), cell};
}

/// Multiplies every parameter by a power of two, which is exact.
inline void scale_parameters(torch::nn::Module& module, double factor) {
  for (auto& parameter : module.named_parameters()) {
    parameter.value().set_data(parameter.value().detach() * factor);
  }
}

}  // namespace mezzo::test
