// Steps of fused optimizers compared with libtorch's, for a model of 50 float32 tensors: small
// ones, bound by call overhead, and millions of parameters, bound by memory.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "mezzo/amp/optim/fused_optimizer.h"

#include "bench/harness/program.h"

namespace {

using namespace mezzo::bench;
namespace amp = mezzo::amp;

constexpr std::int64_t kLayers = 25;
constexpr double kRate = 1e-3;

std::int64_t numbers(std::int64_t width) {
  return kLayers * (width * width + width);
}

/// Weights and biases with gradients, deterministic for each width.
Tensors make_parameters(std::int64_t width) {
  at::manual_seed(0);
  Tensors parameters;
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    parameters.push_back(at::randn({width, width}).requires_grad_());
    parameters.push_back(at::randn({width}).requires_grad_());
  }
  for (at::Tensor& parameter : parameters) {
    parameter.mutable_grad() = at::randn(parameter.sizes());
  }
  return parameters;
}

/// moments: numbers per parameter. A step reads the gradient, and reads and writes the rest.
template <class Optimizer, class Options>
Candidate candidate(const std::string& name, bool is_mezzo, std::int64_t width,
                    const Options& options, std::int64_t moments) {
  const Tensors parameters = make_parameters(width);
  const auto optimizer = std::make_shared<Optimizer>(parameters, options);
  const std::int64_t bytes = numbers(width) * static_cast<std::int64_t>(sizeof(float));
  return {.name = name,
          .is_mezzo = is_mezzo,
          .run =
              [parameters, optimizer] {
                optimizer->step();
                return parameters;
              },
          .cost = {.run_bytes = bytes * moments, .moved_bytes = bytes * (3 + 2 * moments)}};
}

template <class Fused, class Torch, class Options>
Plan step_of(const std::string& name, std::int64_t width, const Options& options,
             std::int64_t moments) {
  const std::int64_t copies = 2;  // of parameters and gradients
  return {.work = fmt::format("{}, {} parameters", name, numbers(width)),
          .width = width,
          .bytes = copies * 2 * numbers(width) * static_cast<std::int64_t>(sizeof(float)),
          .make = [=] {
            Comparison comparison;
            comparison.candidates = {
                candidate<Torch>("libtorch", false, width, options, moments),
                candidate<Fused, Options>("fused", true, width, options, moments)};
            return comparison;
          }};
}

void run(Bench& bench) {
  using namespace torch::optim;
  bench.begin();
  for (const std::int64_t width : bench.arguments.widths) {
    bench.run(step_of<amp::FusedAdam, Adam>("Adam", width, AdamOptions(kRate), 2));
    bench.run(step_of<amp::FusedAdamW, AdamW>("AdamW", width, AdamWOptions(kRate), 2));
    bench.run(step_of<amp::FusedSGD, SGD>("SGD with momentum", width,
                                          SGDOptions(kRate).momentum(0.9), 1));
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_program({.name = "optimizer",
                      .description = "Steps of fused optimizers beside libtorch's",
                      .widths = {16, 400},
                      .width_help = "The model's 25 layers have N x N weights",
                      .run = run},
                     argc, argv);
}
