#pragma once

#include <string>
#include <utility>

#include "mezzo/graph/graph.h"
#include "mezzo/graph/topology.h"
#include "mezzo/sampling/blocks/block.h"

namespace mezzo::nn {

/// What a Model runs on: one structure for all of its layers, or a block for each. A plain view,
/// made implicitly of the argument, which has to outlive it.
class ModelInput {
 public:
  ModelInput(const Topology& topology) : topology_(&topology) {}    // NOLINT: implicit
  ModelInput(const Graph& graph) : topology_(&graph.topology()) {}  // NOLINT
  ModelInput(const Block& block) : topology_(&block.topology()) {}  // NOLINT
  ModelInput(const Blocks& blocks) : blocks_(&blocks) {}            // NOLINT
  /// Blocks with weights: edge_weights names the column of their edges that holds them, floating
  /// [num_edges]. They must be factors for a mean over the edges here, as those of a BlockLoader
  /// with layer_sizes. LABOR's column, which has the same name, is for sums: with it the results
  /// are wrong, and nothing here can tell.
  ModelInput(const Blocks& blocks, std::string edge_weights)
      : blocks_(&blocks), edge_weights_(std::move(edge_weights)) {}

  /// The structure for all layers; nullptr where there are blocks.
  const Topology* topology() const { return topology_; }
  /// The blocks, input layer first; nullptr where there is one structure.
  const Blocks* blocks() const { return blocks_; }
  /// The column of each block's edges with the weights of the messages; empty: none.
  const std::string& edge_weights() const { return edge_weights_; }

 private:
  const Topology* topology_ = nullptr;
  const Blocks* blocks_ = nullptr;
  std::string edge_weights_;
};

}  // namespace mezzo::nn
