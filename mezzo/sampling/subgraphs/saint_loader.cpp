#include <algorithm>
#include <atomic>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "mezzo/core/error.h"
#include "mezzo/core/random.h"
#include "mezzo/graph/topology_build.h"
#include "mezzo/sampling/draw_stream.h"
#include "mezzo/sampling/loader_support.h"
#include "mezzo/sampling/subgraphs/subgraph_loaders.h"
#include "mezzo/sampling/subgraphs/subgraph_source.h"

namespace mezzo {
namespace {

constexpr std::string_view kSaintLoaderName = "SaintLoader";
constexpr std::int64_t kSaintRound = 64;  // subgraphs for the weights at a time
constexpr std::int64_t kMostSaintDraws = std::int64_t{1} << 31;
constexpr std::int64_t kSaintBatchStep = 0, kSaintCountStep = 1;  // of draw_stream()

void check_saint(const Graph& graph, const SaintLoaderOptions& options) {
  detail::check_pipeline({.num_workers = options.num_workers, .prefetch = options.prefetch});
  const auto at_least = [](std::string_view name, std::int64_t value, std::int64_t least) {
    MEZZO_CHECK(value >= least, "{}: expected {} of at least {}, got {}", kSaintLoaderName, name,
                least, value);
  };
  const auto check_draws = [&](std::string_view name, std::int64_t value, std::int64_t least) {
    at_least(name, value, least);
    MEZZO_CHECK(value <= kMostSaintDraws, "{}: expected {} of at most 2^31, got {}",
                kSaintLoaderName, name, value);
  };
  at_least("batches_per_epoch", options.batches_per_epoch, 0);
  at_least("sample_coverage", options.sample_coverage, 0);
  if (options.kind == SaintKind::kRandomWalk) {
    check_draws("num_roots", options.num_roots, 1);
    check_draws("walk_length", options.walk_length, 0);
  } else {
    check_draws("budget", options.budget, 1);
  }
  MEZZO_CHECK(graph.num_nodes() > 0, "{}: expected a graph with nodes, got none", kSaintLoaderName);
  MEZZO_CHECK(options.kind != SaintKind::kEdge || graph.num_edges() > 0,
              "{}: expected a graph with edges for draws of edges, got none", kSaintLoaderName);
}

/// Calls use(source, destination, edge) for every edge, by ascending destination.
template <class Use>
void for_each_edge(const Topology& topology, const Use& use) {
  const Adjacency& rows = topology.csc();
  const auto* indptr = rows.indptr.const_data_ptr<std::int64_t>();
  detail::visit(detail::IdTypes{}, topology.id_dtype(), [&]<class IdType>() {
    using Id = typename IdType::Type;
    const auto* sources = rows.indices.const_data_ptr<Id>();
    const Id* edges = rows.edge_ids.defined() ? rows.edge_ids.const_data_ptr<Id>() : nullptr;
    for (std::int64_t dst = 0; dst < topology.num_dst(); ++dst) {
      for (std::int64_t i = indptr[dst]; i < indptr[dst + 1]; ++i) {
        use(static_cast<std::int64_t>(sources[i]), dst,
            edges != nullptr ? static_cast<std::int64_t>(edges[i]) : i);
      }
    }
  });
}

/// Running sums of the weights of SaintKind::kNode: float64 [num_nodes].
at::Tensor node_sums(const Topology& topology) {
  const at::Tensor shares = (topology.in_degrees() + 1).to(at::kDouble).pow(-2);
  at::Tensor weights = shares.clone();
  const auto* share = shares.const_data_ptr<double>();
  auto* weight = weights.mutable_data_ptr<double>();
  for_each_edge(topology, [&](std::int64_t src, std::int64_t dst, std::int64_t) {
    weight[src] += share[dst];
  });
  return weights.cumsum(0);
}

/// Draws the nodes of subgraphs. Immutable, thread-safe.
class SaintSampler {
 public:
  SaintSampler(const Topology& topology, const SaintLoaderOptions& options)
      : topology_(topology), options_(options) {
    if (options.kind == SaintKind::kNode) sums_ = node_sums(topology);
    if (options.kind == SaintKind::kEdge) {
      senders_ = topology.out_degrees().nonzero().squeeze(1);
      receivers_ = topology.in_degrees().nonzero().squeeze(1);
      static_cast<void>(topology.csr());
    }
    static_cast<void>(topology.csc());
  }

  /// int64, distinct, ascending.
  at::Tensor nodes(const BatchKey& key, std::int64_t step) const {
    const Draws draws{key.seed, detail::draw_stream(key, detail::DrawPurpose::kSubgraph, step)};
    std::vector<std::int64_t> nodes;
    switch (options_.kind) {
      case SaintKind::kNode:
        draw_nodes(draws, nodes);
        break;
      case SaintKind::kEdge:
        draw_edges(draws, nodes);
        break;
      case SaintKind::kRandomWalk:
        draw_walks(draws, nodes);
        break;
    }
    std::sort(nodes.begin(), nodes.end());
    nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
    return at::tensor(nodes, at::kLong);
  }

 private:
  struct Draws {
    std::uint64_t seed, stream;
    double uniform(std::int64_t index) const {
      return random_uniform(seed, stream, static_cast<std::uint64_t>(index));
    }
    std::int64_t below(std::int64_t bound, std::int64_t index) const {
      return static_cast<std::int64_t>(random_below(static_cast<std::uint64_t>(bound), seed, stream,
                                                    static_cast<std::uint64_t>(index)));
    }
  };

  void draw_nodes(const Draws& draws, std::vector<std::int64_t>& nodes) const {
    const auto* sum = sums_.const_data_ptr<double>();
    const double* end = sum + sums_.numel();
    for (std::int64_t i = 0; i < options_.budget; ++i) {
      nodes.push_back(std::upper_bound(sum, end - 1, draws.uniform(i) * end[-1]) - sum);
    }
  }

  /// 1 / out-degree of the source, summed over all edges, is the number of nodes with out-edges. So
  /// an edge is drawn among the edges of a uniform sender or of a uniform receiver.
  void draw_edges(const Draws& draws, std::vector<std::int64_t>& nodes) const {
    for (std::int64_t i = 0; i < options_.budget; ++i) {
      const std::int64_t end = draws.below(senders_.numel() + receivers_.numel(), 2 * i);
      const bool by_sender = end < senders_.numel();
      const std::int64_t node =
          by_sender ? senders_.const_data_ptr<std::int64_t>()[end]
                    : receivers_.const_data_ptr<std::int64_t>()[end - senders_.numel()];
      nodes.push_back(node);
      nodes.push_back(
          neighbor(by_sender ? topology_.csr() : topology_.csc(), node, draws, 2 * i + 1));
    }
  }

  void draw_walks(const Draws& draws, std::vector<std::int64_t>& nodes) const {
    std::int64_t next = 0;
    for (std::int64_t i = 0; i < options_.num_roots; ++i) {
      std::int64_t node = draws.below(topology_.num_dst(), next++);
      nodes.push_back(node);
      for (std::int64_t step = 0; step < options_.walk_length; ++step) {
        node = neighbor(topology_.csc(), node, draws, next++);
        if (node < 0) break;
        nodes.push_back(node);
      }
    }
  }

  /// A uniform neighbour in the node's row; -1 if the row is empty.
  std::int64_t neighbor(const Adjacency& rows, std::int64_t node, const Draws& draws,
                        std::int64_t index) const {
    const auto* indptr = rows.indptr.const_data_ptr<std::int64_t>() + node;
    if (indptr[0] == indptr[1]) return -1;
    const std::int64_t entry = indptr[0] + draws.below(indptr[1] - indptr[0], index);
    return rows.indices.scalar_type() == at::kInt
               ? rows.indices.const_data_ptr<std::int32_t>()[entry]
               : rows.indices.const_data_ptr<std::int64_t>()[entry];
  }

  Topology topology_;
  SaintLoaderOptions options_;
  at::Tensor sums_, senders_, receivers_;
};

/// The normalisation: float32 by node and, without the factor of the degrees, by edge.
struct SaintWeights {
  at::Tensor nodes, edges;
};

/// Increments counts[id] for each id; thread-safe.
void count_each(const at::Tensor& ids, std::int32_t* counts) {
  const auto* id = ids.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < ids.numel(); ++i) {
    std::atomic_ref(counts[id[i]]).fetch_add(1, std::memory_order_relaxed);
  }
}

SaintWeights saint_weights(const Topology& topology, const SaintSampler& sampler,
                           const SaintLoaderOptions& options) {
  const std::int64_t num_nodes = topology.num_dst();
  at::Tensor node_counts = at::zeros({num_nodes}, at::kInt);
  at::Tensor edge_counts = at::zeros({topology.num_edges()}, at::kInt);
  auto* node_count = node_counts.mutable_data_ptr<std::int32_t>();
  auto* edge_count = edge_counts.mutable_data_ptr<std::int32_t>();
  const double enough =
      static_cast<double>(options.sample_coverage) * static_cast<double>(num_nodes);
  detail::WorkspacePool workspaces;
  std::int64_t num_subgraphs = 0;
  std::atomic<std::int64_t> total = 0;
  while (static_cast<double>(total.load()) < enough) {
    at::parallel_for(
        num_subgraphs, num_subgraphs + kSaintRound, 1, [&](std::int64_t begin, std::int64_t end) {
          Workspace workspace = workspaces.take();
          for (std::int64_t i = begin; i < end; ++i) {
            const at::Tensor nodes =
                sampler.nodes({.seed = options.seed, .epoch = 0, .batch = i}, kSaintCountStep);
            count_each(nodes, node_count);
            count_each(detail::induced_subgraph(topology, nodes, workspace).edges, edge_count);
            total += nodes.numel();
          }
          workspaces.give_back(std::move(workspace));
        });
    num_subgraphs += kSaintRound;
  }
  at::Tensor edges = at::empty({topology.num_edges()}, at::kFloat);
  auto* edge_weight = edges.mutable_data_ptr<float>();
  for_each_edge(topology, [&](std::int64_t, std::int64_t dst, std::int64_t edge) {
    edge_weight[edge] = static_cast<float>(std::max(node_count[dst], 1)) /
                        static_cast<float>(std::max(edge_count[edge], 1));
  });
  const double scale = static_cast<double>(num_subgraphs) / static_cast<double>(num_nodes);
  return {.nodes = (scale / node_counts.clamp_min(1).to(at::kDouble)).to(at::kFloat),
          .edges = std::move(edges)};
}

/// The inputs of a loader's batches. Immutable.
struct SaintPlan {
  detail::SubgraphSource source;
  SaintSampler sampler;
  SaintWeights weights;    ///< undefined without normalisation
  at::Tensor out_degrees;  ///< [num_nodes] in the graph's id dtype; undefined without normalisation
  SaintLoaderOptions options;

  void normalise(SubgraphBatch& batch) const {
    const Topology& part = batch.graph.topology();
    const at::Tensor& indptr = source.topology().csc().indptr;
    const at::Tensor whole =
        indptr.index_select(0, batch.nodes + 1) - indptr.index_select(0, batch.nodes);
    const at::Tensor share = part.in_degrees().to(at::kFloat).div_(whole.clamp_min(1));
    batch.node_weights = weights.nodes.index_select(0, batch.nodes);
    batch.edge_weights =
        weights.edges.index_select(0, batch.edges).mul_(share.index_select(0, part.dst()));
    const Graph plain = batch.graph;
    batch.graph = Graph(
        part.with_parent_degrees(whole, out_degrees.index_select(0, batch.nodes).to(at::kLong)));
    batch.graph.ndata() = plain.ndata();
  }
};

class SaintEpoch : public Epoch<SubgraphBatch> {
 public:
  SaintEpoch(std::shared_ptr<const SaintPlan> plan, std::int64_t number)
      : plan_(std::move(plan)), number_(number) {}

  std::int64_t num_batches() const override { return plan_->options.batches_per_epoch; }

  SubgraphBatch make(std::int64_t index, Workspace& workspace,
                     PipelineStatistics& statistics) const override {
    detail::Stopwatch watch;
    const at::Tensor nodes =
        plan_->sampler.nodes({plan_->options.seed, number_, index}, kSaintBatchStep);
    statistics.sample_seconds = watch.lap();
    SubgraphBatch batch = plan_->source.make(nodes, index, workspace, statistics);
    watch.lap();
    if (plan_->weights.nodes.defined()) plan_->normalise(batch);
    statistics.sample_seconds += watch.lap();
    plan_->source.move(batch, statistics);
    return batch;
  }

 private:
  std::shared_ptr<const SaintPlan> plan_;
  std::int64_t number_;
};

Batches<SubgraphBatch>::MakeEpoch saint_epochs(const Graph& graph,
                                               const SaintLoaderOptions& options) {
  check_saint(graph, options);
  detail::SubgraphSource source(kSaintLoaderName, graph, options.features, options.labels,
                                options.device);
  SaintSampler sampler(graph.topology(), options);
  SaintPlan plan{std::move(source), std::move(sampler), {}, {}, options};
  if (options.sample_coverage > 0) {
    plan.weights = saint_weights(graph.topology(), plan.sampler, options);
    plan.out_degrees = graph.out_degrees().to(graph.topology().id_dtype());
  }
  return [shared = std::make_shared<const SaintPlan>(std::move(plan))](std::int64_t number) {
    return std::make_shared<const SaintEpoch>(shared, number);
  };
}

}  // namespace

SaintLoader::SaintLoader(const Graph& graph, SaintLoaderOptions options)
    : Batches(saint_epochs(graph, options),
              {.num_workers = options.num_workers, .prefetch = options.prefetch}) {}

}  // namespace mezzo
