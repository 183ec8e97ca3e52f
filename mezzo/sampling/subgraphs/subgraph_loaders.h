#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/graph.h"
#include "mezzo/sampling/batches.h"

namespace mezzo {

/// A mini-batch that is a graph itself: some nodes and all edges among them; on the loader's
/// device.
class MEZZO_API SubgraphBatch {
 public:
  Graph graph;              ///< ndata(): the loader's columns; edges grouped by destination
  at::Tensor nodes;         ///< int64 [num_nodes], ids of the parent
  at::Tensor edges;         ///< int64 [num_edges], ids of the parent
  at::Tensor node_weights;  ///< float32 [num_nodes], for the loss; undefined unless normalised
  at::Tensor edge_weights;  ///< float32 [num_edges], for the messages; undefined unless normalised
  std::int64_t index = 0;   ///< of the batch in its epoch

  /// The column's rows of the nodes. Throws InvalidArgument if the loader does not gather it.
  const at::Tensor& features(const std::string& column) const;
  const at::Tensor& labels(const std::string& column) const;  ///< as features()
};

/// Options of a ClusterLoader.
struct ClusterLoaderOptions {
  /// The cluster of each node, integers [num_nodes] in [0, num_nodes); see metis_partition.
  /// Undefined: metis_partition into num_parts, with this seed.
  at::Tensor parts = {};
  std::int64_t num_parts = 0;              ///< only without parts: in [1, num_nodes]
  std::int64_t clusters_per_batch = 1;     ///< >= 1
  bool shuffle = true;                     ///< other combinations of clusters in each epoch
  std::vector<std::string> features = {};  ///< columns of ndata() for the batches
  std::vector<std::string> labels = {};    ///< more columns of ndata()
  at::Device device = at::kCPU;            ///< of the batches
  std::int64_t num_workers = 0;            ///< see PipelineOptions
  std::int64_t prefetch = 2;               ///< see PipelineOptions
  std::uint64_t seed = 0;                  ///< of the partition and of the order of the clusters
  bool drop_last = false;                  ///< drops a last batch with fewer clusters
};

/// Yields subgraphs of clusters: the nodes of some clusters and all edges among them, including
/// those between the clusters; every node once per epoch (Cluster-GCN, Chiang et al., KDD'19). The
/// nodes of a batch are grouped by cluster, ascending in each. See Batches for epochs, workers and
/// errors.
class MEZZO_API ClusterLoader : public Batches<SubgraphBatch> {
 public:
  /// graph: on the CPU; do not write to its columns during a loop. Throws InvalidArgument.
  ClusterLoader(const Graph& graph, ClusterLoaderOptions options);
};

/// How the nodes of a subgraph are drawn, with replacement; a node counts once.
enum class SaintKind : std::uint8_t {
  /// `budget` nodes; u in proportion to the squared norm of its column of the mean aggregator with
  /// self loops: with in-degrees d, 1 / (d_u + 1)^2 + the sum of 1 / (d_v + 1)^2 over the edges
  /// from u to v. (With its self loop every node has a positive probability.)
  kNode,
  /// The ends of `budget` edges; u to v in proportion to 1 / (out-degree of u) + 1 / (in-degree of
  /// v).
  kEdge,
  /// The nodes of `num_roots` walks of `walk_length` steps against the edges, from uniform roots.
  kRandomWalk,
};

/// Options of a SaintLoader.
struct SaintLoaderOptions {
  SaintKind kind = SaintKind::kRandomWalk;  ///< how nodes are drawn
  std::int64_t budget = 6000;               ///< kNode, kEdge: draws, in [1, 2^31]
  std::int64_t num_roots = 3000;            ///< kRandomWalk: walks, in [1, 2^31]
  std::int64_t walk_length = 2;             ///< kRandomWalk: steps, in [0, 2^31]
  std::int64_t batches_per_epoch = 100;     ///< >= 0
  /// The constructor draws subgraphs for the weights until they have this many nodes per node of
  /// the graph. 0: no weights.
  std::int64_t sample_coverage = 50;
  std::vector<std::string> features = {};  ///< columns of ndata() for the batches
  std::vector<std::string> labels = {};    ///< more columns of ndata()
  at::Device device = at::kCPU;            ///< of the batches
  std::int64_t num_workers = 0;            ///< see PipelineOptions
  std::int64_t prefetch = 2;               ///< see PipelineOptions
  std::uint64_t seed = 0;                  ///< of all draws, also the constructor's
};

/// Yields subgraphs of drawn nodes (ascending) with all edges among them and the normalisation of
/// GraphSAINT (Zeng et al., ICLR'20). The constructor draws S subgraphs; C_v of them contain node v
/// and C_e contain edge e (0 counts as 1). With N nodes in the graph:
///  - node_weights = S / (C_v N): the sum of weight x loss over a batch estimates the mean of the
///    loss over the graph's nodes;
///  - edge_weights = C_v / C_e x k_v / d_v for an edge e into v, if the batch has k_v of v's d_v
///    in-edges: the mean of weight x message over the batch's in-edges estimates the mean over all
///    in-edges, given that v is in the batch. The subgraphs have their parent's degrees
///    (Topology::with_parent_degrees), so GraphConv with parent_degrees takes edge_weights
///    unchanged, with any norm by destination; for a sum multiply by d_v / k_v.
/// See Batches for epochs, workers and errors.
class MEZZO_API SaintLoader : public Batches<SubgraphBatch> {
 public:
  /// graph: on the CPU; do not write to its columns during a loop. Draws the subgraphs for the
  /// weights in parallel, which costs sample_coverage passes over the graph. The weights take 8
  /// bytes per node (int64 ids: 12) and 4 per edge; kNode takes 8 bytes per node, kEdge at most 16
  /// plus the graph's edges by source and their list. Throws InvalidArgument, also for a graph
  /// without nodes, and with kEdge for one without edges.
  SaintLoader(const Graph& graph, SaintLoaderOptions options);
};

/// A mini-batch of whole graphs, on the loader's device.
struct GraphBatch {
  /// The drawn graphs in their order, as batch() joins them: with all columns and the edges in the
  /// loader's order in each graph.
  Graph graph;
  at::Tensor graph_ids;    ///< int64 [graph.batch_size()], positions among the loader's graphs
  Columns graph_data;      ///< the graphs' rows of the loader's graph_data
  std::int64_t index = 0;  ///< of the batch in its epoch
};

/// Options of a GraphLoader.
struct GraphLoaderOptions {
  std::int64_t batch_size = 128;  ///< graphs, at least 1
  bool shuffle = false;           ///< a new order each epoch
  /// The graphs to take, integers [n] in [0, number of graphs) or bool [number of graphs], on the
  /// CPU. Undefined: all.
  at::Tensor graphs = {};
  Columns graph_data = {};       ///< [number of graphs, ...] each, on the CPU, such as labels
  at::Device device = at::kCPU;  ///< of the batches
  std::int64_t num_workers = 0;  ///< see PipelineOptions
  std::int64_t prefetch = 2;     ///< see PipelineOptions
  std::uint64_t seed = 0;        ///< of the order
  bool drop_last = false;        ///< drops a last batch with fewer graphs
};

/// Yields batches of some of the graphs that batch() joined; every graph once per epoch. A batch
/// copies consecutive rows and is not padded. See Batches for epochs, workers and errors.
class MEZZO_API GraphLoader : public Batches<GraphBatch> {
 public:
  /// graph: a batch (batch(), Graph::set_batch) on the CPU with strided columns; do not write to
  /// them during a loop. Reads every edge once. Throws InvalidArgument, also for edges between
  /// graphs.
  GraphLoader(const Graph& graph, GraphLoaderOptions options = {});
};

}  // namespace mezzo
