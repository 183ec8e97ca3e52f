#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"
#include "mezzo/sampling/blocks/block.h"
#include "mezzo/sampling/workspace.h"

namespace mezzo {

namespace detail {
struct SampledBatch;
}

/// The edges along which neighbours are drawn.
enum class NeighborType : std::uint8_t {
  kIn,   ///< neighbours are the sources of a node's in-edges
  kOut,  ///< neighbours are the destinations of a node's out-edges
};

/// A fan-out that takes every neighbour.
inline constexpr std::int64_t kAllNeighbors = -1;

/// The largest fan-out with replacement.
inline constexpr std::int64_t kLargestFanoutReplacing = std::numeric_limits<std::int32_t>::max();

/// How the neighbours of a node are drawn.
enum class NeighborDraw : std::uint8_t {
  kNeighbor,  ///< `fanout` of each node, independently (GraphSAGE)
  kLabor,     ///< about `fanout`, with one random number per *neighbour* (LABOR, Balin and
              ///< Catalyurek, NeurIPS'23): nodes share neighbours, so a batch has fewer nodes
};

/// How the neighbours of the nodes of one hop are drawn.
struct DrawOptions {
  NeighborDraw draw = NeighborDraw::kNeighbor;  ///< independently, or by LABOR
  std::int64_t fanout = kAllNeighbors;          ///< >= 0, or kAllNeighbors
  /// kNeighbor: exactly `fanout` draws with replacement for each node with a neighbour; `fanout` in
  /// [0, kLargestFanoutReplacing].
  bool replace = false;
  NeighborType type = NeighborType::kIn;  ///< must equal the NeighborSource's
  /// LABOR: all hops of a batch share the random number of a node.
  bool layer_dependency = false;
};

/// Neighbours drawn for a list of nodes: rows in the order of the nodes, each in CSR order (also
/// with replacement). On the graph's device.
struct DrawnNeighbors {
  at::Tensor offsets;    ///< int64 [n + 1]
  at::Tensor neighbors;  ///< of the graph's id dtype [m]
  at::Tensor edges;      ///< of the graph's id dtype [m], ids of the graph
  at::Tensor weights;    ///< float32 [m]: 1 / probability of the draw; undefined unless kLabor
};

/// Draws neighbours in a graph on the CPU or a CUDA device, with equal results. Immutable,
/// thread-safe. Holds the graph's rows, and the weights of edges in their order. CUDA supports
/// neither edge_weights, node_ids nor LABOR.
class MEZZO_API NeighborSource {
 public:
  /// topology: of one set of nodes; its rows by destination (kOut: by source) are built.
  /// edge_weights: float [num_edges], >= 0 and finite, stored as float32: probabilities in
  /// proportion; undefined: uniform. node_ids: int64 [num_nodes], distinct, the ids that LABOR
  /// hashes, so that a part of a graph draws like the whole (Dataset::part); undefined: 0, 1, ....
  /// Throws InvalidArgument for the first edge with a bad weight, and for weights or ids with a
  /// topology on a CUDA device.
  NeighborSource(const Topology& topology, NeighborType type, const at::Tensor& edge_weights = {},
                 const at::Tensor& node_ids = {});

  /// nodes: int32 or int64 [n] in [0, num_nodes), n < 2^32 (on CUDA: 2^30), on the topology's
  /// device, range not checked; repeated nodes draw repeatedly. hop: in [0, 2^8); hops draw
  /// independently. Throws InvalidArgument for options that contradict each other or the source.
  /// Cost: O(drawn) for kNeighbor without weights, else O(degrees). Allocates the result. Uses
  /// libtorch's threads; deterministic for any number. Synchronises once on CUDA.
  DrawnNeighbors draw(const at::Tensor& nodes, const DrawOptions& options, const BatchKey& key,
                      std::int64_t hop, Workspace& workspace) const;

  const Topology& topology() const { return topology_; }
  std::int64_t num_nodes() const { return topology_.num_dst(); }  ///< of the whole graph
  NeighborType type() const { return type_; }
  /// The rows by destination (kOut: by source).
  const Adjacency& rows() const;
  /// float32, in the order of rows(); undefined: uniform.
  const at::Tensor& row_weights() const { return weights_; }
  const at::Tensor& node_ids() const { return node_ids_; }  ///< undefined: 0, 1, ...

 private:
  Topology topology_;
  NeighborType type_;
  at::Tensor weights_;   ///< float32 in the order of rows(), or undefined
  at::Tensor node_ids_;  ///< int64 [num_nodes], or undefined
};

/// Draws the blocks of a batch: hop by hop from the seeds, each hop renumbered (destinations first,
/// then new nodes in the order of their draws). Immutable, thread-safe.
class MEZZO_API BlockSampler {
 public:
  struct Options {
    std::vector<std::int64_t> fanouts;            ///< input layer first, each >= 0 or kAllNeighbors
    NeighborDraw draw = NeighborDraw::kNeighbor;  ///< see DrawOptions
    bool replace = false;                         ///< see DrawOptions
    bool layer_dependency = false;                ///< see DrawOptions
    at::Tensor edge_weights = {};                 ///< see NeighborSource
    at::Tensor node_ids = {};                     ///< see NeighborSource
    /// Blocks have the degrees of their nodes in the whole graph (Topology::with_parent_degrees)
    /// for GraphConv's option of this name; if `topology` has parent degrees, those.
    bool parent_degrees = false;
  };
  /// topology: see NeighborSource. Throws InvalidArgument for options that contradict each other.
  BlockSampler(const Topology& topology, Options options);

  /// Draws one batch with a key from libtorch's CPU generator (torch::manual_seed). See below.
  Blocks sample(const at::Tensor& seeds) const;
  /// Allocates a Workspace for this call, which costs a pass over 4 bytes per node.
  Blocks sample(const at::Tensor& seeds, const BatchKey& key) const;
  /// seeds: distinct integers [n] in [0, num_nodes), on the CPU or the topology's device, checked.
  /// Equal for equal seeds and key, on every device. A LABOR block has the column "edge_weights"
  /// (float32): 1 / probability. A sum over the block with these weights estimates the sum over all
  /// neighbours. Allocates the blocks on the topology's device. On CUDA it synchronises twice a hop
  /// and once or twice more, and a hop must have fewer than 2^31 nodes and neighbours.
  Blocks sample(const at::Tensor& seeds, const BatchKey& key, Workspace& workspace) const;

  /// The blocks of a batch.
  std::int64_t num_hops() const { return static_cast<std::int64_t>(options_.fanouts.size()); }

 private:
  template <class Id>
  detail::SampledBatch sample_as(const at::Tensor& seeds, const BatchKey& key,
                                 Workspace& workspace) const;
  Blocks blocks_of(const detail::SampledBatch& batch) const;
  DrawOptions draw_options(std::int64_t layer) const;

  Options options_;
  NeighborSource source_;
  at::Tensor out_degrees_;  ///< of the graph's id dtype [num_nodes], with parent_degrees
  at::Tensor in_degrees_;   ///< the same, if `topology` has parent degrees
};

/// A BlockSampler that draws by LABOR (NeighborDraw::kLabor).
class LaborSampler : public BlockSampler {
 public:
  struct Options {
    std::vector<std::int64_t> fanouts;  ///< input layer first, each >= 0 or kAllNeighbors
    bool layer_dependency = false;      ///< see DrawOptions
    at::Tensor edge_weights = {};       ///< see NeighborSource
    bool parent_degrees = false;        ///< see BlockSampler
  };

  /// topology: see NeighborSource. Throws InvalidArgument for options that contradict each other.
  LaborSampler(const Topology& topology, Options options)
      : BlockSampler(topology, {.fanouts = std::move(options.fanouts),
                                .draw = NeighborDraw::kLabor,
                                .layer_dependency = options.layer_dependency,
                                .edge_weights = std::move(options.edge_weights),
                                .parent_degrees = options.parent_degrees}) {}
};

}  // namespace mezzo
