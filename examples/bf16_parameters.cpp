// Trains a model with bfloat16 parameters in three ways: plainly, with float32 master weights, and
// with stochastic rounding. Prints for each the loss, and the bytes of parameters and masters
// between two steps.
#include <iostream>
#include <string>
#include <vector>

#include <mezzo/mezzo.h>

namespace amp = mezzo::amp;

static torch::nn::Sequential make_model(torch::Device device) {
  torch::manual_seed(0);
  torch::nn::Sequential model(torch::nn::Linear(16, 64), torch::nn::ReLU(),
                              torch::nn::Linear(64, 1));
  model->to(device, torch::kBFloat16);
  return model;
}

static size_t bytes_of(const std::vector<torch::Tensor>& tensors) {
  size_t bytes = 0;
  for (const torch::Tensor& tensor : tensors) bytes += tensor.nbytes();
  return bytes;
}

int main() {
  const torch::Device device = mezzo::default_device();
  torch::manual_seed(1);
  const torch::Tensor x = torch::randn({512, 16}, device).to(torch::kBFloat16);
  const torch::Tensor y = x.to(torch::kFloat).sum(1, true);
  const auto loss_of = [&](torch::nn::Sequential& model) {
    return torch::mse_loss(model->forward(x).to(torch::kFloat), y);
  };
  const auto print = [&](const std::string& way, torch::nn::Sequential& model, size_t copies) {
    std::cout << way << ' ' << loss_of(model).item<float>() << ' '
              << bytes_of(model->parameters()) + copies << '\n';
  };
  // At this rate most updates are smaller than half the gap between two bfloat16 numbers.
  const double rate = 1e-4;
  const int steps = 2000;

  torch::nn::Sequential plain = make_model(device);
  torch::optim::Adam plain_adam(plain->parameters(), rate);
  for (int step = 0; step < steps; ++step) {
    plain_adam.zero_grad();
    loss_of(plain).backward();
    plain_adam.step();
  }
  print("plain", plain, 0);

  torch::nn::Sequential model = make_model(device);  // bfloat16 parameters
  torch::optim::Adam adam(model->parameters(), rate);
  amp::MixedPrecisionOptimizer optimizer = amp::enable_mixed_precision(adam, {.device = device});
  for (int step = 0; step < steps; ++step) {
    optimizer.minimize([&] { return loss_of(model); });
  }
  print("master_weights", model, bytes_of(optimizer.master_weights().masters()));

  torch::nn::Sequential rounded = make_model(device);
  torch::optim::Adam rounded_adam(rounded->parameters(), rate);
  amp::MixedPrecisionOptimizer rounding = amp::enable_mixed_precision(
      rounded_adam, {.device = device, .rounding = amp::ParameterRounding::kStochastic});
  for (int step = 0; step < steps; ++step) {
    rounding.minimize([&] { return loss_of(rounded); });
  }
  print("stochastic_rounding", rounded, 0);
}
