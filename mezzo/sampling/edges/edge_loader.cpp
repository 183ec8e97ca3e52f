#include "mezzo/sampling/edges/edge_loader.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/graph/topology.h"
#include "mezzo/graph/topology_build.h"
#include "mezzo/sampling/edges/edge_lookup.h"
#include "mezzo/sampling/loader_support.h"
#include "mezzo/sampling/workspace_state.h"

namespace mezzo {
namespace {

constexpr std::string_view kEdgeLoaderName = "EdgeLoader";

/// Samples blocks without some edges. Immutable, thread-safe.
class ExcludingSampler {
 public:
  ExcludingSampler(const Topology& topology, const EdgeLoaderOptions& options)
      : source_(topology, NeighborType::kIn), fanouts_(options.fanouts), replace_(options.replace) {
    if (options.parent_degrees) degrees_ = detail::parent_degrees_of(topology);
  }

  /// excluded: ascending edge ids.
  Blocks sample(const at::Tensor& seeds, const std::vector<std::int64_t>& excluded,
                const BatchKey& key, Workspace& workspace) const {
    Blocks blocks;
    detail::visit(detail::IdTypes{}, source_.topology().id_dtype(), [&]<class Id>() {
      blocks = sample_as<typename Id::Type>(seeds.to(Id::kind), excluded, key, workspace);
    });
    return blocks;
  }

 private:
  template <class Id>
  Blocks sample_as(const at::Tensor& seeds, const std::vector<std::int64_t>& excluded,
                   const BatchKey& key, Workspace& workspace) const {
    detail::NodeNumbers& numbers = workspace.state().numbers;
    numbers.begin(source_.num_nodes());
    at::Tensor nodes = seeds.clone();  // add() overwrites it
    numbers.add(nodes.mutable_data_ptr<Id>(), nodes.numel());
    nodes = seeds;
    Blocks blocks;
    const auto num_hops = static_cast<std::int64_t>(fanouts_.size());
    for (std::int64_t hop = 0; hop < num_hops; ++hop) {
      const DrawOptions draw{.fanout = fanouts_[static_cast<std::size_t>(num_hops - 1 - hop)],
                             .replace = replace_};
      DrawnNeighbors drawn = without<Id>(source_.draw(nodes, draw, key, hop, workspace), excluded);
      numbers.add(drawn.neighbors.mutable_data_ptr<Id>(), drawn.neighbors.numel());
      const std::int64_t num_dst = nodes.numel(), num_src = numbers.size();
      nodes = at::empty({num_src}, seeds.options());
      std::copy_n(numbers.nodes<Id>(), num_src, nodes.mutable_data_ptr<Id>());
      Topology topology = detail::topology_from_rows({drawn.offsets, drawn.neighbors, at::Tensor()},
                                                     num_src, num_dst);
      if (degrees_.in.defined()) {
        topology =
            topology.with_parent_degrees(degrees_.in.index_select(0, nodes.narrow(0, 0, num_dst)),
                                         degrees_.out.index_select(0, nodes));
      }
      blocks.emplace_back(std::move(topology), nodes, drawn.edges);
    }
    std::reverse(blocks.begin(), blocks.end());
    return blocks;
  }

  /// `drawn` without the edges `excluded`.
  template <class Id>
  static DrawnNeighbors without(const DrawnNeighbors& drawn,
                                const std::vector<std::int64_t>& excluded) {
    const auto* begin = drawn.offsets.const_data_ptr<std::int64_t>();
    const Id* neighbor = drawn.neighbors.const_data_ptr<Id>();
    const Id* edge = drawn.edges.const_data_ptr<Id>();
    at::Tensor offsets = at::empty_like(drawn.offsets);
    std::vector<Id> neighbors, edges;
    auto* offset = offsets.mutable_data_ptr<std::int64_t>();
    offset[0] = 0;
    for (std::int64_t row = 0; row + 1 < offsets.numel(); ++row) {
      for (std::int64_t i = begin[row]; i < begin[row + 1]; ++i) {
        if (std::binary_search(excluded.begin(), excluded.end(), edge[i])) continue;
        neighbors.push_back(neighbor[i]);
        edges.push_back(edge[i]);
      }
      offset[row + 1] = static_cast<std::int64_t>(edges.size());
    }
    return {.offsets = offsets,
            .neighbors = at::tensor(neighbors, drawn.neighbors.options()),
            .edges = at::tensor(edges, drawn.edges.options()),
            .weights = {}};
  }

  NeighborSource source_;
  std::vector<std::int64_t> fanouts_;
  bool replace_;
  detail::ParentDegrees degrees_;  ///< undefined without parent_degrees
};

/// Finds the ends of edges. Immutable, thread-safe.
class EdgeEnds {
 public:
  explicit EdgeEnds(const Topology& topology) : topology_(topology) {
    if (topology.csc().edge_ids.defined()) static_cast<void>(topology.src());
  }

  /// edges: int64 [n]. Result: int64 [n] each.
  NodePairs of(const at::Tensor& edges) const {
    const Adjacency& rows = topology_.csc();
    if (rows.edge_ids.defined()) {
      return {.src = topology_.src().index_select(0, edges).to(at::kLong),
              .dst = topology_.dst().index_select(0, edges).to(at::kLong)};
    }
    // Edge i is entry i, so its row is the last one that starts at or before i.
    return {.src = rows.indices.index_select(0, edges).to(at::kLong),
            .dst = at::searchsorted(rows.indptr, edges, /*out_int32=*/false, /*right=*/true) - 1};
  }

 private:
  Topology topology_;
};

void move_to(EdgeMiniBatch& batch, at::Device device) {
  for (Block& block : batch.blocks) block = block.to(device);
  for (at::Tensor* tensor :
       {&batch.input_nodes, &batch.output_nodes, &batch.seed_edges, &batch.positives.src,
        &batch.positives.dst, &batch.negatives.src, &batch.negatives.dst}) {
    *tensor = tensor->to(device);
  }
  batch.pairs = batch.pairs.to(device);
  for (Columns* columns : {&batch.feature_columns, &batch.edge_data}) {
    for (auto& [name, column] : *columns) column = column.to(device);
  }
}

/// The inputs of a loader's batches. Immutable.
struct EdgePlan {
  EdgeLoaderOptions options;
  Columns features;
  detail::SeedOrder order;
  std::uint64_t seed;
  EdgeEnds ends;
  BlockSampler sampler;                              ///< with EdgeExclusion::kNone
  std::optional<ExcludingSampler> excluding;         ///< otherwise
  std::optional<NegativeSampler> negatives;          ///< if num_negatives > 0
  std::shared_ptr<const detail::EdgeLookup> lookup;  ///< to find edges to exclude by their ends
  bool are_edges;                                    ///< the seeds are edges of the graph

  std::vector<std::int64_t> excluded_edges(const at::Tensor& seeds, const NodePairs& pairs) const {
    std::vector<std::int64_t> excluded;
    if (are_edges) {
      const auto* edge = seeds.const_data_ptr<std::int64_t>();
      excluded.assign(edge, edge + seeds.numel());
    }
    const auto add = [&](const at::Tensor& src, const at::Tensor& dst) {
      const auto* from = src.const_data_ptr<std::int64_t>();
      const auto* to = dst.const_data_ptr<std::int64_t>();
      for (std::int64_t i = 0; i < seeds.numel(); ++i) {
        const auto edges = lookup->edges(from[i], to[i]);
        excluded.insert(excluded.end(), edges.begin(), edges.end());
      }
    };
    if (!are_edges) add(pairs.src, pairs.dst);
    if (options.exclude == EdgeExclusion::kReverse) add(pairs.dst, pairs.src);
    std::sort(excluded.begin(), excluded.end());
    return excluded;
  }

  /// A batch without features, on the CPU.
  EdgeMiniBatch sample(const at::Tensor& seeds, const BatchKey& key, Workspace& workspace) const {
    EdgeMiniBatch batch;
    batch.index = key.batch;
    batch.seed_edges = seeds;
    const NodePairs seed_ends = ends.of(seeds);
    const at::Tensor drawn =
        negatives ? negatives->destinations(seed_ends.src, options.num_negatives, key).flatten()
                  : at::empty({0}, at::kLong);
    const auto [unique, rows, counts] = at::_unique2(at::cat({seed_ends.src, seed_ends.dst, drawn}),
                                                     /*sorted=*/true, /*return_inverse=*/true);
    const std::int64_t num_seeds = seeds.numel();
    batch.output_nodes = unique;
    batch.positives = {.src = rows.narrow(0, 0, num_seeds).clone(),
                       .dst = rows.narrow(0, num_seeds, num_seeds).clone()};
    batch.negatives = {.src = batch.positives.src.repeat_interleave(options.num_negatives),
                       .dst = rows.narrow(0, 2 * num_seeds, drawn.numel()).clone()};
    batch.pairs = Topology::from_coo(at::cat({batch.positives.src, batch.negatives.src}),
                                     rows.narrow(0, num_seeds, num_seeds + drawn.numel()).clone(),
                                     unique.numel(), unique.numel());
    batch.blocks = excluding
                       ? excluding->sample(unique, excluded_edges(seeds, seed_ends), key, workspace)
                       : sampler.sample(unique, key, workspace);
    batch.input_nodes = batch.blocks.front().src_nodes();
    return batch;
  }

  EdgeMiniBatch make(const detail::EpochSeeds& seeds, const BatchKey& key, Workspace& workspace,
                     PipelineStatistics& statistics) const {
    detail::Stopwatch watch;
    EdgeMiniBatch batch = sample(seeds.batch(key.batch), key, workspace);
    for (const Block& block : batch.blocks) statistics.sampled_edges += block.num_edges();
    statistics.sampled_nodes = batch.input_nodes.numel();
    statistics.sample_seconds = watch.lap();
    batch.feature_columns = detail::gather_columns(features, batch.input_nodes, options.device);
    batch.edge_data = detail::gather_columns(options.edge_data, batch.seed_edges, options.device);
    statistics.gather_seconds = watch.lap();
    move_to(batch, options.device);
    for (const Block& block : batch.blocks) {
      detail::prepare_rows(block.topology(), /*backward=*/true);
    }
    detail::prepare_rows(batch.pairs, /*backward=*/true);
    statistics.transfer_seconds = watch.lap();
    return batch;
  }
};

/// Adds the members that only some options need. Exclusion and negatives share one lookup.
void add_optional_parts(const Topology& topology, EdgePlan& plan) {
  const EdgeLoaderOptions& options = plan.options;
  if (options.exclude != EdgeExclusion::kNone) plan.excluding.emplace(topology, options);
  const bool finds_edges = options.exclude == EdgeExclusion::kReverse ||
                           (options.exclude == EdgeExclusion::kSelf && !plan.are_edges);
  if (finds_edges || (options.num_negatives > 0 && options.negatives.exclude_edges)) {
    plan.lookup = std::make_shared<const detail::EdgeLookup>(topology);
  }
  if (options.num_negatives > 0) plan.negatives.emplace(topology, options.negatives, plan.lookup);
}

/// num_edges: seed edges of an epoch.
void check_negatives(const EdgeLoaderOptions& options, std::int64_t num_edges) {
  MEZZO_CHECK(options.num_negatives >= 0 && options.num_negatives <= kMostNegatives,
              "{}: expected num_negatives in [0, 2^31], got {}", kEdgeLoaderName,
              options.num_negatives);
  const std::int64_t in_batch = std::min(options.batch_size, num_edges);
  MEZZO_CHECK(options.num_negatives == 0 || in_batch <= kMostNegatives / options.num_negatives,
              "{}: expected at most 2^31 negative pairs a batch, got num_negatives {} for each of "
              "{} seed edges",
              kEdgeLoaderName, options.num_negatives, in_batch);
}

void check_pairs(const Graph& graph, const Topology& pairs, const EdgeLoaderOptions& options) {
  MEZZO_CHECK(pairs.device().is_cpu() && pairs.num_src() == graph.num_nodes() &&
                  pairs.num_dst() == graph.num_nodes(),
              "{}: expected pairs of the {} nodes on the CPU, got {} sources and {} destinations "
              "on {}",
              kEdgeLoaderName, graph.num_nodes(), pairs.num_src(), pairs.num_dst(),
              pairs.device().str());
  for (const auto& [name, column] : options.edge_data) {
    MEZZO_CHECK(column.defined() && column.layout() == at::kStrided && column.is_cpu() &&
                    column.dim() >= 1 && column.size(0) == pairs.num_edges(),
                "{}: expected edge_data column '{}' strided, on the CPU, [{}, ...], got {}",
                kEdgeLoaderName, name, pairs.num_edges(), detail::describe(column));
  }
}

/// pairs: the graph's edges, or others.
Batches<EdgeMiniBatch>::MakeEpoch edge_epochs(const Graph& graph, const Topology& pairs,
                                              const at::Tensor& seeds, EdgeLoaderOptions options) {
  MEZZO_CHECK(graph.device().is_cpu(), "{}: expected a graph on the CPU, got one on {}",
              kEdgeLoaderName, graph.device().str());
  detail::check_pipeline({.num_workers = options.num_workers, .prefetch = options.prefetch});
  options.device = detail::resolve_device(kEdgeLoaderName, options.device);
  const Topology& topology = graph.topology();
  check_pairs(graph, pairs, options);
  detail::SeedOrder order(kEdgeLoaderName, seeds, pairs.num_edges(),
                          {.batch_size = options.batch_size,
                           .shuffle = options.shuffle,
                           .drop_last = options.drop_last,
                           .seed = options.seed,
                           .name = "edges"});
  check_negatives(options, order.num_seeds());
  const bool has_degrees = options.parent_degrees && options.exclude == EdgeExclusion::kNone;
  BlockSampler sampler(
      topology,
      {.fanouts = options.fanouts, .replace = options.replace, .parent_degrees = has_degrees});
  Columns features =
      detail::select_columns(kEdgeLoaderName, "features", graph.ndata(), options.features);
  const std::uint64_t seed = options.seed;
  EdgePlan plan{.options = std::move(options),
                .features = std::move(features),
                .order = std::move(order),
                .seed = seed,
                .ends = EdgeEnds(pairs),
                .sampler = std::move(sampler),
                .excluding = std::nullopt,
                .negatives = std::nullopt,
                .lookup = nullptr,
                .are_edges = pairs.is_same(topology)};
  add_optional_parts(topology, plan);
  return detail::seed_epochs<EdgeMiniBatch>(std::move(plan));
}

}  // namespace

const at::Tensor& EdgeMiniBatch::features(const std::string& column) const {
  const auto rows = feature_columns.find(column);
  MEZZO_CHECK(rows != feature_columns.end(),
              "EdgeMiniBatch::features: expected a column that the loader gathers, got '{}'",
              column);
  return rows->second;
}

EdgeLoader::EdgeLoader(const Graph& graph, const at::Tensor& edges, EdgeLoaderOptions options)
    : EdgeLoader(graph, graph.topology(), edges, std::move(options)) {}

EdgeLoader::EdgeLoader(const Graph& graph, const Topology& pairs, const at::Tensor& seeds,
                       EdgeLoaderOptions options)
    : Batches(edge_epochs(graph, pairs, seeds, options),
              {.num_workers = options.num_workers, .prefetch = options.prefetch}) {}

}  // namespace mezzo
