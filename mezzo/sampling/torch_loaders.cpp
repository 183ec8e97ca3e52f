// Loaders as classes of libtorch's registry, which Python calls; see python/mezzo/loader.py.

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/custom_class.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/graph/graph.h"
#include "mezzo/graph/selection.h"
#include "mezzo/graph/topology_build.h"
#include "mezzo/ops/schema.h"
#include "mezzo/sampling/blocks/block_sampler.h"
#include "mezzo/sampling/blocks/draw_hop.h"
#include "mezzo/sampling/loader_support.h"
#include "mezzo/sampling/subgraphs/subgraph_loaders.h"
#include "mezzo/sampling/workspace_state.h"

namespace mezzo::detail {
namespace {

using TensorDict = c10::Dict<std::string, at::Tensor>;

constexpr std::string_view kNeighborLoaderName = "NeighborLoader";
/// The column of the ids in the parent graph, as in DGL.
constexpr const char* kParentIds = "_ID";

/// A batch of any loader: the blocks of a mini-batch, or one subgraph.
struct LoadedBatch {
  std::vector<Topology> structures;  ///< input layer first
  Columns nodes;                     ///< rows of the first structure's sources
  std::vector<Columns> edges;        ///< rows of each structure's edges
  Columns more;                      ///< facts of the batch by name
};

TensorDict dict_of(const Columns& columns) {
  TensorDict dict;
  for (const auto& [name, column] : columns) dict.insert(name, column);
  return dict;
}

/// The tensors of a batch's subgraph that PyG's Data has. The edges must be in CSC order.
void add_edge_index(LoadedBatch& batch) {
  const Topology& structure = batch.structures.front();
  at::Tensor edge_index = at::empty({2, structure.num_edges()}, at::kLong);
  edge_index[0].copy_(structure.src());
  edge_index[1].copy_(structure.dst());
  batch.more["edge_index"] = edge_index;
}

/// The columns of a dict. what: a row in errors. Throws InvalidArgument unless each has `num_rows`
/// rows on the CPU.
Columns columns_of(std::string_view loader, const char* what, std::int64_t num_rows,
                   const TensorDict& dict) {
  Frame frame(what, num_rows, at::kCPU);
  for (const auto& entry : dict) frame.set(entry.key(), entry.value());
  return select_columns(loader, "data", frame, frame.names());
}

/// The rows of `ids` (int32 or int64) and the ids.
Columns rows_and_ids(const Columns& columns, const at::Tensor& ids) {
  Columns rows = gather_columns(columns, ids, at::kCPU);
  rows[kParentIds] = ids.to(at::kLong);
  return rows;
}

/// The inputs of a NeighborLoader's batches. Immutable.
struct NeighborPlan {
  std::optional<BlockSampler> blocks;    ///< of batches of blocks
  std::optional<NeighborSource> source;  ///< of batches of one subgraph, with
  std::vector<DrawOptions> hops;         ///< the draws of each hop from the seeds
  at::Tensor input_nodes;                ///< int64, distinct
  SeedOrder order;                       ///< of the positions in input_nodes
  Columns nodes, edges;
  std::uint64_t seed;

  LoadedBatch make(const EpochSeeds& seeds, const BatchKey& key, Workspace& workspace,
                   PipelineStatistics& /*statistics*/) const {
    const at::Tensor positions = seeds.batch(key.batch);
    const at::Tensor roots = input_nodes.index_select(0, positions);
    LoadedBatch batch;
    if (blocks) {
      sample_blocks(roots, key, workspace, batch);
    } else {
      visit(IdTypes{}, source->topology().id_dtype(), [&]<class IdType>() {
        sample_subgraph<typename IdType::Type>(roots, key, workspace, batch);
      });
    }
    batch.more["input_id"] = positions;
    return batch;
  }

 private:
  void sample_blocks(const at::Tensor& roots, const BatchKey& key, Workspace& workspace,
                     LoadedBatch& batch) const {
    const Blocks sampled = blocks->sample(roots, key, workspace);
    batch.nodes = rows_and_ids(nodes, sampled.front().src_nodes());
    for (const Block& block : sampled) {
      batch.structures.push_back(block.topology());
      batch.edges.push_back(rows_and_ids(edges, block.parent_edges()));
      batch.edges.back().insert(block.edata().columns().begin(), block.edata().columns().end());
    }
  }

  /// Each node draws once, in the hop after the one that found it, as in PyG. The rows of the hops
  /// follow each other, so they are the rows by destination of one graph.
  template <class Id>
  void sample_subgraph(const at::Tensor& roots, const BatchKey& key, Workspace& workspace,
                       LoadedBatch& batch) const {
    NodeNumbers& numbers = workspace.state().numbers;
    numbers.begin(source->num_nodes());
    at::Tensor found = roots.to(kIdDtype<Id>, /*non_blocking=*/false, /*copy=*/true);
    std::vector<at::Tensor> offsets, neighbors, edge_ids, weights;
    std::vector<std::int64_t> node_counts, edge_counts;
    std::int64_t begin = 0, num_edges = 0;
    const auto nodes_from = [&](std::int64_t first) {
      at::Tensor copy = at::empty({numbers.size() - first}, kIdDtype<Id>);
      std::copy_n(numbers.nodes<Id>() + first, copy.numel(), copy.mutable_data_ptr<Id>());
      return copy;
    };
    const auto number_found = [&] {
      numbers.add<Id>(found.mutable_data_ptr<Id>(), found.numel());
      node_counts.push_back(numbers.size() - begin);
    };
    for (const DrawOptions& hop : hops) {
      number_found();
      const at::Tensor frontier = nodes_from(begin);
      begin = numbers.size();
      const DrawnNeighbors drawn =
          source->draw(frontier, hop, key, static_cast<std::int64_t>(offsets.size()), workspace);
      offsets.push_back(drawn.offsets.narrow(0, 0, frontier.numel()).add(num_edges));
      neighbors.push_back(found = drawn.neighbors);
      edge_ids.push_back(drawn.edges);
      if (drawn.weights.defined()) weights.push_back(drawn.weights);
      edge_counts.push_back(found.numel());
      num_edges += found.numel();
    }
    number_found();
    const std::int64_t num_nodes = numbers.size();
    offsets.push_back(at::full({node_counts.back() + 1}, num_edges, at::kLong));
    batch.structures.push_back(topology_from_rows(
        {at::cat(offsets), at::cat(neighbors), at::Tensor()}, num_nodes, num_nodes));
    batch.nodes = rows_and_ids(nodes, nodes_from(0));
    batch.edges.push_back(rows_and_ids(edges, at::cat(edge_ids)));
    if (!weights.empty()) batch.edges.back()["edge_weights"] = at::cat(weights);
    batch.more["num_sampled_nodes"] = at::tensor(node_counts, at::kLong);
    batch.more["num_sampled_edges"] = at::tensor(edge_counts, at::kLong);
    add_edge_index(batch);
  }
};

/// One pass of a loader.
struct PassHolder final : torch::CustomClassHolder {
  using Next = std::function<std::optional<LoadedBatch>()>;
  explicit PassHolder(Next function) : next(std::move(function)) {}
  Next next;  ///< nullopt after the last batch
};

/// A loader.
struct LoaderHolder final : torch::CustomClassHolder {
  std::function<PassHolder::Next()> begin;
  std::int64_t num_batches = 0;
};

/// convert: makes a LoadedBatch of the loader's items.
template <class Loader, class Convert>
c10::intrusive_ptr<LoaderHolder> hold_loader(std::shared_ptr<Loader> loader, Convert convert) {
  auto holder = c10::make_intrusive<LoaderHolder>();
  holder->num_batches = loader->num_batches();
  holder->begin = [loader = std::move(loader), convert]() -> PassHolder::Next {
    using Iterator = typename Loader::Iterator;
    std::shared_ptr<Iterator> position;  // made by the first call, which may wait
    return [loader, convert, position]() mutable -> std::optional<LoadedBatch> {
      if (position) {
        ++*position;
      } else {
        position = std::make_shared<Iterator>(loader->begin());
      }
      if (*position == typename Loader::Sentinel{}) return std::nullopt;
      return convert(std::move(**position));
    };
  };
  return holder;
}

struct NeighborArguments {
  Topology topology;
  std::optional<at::Tensor> input_nodes;
  std::vector<std::int64_t> num_neighbors;
  bool as_blocks, labor, replace;
  std::optional<at::Tensor> edge_weights;
  SeedOptions seeds;
};

NeighborPlan neighbor_plan(const NeighborArguments& in, const TensorDict& nodes,
                           const TensorDict& edges) {
  const Topology& topology = in.topology;
  const std::int64_t num_nodes = topology.num_dst();
  MEZZO_CHECK(topology.device().is_cpu(), "{}: expected a graph on the CPU, got one on {}",
              kNeighborLoaderName, topology.device().str());
  MEZZO_CHECK(!in.num_neighbors.empty() && in.num_neighbors.size() <= 256,
              "{}: expected num_neighbors of 1 to 256 hops, got {}", kNeighborLoaderName,
              in.num_neighbors.size());
  MEZZO_CHECK(!in.labor || !in.replace,
              "{}: expected replace = False with labor, which draws a neighbour at most once",
              kNeighborLoaderName);
  DrawOptions draw{.draw = in.labor ? NeighborDraw::kLabor : NeighborDraw::kNeighbor,
                   .replace = in.replace};
  std::vector<DrawOptions> hops;
  for (const std::int64_t fanout : in.num_neighbors) {
    MEZZO_CHECK(fanout >= kAllNeighbors,
                "{}: expected num_neighbors of at least 0, or -1 for all, got {}",
                kNeighborLoaderName, fanout);
    MEZZO_CHECK(!in.replace || (fanout >= 0 && fanout <= kLargestFanoutReplacing),
                "{}: expected num_neighbors in [0, 2^31) with replace, got {}", kNeighborLoaderName,
                fanout);
    draw.fanout = fanout;
    hops.push_back(draw);
  }
  const at::Tensor input_nodes = in.input_nodes ? selected_ids(kNeighborLoaderName, "input_nodes",
                                                               *in.input_nodes, num_nodes, at::kCPU)
                                                      .clone()
                                                : at::arange(num_nodes);
  check_distinct(kNeighborLoaderName, "input_nodes", input_nodes);
  const at::Tensor weights = in.edge_weights.value_or(at::Tensor());
  NeighborPlan plan{
      .blocks = std::nullopt,
      .source = std::nullopt,
      .hops = std::move(hops),
      .input_nodes = input_nodes,
      .order = SeedOrder(kNeighborLoaderName, at::arange(input_nodes.numel()), input_nodes.numel(),
                         in.seeds),
      .nodes = columns_of(kNeighborLoaderName, "data: node", num_nodes, nodes),
      .edges = columns_of(kNeighborLoaderName, "data: edge", topology.num_edges(), edges),
      .seed = in.seeds.seed};
  if (in.as_blocks) {
    plan.blocks.emplace(topology, BlockSampler::Options{.fanouts = {in.num_neighbors.rbegin(),
                                                                    in.num_neighbors.rend()},
                                                        .draw = draw.draw,
                                                        .replace = in.replace,
                                                        .edge_weights = weights});
  } else {
    plan.source.emplace(topology, NeighborType::kIn, weights);
  }
  return plan;
}

/// A loader of subgraphs. The rows of edges are gathered by the caller of the pass.
template <class Loader, class Options>
c10::intrusive_ptr<LoaderHolder> hold_subgraph_loader(std::string_view name,
                                                      const Topology& topology,
                                                      const TensorDict& nodes,
                                                      const TensorDict& edges, Options options) {
  Graph graph(topology);
  graph.ndata().update(columns_of(name, "data: node", topology.num_dst(), nodes));
  options.features = graph.ndata().names();
  return hold_loader(std::make_shared<Loader>(graph, options),
                     [columns = columns_of(name, "data: edge", topology.num_edges(), edges)](
                         SubgraphBatch subgraph) {
                       LoadedBatch batch;
                       batch.structures.push_back(subgraph.graph.topology());
                       batch.nodes = subgraph.graph.ndata().columns();
                       batch.nodes[kParentIds] = subgraph.nodes;
                       batch.edges.push_back(rows_and_ids(columns, subgraph.edges));
                       if (subgraph.node_weights.defined()) {
                         batch.nodes["node_norm"] = subgraph.node_weights;
                         batch.edges.back()["edge_norm"] = subgraph.edge_weights;
                       }
                       add_edge_index(batch);
                       return batch;
                     });
}

SaintKind saint_kind(const std::string& name) {
  if (name == "node") return SaintKind::kNode;
  if (name == "edge") return SaintKind::kEdge;
  MEZZO_CHECK(name == "walk", "SaintLoader: expected kind to be node, edge or walk, got '{}'",
              name);
  return SaintKind::kRandomWalk;
}

using LoadedParts =
    std::tuple<c10::List<TopologyPtr>, TensorDict, c10::List<TensorDict>, TensorDict>;

std::optional<LoadedParts> parts_of(const std::optional<LoadedBatch>& batch) {
  if (!batch) return std::nullopt;
  c10::List<TopologyPtr> structures;
  for (const Topology& structure : batch->structures) structures.push_back(hold(structure));
  c10::List<TensorDict> edges;
  for (const Columns& columns : batch->edges) edges.push_back(dict_of(columns));
  return LoadedParts{structures, dict_of(batch->nodes), edges, dict_of(batch->more)};
}

c10::intrusive_ptr<LoaderHolder> neighbor_loader(
    const TopologyPtr& topology, const TensorDict& nodes, const TensorDict& edges,
    const std::optional<at::Tensor>& input_nodes, const std::vector<std::int64_t>& num_neighbors,
    bool as_blocks, bool labor, bool replace, const std::optional<at::Tensor>& edge_weights,
    std::int64_t batch_size, bool shuffle, bool drop_last, std::int64_t num_workers,
    std::int64_t prefetch, std::int64_t seed) {
  const NeighborArguments arguments{.topology = topology->value,
                                    .input_nodes = input_nodes,
                                    .num_neighbors = num_neighbors,
                                    .as_blocks = as_blocks,
                                    .labor = labor,
                                    .replace = replace,
                                    .edge_weights = edge_weights,
                                    .seeds = {.batch_size = batch_size,
                                              .shuffle = shuffle,
                                              .drop_last = drop_last,
                                              .seed = static_cast<std::uint64_t>(seed)}};
  return hold_loader(std::make_shared<Batches<LoadedBatch>>(
                         seed_epochs<LoadedBatch>(neighbor_plan(arguments, nodes, edges)),
                         PipelineOptions{.num_workers = num_workers, .prefetch = prefetch}),
                     [](LoadedBatch batch) { return batch; });
}

c10::intrusive_ptr<LoaderHolder> cluster_loader(const TopologyPtr& topology,
                                                const TensorDict& nodes, const TensorDict& edges,
                                                std::int64_t num_parts, std::int64_t batch_size,
                                                bool shuffle, bool drop_last,
                                                std::int64_t num_workers, std::int64_t prefetch,
                                                std::int64_t seed) {
  return hold_subgraph_loader<ClusterLoader>(
      "ClusterLoader", topology->value, nodes, edges,
      ClusterLoaderOptions{.num_parts = num_parts,
                           .clusters_per_batch = batch_size,
                           .shuffle = shuffle,
                           .num_workers = num_workers,
                           .prefetch = prefetch,
                           .seed = static_cast<std::uint64_t>(seed),
                           .drop_last = drop_last});
}

c10::intrusive_ptr<LoaderHolder> saint_loader(const TopologyPtr& topology, const TensorDict& nodes,
                                              const TensorDict& edges, const std::string& kind,
                                              std::int64_t batch_size, std::int64_t walk_length,
                                              std::int64_t num_steps, std::int64_t sample_coverage,
                                              std::int64_t num_workers, std::int64_t prefetch,
                                              std::int64_t seed) {
  return hold_subgraph_loader<SaintLoader>(
      "SaintLoader", topology->value, nodes, edges,
      SaintLoaderOptions{.kind = saint_kind(kind),
                         .budget = batch_size,
                         .num_roots = batch_size,
                         .walk_length = walk_length,
                         .batches_per_epoch = num_steps,
                         .sample_coverage = sample_coverage,
                         .num_workers = num_workers,
                         .prefetch = prefetch,
                         .seed = static_cast<std::uint64_t>(seed)});
}

const auto pass_class = (register_topology_class(), torch::class_<PassHolder>("mezzo", "Pass"))
                            .def("next", [](const c10::intrusive_ptr<PassHolder>& pass) {
                              return parts_of(pass->next());
                            });

const auto loader_class =
    torch::class_<LoaderHolder>("mezzo", "Loader")
        .def("num_batches",
             [](const c10::intrusive_ptr<LoaderHolder>& loader) { return loader->num_batches; })
        .def("begin",
             [](const c10::intrusive_ptr<LoaderHolder>& loader) {
               return c10::make_intrusive<PassHolder>(loader->begin());
             })
        .def_static("neighbors", &neighbor_loader)
        .def_static("clusters", &cluster_loader)
        .def_static("saint", &saint_loader);

}  // namespace
}  // namespace mezzo::detail
