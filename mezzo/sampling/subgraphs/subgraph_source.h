#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/graph.h"
#include "mezzo/sampling/subgraphs/subgraph_loaders.h"
#include "mezzo/sampling/workspace.h"

/// Shared by the loaders of subgraphs. Internal to sampling.
namespace mezzo::detail {

/// Some nodes and all edges among them.
struct InducedSubgraph {
  Topology topology;  ///< rows by destination, in the order of the nodes; the parent's id dtype
  at::Tensor edges;   ///< int64, ids of the parent: row by row, ascending in each
};

/// nodes: int64 [n], distinct, in [0, num_nodes), on the CPU; not checked. Time and memory: the
/// in-edges of the nodes. Equal to subgraph() except for the order of the edges.
MEZZO_API InducedSubgraph induced_subgraph(const Topology& topology, const at::Tensor& nodes,
                                           Workspace& workspace);

/// Makes SubgraphBatches of nodes of a graph. Immutable, thread-safe.
class SubgraphSource {
 public:
  /// operation: the prefix of errors. graph: on the CPU. features, labels: columns of ndata() for
  /// the batches. Throws InvalidArgument for a missing column or device.
  SubgraphSource(std::string_view operation, const Graph& graph,
                 const std::vector<std::string>& features, const std::vector<std::string>& labels,
                 at::Device device);

  const Topology& topology() const { return topology_; }

  /// The structure and the rows of the columns, still on the CPU. Adds to `statistics`.
  SubgraphBatch make(const at::Tensor& nodes, std::int64_t index, Workspace& workspace,
                     PipelineStatistics& statistics) const;
  /// Moves everything to the device and builds the rows by source, which gradients read. Adds to
  /// `statistics`.
  void move(SubgraphBatch& batch, PipelineStatistics& statistics) const;

 private:
  Topology topology_;
  Columns columns_;
  at::Device device_;
};

}  // namespace mezzo::detail
