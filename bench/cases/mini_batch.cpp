#include "bench/cases/mini_batch.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/optim/adam.h>

#include "mezzo/amp/scaler/grad_scaler.h"
#include "mezzo/core/table.h"
#include "mezzo/nn/model/model.h"
#include "mezzo/sampling/blocks/block_loader.h"
#include "mezzo/train/report/summary.h"
#include "mezzo/train/steps/loss.h"
#include "mezzo/train/steps/step.h"

#include "bench/harness/stages.h"

namespace mezzo::bench {
namespace {

/// A SAGE model in training on one thread.
class MiniBatchTraining {
 public:
  MiniBatchTraining(const Graph& graph, const SamplingWork& work, const MiniBatchModel& model,
                    amp::Precision precision)
      : precision_(precision),
        model_(nn::ModelOptions{.kind = nn::ModelKind::kSage,
                                .in_features = graph.ndata().at("feat").size(1),
                                .hidden_features = model.hidden,
                                .out_features = model.num_classes,
                                .num_layers = static_cast<std::int64_t>(work.fanouts.size())}),
        optimizer_(model_->parameters(), torch::optim::AdamOptions(1e-3)),
        scaler_({.device = at::kCPU, .enabled = precision == amp::Precision::kFloat16}) {}

  void step(const Batch& batch) {
    optimizer_.zero_grad();
    scaled_backward(precision_, at::kCPU, scaler_, [&] {
      const at::Tensor& features = batch.features("feat");
      const bool widen = precision_ == amp::Precision::kFloat32;
      const at::Tensor logits =
          model_->forward(batch.blocks, widen ? features.to(at::kFloat) : features);
      return loss_of(logits, batch.labels("label"));
    });
    scaler_.step(optimizer_);
    scaler_.update();
  }

 private:
  amp::Precision precision_;
  nn::Model model_;
  torch::optim::Adam optimizer_;
  amp::GradScaler scaler_;
};

/// During its lifetime, this thread's libtorch operations are single-threaded.
class OneThread {
 public:
  OneThread() { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(threads_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int threads_ = at::get_num_threads();
};

constexpr double kMilliseconds = 1e3;  // per second

/// Adds the worker's stage times between two readings and the caller's waiting time.
void note_pipeline(Stages& stages, const PipelineStatistics& before,
                   const PipelineStatistics& after) {
  const auto add = [&](const char* name, double PipelineStatistics::*seconds) {
    note(stages, name, kMilliseconds * (after.*seconds - before.*seconds));
  };
  add("sample", &PipelineStatistics::sample_seconds);
  add("gather", &PipelineStatistics::gather_seconds);
  add("transfer", &PipelineStatistics::transfer_seconds);
  add("wait", &PipelineStatistics::wait_seconds);
}

/// Prepared batches, and the loader that produces the same ones.
struct MiniBatches {
  std::shared_ptr<BlockLoader> loader;
  std::vector<Batch> batches;

  at::Tensor count() const {
    return at::full({1}, static_cast<std::int64_t>(batches.size()), at::kFloat);
  }
  /// stages: stage times of the pipeline, see note_pipeline.
  template <class Use>
  Tensors pass(Stages& stages, const Use& use) const {
    const OneThread one_thread;
    const PipelineStatistics before = loader->statistics();
    loader->start_at(0);
    std::int64_t num_batches = 0;
    for (const Batch& batch : *loader) {
      use(batch);
      ++num_batches;
    }
    note_pipeline(stages, before, loader->statistics());
    return {at::full({1}, num_batches, at::kFloat)};
  }
};

Comparison make_pipelined(const Graph& graph, const SamplingWork& work,
                          const MiniBatchModel& model) {
  BlockLoaderOptions options{.fanouts = work.fanouts,
                             .batch_size = work.batch_size,
                             .features = {"feat"},
                             .labels = {"label"},
                             .num_workers = 1};
  const auto batches = std::make_shared<MiniBatches>();
  batches->loader =
      std::make_shared<BlockLoader>(graph, sampling_seeds(graph, work), std::move(options));
  for (Batch& batch : *batches->loader) batches->batches.push_back(std::move(batch));
  Comparison comparison;
  comparison.expected = {{batches->count()}};
  const auto prepared = std::make_shared<Stages>();
  const auto prepare = [=] { return batches->pass(*prepared, [](const Batch&) {}); };
  comparison.candidates.push_back(
      {.name = "prepare alone", .is_mezzo = true, .run = prepare, .stages = prepared});
  for (const amp::Precision precision : model.precisions) {
    const std::string word(amp::to_string(precision));
    const auto training = std::make_shared<MiniBatchTraining>(graph, work, model, precision);
    const auto idle = std::make_shared<Stages>(), pipelined = std::make_shared<Stages>();
    const auto train = [=]() -> Tensors {
      const OneThread one_thread;
      note_pipeline(*idle, {}, {});
      for (const Batch& batch : batches->batches) training->step(batch);
      return {batches->count()};
    };
    const auto pipeline = [=] {
      return batches->pass(*pipelined, [&](const Batch& batch) { training->step(batch); });
    };
    comparison.candidates.push_back({.name = "train alone, " + word,
                                     .is_mezzo = true,
                                     .precision = precision,
                                     .run = train,
                                     .stages = idle});
    comparison.candidates.push_back({.name = "pipelined, " + word,
                                     .is_mezzo = true,
                                     .precision = precision,
                                     .run = pipeline,
                                     .stages = pipelined});
  }
  return comparison;
}

}  // namespace

Plan pipelined_epoch(const Graph& graph, const SamplingWork& work, const MiniBatchModel& model) {
  return {.work = "mini-batch sage " + text_of(work),
          .width = model.hidden,
          .bytes = graph.num_nodes() * 8,
          .make = [&graph, work, model] { return make_pipelined(graph, work, model); }};
}

std::string format_pipelining(const Outcome& outcome) {
  std::vector<std::vector<std::string>> rows = {
      {"precision", "prepare, ms", "train, ms", "pipelined, ms", "of the slower stage", "vs fp32"}};
  if (!outcome.measurements.empty()) {
    for (const Stage& stage : outcome.measurements.front().stages) {
      rows.front().push_back(stage.name + ", ms");
    }
  }
  const auto find = [&](const std::string& name) -> const Measurement* {
    for (const Measurement& one : outcome.measurements) {
      if (one.name == name && one.skipped.empty()) return &one;
    }
    return nullptr;
  };
  const Measurement* prepare = find("prepare alone");
  const Measurement* float32 = find("pipelined, fp32");
  for (const Measurement& one : outcome.measurements) {
    const std::string word = one.name.substr(one.name.find(", ") + 2);
    const Measurement* train = find("train alone, " + word);
    if (one.name != "pipelined, " + word || !one.skipped.empty() || !train || !prepare) continue;
    rows.push_back(
        {word, fmt::format("{:.1f}", prepare->minimum()), fmt::format("{:.1f}", train->minimum()),
         fmt::format("{:.1f}", one.minimum()),
         fmt::format("{:.2f}x", one.minimum() / std::max(prepare->minimum(), train->minimum())),
         float32 == nullptr ? "-" : fmt::format("{:.2f}x", float32->minimum() / one.minimum())});
    for (const Stage& stage : one.stages) {
      rows.back().push_back(fmt::format("{:.1f}", median(stage.milliseconds)));
    }
  }
  return format_table(rows, 1);
}

}  // namespace mezzo::bench
