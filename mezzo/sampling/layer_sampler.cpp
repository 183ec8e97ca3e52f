#include "mezzo/sampling/layer_sampler.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/core/random.h"
#include "mezzo/graph/topology_build.h"
#include "mezzo/graph/topology_trusted.h"
#include "mezzo/sampling/flow_epochs.h"
#include "mezzo/sampling/sorted_nodes.h"

namespace mezzo {
namespace {

constexpr const char* kLayerSampler = "LayerSampler";
constexpr std::size_t kMaxSampledLayers = 255;  // steps that draw_stream() keeps apart

/// A layer and the edges from it to the layer above.
struct DrawnLayer {
  at::Tensor nodes, edges, weights;
  Topology block;
};

/// For each candidate the squared norm of its column: [u].
std::vector<double> squared_norms(const DrawnNeighbors& all,
                                  const detail::SortedNodes& candidates) {
  std::vector<double> norms(static_cast<std::size_t>(candidates.distinct.numel()), 0.0);
  const auto* offset = all.offsets.const_data_ptr<std::int64_t>();
  visit(detail::IdTypes{}, candidates.places.scalar_type(), [&]<class Id>() {
    const auto* place = candidates.places.const_data_ptr<typename Id::Type>();
    for (std::int64_t v = 0; v + 1 < all.offsets.numel(); ++v) {
      const auto degree = static_cast<double>(offset[v + 1] - offset[v]);
      for (std::int64_t i = offset[v]; i < offset[v + 1]; ++i) {
        norms[static_cast<std::size_t>(place[i])] += 1 / (degree * degree);
      }
    }
  });
  return norms;
}

/// What an edge from each candidate weighs, 0 for one that is not drawn: draws / (count q).
std::vector<double> drawn_weights(const std::vector<double>& norms, std::int64_t count,
                                  std::uint64_t seed, std::uint64_t stream) {
  if (static_cast<std::int64_t>(norms.size()) <= count) {
    return std::vector<double>(norms.size(), 1.0);
  }
  std::vector<double> sums(norms.size()), weights(norms.size(), 0.0);
  double total = 0;
  for (std::size_t u = 0; u < norms.size(); ++u) sums[u] = total += norms[u];
  for (std::int64_t i = 0; i < count; ++i) {
    const double point = total * random_uniform(seed, stream, static_cast<std::uint64_t>(i));
    // The product may round up to the total.
    const auto found = std::min(std::upper_bound(sums.begin(), sums.end(), point), sums.end() - 1);
    const auto u = static_cast<std::size_t>(found - sums.begin());
    weights[u] += total / (static_cast<double>(count) * norms[u]);
  }
  return weights;
}

/// The candidates with a weight and all edges from them.
DrawnLayer layer_of(const DrawnNeighbors& all, const detail::SortedNodes& candidates,
                    const std::vector<double>& weights) {
  const std::int64_t num_rows = all.offsets.numel() - 1;
  const auto chosen =
      static_cast<std::int64_t>(weights.size()) - std::count(weights.begin(), weights.end(), 0.0);
  DrawnLayer layer;
  layer.nodes = at::empty({chosen}, at::kLong);
  layer.edges = at::empty_like(all.edges, at::kLong);
  layer.weights = at::empty({all.edges.numel()}, at::kFloat);
  at::Tensor offsets = at::empty_like(all.offsets), sources = at::empty_like(candidates.places);
  std::int64_t num_edges = 0;
  visit(detail::IdTypes{}, sources.scalar_type(), [&]<class Id>() {
    using Integer = typename Id::Type;
    const auto* candidate = candidates.distinct.const_data_ptr<std::int64_t>();
    const auto* place = candidates.places.const_data_ptr<Integer>();
    const auto* edge = all.edges.const_data_ptr<Integer>();
    const auto* offset = all.offsets.const_data_ptr<std::int64_t>();
    auto* node = layer.nodes.mutable_data_ptr<std::int64_t>();
    std::vector<Integer> position(weights.size());
    Integer count = 0;
    for (std::size_t u = 0; u < weights.size(); ++u) {
      if (weights[u] == 0) continue;
      node[count] = candidate[u];
      position[u] = count++;
    }
    auto* offset_out = offsets.mutable_data_ptr<std::int64_t>();
    auto* source = sources.mutable_data_ptr<Integer>();
    auto* edge_out = layer.edges.mutable_data_ptr<std::int64_t>();
    auto* weight = layer.weights.mutable_data_ptr<float>();
    offset_out[0] = 0;
    for (std::int64_t v = 0; v < num_rows; ++v) {
      for (std::int64_t i = offset[v]; i < offset[v + 1]; ++i) {
        const auto u = static_cast<std::size_t>(place[i]);
        if (weights[u] == 0) continue;
        source[num_edges] = position[u];
        weight[num_edges] = static_cast<float>(weights[u]);
        edge_out[num_edges++] = edge[i];
      }
      offset_out[v + 1] = num_edges;
    }
  });
  // Copies, so that a waiting flow holds no more memory than it shows.
  layer.edges = layer.edges.narrow(0, 0, num_edges).clone();
  layer.weights = layer.weights.narrow(0, 0, num_edges).clone();
  layer.block = detail::topology_from_rows({offsets, sources.narrow(0, 0, num_edges).clone(), {}},
                                           chosen, num_rows);
  return layer;
}

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
      DrawnLayer layer = layer_below(parts.nodes[block + 1], layer_sizes_[block], key,
                                     static_cast<std::int64_t>(hop), workspace);
      parts.nodes[block] = std::move(layer.nodes);
      parts.edges[block] = std::move(layer.edges);
      parts.blocks[block] = std::move(layer.block);
      weights[block] = std::move(layer.weights);
    }
    NodeFlow flow(graph_, std::move(parts));
    for (std::size_t i = 0; i < num_hops; ++i) {
      flow.blocks(static_cast<std::int64_t>(i)).data()["edge_weights"] = weights[i];
    }
    return flow;
  }

 private:
  DrawnLayer layer_below(const at::Tensor& above, std::int64_t size, const BatchKey& key,
                         std::int64_t hop, Workspace& workspace) const {
    const DrawnNeighbors all = source_.draw(above, {.type = source_.type()}, key, hop, workspace);
    const detail::SortedNodes candidates =
        detail::sort_nodes(all.neighbors, source_.num_nodes(), workspace);
    const std::uint64_t stream = draw_stream(key, DrawPurpose::kLayers, hop);
    return layer_of(all, candidates,
                    drawn_weights(squared_norms(all, candidates), size, key.seed, stream));
  }

  Graph graph_;
  NeighborSource source_;
  std::vector<std::int64_t> layer_sizes_;  ///< inputs first
};

Batches<NodeFlow>::MakeEpoch layer_epochs(const Graph& graph, const at::Tensor& seeds,
                                          const LayerSamplerOptions& options,
                                          std::shared_ptr<PipelineCounters> counters) {
  MEZZO_CHECK(graph.device().is_cpu(), "{}: expected a graph on the CPU, got one on {}",
              kLayerSampler, graph.device().str());
  const std::size_t num_layers = options.layer_sizes.size();
  MEZZO_CHECK(num_layers >= 1 && num_layers <= kMaxSampledLayers,
              "{}: expected 1 to {} layer_sizes, got {}", kLayerSampler, kMaxSampledLayers,
              num_layers);
  for (const std::int64_t size : options.layer_sizes) {
    MEZZO_CHECK(size >= 1, "{}: expected layer_sizes of at least 1, got {}", kLayerSampler, size);
  }
  SeedOrder order(kLayerSampler, seeds, graph.num_nodes(),
                  {.batch_size = options.batch_size,
                   .shuffle = options.shuffle,
                   .drop_last = options.drop_last,
                   .seed = options.seed});
  return detail::flow_epochs(std::move(order), options.seed, LayerFlows(graph, options),
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
