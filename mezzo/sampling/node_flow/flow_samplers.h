#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/graph.h"
#include "mezzo/sampling/batches.h"
#include "mezzo/sampling/blocks/block_sampler.h"
#include "mezzo/sampling/node_flow/node_flow.h"

namespace mezzo {

/// Options of a NeighborSampler.
struct NeighborSamplerOptions {
  std::int64_t batch_size = 1024;  ///< seeds, >= 1
  /// Draws of each node in each hop: >= 0, or kAllNeighbors. A node in two layers draws
  /// independently in each.
  std::int64_t num_neighbors = kAllNeighbors;
  std::int64_t num_hops = 1;  ///< in [1, 255]
  /// kIn: blocks hold in-edges, from layer i to layer i + 1. kOut: out-edges of the layer above,
  /// reversed, so that messages still run towards the seeds (in DGL they run away from them).
  NeighborType neighbor_type = NeighborType::kIn;
  bool shuffle = false;  ///< a new order each epoch
  /// Each node of a layer is also in the layer below, with an edge to itself, the last of its row,
  /// unless that edge was drawn: the parent's (lowest) self loop if there is one, else an added one
  /// (parent id -1).
  bool add_self_loop = false;
  std::int64_t num_workers = 0;  ///< see PipelineOptions
  std::int64_t prefetch = 2;     ///< see PipelineOptions
  std::uint64_t seed = 0;        ///< of the order of the seeds and of all draws
  bool replace = false;          ///< exactly num_neighbors draws of each node with a neighbour
  /// One per hop, inputs first, instead of num_neighbors (left at its default) and num_hops.
  std::vector<std::int64_t> fanouts = {};
  /// float [num_edges], probabilities in proportion: see NeighborSource (DGL's transition_prob).
  /// Undefined: uniform.
  at::Tensor edge_weights = {};
  bool drop_last = false;  ///< drops a last batch that is not full
  /// Columns of the graph's ndata(), dense or sparse CSR, whose rows the workers prefetch for every
  /// layer of a flow, for copy_from_parent(). The sampler shares the present columns. A column that
  /// is later replaced or written to, or that requires a gradient, is gathered in
  /// copy_from_parent(); do not write to sparse ones. Costs the memory of the rows per ready flow.
  std::vector<std::string> features = {};
};

/// Yields node flows of sampled neighbours (DGL 0.4's NeighborSampler): the last layer is the
/// batch's seeds in their order, without repeats; each layer below holds the neighbours drawn for
/// the layer above. A flow depends only on (options.seed, epoch, index). See Batches for epochs,
/// workers and errors.
class MEZZO_API NeighborSampler : public Batches<NodeFlow> {
 public:
  /// graph: on the CPU, the flows' parent, with the columns for copy_from_parent(). seeds: integers
  /// [n] in [0, num_nodes), or bool [num_nodes]. Throws InvalidArgument. With add_self_loop it
  /// reads every edge once and stores an id per node.
  NeighborSampler(const Graph& graph, const at::Tensor& seeds, NeighborSamplerOptions options);
};

/// Options of a LayerSampler.
struct LayerSamplerOptions {
  std::int64_t batch_size = 1024;         ///< seeds, >= 1
  std::vector<std::int64_t> layer_sizes;  ///< draws for each layer below the seeds, inputs first;
                                          ///< each >= 1, 1 to 255 of them
  /// kIn: candidates have an edge into the layer above; kOut: an edge out of it, which the block
  /// holds reversed.
  NeighborType neighbor_type = NeighborType::kIn;
  bool shuffle = false;                    ///< a new order each epoch
  std::int64_t num_workers = 0;            ///< see PipelineOptions
  std::int64_t prefetch = 2;               ///< see PipelineOptions
  std::uint64_t seed = 0;                  ///< of the order of the seeds and of all draws
  bool drop_last = false;                  ///< drops a last batch that is not full
  std::vector<std::string> features = {};  ///< see NeighborSamplerOptions
};

/// Yields node flows of sampled layers: FastGCN (Chen, Ma and Xiao, ICLR'18) with the candidates
/// restricted to the neighbours of the layer above as in LADIES (Zou et al., NeurIPS'19). For each
/// layer from the seeds down it draws layer_size nodes with replacement, u with probability q(u) in
/// proportion to the squared norm of its column of the row-normalised adjacency: the sum over its
/// edges to nodes v of the layer above of 1 / deg(v)^2. The distinct ones are the layer, in
/// ascending id; the block holds every edge of the parent between the two layers.
/// blocks(i).data()["edge_weights"] (float32 [edges]) is draws of u / (layer_size q(u)): the sum of
/// weight * x[u] over the edges into v is an unbiased estimate of the sum over all of v's
/// neighbours; divided by v's degree in the parent, of their mean. If there are at most layer_size
/// candidates, it takes all with weight 1, and the sum is exact. A layer without candidates is
/// empty. A flow depends only on (options.seed, epoch, index). Cost: the degrees of the layers.
/// See Batches for epochs, workers and errors.
class MEZZO_API LayerSampler : public Batches<NodeFlow> {
 public:
  /// graph: on the CPU, the flows' parent. seeds: integers [n] in [0, num_nodes), or bool
  /// [num_nodes]. Throws InvalidArgument.
  LayerSampler(const Graph& graph, const at::Tensor& seeds, LayerSamplerOptions options);
};

}  // namespace mezzo
