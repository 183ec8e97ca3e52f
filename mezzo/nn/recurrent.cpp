#include "mezzo/nn/recurrent.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>

#include "mezzo/ops/ops.h"

namespace mezzo::nn::detail {
namespace {

/// Casts the parameter for mezzo::linear, for this step only. With autocast's cache all steps would
/// share one tensor and sum their gradients in 16 bits; separate casts sum them in the float32
/// parameter.
at::Tensor cast_for_step(const at::Tensor& parameter) {
  const at::DeviceType device = parameter.device().type();
  const bool shared = c10::GradMode::is_enabled() && parameter.requires_grad() &&
                      parameter.scalar_type() == at::kFloat &&
                      at::autocast::is_autocast_enabled(device);
  return shared ? parameter.to(at::autocast::get_autocast_dtype(device)) : parameter;
}

}  // namespace

std::vector<LstmWeights> lstm_weights(const torch::nn::LSTM& lstm) {
  const std::vector<at::Tensor> all = lstm->all_weights();
  std::vector<LstmWeights> weights;
  for (std::size_t i = 0; i < all.size(); i += 4) {
    weights.push_back({all[i], all[i + 1], all[i + 2], all[i + 3]});
  }
  return weights;
}

LstmState lstm_start(const torch::nn::LSTM& lstm, std::int64_t num_rows, const at::Tensor& x) {
  const at::Tensor zeros = at::zeros({num_rows, lstm->options.hidden_size()}, x.options());
  return {zeros, zeros};
}

LstmState lstm_step(const LstmWeights& weights, const at::Tensor& x, const LstmState& state) {
  const at::Tensor gates =
      mezzo::linear(x, cast_for_step(weights.input), cast_for_step(weights.input_bias)) +
      mezzo::linear(state.hidden, cast_for_step(weights.hidden),
                    cast_for_step(weights.hidden_bias));
  const std::vector<at::Tensor> parts = gates.chunk(4, 1);  // input, forget, candidate, output
  const at::Tensor cell = at::sigmoid(parts[1]) * state.cell.to(gates.scalar_type()) +
                          at::sigmoid(parts[0]) * at::tanh(parts[2]);
  return {at::sigmoid(parts[3]) * at::tanh(cell), cell};
}

at::Tensor gru_step(const torch::nn::GRUCell& cell, const at::Tensor& x, const at::Tensor& h) {
  // Of each: reset, update, candidate.
  const auto from_x = mezzo::linear(x, cell->weight_ih, cell->bias_ih).chunk(3, 1);
  const auto from_h = mezzo::linear(h, cell->weight_hh, cell->bias_hh).chunk(3, 1);
  const at::Tensor reset = at::sigmoid(from_x[0] + from_h[0]);
  const at::Tensor update = at::sigmoid(from_x[1] + from_h[1]);
  const at::Tensor candidate = at::tanh(from_x[2] + reset * from_h[2]);
  return candidate + update * (h.to(candidate.scalar_type()) - candidate);
}

}  // namespace mezzo::nn::detail
