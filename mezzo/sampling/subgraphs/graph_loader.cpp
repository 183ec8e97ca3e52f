#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/graph/topology_build.h"
#include "mezzo/sampling/loader_support.h"
#include "mezzo/sampling/subgraphs/subgraph_loaders.h"

namespace mezzo {
namespace {

constexpr std::string_view kGraphLoaderName = "GraphLoader";

/// Where each graph begins in consecutive rows of all graphs: int64 [number of graphs + 1].
using Begins = std::vector<std::int64_t>;

Begins begins_of(const at::Tensor& sizes) {
  Begins begins = {0};
  const auto* size = sizes.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < sizes.numel(); ++i) begins.push_back(begins.back() + size[i]);
  return begins;
}

/// The drawn graphs' ranges of rows, and where each goes in the batch.
struct Ranges {
  std::vector<std::int64_t> from;
  Begins to;

  Ranges(const Begins& begins, const at::Tensor& graphs) : to{0} {
    const auto* graph = graphs.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < graphs.numel(); ++i) {
      const auto place = static_cast<std::size_t>(graph[i]);
      from.push_back(begins[place]);
      to.push_back(to.back() + begins[place + 1] - begins[place]);
    }
  }

  std::int64_t total() const { return to.back(); }
  /// int64 [number of drawn graphs].
  at::Tensor sizes() const { return at::tensor(to, at::kLong).diff(); }
  /// Calls body(i) for every drawn graph. On one thread: a batch is copied in less time than
  /// waking threads takes on a busy machine.
  template <class Body>
  void for_each(const Body& body) const {
    for (std::size_t i = 0; i < from.size(); ++i) body(i);
  }
};

/// The rows of the ranges. table: contiguous, strided, on the CPU.
at::Tensor copy_ranges(const at::Tensor& table, const Ranges& ranges, bool pinned) {
  std::vector<std::int64_t> sizes = table.sizes().vec();
  sizes[0] = ranges.total();
  at::Tensor rows = at::empty(sizes, table.options().pinned_memory(pinned));
  if (rows.numel() == 0) return rows;
  const std::int64_t bytes = static_cast<std::int64_t>(rows.nbytes()) / ranges.total();
  const auto* source = static_cast<const std::byte*>(table.const_data_ptr());
  auto* target = static_cast<std::byte*>(rows.mutable_data_ptr());
  ranges.for_each([&](std::size_t i) {
    std::memcpy(target + ranges.to[i] * bytes, source + ranges.from[i] * bytes,
                static_cast<std::size_t>((ranges.to[i + 1] - ranges.to[i]) * bytes));
  });
  return rows;
}

/// The values of `ranges`, moved as far as the ranges `owners` of the same graphs move, in a tensor
/// with room for `spare` more.
template <class Value>
at::Tensor shifted(const at::Tensor& values, const Ranges& ranges, const Ranges& owners,
                   std::int64_t spare = 0) {
  at::Tensor result = at::empty({ranges.total() + spare}, values.options());
  const auto* source = values.const_data_ptr<Value>();
  auto* target = result.mutable_data_ptr<Value>();
  ranges.for_each([&](std::size_t i) {
    const auto shift = static_cast<Value>(owners.to[i] - owners.from[i]);
    const Value* first = source + ranges.from[i];
    std::transform(first, first + (ranges.to[i + 1] - ranges.to[i]), target + ranges.to[i],
                   [shift](Value value) { return static_cast<Value>(value + shift); });
  });
  return result;
}

/// The rows of a graph's nodes follow each other, and so do their entries: the entries of a graph
/// are the range of its edges.
Topology joined_rows(const Topology& topology, const Ranges& nodes, const Ranges& edges) {
  const Adjacency& rows = topology.csc();
  Adjacency joined;
  joined.indptr = shifted<std::int64_t>(rows.indptr, nodes, edges, /*spare=*/1);
  joined.indptr.mutable_data_ptr<std::int64_t>()[nodes.total()] = edges.total();
  detail::visit(detail::IdTypes{}, topology.id_dtype(), [&]<class Id>() {
    using Type = typename Id::Type;
    joined.indices = shifted<Type>(rows.indices, edges, nodes);
    if (rows.edge_ids.defined()) joined.edge_ids = shifted<Type>(rows.edge_ids, edges, edges);
  });
  return detail::topology_from_rows(std::move(joined), nodes.total(), nodes.total());
}

void check_edges(const Topology& topology, const Begins& nodes, const Begins& edges) {
  const at::Tensor src = topology.src().to(at::kLong), dst = topology.dst().to(at::kLong);
  const auto* from = src.const_data_ptr<std::int64_t>();
  const auto* to = dst.const_data_ptr<std::int64_t>();
  for (std::size_t g = 0; g + 1 < nodes.size(); ++g) {
    const auto is_inside = [&](std::int64_t node) {
      return node >= nodes[g] && node < nodes[g + 1];
    };
    for (std::int64_t e = edges[g]; e < edges[g + 1]; ++e) {
      MEZZO_CHECK(is_inside(from[e]) && is_inside(to[e]),
                  "{}: expected the edges of graph {} between its nodes [{}, {}), got edge {} from "
                  "{} to {}",
                  kGraphLoaderName, g, nodes[g], nodes[g + 1], e, from[e], to[e]);
    }
  }
}

/// The columns, contiguous.
Columns checked_columns(std::string_view what, const Columns& columns, std::int64_t num_rows) {
  Columns checked;
  for (const auto& [name, column] : columns) {
    MEZZO_CHECK(column.defined() && column.layout() == at::kStrided && column.is_cpu() &&
                    column.dim() >= 1 && column.size(0) == num_rows,
                "{}: expected {} column '{}' strided, on the CPU, [{}, ...], got {}",
                kGraphLoaderName, what, name, num_rows, detail::describe(column));
    checked[name] = column.detach().contiguous();
  }
  return checked;
}

/// The inputs of a loader's batches. Immutable.
struct GraphPlan {
  Topology topology;
  Begins nodes, edges;
  Columns ndata, edata, graph_data;
  at::Device device;
  detail::SeedOrder order;  ///< of the graphs
  std::uint64_t seed;

  GraphBatch make(const detail::EpochSeeds& seeds, const BatchKey& key, Workspace& /*workspace*/,
                  PipelineStatistics& statistics) const {
    detail::Stopwatch watch;
    GraphBatch batch;
    batch.graph_ids = seeds.batch(key.batch);
    batch.index = key.batch;
    const Ranges node_ranges(nodes, batch.graph_ids), edge_ranges(edges, batch.graph_ids);
    batch.graph = Graph(joined_rows(topology, node_ranges, edge_ranges));
    batch.graph.set_batch(node_ranges.sizes(), edge_ranges.sizes());
    statistics.sampled_nodes += node_ranges.total();
    statistics.sampled_edges += edge_ranges.total();
    statistics.sample_seconds += watch.lap();
    const bool pinned = device.is_cuda();
    for (const auto& [name, column] : ndata) {
      batch.graph.ndata().set(name, copy_ranges(column, node_ranges, pinned));
    }
    for (const auto& [name, column] : edata) {
      batch.graph.edata().set(name, copy_ranges(column, edge_ranges, pinned));
    }
    batch.graph_data = detail::gather_columns(graph_data, batch.graph_ids, device);
    statistics.gather_seconds += watch.lap();
    batch.graph = batch.graph.to(device);
    batch.graph_ids = batch.graph_ids.to(device);
    for (auto& [name, column] : batch.graph_data) column = column.to(device);
    detail::prepare_rows(batch.graph.topology(), /*backward=*/true);
    statistics.transfer_seconds += watch.lap();
    return batch;
  }
};

GraphPlan graph_plan(const Graph& graph, const GraphLoaderOptions& options) {
  detail::check_pipeline({.num_workers = options.num_workers, .prefetch = options.prefetch});
  MEZZO_CHECK(graph.device().is_cpu(), "{}: expected a graph on the CPU, got one on {}",
              kGraphLoaderName, graph.device().str());
  const std::int64_t num_graphs = graph.batch_size();
  Begins nodes = begins_of(graph.batch_num_nodes()), edges = begins_of(graph.batch_num_edges());
  check_edges(graph.topology(), nodes, edges);
  detail::SeedOrder order(
      kGraphLoaderName,
      options.graphs.defined() ? options.graphs : at::arange(num_graphs, at::kLong), num_graphs,
      {.batch_size = options.batch_size,
       .shuffle = options.shuffle,
       .drop_last = options.drop_last,
       .seed = options.seed,
       .name = "graphs"});
  return {.topology = graph.topology(),
          .nodes = std::move(nodes),
          .edges = std::move(edges),
          .ndata = checked_columns("node", graph.ndata().columns(), graph.num_nodes()),
          .edata = checked_columns("edge", graph.edata().columns(), graph.num_edges()),
          .graph_data = checked_columns("graph_data", options.graph_data, num_graphs),
          .device = detail::resolve_device(kGraphLoaderName, options.device),
          .order = std::move(order),
          .seed = options.seed};
}

}  // namespace

GraphLoader::GraphLoader(const Graph& graph, GraphLoaderOptions options)
    : Batches(detail::seed_epochs<GraphBatch>(graph_plan(graph, options)),
              {.num_workers = options.num_workers, .prefetch = options.prefetch}) {}

}  // namespace mezzo
