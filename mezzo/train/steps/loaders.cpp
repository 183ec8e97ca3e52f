#include "mezzo/train/steps/loaders.h"

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/runtime/memory.h"
#include "mezzo/train/links.h"

namespace mezzo {
namespace {

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

/// Sets the options that all loaders share.
template <class LoaderOptions>
LoaderOptions with_common_options(LoaderOptions loader, const Graph& graph,
                                  const TrainOptions& options, std::uint64_t seed) {
  loader.device = options.device;
  loader.num_workers = workers_of(graph, *options.sampling);
  loader.prefetch = options.sampling->prefetch.value_or(loader.prefetch);
  loader.seed = seed;
  if constexpr (requires { loader.features; }) loader.features = {kFeatureColumn};
  if constexpr (requires { loader.labels; }) loader.labels = {kLabelColumn};
  if constexpr (requires { loader.batch_size; }) {
    loader.batch_size = *options.sampling->batch_size;
    loader.shuffle = options.sampling->shuffle;
    loader.drop_last = options.sampling->drop_last;
  }
  return loader;
}

/// GraphConv reads degrees of the whole graph; a model of the user's may have one.
bool may_read_degrees(const TrainOptions& options) {
  return options.model == nn::ModelKind::kGcn || nn::is_own(options.model);
}

}  // namespace

std::int64_t workers_of(const Graph& graph, const SamplingOptions& sampling) {
  constexpr std::int64_t kDefaultWorkers = 1;
  return graph.device().is_cpu() ? sampling.num_workers.value_or(kDefaultWorkers) : 0;
}

Graph graph_of(const Problem& problem) {
  Graph graph(problem.topology);
  graph.ndata()[kFeatureColumn] = problem.features;
  if (problem.task.target != TaskTarget::kNode) return graph;
  graph.ndata()[kLabelColumn] = problem.loss_labels;
  graph.ndata()[kTrainColumn] = problem.masks.train;
  if (problem.node_ids.defined()) graph.ndata()[kIdColumn] = problem.node_ids;
  return graph;
}

Graph graph_for_sampling(const Graph& graph, const TrainOptions& options) {
  if (!may_draw_on_device(options)) return graph;
  if (!draws_on_device(options, bytes_on_device(graph), free_memory_bytes(options.device))) {
    return graph;
  }
  // Sorted here, since sorting on the device needs more memory there.
  static_cast<void>(graph.topology().csc());
  return graph.to(options.device);
}

std::shared_ptr<Batches<Batch>> block_loader(const Graph& graph, const at::Tensor& seeds,
                                             const TrainOptions& options, std::uint64_t seed) {
  const SamplingOptions& sampling = *options.sampling;
  BlockLoaderOptions loader;
  loader.fanouts = sampling.fanouts;
  loader.layer_sizes = sampling.layer_sizes;
  const bool labor = sampling.sampler == SamplerKind::kLabor;
  loader.draw = labor ? NeighborDraw::kLabor : NeighborDraw::kNeighbor;
  loader.replace = sampling.replace;
  loader.layer_dependency = sampling.layer_dependency;
  loader.parent_degrees = may_read_degrees(options);
  // Other samplers do not use ids, and a device does not take them.
  if (labor && graph.ndata().contains(kIdColumn)) loader.node_ids = kIdColumn;
  if (sampling.balance_classes) loader.balance_by = kLabelColumn;
  return std::make_shared<BlockLoader>(graph, seeds,
                                       with_common_options(loader, graph, options, seed));
}

std::shared_ptr<Batches<EdgeMiniBatch>> edge_loader(const Graph& graph, const Problem& problem,
                                                    const at::Tensor& seeds,
                                                    const TrainOptions& options,
                                                    std::uint64_t seed) {
  EdgeLoaderOptions loader;
  loader.fanouts = options.sampling->fanouts;
  loader.replace = options.sampling->replace;
  const bool are_links = problem.task.target == TaskTarget::kLink;
  loader.num_negatives = draws_negatives(problem) ? 1 : 0;
  loader.negatives = kNegativeLinks;
  // With the edge itself among the messages, a model learns to find it there.
  loader.exclude = are_links ? EdgeExclusion::kReverse : EdgeExclusion::kNone;
  loader.parent_degrees = may_read_degrees(options);
  loader.edge_data[kLabelColumn] = problem.loss_labels;
  const nn::HeadTargets& targets = problem.head_targets;
  if (targets.edge_features.defined()) {
    loader.edge_data[kEdgeFeatureColumn] = targets.edge_features;
  }
  if (targets.edge_types.defined()) loader.edge_data[kEdgeTypeColumn] = targets.edge_types;
  return std::make_shared<EdgeLoader>(graph, targets.edges, seeds,
                                      with_common_options(loader, graph, options, seed));
}

std::shared_ptr<Batches<GraphBatch>> graph_loader(Graph graph, const Problem& problem,
                                                  const at::Tensor& seeds,
                                                  const TrainOptions& options, std::uint64_t seed) {
  const at::Tensor& sizes = problem.head_targets.graph_sizes;
  const at::Tensor offsets = at::cat({at::zeros({1}, at::kLong), sizes.cumsum(0)});
  if (problem.edge_rows.defined()) graph.edata()[kEdgeRowsColumn] = problem.edge_rows;
  graph.set_batch(sizes, problem.topology.csc().indptr.index_select(0, offsets).diff());
  GraphLoaderOptions loader;
  loader.graphs = seeds;
  loader.graph_data[kLabelColumn] = problem.loss_labels;
  return std::make_shared<GraphLoader>(graph, with_common_options(loader, graph, options, seed));
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

}  // namespace mezzo
