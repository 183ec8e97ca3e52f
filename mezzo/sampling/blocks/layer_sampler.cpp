#include "mezzo/sampling/blocks/layer_sampler.h"

#include <utility>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/topology_trusted.h"
#include "mezzo/sampling/blocks/draw_layer.h"
#include "mezzo/sampling/loader_support.h"
#include "mezzo/sampling/node_flow/flow_epochs.h"

namespace mezzo {
namespace {

constexpr const char* kLayerSampler = "LayerSampler";

/// Draws the flows of any batch. Immutable, for several threads at once.
class LayerFlows {
 public:
  LayerFlows(const Graph& graph, const LayerSamplerOptions& options)
      : graph_(graph),
        source_(graph.topology(), options.neighbor_type),
        layer_sizes_(options.layer_sizes) {}

  NodeFlow operator()(const at::Tensor& seeds, const BatchKey& key, Workspace& workspace) const {
    const std::size_t num_hops = layer_sizes_.size();
    NodeFlow::Parts parts{std::vector<at::Tensor>(num_hops + 1), std::vector<Topology>(num_hops),
                          std::vector<at::Tensor>(num_hops)};
    std::vector<at::Tensor> weights(num_hops);
    parts.nodes[num_hops] = seeds;
    for (std::size_t hop = 0; hop < num_hops; ++hop) {
      const std::size_t block = num_hops - 1 - hop;
      const at::Tensor& above = parts.nodes[block + 1];
      detail::DrawnLayer layer = detail::draw_layer(source_, above, layer_sizes_[block], key,
                                                    static_cast<std::int64_t>(hop), workspace);
      parts.blocks[block] = detail::topology_from_rows({layer.offsets, layer.sources, {}},
                                                       layer.nodes.numel(), above.numel());
      parts.nodes[block] = std::move(layer.nodes);
      parts.edges[block] = std::move(layer.edges);
      weights[block] = std::move(layer.weights);
    }
    NodeFlow flow(graph_, std::move(parts));
    for (std::size_t i = 0; i < num_hops; ++i) {
      flow.blocks(static_cast<std::int64_t>(i)).data()["edge_weights"] = weights[i];
    }
    return flow;
  }

 private:
  Graph graph_;
  NeighborSource source_;
  std::vector<std::int64_t> layer_sizes_;  ///< inputs first
};

Batches<NodeFlow>::MakeEpoch layer_epochs(const Graph& graph, const at::Tensor& seeds,
                                          const LayerSamplerOptions& options,
                                          std::shared_ptr<PipelineCounters> counters) {
  MEZZO_CHECK(graph.device().is_cpu(), "{}: expected a graph on the CPU, got one on {}",
              kLayerSampler, graph.device().str());
  detail::check_layer_sizes(kLayerSampler, options.layer_sizes);
  SeedOrder order(kLayerSampler, seeds, graph.num_nodes(),
                  {.batch_size = options.batch_size,
                   .shuffle = options.shuffle,
                   .drop_last = options.drop_last,
                   .seed = options.seed});
  return detail::flow_epochs(
      std::move(order), options.seed, LayerFlows(graph, options),
      detail::chosen_columns(kLayerSampler, "features", graph.ndata(), options.features),
      std::move(counters));
}

}  // namespace

LayerSampler::LayerSampler(const Graph& graph, const at::Tensor& seeds, LayerSamplerOptions options)
    : LayerSampler(graph, seeds, options, std::make_shared<PipelineCounters>()) {}

LayerSampler::LayerSampler(const Graph& graph, const at::Tensor& seeds,
                           const LayerSamplerOptions& options,
                           const std::shared_ptr<PipelineCounters>& counters)
    : Batches(layer_epochs(graph, seeds, options, counters),
              {.num_workers = options.num_workers, .prefetch = options.prefetch}, counters) {}

}  // namespace mezzo
