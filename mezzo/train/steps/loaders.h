#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include "mezzo/graph/graph.h"
#include "mezzo/sampling/blocks/block_loader.h"
#include "mezzo/sampling/edges/edge_loader.h"
#include "mezzo/sampling/subgraphs/subgraph_loaders.h"
#include "mezzo/train/options/options.h"
#include "mezzo/train/problem.h"

/// The loaders of training by mini-batches, and the columns of their batches. Internal to train;
/// not exported.
namespace mezzo {

inline constexpr auto kFeatureColumn = "feat";
inline constexpr auto kLabelColumn = "label";
inline constexpr auto kTrainColumn = "train_mask";
inline constexpr auto kIdColumn = "node_id";
inline constexpr auto kEdgeWeightColumn = "edge_weights";
inline constexpr auto kEdgeFeatureColumn = "edge_features";
inline constexpr auto kEdgeTypeColumn = "edge_types";

/// The whole graph with the columns of the batches; labels and masks if they are of nodes.
Graph graph_of(const Problem& problem);
/// `graph`, or its copy on the device of the run if that samples.
Graph graph_for_sampling(const Graph& graph, const TrainOptions& options);
/// Number of threads that sample from `graph`; 0 if its device does.
std::int64_t workers_of(const Graph& graph, const SamplingOptions& sampling);

/// Blocks for batches of the nodes `seeds`.
std::shared_ptr<Batches<Batch>> block_loader(const Graph& graph, const at::Tensor& seeds,
                                             const TrainOptions& options, std::uint64_t seed);
std::shared_ptr<Batches<SubgraphBatch>> cluster_loader(const Graph& graph,
                                                       const TrainOptions& options,
                                                       std::uint64_t seed);
std::shared_ptr<Batches<SubgraphBatch>> saint_loader(const Graph& graph,
                                                     const TrainOptions& options,
                                                     std::uint64_t seed);
/// Blocks for batches of the edges or links `seeds` of the data set; of links with a new negative
/// pair for each, and without the edges that join the nodes of a link of the batch.
std::shared_ptr<Batches<EdgeMiniBatch>> edge_loader(const Graph& graph, const Problem& problem,
                                                    const at::Tensor& seeds,
                                                    const TrainOptions& options,
                                                    std::uint64_t seed);
/// Batches of the graphs `seeds` of the data set. graph: its edges are in the order of the graphs.
std::shared_ptr<Batches<GraphBatch>> graph_loader(Graph graph, const Problem& problem,
                                                  const at::Tensor& seeds,
                                                  const TrainOptions& options, std::uint64_t seed);

}  // namespace mezzo
