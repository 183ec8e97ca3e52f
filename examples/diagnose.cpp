// Finds out by amp::diagnose why a model fails in float16, whose range its inputs exceed. Prints
// the report, then the loss of a training with the recommended setting.
#include <iostream>
#include <memory>
#include <vector>

#include <mezzo/mezzo.h>

namespace amp = mezzo::amp;
using torch::Tensor;

struct Batch {
  Tensor x, y;
};

struct NetImpl : torch::nn::Module {
  Tensor forward(const Tensor& x) { return head(norm(encoder(x)).relu()); }

  torch::nn::Linear encoder = register_module("encoder", torch::nn::Linear(16, 32));
  torch::nn::LayerNorm norm =
      register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({32})));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(32, 1));
};
TORCH_MODULE(Net);

static std::vector<Batch> make_batches() {
  std::vector<Batch> batches;
  for (int i = 0; i < 4; ++i) {
    const Tensor x = torch::randn({64, 16});
    batches.push_back({x * 1e5, x.select(1, 0).unsqueeze(1).sin()});  // float16 ends at 65504
  }
  return batches;
}

int main() {
  torch::manual_seed(0);
  const std::vector<Batch> batches = make_batches();
  Net model;
  // [diagnose]
  const auto make_adam = [](std::vector<Tensor> parameters) {
    return std::make_unique<torch::optim::Adam>(std::move(parameters), 1e-2);
  };
  const auto loss_of_step = [&](int64_t step) {  // diagnose() does the rest of the step
    const Batch& batch = batches[static_cast<size_t>(step) % batches.size()];
    return torch::mse_loss(model->forward(batch.x), batch.y);
  };
  const amp::Diagnosis diagnosis =
      amp::diagnose(loss_of_step, model, {.make_optimizer = make_adam});
  std::cout << amp::to_text(diagnosis);

  const amp::PrecisionSetting& setting = diagnosis.setting();  // train with it
  const auto adam = make_adam(model->parameters());
  amp::MixedPrecisionOptimizer optimizer = amp::enable_mixed_precision(
      *adam, {.precision = setting.precision, .policy = setting.loss_scale});
  const amp::KeepFloat32 kept = amp::keep_float32(model, setting.keep_float32);
  // [diagnose end]
  Tensor loss;
  for (int64_t step = 0; step < 40; ++step) {
    loss = optimizer.minimize([&] { return loss_of_step(step); });
  }
  std::cout << "loss " << loss.item<double>() << '\n';
}
