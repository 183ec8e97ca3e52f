#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"
#include "mezzo/sampling/batch_key.h"
#include "mezzo/sampling/blocks/block.h"
#include "mezzo/sampling/workspace.h"

namespace mezzo {

namespace detail {
struct SampledBatch;
}

/// Along which edges a neighbourhood grows: those into a node, or those out of it.
enum class NeighborType : std::uint8_t {
  kIn,   ///< neighbours are the sources of a node's in-edges
  kOut,  ///< neighbours are the destinations of a node's out-edges
};

/// A fan-out that takes every neighbour.
inline constexpr std::int64_t kAllNeighbors = -1;

/// The largest fan-out of draws with replacement.
inline constexpr std::int64_t kLargestFanoutReplacing = std::numeric_limits<std::int32_t>::max();

/// How the neighbours of a node are drawn.
enum class NeighborDraw : std::uint8_t {
  kNeighbor,  ///< `fanout` of each node by itself (GraphSAGE)
  kLabor,     ///< about `fanout`, by one random number for each *neighbour* (LABOR, Balin and
              ///< Catalyurek, NeurIPS'23): nodes share neighbours, so fewer are needed in all
};

/// How the neighbours of the nodes of one hop are drawn.
struct DrawOptions {
  NeighborDraw draw = NeighborDraw::kNeighbor;  ///< by itself, or by LABOR
  std::int64_t fanout = kAllNeighbors;          ///< >= 0, or kAllNeighbors
  /// kNeighbor: exactly `fanout` draws of each node with a neighbour. The fan-out is in
  /// [0, kLargestFanoutReplacing] then, not kAllNeighbors.
  bool replace = false;
  NeighborType type = NeighborType::kIn;  ///< that of the NeighborSource
  /// LABOR: one random number a node for all hops of a batch instead of one for each hop.
  bool layer_dependency = false;
};

/// Neighbours drawn for a list of nodes; rows in the order of the nodes, and in each row by
/// ascending slot (with replacement too). On the graph's device.
struct DrawnNeighbors {
  at::Tensor offsets;    ///< int64 [n + 1]
  at::Tensor neighbors;  ///< of the graph's id dtype [m]
  at::Tensor edges;      ///< of the graph's id dtype [m], ids in the graph
  at::Tensor weights;    ///< float32 [m]: 1 / probability of being drawn; undefined unless kLabor
};

/// Draws neighbours in a graph, on the CPU or a CUDA device, the same on both. Immutable, to be
/// used from several threads at once. Holds the graph's rows on its device and, where edges have
/// weights, these by slot. On CUDA without edge_weights, node_ids and LABOR.
class MEZZO_API NeighborSource {
 public:
  /// topology: of one set of nodes. edge_weights: float [num_edges], >= 0 and finite,
  /// by edge, kept as float32: the probability of an edge is in proportion (never drawn where 0);
  /// undefined: uniform. Throws InvalidArgument that names the first edge with another weight, and
  /// for weights or ids with a topology on a CUDA device.
  /// Builds the topology's rows by destination (kOut: by source).
  /// node_ids: int64 [num_nodes], distinct, what LABOR's numbers go by, so that a part of a graph
  /// draws as the graph (Dataset::part); undefined: the nodes' own.
  NeighborSource(const Topology& topology, NeighborType type, const at::Tensor& edge_weights = {},
                 const at::Tensor& node_ids = {});

  /// nodes: int32 or int64 [n] in [0, num_nodes), n < 2^32 (on CUDA: 2^30), on the device of the
  /// topology, not checked; nodes that are there twice
  /// draw twice. hop: in [0, 2^8), separates the draws of the hops. Throws InvalidArgument for
  /// options that contradict each other or the source. Cost: O(drawn) for kNeighbor without
  /// weights, else O(degrees). Allocates the result. On libtorch's threads; equal for any number of
  /// them. On CUDA it synchronises once.
  DrawnNeighbors draw(const at::Tensor& nodes, const DrawOptions& options, const BatchKey& key,
                      std::int64_t hop, Workspace& workspace) const;

  const Topology& topology() const { return topology_; }          ///< in which is drawn
  std::int64_t num_nodes() const { return topology_.num_dst(); }  ///< of the whole graph
  NeighborType type() const { return type_; }                     ///< along which edges
  /// The rows in which neighbours are drawn: by destination (kOut: by source).
  const Adjacency& rows() const;
  /// The weights by slot of rows(), float32; undefined where all are equal.
  const at::Tensor& slot_weights() const { return weights_; }
  const at::Tensor& node_ids() const { return node_ids_; }  ///< undefined: the nodes' own

 private:
  Topology topology_;
  NeighborType type_;
  at::Tensor weights_;   ///< float32 by slot, or undefined
  at::Tensor node_ids_;  ///< int64 [num_nodes], or undefined
};

/// Draws the blocks of a batch: hop by hop from the seeds, each hop renumbered (destinations first,
/// then new nodes in the order in which they were drawn). Immutable, for several threads at once.
class MEZZO_API BlockSampler {
 public:
  /// How the neighbours of every hop are drawn.
  struct Options {
    std::vector<std::int64_t> fanouts;            ///< input layer first, each >= 0 or kAllNeighbors
    NeighborDraw draw = NeighborDraw::kNeighbor;  ///< see DrawOptions
    bool replace = false;                         ///< see DrawOptions
    bool layer_dependency = false;                ///< see DrawOptions
    at::Tensor edge_weights = {};                 ///< see NeighborSource
    at::Tensor node_ids = {};                     ///< see NeighborSource
    /// Blocks have the degrees of their nodes in the whole graph (Topology::with_parent_degrees),
    /// which GraphConv takes with its option of this name. If `topology` is itself a sample with
    /// its parent's degrees, those.
    bool parent_degrees = false;
  };
  /// topology: see NeighborSource. Throws InvalidArgument for options that contradict each other.
  BlockSampler(const Topology& topology, Options options);

  /// Draws one batch by a key from libtorch's CPU generator (torch::manual_seed). See below.
  Blocks sample(const at::Tensor& seeds) const;
  /// With a Workspace for this call alone, which costs a pass over 4 bytes for each node.
  Blocks sample(const at::Tensor& seeds, const BatchKey& key) const;
  /// seeds: distinct integers [n] in [0, num_nodes), on the CPU or the topology's device, checked.
  /// Equal for equal seeds and key, on every device. A LABOR block has the column "edge_weights"
  /// (float32): 1 / probability, so that the weighted sum of what is drawn estimates the sum over
  /// all neighbours. Allocates the blocks, which are on the topology's device; on CUDA it
  /// synchronises twice a hop and once or twice more, and a hop has fewer than 2^31 nodes and
  /// neighbours.
  Blocks sample(const at::Tensor& seeds, const BatchKey& key, Workspace& workspace) const;

  /// Blocks of a batch.
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
  at::Tensor in_degrees_;   ///< likewise; undefined: the lengths of the rows
};

}  // namespace mezzo
