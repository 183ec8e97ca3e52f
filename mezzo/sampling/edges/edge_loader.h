#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/core/type_list.h"
#include "mezzo/graph/frame.h"
#include "mezzo/graph/graph.h"
#include "mezzo/sampling/batches.h"
#include "mezzo/sampling/blocks/block.h"
#include "mezzo/sampling/blocks/block_sampler.h"
#include "mezzo/sampling/edges/negative_sampling.h"

namespace mezzo {

/// Which edges the blocks of a batch do not have, so that a model cannot read there what it is to
/// predict.
enum class EdgeExclusion : std::uint8_t {
  kNone,     ///< they have all that were drawn
  kSelf,     ///< the seed edges of the batch
  kReverse,  ///< these, and every edge from the destination of one to its source
};

/// A mini-batch for link prediction; on the loader's device.
class MEZZO_API EdgeMiniBatch {
 public:
  Blocks blocks;            ///< input layer first
  at::Tensor input_nodes;   ///< int64, the sources of the first block, ids of the graph
  at::Tensor output_nodes;  ///< int64, ascending: the ends of all pairs, the last destinations
  at::Tensor seed_edges;    ///< int64 [B], ids of the graph
  NodePairs positives;      ///< the ends of the seed edges, [B]: rows of output_nodes
  NodePairs negatives;      ///< [B * num_negatives], likewise: those of positive i stand together
  std::int64_t index = 0;   ///< of the batch in its epoch

  /// The column's rows of input_nodes. Throws InvalidArgument unless the loader was asked for it.
  const at::Tensor& features(const std::string& column) const;

  Columns feature_columns;  ///< what was asked for, by name
};

/// How an EdgeLoader cuts its edges into batches, draws and gathers.
struct EdgeLoaderOptions {
  std::vector<std::int64_t> fanouts;  ///< input layer first; kAllNeighbors (-1): every neighbour
  std::int64_t batch_size = 1024;     ///< seed edges, >= 1
  bool shuffle = false;               ///< a new order each epoch
  /// Of each seed edge, >= 0: its source with another node. At most kMostNegatives a batch.
  std::int64_t num_negatives = 1;
  NegativeOptions negatives = {};                ///< which pairs may be drawn
  EdgeExclusion exclude = EdgeExclusion::kNone;  ///< edges that the blocks do not have
  std::vector<std::string> features = {};  ///< columns of ndata() to gather for the input nodes
  at::Device device = at::kCPU;  ///< where the batches are given out; a CUDA device has to be there
  std::int64_t num_workers = 0;  ///< see PipelineOptions
  std::int64_t prefetch = 2;     ///< see PipelineOptions
  std::uint64_t seed = 0;        ///< of the order of the edges and of all draws
  bool drop_last = false;        ///< leaves out a last batch that is not full
  bool replace = false;          ///< see DrawOptions
  bool parent_degrees = false;   ///< see BlockSampler
};

/// Passes over edges and gives mini-batches for link prediction: the seed edges as positive pairs,
/// drawn negative ones, and blocks of sampled neighbours for the ends of both. Excluded edges are
/// taken out of what was drawn, so a row may then have fewer edges than its fan-out. The workers
/// also build what gradients need of the blocks, their rows by source. See Batches for epochs,
/// workers and errors.
class MEZZO_API EdgeLoader : public Batches<EdgeMiniBatch> {
 public:
  /// graph: on the CPU; its columns must stay as they are while a loop runs. edges: integers [n] in
  /// [0, num_edges), or bool [num_edges]; within a batch an edge that is there twice counts once;
  /// none: no batches. Copies the edges as int64 where exclude is kReverse or the negatives exclude
  /// edges (once), and builds both ends of every edge unless edge i is slot i of the graph's rows
  /// by destination. Throws InvalidArgument that names option, expected and given.
  EdgeLoader(const Graph& graph, const at::Tensor& edges, EdgeLoaderOptions options);

 private:
  EdgeLoader(const Graph& graph, const at::Tensor& edges, const EdgeLoaderOptions& options,
             const std::shared_ptr<PipelineCounters>& counters);
};

}  // namespace mezzo
