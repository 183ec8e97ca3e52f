#include "bench/cases/device_models.h"

#include <functional>
#include <memory>
#include <utility>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "mezzo/amp/captured_step.h"
#include "mezzo/amp/optim/fused_optimizer.h"
#include "mezzo/amp/scaler/grad_scaler.h"
#include "mezzo/core/table.h"
#include "mezzo/nn/model/model.h"
#include "mezzo/runtime/memory.h"

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
    amp::PrecisionScope scope(precision_, gpu());
    optimizer_.zero_grad();
    const at::Tensor loss = forward_();
    scope.backward(scaler_.scale(loss));
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

/// Features and labels as Reddit's.
struct GatData {
  static constexpr std::int64_t kFeatures = 602, kClasses = 41;
  at::Tensor x, labels;

  explicit GatData(const Topology& topology)
      : x(at::randn({topology.num_src(), kFeatures}, gpu())),
        labels(random_labels(topology.num_dst(), kClasses)) {}
};

std::shared_ptr<DeviceTraining> gat_training(const Topology& topology, const GatData& data,
                                             std::int64_t heads, std::int64_t hidden,
                                             amp::Precision precision) {
  const nn::ModelOptions options{.kind = nn::ModelKind::kGat,
                                 .in_features = GatData::kFeatures,
                                 .hidden_features = hidden,
                                 .out_features = GatData::kClasses,
                                 .num_layers = 3,
                                 .num_heads = heads,
                                 .dropout = 0,
                                 .allow_zero_in_degree = true};
  return graph_training(model_on_device(options), precision, topology, data.x, data.labels);
}

/// Training on `images` in whole batches, in every precision and with both layouts of the
/// activations. Results: the mean loss.
Comparison cnn_comparison(const at::Tensor& images, const at::Tensor& labels, std::int64_t batch) {
  const std::int64_t num_batches = images.size(0) / batch;
  Comparison comparison;
  comparison.rounding.steps = kSteps;
  for (const amp::Precision precision : amp::kPrecisions) {
    if (is_dry_run() && precision != amp::Precision::kFloat32) continue;  // slow on a CPU
    for (const bool channels_last : {false, true}) {
      at::manual_seed(0);
      torch::nn::Sequential network = make_network(channels_last);
      network->to(gpu());
      const auto next = std::make_shared<std::int64_t>(0);
      const auto forward = [=]() mutable {
        const std::int64_t begin = (*next)++ % num_batches * batch;
        const at::Tensor logits = network->forward(images.narrow(0, begin, batch));
        return at::cross_entropy_loss(logits.to(at::kFloat), labels.narrow(0, begin, batch));
      };
      const auto training = std::make_shared<DeviceTraining>(network.ptr(), precision, forward);
      const auto run = [training, num_batches]() -> Tensors {
        Tensors losses;
        for (std::int64_t i = 0; i < num_batches; ++i) losses.push_back(training->step());
        return {at::stack(losses).mean().reshape({1})};
      };
      comparison.candidates.push_back({.name = fmt::format("{}{}", amp::to_string(precision),
                                                           channels_last ? " channels-last" : ""),
                                       .is_mezzo = true,
                                       .precision = precision,
                                       .run = run});
    }
  }
  return comparison;
}

}  // namespace

Plan gat_step(const Topology& topology, std::int64_t heads, std::int64_t hidden,
              const std::vector<amp::Precision>& precisions) {
  const auto make = [=] {
    const GatData data(topology);
    Comparison comparison;
    comparison.rounding.steps = kSteps;
    for (const amp::Precision precision : precisions) {
      comparison.candidates.push_back(
          eager(std::string(amp::to_string(precision)), precision,
                gat_training(topology, data, heads, hidden, precision)));
    }
    return comparison;
  };
  return {.work = fmt::format("three-layer gat step, {} heads of F, {} edges", heads,
                              topology.num_edges()),
          .width = hidden,
          .make = make};
}

std::string gat_losses(const Topology& topology, std::int64_t heads, std::int64_t hidden,
                       std::int64_t num_steps, const std::vector<amp::Precision>& precisions) {
  at::manual_seed(0);
  const GatData data(topology);
  std::vector<std::vector<std::string>> rows = {{"step"}};
  for (std::int64_t step = 1; step <= num_steps; ++step) rows.push_back({std::to_string(step)});
  for (const amp::Precision precision : precisions) {
    const auto training = gat_training(topology, data, heads, hidden, precision);
    rows.front().emplace_back(amp::to_string(precision));
    for (std::size_t step = 1; step < rows.size(); ++step) {
      rows[step].push_back(fmt::format("{:.5f}", training->step().item<double>()));
    }
  }
  return fmt::format("losses of the three-layer gat, {} heads of {}\n", heads, hidden) +
         format_table(rows);
}

std::string largest_gat(const Topology& topology, std::int64_t hidden, std::int64_t most,
                        const std::vector<amp::Precision>& precisions) {
  const GatData data(topology);
  std::vector<std::vector<std::string>> rows = {{"precision", "fits", "does not fit", "peak"}};
  for (const amp::Precision precision : precisions) {
    std::vector<std::string> row = {std::string(amp::to_string(precision)), "-", "-", "-"};
    for (std::int64_t heads = 2; heads <= most && row[2] == "-"; heads *= 2) {
      const std::string size = fmt::format("{} x {}", heads, hidden);
      try {
        reset_peak_memory(gpu());
        gat_training(topology, data, heads, hidden, precision)->step().item<double>();
        row[1] = size;
        row[3] = format_bytes(peak_memory_bytes(gpu()));
      } catch (const c10::OutOfMemoryError&) {
        row[2] = size;
      }
    }
    rows.push_back(row);
  }
  return "hidden layers of the three-layer gat that fit in memory\n" + format_table(rows);
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
        if (captured && is_dry_run()) continue;
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
  const auto make = [=] {
    const at::Tensor images = at::rand({batch, 1, 28, 28}, gpu());
    return cnn_comparison(images, random_labels(batch, 10), batch);
  };
  return {.work = "training step of the cnn, F images", .width = batch, .make = make};
}

Plan cnn_epoch(std::int64_t batch, std::int64_t num_images) {
  const auto make = [=] {
    constexpr double kAnyError = 1e9;  // at most 0.1: losses of later steps drift apart
    const at::Tensor images = at::rand({num_images, 1, 28, 28}, gpu());
    Comparison comparison = cnn_comparison(images, random_labels(num_images, 10), batch);
    comparison.rounding.steps = kAnyError;
    return comparison;
  };
  return {.work = fmt::format("epoch of the cnn on {} images, batches of F", num_images),
          .width = batch,
          .make = make};
}

}  // namespace mezzo::bench
