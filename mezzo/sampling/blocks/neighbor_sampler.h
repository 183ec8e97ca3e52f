#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/graph.h"
#include "mezzo/sampling/batches.h"
#include "mezzo/sampling/blocks/block_sampler.h"
#include "mezzo/sampling/node_flow/node_flow.h"

namespace mezzo {

/// How a NeighborSampler cuts its seeds into batches and draws.
struct NeighborSamplerOptions {
  std::int64_t batch_size = 1024;  ///< seeds, >= 1
  /// Of each node in each hop: >= 0, or kAllNeighbors. A node that stands in two layers draws
  /// independently in each.
  std::int64_t num_neighbors = kAllNeighbors;
  std::int64_t num_hops = 1;  ///< in [1, 255]
  /// kIn: blocks hold in-edges, from layer i to layer i + 1. kOut: out-edges of the layer above,
  /// turned round, so that messages still run towards the seeds (in DGL they run away from them).
  NeighborType neighbor_type = NeighborType::kIn;
  bool shuffle = false;  ///< a new order each epoch
  /// Each node of a layer also stands in the layer below with an edge to itself, the last of its
  /// row where it was not drawn: the (lowest) self loop of the parent where it has one, else an
  /// added one (parent id -1).
  bool add_self_loop = false;
  std::int64_t num_workers = 0;  ///< see PipelineOptions
  std::int64_t prefetch = 2;     ///< see PipelineOptions
  std::uint64_t seed = 0;        ///< of the order of the seeds and of all draws
  bool replace = false;          ///< exactly num_neighbors draws of each node with a neighbour
  /// One a hop, inputs first, instead of num_neighbors (left at its default) and num_hops.
  std::vector<std::int64_t> fanouts = {};
  /// float [num_edges] by edge, probabilities in proportion: see NeighborSource (DGL's
  /// transition_prob). Undefined: uniform.
  at::Tensor edge_weights = {};
  bool drop_last = false;  ///< leaves out a last batch that is not full
  /// Columns of the graph's ndata() whose rows the workers gather ahead for every layer of a flow,
  /// so that its copy_from_parent() finds them. They are the columns of when the sampler is made:
  /// of one that is replaced or written to afterwards copy_from_parent() gathers anew, as of one to
  /// which gradients flow. Dense, or sparse CSR, which is not to be written to. Costs the memory of
  /// the rows for each flow that is ready.
  std::vector<std::string> features = {};
};

/// Passes over seeds and gives node flows of sampled neighbours (DGL 0.4's NeighborSampler): the
/// last layer is the batch's seeds in their order, without repeats; each layer below it the
/// neighbours drawn for the one above. A flow depends on (options.seed, epoch, index) alone. See
/// Batches for epochs, workers and errors.
class MEZZO_API NeighborSampler : public Batches<NodeFlow> {
 public:
  /// graph: structure on the CPU; the flows' parent, to whose columns of then copy_from_parent
  /// goes. seeds: integers [n] in [0, num_nodes), or bool [num_nodes]; none: no batches. Throws
  /// InvalidArgument that names option, expected and given. With add_self_loop it reads every edge
  /// once and keeps an id a node.
  NeighborSampler(const Graph& graph, const at::Tensor& seeds, NeighborSamplerOptions options);

 private:
  NeighborSampler(const Graph& graph, const at::Tensor& seeds,
                  const NeighborSamplerOptions& options,
                  const std::shared_ptr<PipelineCounters>& counters);
};

}  // namespace mezzo
