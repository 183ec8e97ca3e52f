#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/rnn.h>

/// Steps of libtorch's recurrent modules, computed by mezzo::linear to support all dtypes, autocast
/// and the fast 16-bit products. The modules hold the parameters. Internal to nn; not exported.
namespace mezzo::nn::detail {

/// The parameters of one layer and direction of an LSTM.
struct LstmWeights {
  at::Tensor input, hidden;            ///< [4 hidden, width of x], [4 hidden, hidden]
  at::Tensor input_bias, hidden_bias;  ///< [4 hidden]
};

/// Both: [N, hidden].
struct LstmState {
  at::Tensor hidden, cell;
};

/// The weights of every layer; within a layer, forward then backward. The LSTM must have biases.
std::vector<LstmWeights> lstm_weights(const torch::nn::LSTM& lstm);

/// Zeros for `num_rows` rows, in the dtype and on the device of x.
LstmState lstm_start(const torch::nn::LSTM& lstm, std::int64_t num_rows, const at::Tensor& x);

/// The state after x: [N, width]. Has the dtype of mezzo::linear(x, ...). Under autocast the
/// gradients of float32 parameters are summed over the steps in float32; each step does its own
/// cast.
LstmState lstm_step(const LstmWeights& weights, const at::Tensor& x, const LstmState& state);

/// The new h: [N, hidden], of the dtype of mezzo::linear(x, ...). x: [N, width].
at::Tensor gru_step(const torch::nn::GRUCell& cell, const at::Tensor& x, const at::Tensor& h);

}  // namespace mezzo::nn::detail
