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

/// How a LayerSampler cuts its seeds into batches and draws.
struct LayerSamplerOptions {
  std::int64_t batch_size = 1024;         ///< seeds, >= 1
  std::vector<std::int64_t> layer_sizes;  ///< draws for each layer below the seeds, inputs first;
                                          ///< each >= 1, 1 to 255 of them
  /// kIn: nodes are drawn among those with an edge into the layer above; kOut: with an edge out of
  /// it, and the blocks hold these turned round.
  NeighborType neighbor_type = NeighborType::kIn;
  bool shuffle = false;          ///< a new order each epoch
  std::int64_t num_workers = 0;  ///< see PipelineOptions
  std::int64_t prefetch = 2;     ///< see PipelineOptions
  std::uint64_t seed = 0;        ///< of the order of the seeds and of all draws
  bool drop_last = false;        ///< leaves out a last batch that is not full
  /// Columns of the graph's ndata() whose rows the workers gather ahead for every layer of a flow,
  /// so that its copy_from_parent() finds them. They are the columns of when the sampler is made:
  /// of one that is replaced or written to afterwards copy_from_parent() gathers anew, as of one to
  /// which gradients flow. Dense, or sparse CSR, which is not to be written to. Costs the memory of
  /// the rows for each flow that is ready.
  std::vector<std::string> features = {};
};

/// Passes over seeds and gives node flows of sampled layers: FastGCN (Chen, Ma and Xiao, ICLR'18),
/// which draws among all nodes, with the candidates restricted to the neighbours of the layer above
/// as in LADIES (Zou et al., NeurIPS'19). For each layer from the seeds down layer_size nodes are
/// drawn with replacement, u with probability q(u) in proportion to the squared norm of its column
/// of the row-normalised adjacency: the sum over its edges to nodes v of the layer above of 1 /
/// deg(v)^2. The distinct ones are the layer, in ascending id; the block holds every edge of the
/// parent between the two layers. blocks(i).data()["edge_weights"] (float32 [edges]) is draws of u
/// / (layer_size q(u)): the sum of weight * x[u] over the edges into v is an unbiased estimate of
/// the sum over all of v's neighbours, and divided by v's degree in the parent of their mean. Where
/// there are no more candidates than layer_size all of them are taken, with weight 1, and the sum
/// is exact. A layer without candidates is empty. A flow depends on (options.seed, epoch, index)
/// alone. Cost: the degrees of the layers. See Batches for epochs, workers and errors.
class MEZZO_API LayerSampler : public Batches<NodeFlow> {
 public:
  /// graph: structure on the CPU, the flows' parent. seeds: integers [n] in [0, num_nodes), or bool
  /// [num_nodes]; none: no batches. Throws InvalidArgument that names option, expected and given.
  LayerSampler(const Graph& graph, const at::Tensor& seeds, LayerSamplerOptions options);

 private:
  LayerSampler(const Graph& graph, const at::Tensor& seeds, const LayerSamplerOptions& options,
               const std::shared_ptr<PipelineCounters>& counters);
};

}  // namespace mezzo
