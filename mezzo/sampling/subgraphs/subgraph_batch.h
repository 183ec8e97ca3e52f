#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/graph.h"
#include "mezzo/sampling/pipeline.h"
#include "mezzo/sampling/workspace.h"

namespace mezzo {

/// A mini-batch that is a graph by itself: some nodes and all edges among them; on the loader's
/// device.
class MEZZO_API SubgraphBatch {
 public:
  Graph graph;              ///< ndata(): the columns asked for; edges grouped by destination
  at::Tensor nodes;         ///< int64 [num_nodes], ids of the parent
  at::Tensor edges;         ///< int64 [num_edges], ids of the parent
  at::Tensor node_weights;  ///< float32 [num_nodes], for the loss; undefined unless normalised
  at::Tensor edge_weights;  ///< float32 [num_edges], for the messages; likewise
  std::int64_t index = 0;   ///< of the batch in its epoch

  /// The column's rows of the nodes. Throws InvalidArgument unless the loader was asked for it.
  const at::Tensor& features(const std::string& column) const;
  /// Likewise.
  const at::Tensor& labels(const std::string& column) const;
};

namespace detail {

/// The library's own: the nodes of a batch and all edges among them.
struct InducedSubgraph {
  Topology topology;  ///< rows by destination, in the order of the nodes; ids as in the parent
  at::Tensor edges;   ///< int64, ids of the parent: row by row, ascending in each
};

/// nodes: int64 [n], distinct, in [0, num_nodes), on the CPU; neither is checked. Time and memory
/// in proportion to the in-edges of the nodes. Equal to subgraph() but for the order of the edges.
MEZZO_API InducedSubgraph induced_subgraph(const Topology& topology, const at::Tensor& nodes,
                                           Workspace& workspace);

/// Makes SubgraphBatches of a graph's nodes. Immutable, for several threads at once.
class SubgraphSource {
 public:
  /// operation: opens the text of the errors. graph: on the CPU. features, labels: columns of its
  /// nodes that go into a batch. Throws InvalidArgument for others and for a device that is none.
  SubgraphSource(std::string_view operation, const Graph& graph,
                 const std::vector<std::string>& features, const std::vector<std::string>& labels,
                 at::Device device);

  const Topology& topology() const { return topology_; }
  at::Device device() const { return device_; }

  /// The structure, and the rows of the columns; still on the CPU. Adds to `took`.
  SubgraphBatch make(const at::Tensor& nodes, std::int64_t index, Workspace& workspace,
                     PipelineStatistics& took) const;
  /// Moves everything to the device and builds there the rows by source, which gradients read. Adds
  /// to `took`.
  void move(SubgraphBatch& batch, PipelineStatistics& took) const;

 private:
  Topology topology_;
  Columns columns_;
  at::Device device_;
};

}  // namespace detail
}  // namespace mezzo
