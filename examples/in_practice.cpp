// Keeps in float32 or float64 what needs it: long sums, a solver, an output with an offset, a
// moving average of the weights. Then checks whether a model trained in bf16 fits fp16.
#include <iostream>
#include <vector>

#include <mezzo/mezzo.h>

namespace amp = mezzo::amp;
using torch::Tensor;

struct Regression {
  torch::nn::Sequential body{torch::nn::Linear(16, 32), torch::nn::ReLU()};
  torch::nn::Linear head{32, 1};
};

static Tensor loss_of(Regression& model, const Tensor& features, const Tensor& y,
                      const Tensor& group, torch::Device device) {
  const amp::PrecisionScope scope(amp::Precision::kBFloat16, device);
  const Tensor x = torch::constant_pad_nd(features, {0, 6});  // 10 features become 16
  const Tensor h = model.body->forward(x);                    // bfloat16
  Tensor sums = torch::zeros({2, h.size(1)}, device);         // float32, for a long sum
  sums = sums.index_add(0, group, h.to(torch::kFloat));       // without to(): an error, two dtypes
  const amp::Autocast off(device.type(), amp::kDisabled);     // from here nothing is cast
  const Tensor rows = h.to(torch::kDouble), eye = torch::eye(h.size(1), rows.options());
  const Tensor solved = torch::linalg_solve(rows.t().mm(rows) + eye, sums.t().to(torch::kDouble));
  const Tensor out = model.head->forward(h.to(torch::kFloat));  // not rounded to 8 digits
  const Tensor loss = torch::mse_loss(out, (y - y.mean()) / y.std());
  return loss + 1e-6 * solved.mean().to(torch::kFloat);  // so that its backward runs too
}

// In float32, also of 16-bit parameters: a thousandth of a difference is below their digits.
static void update_average(std::vector<Tensor>& average, const std::vector<Tensor>& parameters) {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < average.size(); ++i) {
    average[i].lerp_(parameters[i].to(torch::kFloat), 1e-3);
  }
}

static void check_fp16(torch::nn::Sequential& model, const Tensor& x, torch::Device device) {
  const amp::Watch watch = amp::watch(model);
  const torch::NoGradGuard no_grad;
  const amp::PrecisionScope scope(amp::Precision::kFloat16, device);
  model->forward(x);
  const auto left = watch.report().first_exit();
  std::cout << (left ? left->op + " left the range: float32 for its layer" : "fp16 fits") << '\n';
}

int main() {
  const torch::Device device = mezzo::default_device();
  torch::manual_seed(0);
  Regression model;
  model.body->to(device);
  model.head->to(device);
  const Tensor features = torch::randn({256, 10}, device);
  const Tensor y = 1000 + features.sum(1, true), group = torch::arange(256, device) % 2;
  std::vector<Tensor> parameters = model.body->parameters(), average;
  for (const Tensor& parameter : model.head->parameters()) parameters.push_back(parameter);
  for (const Tensor& parameter : parameters) average.push_back(parameter.detach().clone());

  torch::optim::Adam optimizer(parameters, 1e-2);
  for (int step = 0; step < 100; ++step) {
    optimizer.zero_grad();
    const Tensor loss = loss_of(model, features, y, group, device);
    loss.backward();
    optimizer.step();
    update_average(average, parameters);
    if (step % 33 == 0) std::cout << "loss " << loss.item<double>() << '\n';
  }
  check_fp16(model.body, torch::constant_pad_nd(features, {0, 6}), device);
  const Tensor signs = model.body->parameters()[0].detach().slice(0, 0, 4).sign();
  check_fp16(model.body, 60000 * signs, device);
}
