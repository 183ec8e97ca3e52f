#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/graph/topology_build.h"
#include "mezzo/graph/transforms/transforms.h"

namespace mezzo {
namespace {

using Counts = std::vector<std::int64_t>;
using Names = std::vector<std::string>;
using FrameOf = std::function<const Frame&(const Graph&)>;

const Frame& nodes_of(const Graph& graph) {
  return graph.ndata();
}

const Frame& edges_of(const Graph& graph) {
  return graph.edata();
}

/// The first id of each part: int64 [number of parts] on `device`.
at::Tensor offsets_of(const at::Tensor& counts, at::Device device) {
  return (counts.cumsum(0) - counts).to(device);
}

/// Repeats values[k] counts[k] times. values: [number of parts]; counts: int64, on the CPU.
at::Tensor spread(const at::Tensor& values, const at::Tensor& counts) {
  return values.repeat_interleave(counts.to(values.device()), 0, counts.sum().item<std::int64_t>());
}

at::Tensor numbers(const Counts& counts) {
  return at::tensor(counts, at::kLong);
}

void check_graphs(const std::vector<Graph>& graphs) {
  MEZZO_CHECK(!graphs.empty(), "batch: expected at least one graph, got none");
  for (std::size_t i = 1; i < graphs.size(); ++i) {
    MEZZO_CHECK(graphs[i].device() == graphs[0].device(),
                "batch: expected all graphs on one device, got graph 0 on {} and graph {} on {}",
                graphs[0].device().str(), i, graphs[i].device().str());
  }
}

std::string describe_row(const at::Tensor& column) {
  return fmt::format("{} [{}]", c10::toString(column.scalar_type()),
                     fmt::join(column.sizes().slice(1), ", "));
}

/// The positions of the graphs whose columns are joined: graphs with rows, or all graphs if none
/// has rows.
std::vector<std::size_t> graphs_with_rows(const std::vector<Graph>& graphs, const FrameOf& frame) {
  std::vector<std::size_t> chosen, all(graphs.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  std::copy_if(all.begin(), all.end(), std::back_inserter(chosen),
               [&](std::size_t i) { return frame(graphs[i]).num_rows() > 0; });
  return chosen.empty() ? all : chosen;
}

/// The columns of the first of the `chosen` graphs. Throws InvalidArgument unless the others have
/// the same columns.
Names shared_names(const std::vector<Graph>& graphs, const std::vector<std::size_t>& chosen,
                   const FrameOf& frame, std::string_view what) {
  const std::size_t first = chosen.front();
  Names shared = frame(graphs[first]).names();
  for (const std::size_t i : chosen) {
    for (const std::string& name : frame(graphs[i]).names()) {
      MEZZO_CHECK(frame(graphs[first]).contains(name),
                  "batch: {} column '{}' of graph {} is missing in graph {}", what, name, i, first);
    }
    for (const std::string& name : shared) {
      MEZZO_CHECK(frame(graphs[i]).contains(name),
                  "batch: {} column '{}' of graph {} is missing in graph {}", what, name, first, i);
    }
  }
  return shared;
}

at::Tensor joined_column(const std::vector<Graph>& graphs, const std::vector<std::size_t>& chosen,
                         const FrameOf& frame, std::string_view what, const std::string& name) {
  std::vector<at::Tensor> parts;
  for (const std::size_t i : chosen) {
    MEZZO_CHECK(frame(graphs[i]).contains(name),
                "batch: expected {} column '{}' in every graph, it is missing in graph {}", what,
                name, i);
    parts.push_back(frame(graphs[i]).at(name));
    const at::Tensor &expected = parts.front(), &last = parts.back();
    MEZZO_CHECK(last.layout() != at::kSparseCsr,
                "batch: {} column '{}': expected strided rows, got {} in graph {}{}", what, name,
                detail::describe(last), i, detail::dense_hint(last));
    MEZZO_CHECK(last.scalar_type() == expected.scalar_type() &&
                    last.sizes().slice(1) == expected.sizes().slice(1),
                "batch: {} column '{}': expected rows {}, as graph {} has, got {} in graph {}",
                what, name, describe_row(expected), chosen.front(), describe_row(last), i);
  }
  return at::cat(parts, 0);
}

/// selected: nullptr for all columns, which all graphs must have.
Columns joined_columns(const std::vector<Graph>& graphs, const FrameOf& frame,
                       std::string_view what, const Names* selected) {
  const std::vector<std::size_t> chosen = graphs_with_rows(graphs, frame);
  const Names names = selected != nullptr ? *selected : shared_names(graphs, chosen, frame, what);
  Columns joined;
  for (const std::string& name : names) {
    joined[name] = joined_column(graphs, chosen, frame, what, name);
  }
  return joined;
}

at::Tensor joined_counts(const std::vector<Graph>& graphs, at::Tensor (Graph::*counts)() const) {
  std::vector<at::Tensor> parts;
  for (const Graph& graph : graphs) parts.push_back((graph.*counts)());
  return at::cat(parts);
}

Graph joined_structure(const std::vector<Graph>& graphs) {
  Counts num_nodes, num_edges;
  std::vector<at::Tensor> src, dst;
  at::ScalarType widest = at::kInt;
  for (const Graph& graph : graphs) {
    num_nodes.push_back(graph.num_nodes());
    num_edges.push_back(graph.num_edges());
    if (graph.topology().id_dtype() == at::kLong) widest = at::kLong;
  }
  const IdWidth width = detail::width_like(widest);
  const at::Tensor nodes = numbers(num_nodes), edges = numbers(num_edges);
  const std::int64_t total = nodes.sum().item<std::int64_t>();
  const at::ScalarType dtype =
      detail::choose_id_dtype("batch", width, total, total, edges.sum().item<std::int64_t>());
  for (const Graph& graph : graphs) {
    src.push_back(graph.topology().src().to(dtype));
    dst.push_back(graph.topology().dst().to(dtype));
  }
  const at::Tensor shift = spread(offsets_of(nodes, graphs[0].device()).to(dtype), edges);
  return Graph::from_coo(at::cat(src).add_(shift), at::cat(dst).add_(shift), total, width);
}

/// node_columns, edge_columns: nullptr for all.
Graph joined_graph(const std::vector<Graph>& graphs, const Names* node_columns,
                   const Names* edge_columns) {
  check_graphs(graphs);
  const Columns nodes = joined_columns(graphs, &nodes_of, "node", node_columns);
  const Columns edges = joined_columns(graphs, &edges_of, "edge", edge_columns);
  Graph joined = joined_structure(graphs);
  joined.set_batch(joined_counts(graphs, &Graph::batch_num_nodes),
                   joined_counts(graphs, &Graph::batch_num_edges));
  joined.ndata().update(nodes);
  joined.edata().update(edges);
  return joined;
}

/// Throws InvalidArgument for an edge with an endpoint outside its part. lower, upper: the node
/// range of each edge's part, int64 [E].
void check_ends(const Graph& graph, const at::Tensor& lower, const at::Tensor& upper,
                const at::Tensor& num_edges) {
  const at::Tensor &src = graph.topology().src(), &dst = graph.topology().dst();
  const auto outside = [&](const at::Tensor& ids) {
    return at::lt(ids, lower).logical_or_(at::ge(ids, upper));
  };
  const at::Tensor leaving = outside(src).logical_or_(outside(dst));
  if (!leaving.any().item<bool>()) return;
  const auto edge = leaving.nonzero()[0].item<std::int64_t>();
  const auto part = at::le(num_edges.cumsum(0), edge).sum().item<std::int64_t>();
  detail::raise<InvalidArgument>(
      "unbatch: expected the edges of part {} between its nodes [{}, {}), got edge {} from {} to "
      "{}",
      part, lower[edge].item<std::int64_t>(), upper[edge].item<std::int64_t>(), edge,
      src[edge].item<std::int64_t>(), dst[edge].item<std::int64_t>());
}

Columns rows_of(const Frame& frame, std::int64_t begin, std::int64_t count) {
  Columns rows;
  for (const std::string& name : frame.names()) rows[name] = frame.at(name).narrow(0, begin, count);
  return rows;
}

}  // namespace

std::vector<std::int64_t> detail::check_counts(std::string_view operation, std::string_view name,
                                               const at::Tensor& counts, std::string_view what,
                                               std::int64_t expected) {
  const at::Tensor host = check_vector(operation, name, counts).cpu().to(at::kLong);
  const auto* data = host.const_data_ptr<std::int64_t>();
  Counts sizes(data, data + host.numel());
  std::int64_t rest = expected;
  for (const std::int64_t size : sizes) {
    MEZZO_CHECK(size >= 0, "{}: expected {} of at least 0, got {}", operation, name, size);
    MEZZO_CHECK(size <= rest, "{}: expected {} that sum to {}, got more", operation, name, what);
    rest -= size;
  }
  MEZZO_CHECK(rest == 0, "{}: expected {} that sum to {}, got {}", operation, name, what,
              expected - rest);
  return sizes;
}

detail::BatchCounts detail::check_batch(std::string_view operation, const Graph& graph,
                                        const at::Tensor& num_nodes, const at::Tensor& num_edges) {
  const std::int64_t nodes = graph.num_nodes(), edges = graph.num_edges();
  BatchCounts counts{check_counts(operation, "num_nodes", num_nodes,
                                  fmt::format("the graph's {} nodes", nodes), nodes),
                     check_counts(operation, "num_edges", num_edges,
                                  fmt::format("the graph's {} edges", edges), edges)};
  MEZZO_CHECK(counts.num_nodes.size() == counts.num_edges.size() && !counts.num_nodes.empty(),
              "{}: expected as many num_nodes as num_edges, at least one, got {} and {}", operation,
              counts.num_nodes.size(), counts.num_edges.size());
  return counts;
}

Graph batch(const std::vector<Graph>& graphs) {
  return joined_graph(graphs, nullptr, nullptr);
}

Graph batch(const std::vector<Graph>& graphs, const std::vector<std::string>& node_columns,
            const std::vector<std::string>& edge_columns) {
  return joined_graph(graphs, &node_columns, &edge_columns);
}

std::vector<Graph> unbatch(const Graph& graph) {
  return unbatch(graph, graph.batch_num_nodes(), graph.batch_num_edges());
}

std::vector<Graph> unbatch(const Graph& graph, const at::Tensor& num_nodes,
                           const at::Tensor& num_edges) {
  const detail::BatchCounts counts = detail::check_batch("unbatch", graph, num_nodes, num_edges);
  const at::Tensor nodes = numbers(counts.num_nodes), edges = numbers(counts.num_edges);
  const at::Tensor first = offsets_of(nodes, graph.device());
  const at::Tensor lower = spread(first, edges);
  check_ends(graph, lower, spread(first + nodes.to(graph.device()), edges), edges);

  const Topology& topology = graph.topology();
  const at::ScalarType dtype = topology.id_dtype();
  const IdWidth width = detail::width_like(dtype);
  const at::Tensor src = topology.src() - lower.to(dtype), dst = topology.dst() - lower.to(dtype);
  std::vector<Graph> parts;
  std::int64_t first_node = 0, first_edge = 0;
  for (std::size_t i = 0; i < counts.num_nodes.size(); ++i) {
    const std::int64_t part_nodes = counts.num_nodes[i], part_edges = counts.num_edges[i];
    Graph part = Graph::from_coo(src.narrow(0, first_edge, part_edges),
                                 dst.narrow(0, first_edge, part_edges), part_nodes, width);
    part.ndata().update(rows_of(graph.ndata(), first_node, part_nodes));
    part.edata().update(rows_of(graph.edata(), first_edge, part_edges));
    parts.push_back(std::move(part));
    first_node += part_nodes;
    first_edge += part_edges;
  }
  return parts;
}

}  // namespace mezzo
