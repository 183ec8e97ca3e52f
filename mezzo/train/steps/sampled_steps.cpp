#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/graph.h"
#include "mezzo/nn/model/model.h"
#include "mezzo/train/clock.h"
#include "mezzo/train/steps/controlled_model.h"
#include "mezzo/train/steps/epoch_steps.h"
#include "mezzo/train/steps/loaders.h"
#include "mezzo/train/steps/loss.h"

namespace mezzo {
namespace {

/// Features, labels and weights of a mini-batch.
struct BatchRows {
  at::Tensor features;
  at::Tensor rows;     ///< int64 [n]: the rows of the logits with a label; undefined: all
  at::Tensor labels;   ///< rows of Problem::loss_labels
  at::Tensor weights;  ///< float32 [n]: the loss is a weighted sum; undefined: a mean
  at::Tensor counts;   ///< float32 [n]: how often each row counts in the mean; undefined: once
  std::optional<nn::HeadTargets> targets = {};  ///< of labels of edges and graphs
};

at::Tensor batch_loss(const at::Tensor& logits, const BatchRows& batch, LossKind loss) {
  const at::Tensor labelled = batch.rows.defined() ? logits.index_select(0, batch.rows) : logits;
  if (!batch.weights.defined() && !batch.counts.defined())
    return loss_of(labelled, batch.labels, loss);
  const at::Tensor losses = row_losses(labelled, batch.labels, loss);
  if (batch.weights.defined()) return (losses * batch.weights).sum();
  return (losses * batch.counts).sum() / (terms_of_rows(batch.labels) * batch.counts).sum();
}

/// The weights of a weighted sum include the factor; a mean counts once for each term.
LossShare share_of(const BatchRows& batch) {
  const at::Tensor& factors = batch.weights.defined() ? batch.weights : batch.counts;
  const double terms = factors.defined()
                           ? (terms_of_rows(batch.labels) * factors).sum().item<double>()
                           : static_cast<double>(count_terms(batch.labels));
  if (batch.weights.defined()) return {.weight = terms};
  return {.factor = terms, .weight = terms};
}

/// Casts features to float32 unless the precision has 16 bits.
at::Tensor in_precision(const at::Tensor& features, amp::Precision precision) {
  return is_low(precision) ? features : features.to(at::kFloat);
}

/// The dtype of stored activations.
at::ScalarType history_dtype(amp::Precision precision) {
  if (precision == amp::Precision::kBFloat16) return at::kBFloat16;
  return precision == amp::Precision::kFloat16 ? at::kHalf : at::kFloat;
}

BatchRows rows_of(const Batch& batch, double /*nodes_per_term*/) {
  return {.features = batch.features(kFeatureColumn),
          .rows = {},
          .labels = batch.labels(kLabelColumn),
          .weights = {},
          .counts = batch.output_counts};
}

/// Links may have a negative pair each, which follow them with their types and labels of 0.
BatchRows rows_of(const EdgeMiniBatch& batch, double /*nodes_per_term*/) {
  const auto column = [&batch](const char* name) {
    const auto rows = batch.edge_data.find(name);
    return rows != batch.edge_data.end() ? rows->second : at::Tensor();
  };
  BatchRows result{.features = batch.features(kFeatureColumn),
                   .rows = {},
                   .labels = column(kLabelColumn),
                   .weights = {},
                   .counts = {},
                   .targets = nn::HeadTargets{.edges = batch.pairs,
                                              .edge_features = column(kEdgeFeatureColumn),
                                              .graph_sizes = {},
                                              .edge_types = column(kEdgeTypeColumn)}};
  if (batch.negatives.dst.numel() == 0) return result;
  result.labels = at::cat({result.labels, at::zeros_like(result.labels)});
  at::Tensor& types = result.targets->edge_types;
  if (types.defined()) types = types.repeat({2});
  return result;
}

BatchRows rows_of(const GraphBatch& batch, double /*nodes_per_term*/) {
  const Graph& graph = batch.graph;
  return {.features = graph.ndata().at(kFeatureColumn),
          .rows = {},
          .labels = batch.graph_data.at(kLabelColumn),
          .weights = {},
          .counts = {},
          .targets = nn::HeadTargets{
              .edges = {},
              .edge_features = {},
              .graph_sizes = graph.batch_num_nodes().to(graph.device(), /*non_blocking=*/true)}};
}

/// Layer-wise sampling corrects its bias by edge weights; other samplers have none.
nn::ModelInput structure_of(const Batch& batch, SamplerKind sampler) {
  if (sampler == SamplerKind::kLayer) return {batch.blocks, kEdgeWeightColumn};
  return batch.blocks;
}

/// The sampler's weights are for a mean over all nodes; the loss is a mean over the terms of the
/// training nodes.
BatchRows rows_of(const SubgraphBatch& batch, double nodes_per_term) {
  const at::Tensor rows = batch.labels(kTrainColumn).nonzero().squeeze(1);
  BatchRows result{.features = batch.features(kFeatureColumn),
                   .rows = rows,
                   .labels = batch.labels(kLabelColumn).index_select(0, rows),
                   .weights = {},
                   .counts = {}};
  if (batch.node_weights.defined()) {
    result.weights = batch.node_weights.index_select(0, rows) * nodes_per_term;
  }
  return result;
}

nn::ModelInput structure_of(const SubgraphBatch& batch, SamplerKind /*sampler*/) {
  return batch.graph;
}

nn::ModelInput structure_of(const EdgeMiniBatch& batch, SamplerKind /*sampler*/) {
  return batch.blocks;
}

nn::ModelInput structure_of(const GraphBatch& batch, SamplerKind /*sampler*/) {
  const Frame& edges = batch.graph.edata();
  return {batch.graph.topology(),
          edges.contains(kEdgeRowsColumn) ? edges.at(kEdgeRowsColumn) : at::Tensor()};
}

/// Steps on the batches of a loader. Item: Batch, SubgraphBatch, EdgeMiniBatch or GraphBatch.
template <class Item>
class LoaderSteps : public EpochSteps {
 public:
  /// graph: the graph of the loader. model: of the run, for control variates. edge_rows: as
  /// Problem's.
  LoaderSteps(std::shared_ptr<Batches<Item>> loader, const Graph& graph,
              const TrainOptions& options, double nodes_per_term, const nn::ModelOptions& model,
              const at::Tensor& edge_rows)
      : loader_(std::move(loader)),
        options_(options),
        edge_rows_(edge_rows.defined() ? edge_rows.to(options.device) : edge_rows),
        place_(graph.device().is_cpu() ? SamplePlace::kHost : SamplePlace::kDevice),
        workers_(workers_of(graph, *options.sampling)),
        nodes_per_term_(nodes_per_term),
        num_batches_(loader_->num_batches()) {
    if (!options.sampling->control_variates) return;
    controlled_.emplace(graph, model, history_dtype(options.precision));
  }

  std::int64_t num_batches() const override { return num_batches_; }

  void begin(std::int64_t epoch, std::int64_t batch) override {
    end();
    loader_->start_at(epoch, batch);
  }

  StepResult next(TrainState& state) override {
    if (!position_) {
      position_.emplace(loader_->begin());
    } else if (!is_prefetched_) {
      ++*position_;
    }
    is_prefetched_ = false;
    double prefetch_seconds = 0;
    const auto prefetch = [&] {
      const Clock::time_point start = Clock::now();
      ++*position_;
      is_prefetched_ = true;
      prefetch_seconds = seconds_since(start);
    };
    const Clock::time_point start = Clock::now();
    const StepResult result = step(state, **position_, prefetch);
    compute_seconds_ += seconds_since(start) - prefetch_seconds;
    return result;
  }

  void end() override {
    if (is_prefetched_ && *position_ != loader_->end()) ++batches_dropped_;
    position_.reset();
    is_prefetched_ = false;
  }

  std::optional<SamplingReport> sampling() const override {
    const PipelineStatistics statistics = loader_->statistics();
    const SamplingOptions& sampling = *options_.sampling;
    constexpr bool kOfGraphs = std::is_same_v<Item, GraphBatch>;
    return SamplingReport{
        .sampler = kOfGraphs ? "graphs" : std::string(name_of(SamplerKinds{}, sampling.sampler)),
        .drawn_on = std::string(name_of(SamplePlaces{}, place_)),
        .workers = workers_,
        .batches_per_epoch = num_batches_,
        .batches = statistics.batches - batches_dropped_,
        .sampled_edges = statistics.sampled_edges,
        .input_nodes = statistics.sampled_nodes,
        .sample_seconds = statistics.sample_seconds,
        .gather_seconds = statistics.gather_seconds,
        .transfer_seconds = statistics.transfer_seconds,
        .compute_seconds = compute_seconds_,
        .wait_seconds = statistics.wait_seconds};
  }

 private:
  /// `meanwhile` may invalidate the item.
  StepResult step(TrainState& state, const Item& item, const std::function<void()>& meanwhile) {
    const BatchRows batch = rows_of(item, nodes_per_term_);
    if (batch.labels.size(0) == 0) return {};  // only subgraphs, which need one process
    const auto loss = [&] {
      return batch_loss(logits_of(state, item, batch), batch, options_.loss);
    };
    const StepResult result = take_step(state, options_, share_of(batch), loss, meanwhile);
    if (controlled_ && !result.skipped) controlled_->update();
    return result;
  }

  at::Tensor logits_of(TrainState& state, const Item& item, const BatchRows& batch) {
    const at::Tensor features = in_precision(batch.features, options_.precision);
    const auto logits = [&](nn::ModelInput input) {
      if (batch.targets) input = std::move(input).with_targets(*batch.targets);
      return state.model->forward(std::move(input), features);
    };
    if constexpr (std::is_same_v<Item, Batch>) {
      if (controlled_) return controlled_->forward(*state.model, item.blocks, features);
    }
    if constexpr (requires { item.blocks; }) {
      if (edge_rows_.defined()) {
        Blocks blocks = item.blocks;
        return logits(input_of(blocks, edge_rows_));
      }
    }
    return logits(structure_of(item, options_.sampling->sampler));
  }

  std::shared_ptr<Batches<Item>> loader_;
  const TrainOptions& options_;
  at::Tensor edge_rows_;  ///< of the graph, on the device of the run; may be undefined
  SamplePlace place_;
  std::int64_t workers_;
  double nodes_per_term_;
  std::int64_t num_batches_;
  std::optional<typename Batches<Item>::Iterator> position_;
  bool is_prefetched_ = false;        ///< the next item was made during the all-reduce
  std::int64_t batches_dropped_ = 0;  ///< prefetched, then not used
  double compute_seconds_ = 0;
  std::optional<ControlledModel> controlled_;  ///< with control variates
};

}  // namespace

std::unique_ptr<EpochSteps> make_sampled_steps(const Problem& problem, const TrainingRows& rows,
                                               const TrainOptions& options, std::uint64_t seed) {
  const SamplingOptions& sampling = *options.sampling;
  const TaskTarget target = problem.task.target;
  MEZZO_CHECK(!sampling.drop_last || rows.rows.numel() >= *sampling.batch_size,
              "drop-last: expected at least one batch of {} training {}s, got {}",
              *sampling.batch_size, name_of(TaskTargets{}, target), rows.rows.numel());
  const Graph whole = graph_of(problem);
  const nn::ModelOptions model = model_options(options, problem);
  const auto steps = [&]<class Item>(std::shared_ptr<Batches<Item>> loader, const Graph& graph,
                                     const at::Tensor& edge_rows) {
    const double nodes_per_term =
        static_cast<double>(graph.num_nodes()) / static_cast<double>(count_terms(rows.labels));
    return std::make_unique<LoaderSteps<Item>>(std::move(loader), graph, options, nodes_per_term,
                                               model, edge_rows);
  };
  if (has_pairs(problem)) {
    return steps(edge_loader(whole, problem, rows.rows, options, seed), whole, problem.edge_rows);
  }
  if (target == TaskTarget::kGraph) {
    return steps(graph_loader(whole, problem, rows.rows, options, seed), whole, at::Tensor());
  }
  const Graph graph = graph_for_sampling(whole, options);
  if (draws_blocks(sampling.sampler)) {
    return steps(block_loader(graph, rows.rows, options, seed), graph, problem.edge_rows);
  }
  return steps(is_saint(sampling.sampler) ? saint_loader(graph, options, seed)
                                          : cluster_loader(graph, options, seed),
               graph, at::Tensor());
}

}  // namespace mezzo
