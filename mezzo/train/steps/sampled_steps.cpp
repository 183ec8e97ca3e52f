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
#include "mezzo/runtime/memory.h"
#include "mezzo/sampling/blocks/block_loader.h"
#include "mezzo/sampling/subgraphs/subgraph_loaders.h"
#include "mezzo/train/clock.h"
#include "mezzo/train/steps/controlled_model.h"
#include "mezzo/train/steps/epoch_steps.h"
#include "mezzo/train/steps/loss.h"

namespace mezzo {
namespace {

constexpr auto kFeatureColumn = "feat";
constexpr auto kLabelColumn = "label";
constexpr auto kTrainColumn = "train_mask";
constexpr auto kIdColumn = "node_id";
constexpr auto kEdgeWeightColumn = "edge_weights";

/// Features, labels and weights of a mini-batch.
struct BatchRows {
  at::Tensor features;
  at::Tensor rows;     ///< int64 [n]: the rows of the logits with a label; undefined: all
  at::Tensor labels;   ///< rows of Problem::targets
  at::Tensor weights;  ///< float32 [n]: the loss is a weighted sum; undefined: a mean
  at::Tensor counts;   ///< float32 [n]: how often each row counts in the mean; undefined: once
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

/// Number of threads that sample from `graph`; 0 if its device does.
std::int64_t workers_of(const Graph& graph, const SamplingOptions& sampling) {
  constexpr std::int64_t kDefaultWorkers = 1;
  return graph.device().is_cpu() ? sampling.num_workers.value_or(kDefaultWorkers) : 0;
}

/// Steps on the batches of a loader. Item: Batch or SubgraphBatch.
template <class Item>
class LoaderSteps : public EpochSteps {
 public:
  /// graph: the graph of the loader. model: of the run, for control variates. edge_weight: as
  /// Problem's.
  LoaderSteps(std::shared_ptr<Batches<Item>> loader, const Graph& graph,
              const TrainOptions& options, double nodes_per_term, const nn::ModelOptions& model,
              const at::Tensor& edge_weight)
      : loader_(std::move(loader)),
        options_(options),
        edge_weight_(edge_weight.defined() ? edge_weight.to(options.device) : edge_weight),
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
    return SamplingReport{.sampler = std::string(name_of(SamplerKinds{}, sampling.sampler)),
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
      return batch_loss(logits_of(state, item, in_precision(batch.features, options_.precision)),
                        batch, options_.loss);
    };
    const StepResult result = take_step(state, options_, share_of(batch), loss, meanwhile);
    if (controlled_ && !result.skipped) controlled_->update();
    return result;
  }

  at::Tensor logits_of(TrainState& state, const Item& item, const at::Tensor& features) {
    if constexpr (std::is_same_v<Item, Batch>) {
      if (controlled_) return controlled_->forward(*state.model, item.blocks, features);
      if (edge_weight_.defined()) {
        Blocks blocks = item.blocks;
        return state.model->forward(input_of(blocks, edge_weight_), features);
      }
    }
    return state.model->forward(structure_of(item, options_.sampling->sampler), features);
  }

  std::shared_ptr<Batches<Item>> loader_;
  const TrainOptions& options_;
  at::Tensor edge_weight_;  ///< of the graph, on the device of the run; may be undefined
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

/// The whole graph with the columns of the batches.
Graph graph_of(const Problem& problem) {
  Graph graph(problem.topology);
  graph.ndata()[kFeatureColumn] = problem.features;
  graph.ndata()[kLabelColumn] = problem.loss_labels;
  graph.ndata()[kTrainColumn] = problem.masks.train;
  if (problem.node_ids.defined()) graph.ndata()[kIdColumn] = problem.node_ids;
  return graph;
}

std::int64_t bytes_of(const at::Tensor& tensor) {
  if (tensor.layout() != at::kSparseCsr) return static_cast<std::int64_t>(tensor.nbytes());
  return bytes_of(tensor.crow_indices()) + bytes_of(tensor.col_indices()) +
         bytes_of(tensor.values());
}

/// Memory of a graph on the device that samples it: COO and CSC arrays, arrays per node, and the
/// node columns.
std::int64_t bytes_on_device(const Graph& graph) {
  const auto id_bytes = static_cast<std::int64_t>(c10::elementSize(graph.topology().id_dtype()));
  std::int64_t bytes = 4 * graph.num_edges() * id_bytes;
  constexpr std::int64_t kNodeArrays = 4;  // offsets, two degrees, the ids in a batch
  bytes += kNodeArrays * graph.num_nodes() * static_cast<std::int64_t>(sizeof(std::int64_t));
  for (const std::string& name : graph.ndata().names()) bytes += bytes_of(graph.ndata().at(name));
  return bytes;
}

/// `graph`, or its copy on the device of the run if that samples.
Graph graph_for_sampling(const Graph& graph, const TrainOptions& options) {
  if (!may_draw_on_device(options)) return graph;
  if (!draws_on_device(options, bytes_on_device(graph), free_memory_bytes(options.device))) {
    return graph;
  }
  // Sorted here, since sorting on the device needs more memory there.
  static_cast<void>(graph.topology().csc());
  return graph.to(options.device);
}

/// Sets the options that all loaders share.
template <class LoaderOptions>
LoaderOptions with_common_options(LoaderOptions loader, const Graph& graph,
                                  const TrainOptions& options, std::uint64_t seed) {
  loader.device = options.device;
  loader.num_workers = workers_of(graph, *options.sampling);
  loader.prefetch = options.sampling->prefetch.value_or(loader.prefetch);
  loader.seed = seed;
  loader.features = {kFeatureColumn};
  loader.labels = {kLabelColumn};
  return loader;
}

std::shared_ptr<Batches<Batch>> block_loader(const Graph& graph, const at::Tensor& seeds,
                                             const TrainOptions& options, std::uint64_t seed) {
  const SamplingOptions& sampling = *options.sampling;
  BlockLoaderOptions loader;
  loader.fanouts = sampling.fanouts;
  loader.layer_sizes = sampling.layer_sizes;
  loader.batch_size = *sampling.batch_size;
  loader.shuffle = sampling.shuffle;
  loader.drop_last = sampling.drop_last;
  const bool labor = sampling.sampler == SamplerKind::kLabor;
  loader.draw = labor ? NeighborDraw::kLabor : NeighborDraw::kNeighbor;
  loader.replace = sampling.replace;
  loader.layer_dependency = sampling.layer_dependency;
  // For GraphConv; a model of the user's may have one.
  loader.parent_degrees =
      options.model == nn::ModelKind::kGcn || options.model == nn::ModelKind::kOwn;
  // Other samplers do not use ids, and a device does not take them.
  if (labor && graph.ndata().contains(kIdColumn)) loader.node_ids = kIdColumn;
  if (sampling.balance_classes) loader.balance_by = kLabelColumn;
  MEZZO_CHECK(!sampling.drop_last || seeds.numel() >= loader.batch_size,
              "drop-last: expected at least one batch of {} training nodes, got {}",
              loader.batch_size, seeds.numel());
  return std::make_shared<BlockLoader>(graph, seeds,
                                       with_common_options(loader, graph, options, seed));
}

std::shared_ptr<Batches<SubgraphBatch>> cluster_loader(const Graph& graph,
                                                       const TrainOptions& options,
                                                       std::uint64_t seed) {
  const SamplingOptions& sampling = *options.sampling;
  MEZZO_CHECK(*sampling.parts <= graph.num_nodes(),
              "parts: expected at most the {} nodes of the graph, got {}", graph.num_nodes(),
              *sampling.parts);
  auto loader = with_common_options(ClusterLoaderOptions{}, graph, options, seed);
  loader.num_parts = *sampling.parts;
  loader.clusters_per_batch = sampling.parts_per_batch.value_or(loader.clusters_per_batch);
  loader.shuffle = sampling.shuffle;
  loader.labels.push_back(kTrainColumn);
  return std::make_shared<ClusterLoader>(graph, loader);
}

std::shared_ptr<Batches<SubgraphBatch>> saint_loader(const Graph& graph,
                                                     const TrainOptions& options,
                                                     std::uint64_t seed) {
  const SamplingOptions& sampling = *options.sampling;
  const std::int64_t budget = *sampling.saint_budget;
  auto loader = with_common_options(SaintLoaderOptions{}, graph, options, seed);
  loader.walk_length = sampling.walk_length.value_or(loader.walk_length);
  std::int64_t nodes_per_draw = 1;
  if (sampling.sampler == SamplerKind::kSaintWalk) {
    loader.kind = SaintKind::kRandomWalk;
    loader.num_roots = budget;
    nodes_per_draw = loader.walk_length + 1;
  } else {
    const bool edges = sampling.sampler == SamplerKind::kSaintEdge;
    loader.kind = edges ? SaintKind::kEdge : SaintKind::kNode;
    loader.budget = budget;
    nodes_per_draw = edges ? 2 : 1;
  }
  const std::int64_t most = graph.num_nodes() + graph.num_edges();
  MEZZO_CHECK(
      budget <= most / nodes_per_draw,
      "saint-budget: expected batches of at most {} nodes, the number of nodes and edges of "
      "the graph, got {} draws of {} nodes",
      most, budget, nodes_per_draw);
  // Two divisions, rounded up: the product of large options would overflow.
  const std::int64_t draws = (graph.num_nodes() + nodes_per_draw - 1) / nodes_per_draw;
  loader.batches_per_epoch = sampling.batches_per_epoch.value_or((draws - 1) / budget + 1);
  loader.labels.push_back(kTrainColumn);
  return std::make_shared<SaintLoader>(graph, loader);
}

}  // namespace

std::unique_ptr<EpochSteps> make_sampled_steps(const Problem& problem, const TrainingRows& nodes,
                                               const TrainOptions& options, std::uint64_t seed) {
  const Graph graph = graph_for_sampling(graph_of(problem), options);
  const SamplerKind sampler = options.sampling->sampler;
  const double nodes_per_term =
      static_cast<double>(graph.num_nodes()) / static_cast<double>(count_terms(nodes.labels));
  const nn::ModelOptions model = model_options(options, problem);
  if (draws_blocks(sampler)) {
    return std::make_unique<LoaderSteps<Batch>>(block_loader(graph, nodes.rows, options, seed),
                                                graph, options, nodes_per_term, model,
                                                problem.edge_weight);
  }
  return std::make_unique<LoaderSteps<SubgraphBatch>>(
      is_saint(sampler) ? saint_loader(graph, options, seed) : cluster_loader(graph, options, seed),
      graph, options, nodes_per_term, model, at::Tensor());
}

}  // namespace mezzo
