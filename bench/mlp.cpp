// Training steps of a multi-layer perceptron: what 16 bits gain at large widths and, at a width of
// a few units, what autocast and the scaler cost, in microseconds per step.
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>

#include "mezzo/amp/scaler/grad_scaler.h"
#include "mezzo/core/table.h"
#include "mezzo/train/steps/step.h"

#include "bench/harness/program.h"

namespace {

using namespace mezzo::bench;
namespace amp = mezzo::amp;

constexpr std::int64_t kBatch = 512, kInputs = 64, kClasses = 10;

/// Three linear layers with a ReLU between them.
torch::nn::Sequential seeded_network(std::int64_t width) {
  at::manual_seed(0);
  using torch::nn::Linear, torch::nn::ReLU;
  return torch::nn::Sequential(Linear(kInputs, width), ReLU(), Linear(width, width), ReLU(),
                               Linear(width, kClasses));
}

/// A model in training; each call takes one step.
class Training {
 public:
  /// precision: none is libtorch alone, without a scope or a scaler.
  Training(std::optional<amp::Precision> precision, bool scaled, std::int64_t width,
           at::Tensor rows, at::Tensor labels)
      : precision_(precision),
        rows_(std::move(rows)),
        labels_(std::move(labels)),
        network_(seeded_network(width)),
        optimizer_(network_->parameters(), torch::optim::AdamOptions(1e-4)),
        scaler_({.device = at::kCPU, .enabled = scaled}) {}

  /// Returns the loss, [1].
  at::Tensor step() {
    const auto forward = [this] {
      return at::cross_entropy_loss(network_->forward(rows_).to(at::kFloat), labels_);
    };
    at::Tensor loss;
    if (precision_) {
      loss = mezzo::scaled_backward(*precision_, at::kCPU, scaler_, forward);
      scaler_.step(optimizer_);
      scaler_.update();
    } else {
      loss = forward();
      loss.backward();
      optimizer_.step();
    }
    optimizer_.zero_grad();
    return loss.detach().reshape({1});
  }

 private:
  std::optional<amp::Precision> precision_;
  at::Tensor rows_, labels_;
  torch::nn::Sequential network_;
  torch::optim::Adam optimizer_;
  amp::GradScaler scaler_;
};

struct Variant {
  std::string name;
  std::optional<amp::Precision> precision;
  bool scaled = false;
};

Plan training_step(const std::vector<amp::Precision>& precisions, std::int64_t width) {
  std::vector<Variant> all = {{"libtorch fp32", std::nullopt},
                              {"fp32 and scaler", amp::Precision::kFloat32, true}};
  for (const amp::Precision precision : precisions) {
    const bool scaled = precision == amp::Precision::kFloat16;
    all.push_back({std::string(amp::to_string(precision)), precision, scaled});
  }
  const std::int64_t parameters = width * (width + kInputs + kClasses);
  const std::int64_t bytes = 4 * (4 * parameters + 4 * kBatch * width);  // with Adam's moments
  const auto make = [=] {
    const at::Tensor rows = at::randn({kBatch, kInputs});
    const at::Tensor labels = at::randint(kClasses, {kBatch}, at::kLong);
    Comparison comparison;
    comparison.rounding.steps = 16;  // of products and activations, forward and backward
    for (const Variant& one : all) {
      const auto training =
          std::make_shared<Training>(one.precision, one.scaled, width, rows, labels);
      comparison.candidates.push_back(
          {.name = one.name,
           .is_mezzo = one.precision.has_value(),
           .precision = one.precision.value_or(amp::Precision::kFloat32),
           .run = [training]() -> Tensors { return {training->step()}; },
           .cost = {.run_bytes = bytes}});
    }
    return comparison;
  };
  return {.work = "training step of an mlp, F units",
          .width = width,
          .bytes = static_cast<std::int64_t>(all.size()) * bytes,
          .make = make};
}

void print_overheads(const Outcome& outcome) {
  const Measurement& libtorch = outcome.measurements.front();
  std::vector<std::vector<std::string>> rows = {
      {"candidate", "us a step", "more than libtorch, us", "rows/s"}};
  for (const Measurement& measured : outcome.measurements) {
    if (!measured.skipped.empty()) continue;
    const double us = measured.minimum() * 1e3;
    rows.push_back({measured.name, fmt::format("{:.1f}", us),
                    fmt::format("{:.1f}", us - libtorch.minimum() * 1e3),
                    fmt::format("{:.0f}", static_cast<double>(kBatch) / us * 1e6)});
  }
  std::cout << fmt::format("{} units, batches of {}, by the minima\n", outcome.width, kBatch)
            << mezzo::format_table(rows) << std::endl;
}

void run(Bench& bench) {
  bench.begin();
  for (const std::int64_t width : bench.arguments.widths) {
    const std::int64_t repeats = width < 256 ? 200 : 5;
    const Outcome* outcome = bench.measure(training_step(bench.arguments.precisions, width),
                                           {.repeats = repeats, .warm_ups = 10});
    if (outcome != nullptr) print_overheads(*outcome);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_program({.name = "mlp",
                      .description = "Training steps of an MLP: gain and overhead of a precision",
                      .widths = {8, 256, 1024, 4096},
                      .width_help = "Units of the hidden layers",
                      .run = run},
                     argc, argv);
}
