#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/core/type_list.h"
#include "mezzo/graph/graph.h"
#include "mezzo/sampling/batches.h"
#include "mezzo/sampling/subgraphs/subgraph_batch.h"

namespace mezzo {

/// How the nodes of a subgraph are drawn; draws are with replacement, a node counts once.
enum class SaintKind : std::uint8_t {
  /// `budget` nodes; u in proportion to the squared norm of its column of the mean aggregator with
  /// self loops: with d the in-degrees, 1 / (d_u + 1)^2 + the sum of 1 / (d_v + 1)^2 over the edges
  /// from u to v. (The loops give every node a chance.)
  kNode,
  /// The ends of `budget` edges; u to v in proportion to 1 / (out-degree of u) + 1 / (in-degree of
  /// v).
  kEdge,
  /// The nodes of `num_roots` walks of `walk_length` steps against the edges, from uniform roots.
  kRandomWalk,
};

/// How a SaintLoader draws and gathers.
struct SaintLoaderOptions {
  SaintKind kind = SaintKind::kRandomWalk;  ///< how the nodes of a subgraph are drawn
  std::int64_t budget = 6000;               ///< kNode, kEdge: draws, in [1, 2^31]
  std::int64_t num_roots = 3000;            ///< kRandomWalk: walks, in [1, 2^31]
  std::int64_t walk_length = 2;             ///< kRandomWalk: steps, in [0, 2^31]
  std::int64_t batches_per_epoch = 100;     ///< >= 0
  /// For the weights subgraphs are drawn beforehand until they have this many nodes for each node
  /// of the graph. 0: no weights.
  std::int64_t sample_coverage = 50;
  std::vector<std::string> features = {};  ///< columns of ndata() that the batches get
  std::vector<std::string> labels = {};    ///< likewise
  at::Device device = at::kCPU;  ///< where the batches are given out; a CUDA device has to be there
  std::int64_t num_workers = 0;  ///< see PipelineOptions
  std::int64_t prefetch = 2;     ///< see PipelineOptions
  std::uint64_t seed = 0;        ///< of all draws, those beforehand included
};

/// Gives subgraphs on drawn nodes (ascending) with all edges among them (GraphSAINT, Zeng et al.,
/// ICLR'20), with the paper's normalisation. Of S subgraphs drawn beforehand let C_v have node v
/// and C_e edge e (counts of 0 stand as 1), and let the graph have N nodes:
///  - node_weights = S / (C_v N): the sum of weight x loss over a batch estimates the mean of the
///    loss over the graph's nodes;
///  - edge_weights = C_v / C_e x k_v / d_v for an edge e into v, of whose d_v in-edges k_v are
///    here: the mean of weight x message over the in-edges here estimates the mean over all
///    in-edges, given that v is here. The subgraphs have their parent's degrees
///    (Topology::with_parent_degrees), so GraphConv with parent_degrees, whatever its norm by
///    destination, takes edge_weights as they are; for a sum multiply by d_v / k_v.
/// See Batches for epochs, workers and errors.
class MEZZO_API SaintLoader : public Batches<SubgraphBatch> {
 public:
  /// graph: on the CPU; its columns must stay as they are while a loop runs. Draws the subgraphs
  /// for the weights, in parallel: as long as sample_coverage passes over the graph. Holds 8 bytes
  /// a node (int64 ids: 12) and 4 an edge for them; for its draws kNode holds 8 bytes a node, kEdge
  /// at most 16 and the graph's edges by source and one by one. Throws InvalidArgument that names
  /// option, expected and given; also for a graph without nodes, and with kEdge for one without
  /// edges.
  SaintLoader(const Graph& graph, SaintLoaderOptions options);

 private:
  SaintLoader(const Graph& graph, const SaintLoaderOptions& options,
              const std::shared_ptr<PipelineCounters>& counters);
};

}  // namespace mezzo
