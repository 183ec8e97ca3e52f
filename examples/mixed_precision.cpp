// The blocks of docs/mixed-precision.md: trains one small model in every way of that page. Prints
// diagnostics and finally the loss.
#include <algorithm>
#include <iostream>
#include <thread>
#include <vector>

#include <mezzo/mezzo.h>

namespace amp = mezzo::amp;
using torch::Tensor;
using Model = torch::nn::Sequential;

struct Batch {
  Tensor x, y;
};

static Tensor loss_of(Model& model, const Batch& batch) {
  const amp::PrecisionScope scope(amp::Precision::kFloat16, batch.x.device());
  return torch::mse_loss(model->forward(batch.x), batch.y);
}

static void by_hand(Model& model, const std::vector<Batch>& batches, torch::Device device) {
  // [recipe]
  const amp::Precision precision = amp::Precision::kFloat16;
  torch::optim::Adam optimizer(model->parameters(), 1e-2);
  amp::GradScaler scaler(precision, device);  // enabled for kFloat16 alone
  for (const Batch& batch : batches) {
    optimizer.zero_grad();
    amp::PrecisionScope scope(precision, device);
    const Tensor loss = torch::mse_loss(model->forward(batch.x), batch.y);
    scope.backward(scaler.scale(loss));
    scaler.step(optimizer);  // leaves the step out if a gradient is inf or nan
    scaler.update();
  }
  // [recipe end]

  // [accumulation]
  const int64_t micro_batches = 4;
  int64_t done = 0;
  optimizer.zero_grad();
  for (const Batch& batch : batches) {
    scaler.scale(loss_of(model, batch) / micro_batches).backward();
    if (++done % micro_batches != 0) continue;
    scaler.unscale_(optimizer);  // clipping has to see the true gradients
    torch::nn::utils::clip_grad_norm_(model->parameters(), 1.0);
    scaler.step(optimizer);
    scaler.update();
    optimizer.zero_grad();
  }
  // [accumulation end]
}

static void several(Model& model, const Batch& batch, amp::GradScaler& scaler) {
  torch::optim::SGD first(model->ptr(0)->parameters(), 1e-2);
  torch::optim::Adam last(model->ptr(2)->parameters(), 1e-2);
  const Tensor loss = loss_of(model, batch), penalty = 1e-3 * loss_of(model, {batch.x, -batch.y});
  scaler.scale(loss).backward();
  scaler.scale(penalty).backward();
  scaler.step(first);  // each optimizer is skipped, or not, by its own gradients
  scaler.step(last);
  scaler.update();  // once
}

struct Cautious : amp::LossScaleRule {
  std::string_view name() const override { return "cautious"; }
  double initial_scale() const override { return 1024.0; }
  double next(double scale, bool overflowed) override {
    return overflowed ? scale / 4 : std::min(scale * 1.001, 0x1p20);
  }
};

static std::vector<amp::LossScalePolicy> policies(Model& model, const Batch& batch) {
  model->zero_grad();
  torch::mse_loss(model->forward(batch.x), batch.y).backward();  // float32, unscaled
  return {amp::LossScalePolicy::constant(1024.0),
          amp::LossScalePolicy::from_max_gradient(model->parameters(), {.headroom = 16.0}),
          amp::LossScalePolicy::dynamic(),  // PyTorch's
          amp::LossScalePolicy::dynamic(
              {.hysteresis = 2, .floor = 1.0, .at_floor = amp::FloorAction::kThrow}),
          amp::LossScalePolicy::custom(Cautious())};
}

static Tensor watched(Model& model, const std::vector<Batch>& batches, torch::Device device) {
  // [wrapper]
  torch::optim::Adam adam(model->parameters(), 1e-2);
  amp::MixedPrecisionOptimizer optimizer = amp::enable_mixed_precision(
      adam, {.precision = amp::Precision::kFloat16, .device = device, .max_gradient_norm = 1.0});
  Tensor loss;
  for (const Batch& batch : batches) {
    loss = optimizer.minimize([&] { return torch::mse_loss(model->forward(batch.x), batch.y); });
  }
  // [wrapper end]

  amp::Watch watch = amp::watch(model);
  for (const Batch& batch : batches) {
    optimizer.minimize([&] { return torch::mse_loss(model->forward(batch.x), batch.y); });
    watch.next_step();
  }
  const amp::WatchReport report = watch.report();
  if (const auto left = report.first_exit()) {
    std::cout << left->op << " of " << left->place.name() << " left the range of " << left->dtype
              << " in step " << left->step << '\n';
  }
  return loss;
}

static void gradients(Model& model, const Batch& batch) {
  model->zero_grad();
  torch::mse_loss(model->forward(batch.x), batch.y).backward();  // float32, unscaled
  const amp::GradientReport report = amp::gradient_report(*model);
  for (const amp::GradientRow& row : report.rows) {
    std::cout << row.name << ' ' << row.numbers.smallest_nonzero << " to " << row.numbers.largest
              << '\n';
  }
  if (report.all.half) std::cout << "loss scale " << report.all.half->loss_scale << '\n';
}

static void fused(Model& model, const std::vector<Batch>& batches, torch::Device device) {
  amp::FusedAdamW optimizer(model->parameters(), amp::FusedAdamWOptions(1e-2).weight_decay(0.01));
  amp::GradScaler scaler({.device = device});
  for (const Batch& batch : batches) {
    optimizer.zero_grad();
    scaler.scale(loss_of(model, batch)).backward();
    scaler.step(optimizer);  // kDeferred: nobody waits for the device
    scaler.update();
  }
  std::cout << scaler.skipped_steps() << " skipped\n";  // synchronises
}

static void threads(Model& model, const Batch& batch, torch::Device device) {
  const amp::PrecisionScope scope(amp::Precision::kBFloat16, device);
  const amp::AutocastState state;  // of this thread, here
  Tensor other;
  std::thread worker(state.wrap([&] { other = model->forward(batch.y.expand_as(batch.x)); }));
  const Tensor own = model->forward(batch.x);
  worker.join();
  std::cout << own.dtype() << ' ' << other.dtype() << '\n';
}

int main() {
  const torch::Device device = mezzo::default_device();
  torch::manual_seed(0);
  Model model(torch::nn::Linear(8, 32), torch::nn::ReLU(), torch::nn::Linear(32, 1));
  model->to(device);
  std::vector<Batch> batches;
  for (int i = 0; i < 64; ++i) {
    const Tensor x = torch::randn({32, 8}, device);
    batches.push_back({x, x.sum(1, true)});
  }
  by_hand(model, batches, device);
  amp::GradScaler scaler({.device = device});
  several(model, batches.front(), scaler);
  for (const amp::LossScalePolicy& policy : policies(model, batches.front())) {
    std::cout << policy.name() << ' ' << amp::GradScaler({.policy = policy}).get_scale() << '\n';
  }
  const Tensor loss = watched(model, batches, device);
  gradients(model, batches.front());
  fused(model, batches, device);
  threads(model, batches.front(), device);
  std::cout << "final loss " << loss.item<double>() << '\n';
}
