#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/graph.h"
#include "mezzo/sampling/batches.h"
#include "mezzo/sampling/blocks/block_sampler.h"

namespace mezzo {

/// A mini-batch for a model of layers; on the loader's device.
class MEZZO_API Batch {
 public:
  Blocks blocks;            ///< input layer first
  at::Tensor input_nodes;   ///< int64, the sources of the first block, ids of the graph
  at::Tensor output_nodes;  ///< int64, the seeds: the destinations of the last block
  /// float32 [seeds], how often each seed is in the batch (drawn seeds may repeat), by which a loss
  /// is to be weighted: the sum of count * loss over the sum of counts. Undefined: once each.
  at::Tensor output_counts;
  std::int64_t index = 0;  ///< of the batch in its epoch

  /// The column's rows of input_nodes. Throws InvalidArgument unless the loader was asked for it.
  const at::Tensor& features(const std::string& column) const;
  /// The column's rows of output_nodes, likewise.
  const at::Tensor& labels(const std::string& column) const;

  std::map<std::string, at::Tensor> feature_columns, label_columns;  ///< what was asked for
};

/// How a BlockLoader cuts its seeds into batches, draws and gathers.
struct BlockLoaderOptions {
  /// Input layer first; kAllNeighbors (-1): every neighbour. Not with layer_sizes.
  std::vector<std::int64_t> fanouts = {};
  std::int64_t batch_size = 1024;          ///< seeds, >= 1
  bool shuffle = false;                    ///< a new order each epoch
  std::vector<std::string> features = {};  ///< columns of ndata() to gather for the input nodes
  std::vector<std::string> labels = {};    ///< columns of ndata() to gather for the seeds
  at::Device device = at::kCPU;  ///< where the batches are given out; a CUDA device has to be there
  std::int64_t num_workers = 0;  ///< see PipelineOptions; 0 with a graph on a CUDA device
  std::int64_t prefetch = 2;     ///< see PipelineOptions
  std::uint64_t seed = 0;        ///< of the order of the seeds and of all draws
  bool drop_last = false;        ///< leaves out a last batch that is not full
  NeighborDraw draw = NeighborDraw::kNeighbor;  ///< see DrawOptions
  bool replace = false;                         ///< see DrawOptions
  bool layer_dependency = false;                ///< see DrawOptions
  std::string edge_weights = {};                ///< column of edata(): see NeighborSource
  std::string node_ids = {};                    ///< column of ndata(): see NeighborSource
  bool parent_degrees = false;                  ///< see BlockSampler
  /// The workers also build what gradients need of every block: its rows by source. Without it the
  /// backward pass builds them when first needed.
  bool prepare_backward = true;
  /// Which seeds an epoch takes. Empty: each once. float [number of seeds]: as many as there are
  /// seeds, drawn with replacement in proportion to these weights; see Batch::output_counts.
  at::Tensor seed_weights = {};
  /// Column of ndata() (integers): as many seeds as there are, drawn with replacement, each class
  /// equally often on average. A batch larger than a class holds each of its seeds many times, so
  /// only losses weighted by Batch::output_counts are balanced. Not with seed_weights.
  std::string balance_by = {};
  /// Instead of fanouts, with a graph on the CPU: nodes drawn for each layer below the seeds,
  /// inputs first, 1 to 255 numbers of at least 1 (layer-wise sampling, see LayerSampler). The
  /// sources of a block are its destinations, then the drawn nodes; it has the edges from drawn
  /// nodes alone, and their column "edge_weights" (float32), with which the mean of weight * x[u]
  /// over the edges here estimates the mean over all neighbours without bias, so SAGEConv's kMean
  /// the whole graph's result, and GraphConv's too if both have parent_degrees (not under kNone).
  /// Other aggregators of SAGEConv estimate nothing with them. Not with the options of other draws:
  /// draw, replace, layer_dependency, edge_weights, node_ids.
  std::vector<std::int64_t> layer_sizes = {};
};

/// Passes over seeds and gives mini-batches of blocks with the rows of features and labels, in any
/// dtype (sparse CSR ones stay so), gathered where the graph is. A batch depends on (options.seed,
/// epoch, index) alone. See Batches for epochs, workers and errors. Of a graph on the CPU workers
/// prepare batches, and queue what they do on a CUDA device on its default stream. Of a graph on a
/// CUDA device the caller does, on its current stream, so that all that touches a batch is queued
/// in order; gathers and transfers are queued only, so their times are those of the host.
class MEZZO_API BlockLoader : public Batches<Batch> {
 public:
  /// graph: on the CPU, or on options.device, where neighbours are drawn then (the same ones; see
  /// NeighborSource for what is not available there; without workers); its columns are those of now
  /// and are not copied: they must not be written to while a loop runs. seeds: integers [n] in [0,
  /// num_nodes), or bool [num_nodes], on the CPU or the graph's device; within a batch a seed that
  /// is there twice stands once (see Batch::output_counts); no seeds: no batches. Throws
  /// InvalidArgument that names the option, what was expected and what was given. Builds the
  /// graph's rows by destination.
  BlockLoader(const Graph& graph, const at::Tensor& seeds, BlockLoaderOptions options);

 private:
  BlockLoader(const Graph& graph, const at::Tensor& seeds, const BlockLoaderOptions& options,
              const std::shared_ptr<PipelineCounters>& counters);
};

}  // namespace mezzo
