#include "mezzo/sampling/node_flow/flow_samplers.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/topology.h"
#include "mezzo/graph/topology_build.h"
#include "mezzo/sampling/blocks/draw_layer.h"
#include "mezzo/sampling/loader_support.h"
#include "mezzo/sampling/node_flow/node_flow_state.h"
#include "mezzo/sampling/sorted_nodes.h"

namespace mezzo {
namespace {

constexpr std::string_view kNeighborSampler = "NeighborSampler";
constexpr std::string_view kLayerSampler = "LayerSampler";
constexpr std::int64_t kMaxFlowHops = 255;  // distinct steps of draw_stream()

/// Draws the flow of these seeds (int64, distinct). Several threads call it.
using DrawFlow =
    std::function<NodeFlow(const at::Tensor& seeds, const BatchKey& key, Workspace& workspace)>;

/// The inputs of a sampler's flows. Immutable.
struct FlowPlan {
  detail::SeedOrder order;
  std::uint64_t seed;
  DrawFlow draw;
  Columns features;

  NodeFlow make(const detail::EpochSeeds& seeds, const BatchKey& key, Workspace& workspace,
                PipelineStatistics& statistics) const {
    detail::Stopwatch watch;
    NodeFlow flow = draw(seeds.batch(key.batch), key, workspace);
    statistics.sampled_edges = flow.num_edges();
    statistics.sampled_nodes = flow.layer_size(0);
    statistics.sample_seconds = watch.lap();
    detail::FlowRows::prefetch(flow, features);
    statistics.gather_seconds = watch.lap();
    return flow;
  }
};

template <class Options>
Batches<NodeFlow>::MakeEpoch flow_epochs(std::string_view operation, const Graph& graph,
                                         const at::Tensor& seeds, const Options& options,
                                         DrawFlow draw) {
  detail::SeedOrder order(operation, seeds, graph.num_nodes(),
                          {.batch_size = options.batch_size,
                           .shuffle = options.shuffle,
                           .drop_last = options.drop_last,
                           .seed = options.seed});
  return detail::seed_epochs<NodeFlow>(
      FlowPlan{std::move(order), options.seed, std::move(draw),
               detail::select_columns(operation, "features", graph.ndata(), options.features)});
}

void check_graph_on_cpu(std::string_view operation, const Graph& graph) {
  MEZZO_CHECK(graph.device().is_cpu(), "{}: expected a graph on the CPU, got one on {}", operation,
              graph.device().str());
}

/// The lowest self loop of each node, or -1: [num_nodes] in the graph's id dtype.
at::Tensor self_loops(const Topology& topology, NeighborType type) {
  const Adjacency& rows = type == NeighborType::kIn ? topology.csc() : topology.csr();
  at::Tensor loops = at::full({topology.num_dst()}, -1, rows.indices.options());
  visit(detail::IdTypes{}, topology.id_dtype(), [&]<class Id>() {
    using Integer = typename Id::Type;
    const auto* begin = rows.indptr.const_data_ptr<std::int64_t>();
    const auto* neighbor = rows.indices.const_data_ptr<Integer>();
    const auto* edge = rows.edge_ids.defined() ? rows.edge_ids.const_data_ptr<Integer>() : nullptr;
    auto* loop = loops.mutable_data_ptr<Integer>();
    for (std::int64_t v = 0; v < loops.numel(); ++v) {
      const auto* end = neighbor + begin[v + 1];
      const auto* self = std::find(neighbor + begin[v], end, static_cast<Integer>(v));
      if (self == end) continue;
      const auto entry = self - neighbor;
      loop[v] = edge != nullptr ? edge[entry] : static_cast<Integer>(entry);
    }
  });
  return loops;
}

/// Appends the node itself to each drawn row that lacks it.
DrawnNeighbors with_self_loops(const DrawnNeighbors& drawn, const at::Tensor& nodes,
                               const at::Tensor& loops) {
  const std::int64_t num_rows = nodes.numel(), longest = drawn.neighbors.numel() + num_rows;
  DrawnNeighbors result{at::empty_like(drawn.offsets),
                        at::empty({longest}, drawn.neighbors.options()),
                        at::empty({longest}, drawn.edges.options()),
                        {}};
  visit(detail::IdTypes{}, loops.scalar_type(), [&]<class Id>() {
    using Integer = typename Id::Type;
    const auto* node = nodes.const_data_ptr<std::int64_t>();
    const auto* offset = drawn.offsets.const_data_ptr<std::int64_t>();
    const auto* neighbor = drawn.neighbors.const_data_ptr<Integer>();
    const auto* edge = drawn.edges.const_data_ptr<Integer>();
    const auto* loop = loops.const_data_ptr<Integer>();
    auto* offset_out = result.offsets.mutable_data_ptr<std::int64_t>();
    auto* neighbor_out = result.neighbors.mutable_data_ptr<Integer>();
    auto* edge_out = result.edges.mutable_data_ptr<Integer>();
    std::int64_t count = offset_out[0] = 0;
    for (std::int64_t i = 0; i < num_rows; ++i) {
      const std::int64_t first = offset[i], size = offset[i + 1] - first;
      const auto self = static_cast<Integer>(node[i]);
      std::copy_n(edge + first, size, edge_out + count);
      const auto* end = neighbor + first + size;
      const bool drawn_itself = std::find(neighbor + first, end, self) != end;
      count = std::copy(neighbor + first, end, neighbor_out + count) - neighbor_out;
      if (!drawn_itself) {
        neighbor_out[count] = self;
        edge_out[count++] = loop[node[i]];
      }
      offset_out[i + 1] = count;
    }
  });
  const std::int64_t num_edges = result.offsets[num_rows].item<std::int64_t>();
  result.neighbors = result.neighbors.narrow(0, 0, num_edges);
  result.edges = result.edges.narrow(0, 0, num_edges);
  return result;
}

/// Draws flows of sampled neighbours. Immutable, thread-safe.
class NeighborFlows {
 public:
  NeighborFlows(const Graph& graph, std::vector<std::int64_t> fanouts,
                const NeighborSamplerOptions& options)
      : graph_(graph),
        source_(graph.topology(), options.neighbor_type, options.edge_weights),
        fanouts_(std::move(fanouts)),
        replace_(options.replace) {
    if (options.add_self_loop) loops_ = self_loops(graph.topology(), options.neighbor_type);
  }

  NodeFlow operator()(const at::Tensor& seeds, const BatchKey& key, Workspace& workspace) const {
    const std::size_t num_hops = fanouts_.size();
    NodeFlow::Parts parts{std::vector<at::Tensor>(num_hops + 1), std::vector<Topology>(num_hops),
                          std::vector<at::Tensor>(num_hops)};
    parts.nodes[num_hops] = seeds;
    for (std::size_t hop = 0; hop < num_hops; ++hop) {
      const std::size_t block = num_hops - 1 - hop;
      const at::Tensor& nodes = parts.nodes[block + 1];
      const DrawnNeighbors drawn =
          neighbors_of(nodes, fanouts_[block], key, static_cast<std::int64_t>(hop), workspace);
      const detail::SortedNodes below =
          detail::sort_nodes(drawn.neighbors, source_.num_nodes(), workspace);
      parts.nodes[block] = below.distinct;
      parts.blocks[block] = detail::topology_from_rows({drawn.offsets, below.positions, {}},
                                                       below.distinct.numel(), nodes.numel());
      parts.edges[block] = drawn.edges.to(at::kLong);
    }
    return NodeFlow(graph_, std::move(parts));
  }

 private:
  DrawnNeighbors neighbors_of(const at::Tensor& nodes, std::int64_t fanout, const BatchKey& key,
                              std::int64_t hop, Workspace& workspace) const {
    DrawnNeighbors drawn =
        source_.draw(nodes, {.fanout = fanout, .replace = replace_, .type = source_.type()}, key,
                     hop, workspace);
    return loops_.defined() ? with_self_loops(drawn, nodes, loops_) : drawn;
  }

  Graph graph_;
  NeighborSource source_;
  std::vector<std::int64_t> fanouts_;  ///< inputs first
  bool replace_;
  at::Tensor loops_;  ///< of self_loops(); undefined without add_self_loop
};

/// One fan-out per hop, inputs first. Throws InvalidArgument for options that contradict each
/// other.
std::vector<std::int64_t> flow_fanouts(const NeighborSamplerOptions& options) {
  const auto num_fanouts = static_cast<std::int64_t>(options.fanouts.size());
  MEZZO_CHECK(
      options.num_hops >= 1 && options.num_hops <= kMaxFlowHops && num_fanouts <= kMaxFlowHops,
      "{}: expected num_hops in [1, {}], got {}", kNeighborSampler, kMaxFlowHops,
      std::max(options.num_hops, num_fanouts));
  if (num_fanouts > 0) {
    MEZZO_CHECK(options.num_neighbors == kAllNeighbors,
                "{}: expected fanouts or num_neighbors, got both", kNeighborSampler);
    MEZZO_CHECK(options.num_hops == 1 || options.num_hops == num_fanouts,
                "{}: expected as many fanouts as num_hops ({}), got {}", kNeighborSampler,
                options.num_hops, num_fanouts);
  }
  std::vector<std::int64_t> fanouts =
      num_fanouts > 0 ? options.fanouts
                      : std::vector<std::int64_t>(static_cast<std::size_t>(options.num_hops),
                                                  options.num_neighbors);
  for (const std::int64_t fanout : fanouts) {
    MEZZO_CHECK(fanout >= 0 || fanout == kAllNeighbors,
                "{}: expected num_neighbors and fanouts of at least 0, or -1 for all, got {}",
                kNeighborSampler, fanout);
    MEZZO_CHECK(!options.replace || (fanout >= 0 && fanout <= kLargestFanoutReplacing),
                "{}: expected num_neighbors and fanouts in [0, 2^31) with replacement, got {}",
                kNeighborSampler, fanout);
  }
  return fanouts;
}

Batches<NodeFlow>::MakeEpoch neighbor_epochs(const Graph& graph, const at::Tensor& seeds,
                                             const NeighborSamplerOptions& options) {
  check_graph_on_cpu(kNeighborSampler, graph);
  return flow_epochs(kNeighborSampler, graph, seeds, options,
                     NeighborFlows(graph, flow_fanouts(options), options));
}

/// Draws flows of sampled layers. Immutable, thread-safe.
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
                                          const LayerSamplerOptions& options) {
  check_graph_on_cpu(kLayerSampler, graph);
  detail::check_layer_sizes(kLayerSampler, options.layer_sizes);
  return flow_epochs(kLayerSampler, graph, seeds, options, LayerFlows(graph, options));
}

}  // namespace

NeighborSampler::NeighborSampler(const Graph& graph, const at::Tensor& seeds,
                                 NeighborSamplerOptions options)
    : Batches(neighbor_epochs(graph, seeds, options),
              {.num_workers = options.num_workers, .prefetch = options.prefetch}) {}

LayerSampler::LayerSampler(const Graph& graph, const at::Tensor& seeds, LayerSamplerOptions options)
    : Batches(layer_epochs(graph, seeds, options),
              {.num_workers = options.num_workers, .prefetch = options.prefetch}) {}

}  // namespace mezzo
