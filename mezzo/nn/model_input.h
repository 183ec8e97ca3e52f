#pragma once

#include "mezzo/graph/graph.h"
#include "mezzo/graph/topology.h"
#include "mezzo/sampling/block.h"

namespace mezzo::nn {

/// What a Model runs on: one structure for all of its layers, or a block for each. A plain view,
/// made implicitly of the argument, which has to outlive it.
class ModelInput {
 public:
  ModelInput(const Topology& topology) : topology_(&topology) {}    // NOLINT: implicit
  ModelInput(const Graph& graph) : topology_(&graph.topology()) {}  // NOLINT
  ModelInput(const Block& block) : topology_(&block.topology()) {}  // NOLINT
  ModelInput(const Blocks& blocks) : blocks_(&blocks) {}            // NOLINT

  /// The structure for all layers; nullptr where there are blocks.
  const Topology* topology() const { return topology_; }
  /// The blocks, input layer first; nullptr where there is one structure.
  const Blocks* blocks() const { return blocks_; }

 private:
  const Topology* topology_ = nullptr;
  const Blocks* blocks_ = nullptr;
};

}  // namespace mezzo::nn
