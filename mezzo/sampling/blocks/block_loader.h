#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/graph.h"
#include "mezzo/sampling/batches.h"
#include "mezzo/sampling/blocks/block_sampler.h"

namespace mezzo {

/// A mini-batch for a model with several layers; on the loader's device.
class MEZZO_API Batch {
 public:
  Blocks blocks;            ///< input layer first
  at::Tensor input_nodes;   ///< int64, the sources of the first block, ids of the graph
  at::Tensor output_nodes;  ///< int64, the seeds: the destinations of the last block
  /// float32 [seeds], how often each seed was drawn for the batch. Weight losses with it: the sum
  /// of count * loss over the sum of counts. Undefined: once each.
  at::Tensor output_counts;
  std::int64_t index = 0;  ///< of the batch in its epoch

  /// The column's rows of input_nodes. Throws InvalidArgument if BlockLoaderOptions::features lacks
  /// it.
  const at::Tensor& features(const std::string& column) const;
  /// The column's rows of output_nodes. Throws InvalidArgument if `labels` of the options lacks it.
  const at::Tensor& labels(const std::string& column) const;

  std::map<std::string, at::Tensor> feature_columns, label_columns;  ///< gathered rows by name
};

/// Options of a BlockLoader.
struct BlockLoaderOptions {
  /// Input layer first; kAllNeighbors (-1): every neighbour. Not with layer_sizes.
  std::vector<std::int64_t> fanouts = {};
  std::int64_t batch_size = 1024;          ///< seeds, >= 1
  bool shuffle = false;                    ///< a new order each epoch
  std::vector<std::string> features = {};  ///< columns of ndata() to gather for the input nodes
  std::vector<std::string> labels = {};    ///< columns of ndata() to gather for the seeds
  at::Device device = at::kCPU;            ///< of the batches
  std::int64_t num_workers = 0;            ///< see PipelineOptions; 0 with a graph on a CUDA device
  std::int64_t prefetch = 2;               ///< see PipelineOptions
  std::uint64_t seed = 0;                  ///< of the order of the seeds and of all draws
  bool drop_last = false;                  ///< drops a last batch that is not full
  NeighborDraw draw = NeighborDraw::kNeighbor;  ///< see DrawOptions
  bool replace = false;                         ///< see DrawOptions
  bool layer_dependency = false;                ///< see DrawOptions
  std::string edge_weights = {};                ///< column of edata(): see NeighborSource
  std::string node_ids = {};                    ///< column of ndata(): see NeighborSource
  bool parent_degrees = false;                  ///< see BlockSampler
  /// The workers also build every block's rows by source, which gradients read; else the backward
  /// pass builds them.
  bool prepare_backward = true;
  /// Undefined: an epoch takes each seed once. float [number of seeds]: it draws as many seeds with
  /// replacement, in proportion to these weights; see Batch::output_counts.
  at::Tensor seed_weights = {};
  /// Column of ndata() with integer classes: an epoch draws as many seeds with replacement, each
  /// class equally often on average. A batch larger than a class repeats its seeds, so only losses
  /// weighted by Batch::output_counts are balanced. Not with seed_weights.
  std::string balance_by = {};
  /// Layer-wise sampling (see LayerSampler) instead of fanouts, with a graph on the CPU: nodes
  /// drawn for each layer below the seeds, inputs first, 1 to 255 numbers of at least 1. A block's
  /// sources are its destinations, then the drawn nodes; its edges come from drawn nodes. With
  /// their column "edge_weights" (float32) the mean of weight * x[u] over the block's edges is an
  /// unbiased estimate of the mean over all neighbours. So SAGEConv with kMean estimates the whole
  /// graph's result, and so does GraphConv if both have parent_degrees (not with kNone); other
  /// aggregators do not. Not with draw, replace, layer_dependency, edge_weights or node_ids.
  std::vector<std::int64_t> layer_sizes = {};
};

/// Yields mini-batches of blocks with the rows of features and labels, in any dtype (sparse CSR
/// stays sparse), gathered on the graph's device. A batch depends only on (options.seed, epoch,
/// index). See Batches for epochs, workers and errors. With a graph on the CPU, workers prepare the
/// batches and use a CUDA device's default stream. With a graph on a CUDA device, the caller
/// prepares them on its current stream; statistics then count only host time of gathers and
/// transfers.
class MEZZO_API BlockLoader : public Batches<Batch> {
 public:
  /// graph: on the CPU or on options.device, which then draws the same neighbours (without workers;
  /// see NeighborSource for what a GPU does not support). The loader shares the graph's present
  /// columns; do not write to them during a loop. seeds: integers [n] in [0, num_nodes), or bool
  /// [num_nodes], on the CPU or the graph's device; equal seeds of a batch are merged (see
  /// Batch::output_counts). Throws InvalidArgument. Builds the graph's rows by destination.
  BlockLoader(const Graph& graph, const at::Tensor& seeds, BlockLoaderOptions options);
};

}  // namespace mezzo
