#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/frame.h"
#include "mezzo/graph/graph.h"
#include "mezzo/graph/topology.h"
#include "mezzo/sampling/batches.h"
#include "mezzo/sampling/blocks/block.h"
#include "mezzo/sampling/blocks/block_sampler.h"

namespace mezzo {

namespace detail {
class EdgeLookup;
}

/// The distribution of the destinations of negative edges.
enum class NegativeDistribution : std::uint8_t {
  kUniform,  ///< over all nodes
  kDegree,   ///< in proportion to in-degree^0.75, as word2vec draws words
};

/// The most pairs that one call draws.
inline constexpr std::int64_t kMostNegatives = std::int64_t{1} << 31;

/// Which node pairs count as negative.
struct NegativeOptions {
  NegativeDistribution distribution = NegativeDistribution::kUniform;
  bool exclude_edges = true;   ///< no pair with an edge from src to dst in the graph
  bool exclude_loops = false;  ///< no pair of a node with itself
};

/// Pairs of nodes: int64 each, on the CPU.
struct NodePairs {
  at::Tensor src, dst;
};

/// Draws pairs of nodes for link prediction. Immutable, thread-safe. It redraws excluded pairs;
/// after 64 tries it lists the allowed pairs, so the distribution is exact even if few are allowed.
/// Draws are independent: pairs may repeat. The list costs pairs() once O(N + E) time and 8 bytes
/// per source.
class MEZZO_API NegativeSampler {
 public:
  /// topology: on the CPU. Copies the edges as int64 if they are excluded: O(E). Throws
  /// InvalidArgument for another device, and for kDegree without an edge.
  explicit NegativeSampler(const Topology& topology, NegativeOptions options = {});

  /// Internal: shares a lookup of the topology's edges, if they are excluded.
  NegativeSampler(const Topology& topology, NegativeOptions options,
                  std::shared_ptr<const detail::EdgeLookup> edges);

  /// `count` (in [0, kMostNegatives]) pairs: [count] each. Sources are uniform, destinations follow
  /// the distribution, conditional on an allowed pair. Throws InvalidArgument if no pair is
  /// allowed.
  NodePairs pairs(std::int64_t count, const BatchKey& key) const;

  /// `num_negatives` (>= 0) destinations for each of `sources` (integers [n] in [0, num_src)):
  /// int64 [n, num_negatives], at most kMostNegatives in all. Throws InvalidArgument for more, and
  /// for a source without an allowed destination.
  at::Tensor destinations(const at::Tensor& sources, std::int64_t num_negatives,
                          const BatchKey& key) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

/// `count` pairs of nodes without an edge from the first to the second; see NegativeSampler.
/// Deterministic for equal seeds.
MEZZO_API NodePairs negative_edges(const Topology& topology, std::int64_t count,
                                   NegativeOptions options = {}, std::uint64_t seed = 0);

/// The edges excluded from a batch's blocks, so that a model cannot read what it must predict.
enum class EdgeExclusion : std::uint8_t {
  kNone,     ///< none
  kSelf,     ///< the seed edges of the batch
  kReverse,  ///< these, and every edge from the destination of one to its source
};

/// A mini-batch of edges, for their labels or for link prediction; on the loader's device.
class MEZZO_API EdgeMiniBatch {
 public:
  Blocks blocks;            ///< input layer first
  at::Tensor input_nodes;   ///< int64, the sources of the first block, ids of the graph
  at::Tensor output_nodes;  ///< int64, ascending: the ends of all pairs, the last destinations
  at::Tensor seed_edges;    ///< int64 [B], ids of the graph, or of the loader's pairs
  NodePairs positives;      ///< the ends of the seed edges, [B]: rows of output_nodes
  NodePairs negatives;      ///< [B * num_negatives], grouped by positive: rows of output_nodes
  Topology pairs;           ///< the positives, then the negatives, as edges among output_nodes
  std::int64_t index = 0;   ///< of the batch in its epoch

  /// The column's rows of input_nodes. Throws InvalidArgument if the loader does not gather it.
  const at::Tensor& features(const std::string& column) const;

  Columns feature_columns;  ///< gathered rows by name
  Columns edge_data;        ///< the seed edges' rows of the loader's edge_data
};

/// Options of an EdgeLoader.
struct EdgeLoaderOptions {
  std::vector<std::int64_t> fanouts;  ///< input layer first; kAllNeighbors (-1): every neighbour
  std::int64_t batch_size = 1024;     ///< seed edges, >= 1
  bool shuffle = false;               ///< a new order each epoch
  /// Per seed edge, >= 0: its source with another node. At most kMostNegatives in a batch.
  std::int64_t num_negatives = 1;
  NegativeOptions negatives = {};                ///< see NegativeSampler
  EdgeExclusion exclude = EdgeExclusion::kNone;  ///< edges excluded from the blocks
  std::vector<std::string> features = {};  ///< columns of ndata() to gather for the input nodes
  /// [number of edges or pairs, ...] each, strided, on the CPU, such as labels, to gather for the
  /// seed edges.
  Columns edge_data = {};
  at::Device device = at::kCPU;  ///< of the batches
  std::int64_t num_workers = 0;  ///< see PipelineOptions
  std::int64_t prefetch = 2;     ///< see PipelineOptions
  std::uint64_t seed = 0;        ///< of the order of the edges and of all draws
  bool drop_last = false;        ///< drops a last batch that is not full
  bool replace = false;          ///< see DrawOptions
  bool parent_degrees = false;   ///< see BlockSampler
};

/// Yields mini-batches of edges: the seed edges as positive pairs, drawn negative pairs, and blocks
/// of sampled neighbours for the ends of both. Excluded edges are removed after the draw, so a row
/// may have fewer edges than its fan-out. The workers also build the rows by source, which
/// gradients read. See Batches for epochs, workers and errors.
class MEZZO_API EdgeLoader : public Batches<EdgeMiniBatch> {
 public:
  /// graph: on the CPU; do not write to its columns during a loop. edges: integers [n] in [0,
  /// num_edges), or bool [num_edges]; equal edges of a batch are merged. Copies the edges once as
  /// int64 if exclude is kReverse or the negatives exclude edges, and builds both ends of every
  /// edge unless the rows by destination are in edge-id order. Throws InvalidArgument.
  EdgeLoader(const Graph& graph, const at::Tensor& edges, EdgeLoaderOptions options);
  /// The same with seeds among other pairs of the graph's nodes than its edges, such as edges in
  /// another order: the edges of `pairs`, on the CPU; `seeds` and edge_data are of them. Excluded
  /// are the graph's edges between the ends of a pair.
  EdgeLoader(const Graph& graph, const Topology& pairs, const at::Tensor& seeds,
             EdgeLoaderOptions options);
};

}  // namespace mezzo
