#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

#include "mezzo/graph/topology.h"
#include "mezzo/nn/model/model.h"
#include "mezzo/predict/live_graph.h"
#include "mezzo/sampling/blocks/block_sampler.h"
#include "mezzo/sampling/workspace_state.h"

/// Blocks of a graph that changes. Internal to predict; not exported.
namespace mezzo::detail {

/// What a layer of a model reads of the graph.
enum class EdgeRead : std::uint8_t {
  kNothing,  ///< no edges
  kEdges,
  kDegrees,  ///< edges, and degrees of the whole graph
  kWeights,  ///< the weights of the edges
  kFactors,  ///< degrees, and the weights over the roots of their sums at both ends
  kRows,     ///< the rows of the edges
};

/// For models of this kind on a graph with or without edge rows.
EdgeRead edge_read_of(nn::ModelKind kind, bool has_rows);

/// Whether a node's result depends on all out-edges of its in-neighbours.
constexpr bool reads_out_edges(EdgeRead read) {
  return read == EdgeRead::kDegrees || read == EdgeRead::kFactors;
}

/// Which in-edges a block has: all, or for each node at most `fanout`, drawn uniformly.
struct EdgeDraw {
  std::int64_t fanout = kAllNeighbors;
  std::uint64_t seed = 0;
  std::int64_t layer = 0;  ///< below 256; layers draw independently
};

/// The edges into some nodes, as nn::Model::forward_layer() takes them.
struct LiveBlock {
  Topology topology;
  at::Tensor edge_rows;  ///< undefined: none
};

/// The block of the edges into all numbered nodes, in the order of LiveGraph. Numbers the other
/// sources after them. O(edges of the block), and with a fanout O(fanout^2) a node.
LiveBlock make_block(const LiveGraph& graph, EdgeRead read, const EdgeDraw& draw,
                     NodeNumbers& numbers);

/// Blocks of all edges into some nodes, whose sources are all nodes of the graph, by their ids: for
/// layers that read tables of all nodes. Made again after an update.
class TableBlocks {
 public:
  /// O(num_nodes) if `read` counts out-edges.
  TableBlocks(const LiveGraph& graph, EdgeRead read);
  /// The block into `nodes`. O(edges of the block), and O(num_nodes) in the same case.
  LiveBlock into(std::span<const std::int32_t> nodes) const;

 private:
  const LiveGraph& graph_;
  EdgeRead read_;
  at::Tensor out_degrees_;
};

}  // namespace mezzo::detail
