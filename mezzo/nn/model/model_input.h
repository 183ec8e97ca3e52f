#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/graph.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/model/head.h"
#include "mezzo/sampling/blocks/block.h"

namespace mezzo::nn {

/// The graph input of a model: one structure for all layers, or one block for each layer. A view:
/// converts implicitly from its argument, which must outlive it.
class ModelInput {
 public:
  ModelInput(const Topology& topology) : topology_(&topology) {}    // NOLINT: implicit
  ModelInput(const Graph& graph) : topology_(&graph.topology()) {}  // NOLINT
  ModelInput(const Block& block) : topology_(&block.topology()) {}  // NOLINT
  ModelInput(const Blocks& blocks) : blocks_(&blocks) {}            // NOLINT
  /// edge_rows: what every layer reads of the edges: undefined, or floating [num_edges], the
  /// factors of the messages; if the kind takes_edge_features(), these, floating [num_edges, F].
  ModelInput(const Topology& topology, at::Tensor edge_rows)
      : topology_(&topology), edge_rows_(std::move(edge_rows)) {}
  /// Blocks with edge rows, in the column `edge_column` of their edges. Weights must be factors for
  /// a mean over these edges, as BlockLoader writes for layer_sizes. LABOR writes weights for sums
  /// to a column of the same name: they give wrong results, which cannot be detected here.
  ModelInput(const Blocks& blocks, std::string edge_column)
      : blocks_(&blocks), edge_column_(std::move(edge_column)) {}

  /// The same with what the outputs are for, which must outlive the result.
  ModelInput with_targets(const HeadTargets& targets) && {
    targets_ = &targets;
    return std::move(*this);
  }

  /// The structure for all layers; nullptr if the input is Blocks.
  const Topology* topology() const { return topology_; }
  /// The blocks, input layer first; nullptr if the input is one structure.
  const Blocks* blocks() const { return blocks_; }
  /// The structure for layer `index`: the block of that index, or the one for all layers. Throws
  /// InvalidArgument if there are fewer blocks.
  MEZZO_API const Topology& layer(std::int64_t index) const;
  /// The column of each block's edges that holds the edge rows; empty: none.
  const std::string& edge_column() const { return edge_column_; }
  /// The edge rows of the one structure; undefined: none.
  const at::Tensor& edge_rows() const { return edge_rows_; }
  /// What the head reads; nullptr: there is none.
  const HeadTargets* targets() const { return targets_; }

 private:
  const Topology* topology_ = nullptr;
  const Blocks* blocks_ = nullptr;
  std::string edge_column_;
  at::Tensor edge_rows_;
  const HeadTargets* targets_ = nullptr;
};

}  // namespace mezzo::nn
