#pragma once

#include <string>
#include <utility>

#include "mezzo/graph/graph.h"
#include "mezzo/graph/topology.h"
#include "mezzo/sampling/blocks/block.h"

namespace mezzo::nn {

/// The graph input of a Model: one structure for all layers, or one block for each layer. A view:
/// converts implicitly from its argument, which must outlive it.
class ModelInput {
 public:
  ModelInput(const Topology& topology) : topology_(&topology) {}    // NOLINT: implicit
  ModelInput(const Graph& graph) : topology_(&graph.topology()) {}  // NOLINT
  ModelInput(const Block& block) : topology_(&block.topology()) {}  // NOLINT
  ModelInput(const Blocks& blocks) : blocks_(&blocks) {}            // NOLINT
  /// Blocks with edge weights: edge_weights names a column of their edges, floating [num_edges].
  /// The weights must be factors for a mean over these edges, as BlockLoader writes for
  /// layer_sizes. LABOR writes weights for sums to a column of the same name: they give wrong
  /// results, which cannot be detected here.
  ModelInput(const Blocks& blocks, std::string edge_weights)
      : blocks_(&blocks), edge_weights_(std::move(edge_weights)) {}

  /// The structure for all layers; nullptr if the input is Blocks.
  const Topology* topology() const { return topology_; }
  /// The blocks, input layer first; nullptr if the input is one structure.
  const Blocks* blocks() const { return blocks_; }
  /// The column of each block's edges that holds the edge weights; empty: none.
  const std::string& edge_weights() const { return edge_weights_; }

 private:
  const Topology* topology_ = nullptr;
  const Blocks* blocks_ = nullptr;
  std::string edge_weights_;
};

}  // namespace mezzo::nn
