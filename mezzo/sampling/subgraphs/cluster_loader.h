#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/graph.h"
#include "mezzo/sampling/batches.h"
#include "mezzo/sampling/subgraphs/subgraph_batch.h"

namespace mezzo {

/// How a ClusterLoader cuts the graph, puts clusters together and gathers.
struct ClusterLoaderOptions {
  /// The cluster of each node, integers [num_nodes] in [0, num_nodes); see metis_partition.
  /// Undefined: metis_partition into num_parts, with this seed.
  at::Tensor parts = {};
  std::int64_t num_parts = 0;              ///< only without parts: in [1, num_nodes]
  std::int64_t clusters_per_batch = 1;     ///< >= 1
  bool shuffle = true;                     ///< other clusters together in each epoch
  std::vector<std::string> features = {};  ///< columns of ndata() that the batches get
  std::vector<std::string> labels = {};    ///< likewise
  at::Device device = at::kCPU;  ///< where the batches are given out; a CUDA device has to be there
  std::int64_t num_workers = 0;  ///< see PipelineOptions
  std::int64_t prefetch = 2;     ///< see PipelineOptions
  std::uint64_t seed = 0;        ///< of the partition and of the order of the clusters
  bool drop_last = false;        ///< leaves out a last batch that has fewer clusters
};

/// Passes over the clusters of a graph and gives subgraphs: each the nodes of some clusters and all
/// edges among them, those between the clusters included; every node once an epoch (Cluster-GCN,
/// Chiang et al., KDD'19). The nodes of a batch stand cluster by cluster, ascending in each. See
/// Batches for epochs, workers and errors.
class MEZZO_API ClusterLoader : public Batches<SubgraphBatch> {
 public:
  /// graph: on the CPU; its columns must stay as they are while a loop runs. Throws
  /// InvalidArgument that names option, expected and given.
  ClusterLoader(const Graph& graph, ClusterLoaderOptions options);

 private:
  ClusterLoader(const Graph& graph, const ClusterLoaderOptions& options,
                const std::shared_ptr<PipelineCounters>& counters);
};

}  // namespace mezzo
