#include "mezzo/sampling/blocks/neighbor_sampler.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/topology_build.h"
#include "mezzo/graph/topology_trusted.h"
#include "mezzo/sampling/loader_support.h"
#include "mezzo/sampling/node_flow/flow_epochs.h"
#include "mezzo/sampling/sorted_nodes.h"

namespace mezzo {
namespace {

constexpr const char* kNeighborSampler = "NeighborSampler";
constexpr std::int64_t kMaxFlowHops = 255;  // steps that draw_stream() keeps apart

/// For each node the lowest of its self loops, or -1: [num_nodes] of the graph's id dtype.
at::Tensor own_loops(const Topology& topology, NeighborType type) {
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
      const auto* found = std::find(neighbor + begin[v], end, static_cast<Integer>(v));
      if (found == end) continue;
      const auto slot = found - neighbor;
      loop[v] = edge != nullptr ? edge[slot] : static_cast<Integer>(slot);
    }
  });
  return loops;
}

/// The drawn neighbours and, at the end of each row that lacks it, the node itself.
DrawnNeighbors with_self_loops(const DrawnNeighbors& drawn, const at::Tensor& nodes,
                               const at::Tensor& loops) {
  const std::int64_t num_rows = nodes.numel(), longest = drawn.neighbors.numel() + num_rows;
  DrawnNeighbors made{at::empty_like(drawn.offsets),
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
    auto* offset_out = made.offsets.mutable_data_ptr<std::int64_t>();
    auto* neighbor_out = made.neighbors.mutable_data_ptr<Integer>();
    auto* edge_out = made.edges.mutable_data_ptr<Integer>();
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
  const std::int64_t num_edges = made.offsets[num_rows].item<std::int64_t>();
  made.neighbors = made.neighbors.narrow(0, 0, num_edges);
  made.edges = made.edges.narrow(0, 0, num_edges);
  return made;
}

/// Draws the flows of any batch. Immutable, for several threads at once.
class NeighborFlows {
 public:
  NeighborFlows(const Graph& graph, std::vector<std::int64_t> fanouts,
                const NeighborSamplerOptions& options)
      : graph_(graph),
        source_(graph.topology(), options.neighbor_type, options.edge_weights),
        fanouts_(std::move(fanouts)),
        replace_(options.replace) {
    if (options.add_self_loop) loops_ = own_loops(graph.topology(), options.neighbor_type);
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
      parts.blocks[block] = detail::topology_from_rows({drawn.offsets, below.places, {}},
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
  at::Tensor loops_;  ///< of own_loops(); undefined unless loops are added
};

/// One fan-out a hop, inputs first. Throws InvalidArgument for options that contradict each other.
std::vector<std::int64_t> flow_fanouts(const NeighborSamplerOptions& options) {
  const auto given = static_cast<std::int64_t>(options.fanouts.size());
  MEZZO_CHECK(options.num_hops >= 1 && options.num_hops <= kMaxFlowHops && given <= kMaxFlowHops,
              "{}: expected num_hops in [1, {}], got {}", kNeighborSampler, kMaxFlowHops,
              std::max(options.num_hops, given));
  if (given > 0) {
    MEZZO_CHECK(options.num_neighbors == kAllNeighbors,
                "{}: expected fanouts or num_neighbors, got both", kNeighborSampler);
    MEZZO_CHECK(options.num_hops == 1 || options.num_hops == given,
                "{}: expected as many fanouts as num_hops ({}), got {}", kNeighborSampler,
                options.num_hops, given);
  }
  std::vector<std::int64_t> fanouts =
      given > 0 ? options.fanouts
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
                                             const NeighborSamplerOptions& options,
                                             std::shared_ptr<PipelineCounters> counters) {
  MEZZO_CHECK(graph.device().is_cpu(), "{}: expected a graph on the CPU, got one on {}",
              kNeighborSampler, graph.device().str());
  std::vector<std::int64_t> fanouts = flow_fanouts(options);
  SeedOrder order(kNeighborSampler, seeds, graph.num_nodes(),
                  {.batch_size = options.batch_size,
                   .shuffle = options.shuffle,
                   .drop_last = options.drop_last,
                   .seed = options.seed});
  return detail::flow_epochs(
      std::move(order), options.seed, NeighborFlows(graph, std::move(fanouts), options),
      detail::chosen_columns(kNeighborSampler, "features", graph.ndata(), options.features),
      std::move(counters));
}

}  // namespace

NeighborSampler::NeighborSampler(const Graph& graph, const at::Tensor& seeds,
                                 NeighborSamplerOptions options)
    : NeighborSampler(graph, seeds, options, std::make_shared<PipelineCounters>()) {}

NeighborSampler::NeighborSampler(const Graph& graph, const at::Tensor& seeds,
                                 const NeighborSamplerOptions& options,
                                 const std::shared_ptr<PipelineCounters>& counters)
    : Batches(neighbor_epochs(graph, seeds, options, counters),
              {.num_workers = options.num_workers, .prefetch = options.prefetch}, counters) {}

}  // namespace mezzo
