#include "mezzo/sampling/edges/edge_loader.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/graph/topology_build.h"
#include "mezzo/graph/topology_trusted.h"
#include "mezzo/sampling/edges/edge_lookup.h"
#include "mezzo/sampling/loader_support.h"
#include "mezzo/sampling/seed_order.h"
#include "mezzo/sampling/workspace_state.h"

namespace mezzo {
namespace {

constexpr std::string_view kEdgeLoaderName = "EdgeLoader";

/// Samples blocks from which some edges are left out. Immutable, for several threads at once.
class ExcludingSampler {
 public:
  ExcludingSampler(const Topology& topology, const EdgeLoaderOptions& options)
      : source_(topology, NeighborType::kIn), fanouts_(options.fanouts), replace_(options.replace) {
    if (!options.parent_degrees) return;
    // Those of a part of a graph are the whole's, as in BlockSampler.
    const at::Tensor* in = topology.parent_in_degrees();
    const at::Tensor* out = topology.parent_out_degrees();
    in_degrees_ = in != nullptr ? *in : topology.in_degrees();
    out_degrees_ = out != nullptr ? *out : topology.out_degrees();
  }

  /// excluded: ascending edge ids.
  Blocks sample(const at::Tensor& seeds, const std::vector<std::int64_t>& excluded,
                const BatchKey& key, Workspace& workspace) const {
    Blocks blocks;
    visit(detail::IdTypes{}, source_.topology().id_dtype(), [&]<class Id>() {
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
    at::Tensor nodes = seeds.clone();  // add() writes numbers there
    numbers.add(nodes.mutable_data_ptr<Id>(), nodes.numel());
    nodes = seeds;
    Blocks blocks;
    const auto num_hops = static_cast<std::int64_t>(fanouts_.size());
    for (std::int64_t hop = 0; hop < num_hops; ++hop) {
      const DrawOptions draw{.fanout = fanouts_[static_cast<std::size_t>(num_hops - 1 - hop)],
                             .replace = replace_};
      DrawnNeighbors kept = without<Id>(source_.draw(nodes, draw, key, hop, workspace), excluded);
      numbers.add(kept.neighbors.mutable_data_ptr<Id>(), kept.neighbors.numel());
      const std::int64_t num_dst = nodes.numel(), num_src = numbers.size();
      nodes = at::empty({num_src}, seeds.options());
      std::copy_n(numbers.nodes<Id>(), num_src, nodes.mutable_data_ptr<Id>());
      Topology topology = detail::topology_from_rows({kept.offsets, kept.neighbors, at::Tensor()},
                                                     num_src, num_dst);
      if (in_degrees_.defined()) {
        topology =
            topology.with_parent_degrees(in_degrees_.index_select(0, nodes.narrow(0, 0, num_dst)),
                                         out_degrees_.index_select(0, nodes));
      }
      blocks.emplace_back(std::move(topology), nodes, kept.edges);
    }
    std::reverse(blocks.begin(), blocks.end());
    return blocks;
  }

  /// What was drawn, less the edges `excluded`.
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
  at::Tensor in_degrees_, out_degrees_;  ///< int32 or int64 [num_nodes], or undefined
};

/// Finds the ends of edges. Immutable, for several threads at once.
class EdgeEnds {
 public:
  explicit EdgeEnds(const Topology& topology) : topology_(topology) {
    if (topology.csc().edge_ids.defined()) static_cast<void>(topology.src());
  }

  /// edges: int64 [n]. int64 [n] each.
  NodePairs of(const at::Tensor& edges) const {
    const Adjacency& rows = topology_.csc();
    if (rows.edge_ids.defined()) {
      return {.src = topology_.src().index_select(0, edges).to(at::kLong),
              .dst = topology_.dst().index_select(0, edges).to(at::kLong)};
    }
    // Edge i is slot i, so that its row is the last one that begins at i or before.
    return {.src = rows.indices.index_select(0, edges).to(at::kLong),
            .dst = at::searchsorted(rows.indptr, edges, /*out_int32=*/false, /*right=*/true) - 1};
  }

 private:
  Topology topology_;
};

/// What every batch of a loader is made from. Immutable.
struct EdgePlan {
  EdgeLoaderOptions options;
  Columns features;
  SeedOrder order;
  EdgeEnds ends;
  BlockSampler sampler;                               ///< for EdgeExclusion::kNone
  std::optional<ExcludingSampler> excluding;          ///< for the others
  std::optional<NegativeSampler> negatives;           ///< where some are asked for
  std::shared_ptr<const detail::EdgeLookup> reverse;  ///< for EdgeExclusion::kReverse
  std::shared_ptr<PipelineCounters> counters;

  std::vector<std::int64_t> excluded_edges(const at::Tensor& seeds, const NodePairs& pairs) const {
    const auto* edge = seeds.const_data_ptr<std::int64_t>();
    std::vector<std::int64_t> excluded(edge, edge + seeds.numel());
    if (reverse != nullptr) {
      const auto* from = pairs.src.const_data_ptr<std::int64_t>();
      const auto* to = pairs.dst.const_data_ptr<std::int64_t>();
      for (std::int64_t i = 0; i < seeds.numel(); ++i) {
        const auto back = reverse->edges(to[i], from[i]);
        excluded.insert(excluded.end(), back.begin(), back.end());
      }
    }
    std::sort(excluded.begin(), excluded.end());
    return excluded;
  }

  /// The pairs, as rows of output_nodes, and the blocks.
  EdgeMiniBatch sampled(const at::Tensor& seeds, const BatchKey& key, Workspace& workspace) const {
    EdgeMiniBatch batch;
    batch.index = key.batch;
    batch.seed_edges = seeds;
    const NodePairs pairs = ends.of(seeds);
    const at::Tensor drawn =
        negatives ? negatives->destinations(pairs.src, options.num_negatives, key).flatten()
                  : at::empty({0}, at::kLong);
    const auto [unique, rows, counts] = at::_unique2(at::cat({pairs.src, pairs.dst, drawn}),
                                                     /*sorted=*/true, /*return_inverse=*/true);
    const std::int64_t num_seeds = seeds.numel();
    batch.output_nodes = unique;
    batch.positives = {.src = rows.narrow(0, 0, num_seeds).clone(),
                       .dst = rows.narrow(0, num_seeds, num_seeds).clone()};
    batch.negatives = {.src = batch.positives.src.repeat_interleave(options.num_negatives),
                       .dst = rows.narrow(0, 2 * num_seeds, drawn.numel()).clone()};
    batch.blocks = excluding
                       ? excluding->sample(unique, excluded_edges(seeds, pairs), key, workspace)
                       : sampler.sample(unique, key, workspace);
    batch.input_nodes = batch.blocks.front().src_nodes();
    return batch;
  }
};

void move_to(EdgeMiniBatch& batch, at::Device device) {
  for (Block& block : batch.blocks) block = block.to(device);
  for (at::Tensor* tensor :
       {&batch.input_nodes, &batch.output_nodes, &batch.seed_edges, &batch.positives.src,
        &batch.positives.dst, &batch.negatives.src, &batch.negatives.dst}) {
    *tensor = tensor->to(device);
  }
  for (auto& [name, column] : batch.feature_columns) column = column.to(device);
}

class EdgeEpoch : public Epoch<EdgeMiniBatch> {
 public:
  EdgeEpoch(std::shared_ptr<const EdgePlan> plan, std::int64_t number)
      : plan_(std::move(plan)), number_(number), seeds_(plan_->order.epoch(number)) {}

  std::int64_t num_batches() const override { return seeds_->num_batches(); }

  EdgeMiniBatch make(std::int64_t index, Workspace& workspace) const override {
    detail::Stopwatch watch;
    PipelineStatistics took;
    const at::Device device = plan_->options.device;
    EdgeMiniBatch batch =
        plan_->sampled(seeds_->batch(index), {plan_->options.seed, number_, index}, workspace);
    for (const Block& block : batch.blocks) took.sampled_edges += block.num_edges();
    took.sampled_nodes = batch.input_nodes.numel();
    took.sample_seconds = watch.lap();
    batch.feature_columns = detail::gathered_columns(plan_->features, batch.input_nodes, device);
    took.gather_seconds = watch.lap();
    move_to(batch, device);
    for (const Block& block : batch.blocks) {
      detail::prepare_rows(block.topology(), /*backward=*/true);
    }
    took.transfer_seconds = watch.lap();
    plan_->counters->add(took);
    return batch;
  }

 private:
  std::shared_ptr<const EdgePlan> plan_;
  std::int64_t number_;
  std::shared_ptr<const EpochSeeds> seeds_;
};

/// What only some options need. Exclusion and negatives share one lookup.
void add_parts(const Topology& topology, EdgePlan& plan) {
  const EdgeLoaderOptions& options = plan.options;
  const bool is_reverse = options.exclude == EdgeExclusion::kReverse;
  if (options.exclude != EdgeExclusion::kNone) plan.excluding.emplace(topology, options);
  std::shared_ptr<const detail::EdgeLookup> lookup;
  if (is_reverse || (options.num_negatives > 0 && options.negatives.exclude_edges)) {
    lookup = std::make_shared<const detail::EdgeLookup>(topology);
  }
  if (options.num_negatives > 0) plan.negatives.emplace(topology, options.negatives, lookup);
  if (is_reverse) plan.reverse = std::move(lookup);
}

/// Of all batches together `num_edges` seed edges.
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

Batches<EdgeMiniBatch>::MakeEpoch edge_epochs(const Graph& graph, const at::Tensor& edges,
                                              EdgeLoaderOptions options,
                                              const std::shared_ptr<PipelineCounters>& counters) {
  MEZZO_CHECK(graph.device().is_cpu(), "{}: expected a graph on the CPU, got one on {}",
              kEdgeLoaderName, graph.device().str());
  check_pipeline({.num_workers = options.num_workers, .prefetch = options.prefetch});
  options.device = detail::resolve_device(kEdgeLoaderName, options.device);
  const Topology& topology = graph.topology();
  SeedOrder order(kEdgeLoaderName, edges, graph.num_edges(),
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
      detail::chosen_columns(kEdgeLoaderName, "features", graph.ndata(), options.features);
  EdgePlan plan{.options = std::move(options),
                .features = std::move(features),
                .order = std::move(order),
                .ends = EdgeEnds(topology),
                .sampler = std::move(sampler),
                .excluding = std::nullopt,
                .negatives = std::nullopt,
                .reverse = nullptr,
                .counters = counters};
  add_parts(topology, plan);
  return [shared = std::make_shared<const EdgePlan>(std::move(plan))](std::int64_t number) {
    return std::make_shared<const EdgeEpoch>(shared, number);
  };
}

}  // namespace

const at::Tensor& EdgeMiniBatch::features(const std::string& column) const {
  const auto found = feature_columns.find(column);
  MEZZO_CHECK(found != feature_columns.end(),
              "EdgeMiniBatch::features: expected a column that the loader gathers, got '{}'",
              column);
  return found->second;
}

EdgeLoader::EdgeLoader(const Graph& graph, const at::Tensor& edges, EdgeLoaderOptions options)
    : EdgeLoader(graph, edges, options, std::make_shared<PipelineCounters>()) {}

EdgeLoader::EdgeLoader(const Graph& graph, const at::Tensor& edges,
                       const EdgeLoaderOptions& options,
                       const std::shared_ptr<PipelineCounters>& counters)
    : Batches(edge_epochs(graph, edges, options, counters),
              {.num_workers = options.num_workers, .prefetch = options.prefetch}, counters) {}

}  // namespace mezzo
