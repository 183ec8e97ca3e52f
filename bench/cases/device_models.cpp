#include "bench/cases/device_models.h"

#include <functional>
#include <memory>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "mezzo/amp/captured_step.h"
#include "mezzo/amp/optim/fused_optimizer.h"
#include "mezzo/amp/scaler/grad_scaler.h"
#include "mezzo/nn/model/model.h"

#include "examples/cnn/network.h"

namespace mezzo::bench {
namespace {

constexpr double kSteps = 16;  // of Rounding: layers and their activations

/// A model in training: forward in its precision, backward, optimizer step.
class DeviceTraining {
 public:
  /// forward: the loss of `model`.
  DeviceTraining(std::shared_ptr<torch::nn::Module> model, amp::Precision precision,
                 std::function<at::Tensor()> forward)
      : model_(std::move(model)),
        precision_(precision),
        forward_(std::move(forward)),
        optimizer_(model_->parameters(), amp::FusedAdamOptions(1e-3)),
        scaler_({.device = gpu(), .enabled = precision == amp::Precision::kFloat16}) {}

  /// Returns the loss, [].
  at::Tensor step() {
    const amp::PrecisionScope scope(precision_, gpu());  // TF32 in backward too
    optimizer_.zero_grad();
    const at::Tensor loss = forward_();
    scaler_.scale(loss).backward();
    scaler_.step(optimizer_);
    scaler_.update();
    return loss.detach();
  }

 private:
  std::shared_ptr<torch::nn::Module> model_;
  amp::Precision precision_;
  std::function<at::Tensor()> forward_;
  amp::FusedAdam optimizer_;
  amp::GradScaler scaler_;
};

nn::Model model_on_device(const nn::ModelOptions& options) {
  at::manual_seed(0);
  nn::Model model(options);
  model->to(gpu());
  return model;
}

Candidate eager(const std::string& name, amp::Precision precision,
                const std::shared_ptr<DeviceTraining>& training) {
  return {.name = name, .is_mezzo = true, .precision = precision, .run = [training]() -> Tensors {
            return {training->step().reshape({1})};
          }};
}

std::shared_ptr<DeviceTraining> graph_training(nn::Model model, amp::Precision precision,
                                               const Topology& topology, const at::Tensor& x,
                                               const at::Tensor& labels) {
  const auto forward = [model, topology, x, labels]() mutable {
    return at::cross_entropy_loss(model(topology, x).to(at::kFloat), labels);
  };
  return std::make_shared<DeviceTraining>(model.ptr(), precision, forward);
}

at::Tensor random_labels(std::int64_t count, std::int64_t classes) {
  return at::randint(classes, {count}, at::TensorOptions(at::kLong).device(gpu()));
}

}  // namespace

Plan gat_step(const Topology& topology, std::int64_t heads, std::int64_t hidden,
              const std::vector<amp::Precision>& precisions) {
  constexpr std::int64_t kFeatures = 602, kClasses = 41;  // Reddit's
  const auto make = [=] {
    const at::Tensor x = at::randn({topology.num_src(), kFeatures}, gpu());
    const at::Tensor labels = random_labels(topology.num_dst(), kClasses);
    Comparison comparison;
    comparison.rounding.steps = kSteps;
    for (const amp::Precision precision : precisions) {
      const nn::ModelOptions options{.kind = nn::ModelKind::kGat,
                                     .in_features = kFeatures,
                                     .hidden_features = hidden,
                                     .out_features = kClasses,
                                     .num_layers = 3,
                                     .num_heads = heads,
                                     .dropout = 0,
                                     .allow_zero_in_degree = true};
      const auto model = model_on_device(options);
      comparison.candidates.push_back(eager(std::string(amp::to_string(precision)), precision,
                                            graph_training(model, precision, topology, x, labels)));
    }
    return comparison;
  };
  return {.work = fmt::format("three-layer gat step, {} heads of F, {} edges", heads,
                              topology.num_edges()),
          .width = hidden,
          .make = make};
}

Plan cora_step(const std::vector<amp::Precision>& precisions) {
  constexpr std::int64_t kNodes = 2708, kEdges = 10556, kFeatures = 1433, kClasses = 7;  // Cora's
  const auto make = [=] {
    const auto ends = [] { return random_labels(kEdges, kNodes); };
    const at::Tensor src = ends(), dst = ends();
    const Topology topology = Topology::from_coo(src, dst, kNodes, kNodes);
    const at::Tensor x = at::randn({kNodes, kFeatures}, gpu());
    const at::Tensor labels = random_labels(kNodes, kClasses);
    Comparison comparison;
    comparison.rounding.steps = kSteps;
    for (const amp::Precision precision : precisions) {
      for (const bool captured : {false, true}) {
        const nn::ModelOptions options{.in_features = kFeatures,
                                       .hidden_features = 16,
                                       .out_features = kClasses,
                                       .dropout = 0,
                                       .allow_zero_in_degree = true};
        const auto training =
            graph_training(model_on_device(options), precision, topology, x, labels);
        const std::string name =
            fmt::format("{} {}", amp::to_string(precision), captured ? "captured" : "eager");
        Candidate candidate = eager(name, precision, training);
        if (captured) {
          const auto step = std::make_shared<amp::CapturedStep>(
              [training] { return training->step(); }, amp::CapturedStepOptions{.device = gpu()});
          candidate.run = [step]() -> Tensors { return {step->replay().reshape({1})}; };
        }
        comparison.candidates.push_back(std::move(candidate));
      }
    }
    return comparison;
  };
  return {.work = "gcn step on a graph of Cora's size", .width = 16, .make = make};
}

Plan cnn_step(std::int64_t batch) {
  using amp::Precision;
  const auto make = [=] {
    const at::Tensor images = at::rand({batch, 1, 28, 28}, gpu());
    const at::Tensor labels = random_labels(batch, 10);
    Comparison comparison;
    comparison.rounding.steps = kSteps;
    for (const Precision precision :
         {Precision::kTensorFloat32, Precision::kBFloat16, Precision::kFloat16}) {
      for (const bool channels_last : {false, true}) {
        at::manual_seed(0);
        torch::nn::Sequential network = make_network(channels_last);
        network->to(gpu());
        const auto forward = [network, images, labels]() mutable {
          return at::cross_entropy_loss(network->forward(images).to(at::kFloat), labels);
        };
        const std::string name =
            fmt::format("{}{}", amp::to_string(precision), channels_last ? " channels-last" : "");
        comparison.candidates.push_back(eager(
            name, precision, std::make_shared<DeviceTraining>(network.ptr(), precision, forward)));
      }
    }
    return comparison;
  };
  return {.work = "training step of the cnn, F images", .width = batch, .make = make};
}

}  // namespace mezzo::bench
