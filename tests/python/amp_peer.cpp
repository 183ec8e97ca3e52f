#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/optim/sgd.h>

#include "mezzo/amp/autocast/autocast.h"
#include "mezzo/amp/scaler/grad_scaler.h"
#include "mezzo/core/error.h"

/// The C++ side of amp_test.py: the same loops as there, which print what Python compares.
namespace mezzo {
namespace {

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) mezzo::detail::raise<IoError>("cannot read {}", path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Continues from a state through iterations (c clean, i with inf); prints the scale after each
/// and writes the last state.
void play(const std::string& state_in, const std::string& iterations,
          const std::string& state_out) {
  amp::GradScaler scaler;
  scaler.load_state_dict(amp::scaler_state_from_json(contents(state_in)));
  const at::Tensor weight = at::ones({1}).requires_grad_();
  torch::optim::SGD optimizer({weight}, torch::optim::SGDOptions(1.0));
  for (const char letter : iterations) {
    const float slope = letter == 'i' ? std::numeric_limits<float>::infinity() : 1.0F;
    optimizer.zero_grad();
    scaler.scale((weight * slope).sum()).backward();
    scaler.step(optimizer);
    scaler.update();
    fmt::print("{}\n", scaler.get_scale());
  }
  std::ofstream(state_out) << amp::to_json(scaler.state_dict());
}

/// The tensors that Python's torch.save wrote as a dict.
class Tensors {
 public:
  explicit Tensors(const std::string& path) {
    const std::string bytes = contents(path);
    dict_ = torch::jit::pickle_load({bytes.begin(), bytes.end()}).toGenericDict();
  }
  at::Tensor at(const char* name) const { return dict_.at(name).toTensor(); }

 private:
  c10::impl::GenericDict dict_{c10::AnyType::get(), c10::AnyType::get()};
};

/// Trains a model of two layers in float16; prints step, loss, skipped and the scale after it.
void train(const std::string& path, int num_steps) {
  const Tensors tensors(path);
  const at::Tensor batches = tensors.at("batches"), targets = tensors.at("targets");
  std::vector<at::Tensor> weights;
  for (const char* name : {"weight_1", "bias_1", "weight_2", "bias_2"}) {
    weights.push_back(tensors.at(name).requires_grad_());
  }
  torch::optim::SGD optimizer(weights, torch::optim::SGDOptions(0.01).momentum(0.9));
  amp::GradScaler scaler(
      {.policy = amp::LossScalePolicy::dynamic({.initial_scale = 65536.0, .growth_interval = 20})});
  for (int step = 0; step < num_steps; ++step) {
    const std::int64_t batch = step % batches.size(0);
    optimizer.zero_grad();
    at::Tensor loss;
    {
      const amp::Autocast autocast(at::kCPU, at::kHalf);
      const at::Tensor hidden = at::relu(at::linear(batches[batch], weights[0], weights[1]));
      const at::Tensor output = at::linear(hidden, weights[2], weights[3]);
      loss = at::mse_loss(output, targets[batch]);
    }
    scaler.scale(loss).backward();
    const bool skipped = scaler.step(optimizer) == amp::StepOutcome::kSkipped;
    scaler.update();
    fmt::print("{} {} {} {}\n", step, loss.item<float>(), int{skipped}, scaler.get_scale());
  }
}

void run(const std::vector<std::string>& arguments) {
  const std::string mode = arguments.empty() ? "" : arguments[0];
  if (mode == "play" && arguments.size() == 4) {
    play(arguments[1], arguments[2], arguments[3]);
  } else if (mode == "train" && arguments.size() == 3) {
    train(arguments[1], std::stoi(arguments[2]));
  } else {
    mezzo::detail::raise<InvalidArgument>(
        "usage: amp_peer play STATE_IN ITERATIONS STATE_OUT | "
        "amp_peer train TENSORS STEPS");
  }
}

}  // namespace
}  // namespace mezzo

int main(int argc, char** argv) {
  try {
    mezzo::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << "amp_peer: " << error.what() << '\n';
    return 1;
  }
}
