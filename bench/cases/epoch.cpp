#include "bench/cases/epoch.h"

#include <memory>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/optim/adam.h>

#include "mezzo/amp/scaler/grad_scaler.h"
#include "mezzo/graph/transforms/transforms.h"
#include "mezzo/train/options/options.h"
#include "mezzo/train/problem.h"
#include "mezzo/train/steps/loss.h"
#include "mezzo/train/steps/step.h"

#include "bench/harness/operator_case.h"
#include "bench/harness/stages.h"

namespace mezzo::bench {
namespace {

nn::ModelOptions model_options(const Problem& problem, const EpochOptions& options) {
  constexpr std::int64_t kHeads = 4;
  nn::ModelOptions model{.kind = options.model,
                         .in_features = problem.features.size(1),
                         .hidden_features = options.hidden,
                         .out_features = problem.num_classes,
                         .num_layers = 2,
                         .dropout = options.dropout};
  if (options.model == nn::ModelKind::kGat) {
    model.num_heads = options.hidden % kHeads == 0 ? kHeads : 1;
    model.hidden_features = options.hidden / model.num_heads;
  }
  return model;
}

TrainOptions train_options(const EpochOptions& options, amp::Precision precision) {
  TrainOptions train;
  train.model = options.model;
  train.split_index = options.split_index;
  train.precision = precision;
  return train;
}

/// A model in training; each call takes one step.
class Training {
 public:
  Training(std::shared_ptr<const Problem> problem, const EpochOptions& options,
           amp::Precision precision, std::shared_ptr<Stages> stages)
      : problem_(std::move(problem)),
        precision_(precision),
        stages_(std::move(stages)),
        features_(cast_once(problem_->features, train_options(options, precision))),
        model_(seeded_model(*problem_, options)),
        optimizer_(model_->parameters(), torch::optim::AdamOptions(0.01).weight_decay(5e-4)),
        scaler_({.device = at::kCPU, .enabled = precision == amp::Precision::kFloat16}),
        rows_(problem_->masks.train.nonzero().squeeze(1)),
        labels_(problem_->labels.index_select(0, rows_)) {}

  /// Returns the loss, [1].
  at::Tensor step() {
    at::manual_seed(static_cast<std::uint64_t>(++steps_));  // the same dropout in every precision
    LapClock clock;
    const at::Tensor loss = scaled_backward(precision_, at::kCPU, scaler_, [&] {
      const at::Tensor logits = forward(clock);
      at::Tensor value = loss_of(logits.index_select(0, rows_), labels_);
      note(*stages_, "loss", clock.lap());
      return value;
    });
    note(*stages_, "backward", clock.lap());
    scaler_.step(optimizer_);
    scaler_.update();
    optimizer_.zero_grad();
    note(*stages_, "optimizer", clock.lap());
    return loss.reshape({1});
  }

 private:
  static nn::Model seeded_model(const Problem& problem, const EpochOptions& options) {
    at::manual_seed(0);
    return nn::Model(model_options(problem, options));
  }

  at::Tensor forward(LapClock& clock) {
    const OperationRecorder recorder(problem_->features.layout() == at::kSparseCsr);
    const at::Tensor logits = model_->forward(problem_->topology, features_);
    const OperationTimes& times = recorder.times();
    note(*stages_, "first product", times.first_product);
    note(*stages_, "products", times.products);
    note(*stages_, "aggregation", times.aggregation);
    note(*stages_, "attention", times.attention);
    note(*stages_, "other forward", clock.lap() - times.sum());
    return logits;
  }

  std::shared_ptr<const Problem> problem_;
  amp::Precision precision_;
  std::shared_ptr<Stages> stages_;
  at::Tensor features_;
  nn::Model model_;
  torch::optim::Adam optimizer_;
  amp::GradScaler scaler_;
  at::Tensor rows_, labels_;
  std::int64_t steps_ = 0;
};

/// Bytes of the features during a run.
std::int64_t feature_bytes(const at::Tensor& features) {
  constexpr std::int64_t kEntryBytes = 12;
  if (!features.defined()) return 0;
  return worth_sparse(features) ? features._nnz() * kEntryBytes : features.numel() * kFloatBytes;
}

Comparison make_epoch(const Dataset& dataset, const EpochOptions& options) {
  const auto problem = std::make_shared<const Problem>(
      make_problem(dataset, train_options(options, amp::Precision::kFloat32)));
  problem->topology.csr();
  problem->topology.csc();
  // Dropout's copy of the features; a dozen tensors of the hidden width; scores of the edges.
  const std::int64_t run_bytes = feature_bytes(problem->features) +
                                 12 * dataset.num_nodes * options.hidden * kFloatBytes +
                                 16 * problem->topology.num_edges() * kFloatBytes;
  Comparison comparison;
  comparison.rounding.steps = 16;  // of two layers: products, sums, activations
  for (const amp::Precision precision : options.precisions) {
    const auto stages = std::make_shared<Stages>();
    const auto training = std::make_shared<Training>(problem, options, precision, stages);
    comparison.candidates.push_back({.name = "mezzo " + std::string(amp::to_string(precision)),
                                     .is_mezzo = true,
                                     .precision = precision,
                                     .run = [training]() -> Tensors { return {training->step()}; },
                                     .cost = {.run_bytes = run_bytes},
                                     .stages = stages});
  }
  return comparison;
}

}  // namespace

Plan training_epoch(const Dataset& dataset, const EpochOptions& options) {
  const std::string model(name_of(nn::ModelKinds{}, options.model));
  const std::int64_t structure = 8 * dataset.num_edges() * static_cast<std::int64_t>(sizeof(int));
  return {.work = fmt::format("{} epoch, {}", model, dataset.name),
          .width = options.hidden,
          .bytes = 2 * feature_bytes(dataset.features) + structure,
          .make = [&dataset, options] { return make_epoch(dataset, options); }};
}

Dataset random_dataset(int scale, std::int64_t num_edges, std::int64_t num_features,
                       std::int64_t num_classes) {
  const Graph graph = rmat_graph(scale, num_edges);
  const std::int64_t nodes = graph.num_nodes();
  at::manual_seed(0);
  Dataset dataset;
  dataset.name = fmt::format("rmat{}", scale);
  dataset.num_nodes = nodes;
  dataset.num_classes = num_classes;
  dataset.src = graph.topology().src().to(at::kLong);
  dataset.dst = graph.topology().dst().to(at::kLong);
  dataset.features = at::randn({nodes, num_features});
  dataset.labels = at::randint(num_classes, {nodes}, at::kLong);
  const auto only = [nodes](std::int64_t begin, std::int64_t end) {
    at::Tensor mask = at::zeros({nodes, 1}, at::kBool);
    mask.slice(0, begin, end).fill_(true);
    return mask;
  };
  dataset.train_masks = only(0, nodes - 2);
  dataset.val_masks = only(nodes - 2, nodes - 1);
  dataset.test_masks = only(nodes - 1, nodes);
  return dataset;
}

}  // namespace mezzo::bench
