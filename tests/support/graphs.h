#pragma once

#include "mezzo/core/random.h"
#include "mezzo/graph/graph.h"

#include "support/tensors.h"

/// Small named graphs, and ids as plain numbers.
namespace mezzo::test {

using Ids = std::vector<std::int64_t>;
using Names = std::vector<std::string>;
using Edge = std::pair<std::int64_t, std::int64_t>;

/// Ids as numbers that can be compared and printed.
inline Ids values(const at::Tensor& tensor) {
  const at::Tensor ids = tensor.cpu().to(at::kLong).contiguous();
  const auto* data = ids.const_data_ptr<std::int64_t>();
  return {data, data + ids.numel()};
}

/// The edges in edge-id order.
inline std::vector<Edge> edges(const Topology& topology) {
  const Ids src = values(topology.src()), dst = values(topology.dst());
  std::vector<Edge> pairs;
  for (std::size_t e = 0; e < src.size(); ++e) pairs.emplace_back(src[e], dst[e]);
  return pairs;
}

/// `g` with node column "h" and edge column "w"; each row holds its index twice.
inline Graph with_id_columns(Graph g) {
  const auto rows = [](std::int64_t count) {
    return at::arange(count, at::kLong).unsqueeze(1).expand({count, 2}).to(at::kFloat);
  };
  g.ndata()["h"] = rows(g.num_nodes());
  g.edata()["w"] = rows(g.num_edges());
  return g;
}

/// The result of a user-defined function that makes one column.
inline Columns one_column(const std::string& name, const at::Tensor& values) {
  return {{name, values}};
}

inline Graph graph_of(const std::vector<std::int64_t>& src, const std::vector<std::int64_t>& dst,
                      std::int64_t num_nodes, IdWidth width = IdWidth::kAutomatic) {
  return Graph(topology_of(src, dst, num_nodes, num_nodes, width));
}

inline Graph empty_graph() {
  return graph_of({}, {}, 0);
}

inline Graph one_node_graph() {
  return graph_of({}, {}, 1);
}

/// Nodes without edges.
inline Graph isolated_graph(std::int64_t num_nodes) {
  return graph_of({}, {}, num_nodes);
}

/// Self loops on 0 and 2 (two on 2) among other edges, unsorted.
inline Graph self_loop_graph() {
  return graph_of({2, 0, 1, 2, 0}, {2, 0, 2, 2, 1}, 4);
}

/// 0->1 three times and 1->0 once; node 2 has no edge.
inline Graph duplicate_graph() {
  return graph_of({0, 1, 0, 0}, {1, 0, 1, 1}, 3);
}

/// Edges from nodes 1 to `leaves` into node 0, the highest source first.
inline Graph star_graph(std::int64_t leaves) {
  return Graph::from_coo(at::arange(leaves, 0, -1, on_device(at::kLong)),
                         at::zeros({leaves}, on_device(at::kLong)), leaves + 1);
}

/// Node i to node i + 1, the last to the first.
inline Graph cycle_graph(std::int64_t num_nodes) {
  const at::Tensor nodes = at::arange(num_nodes, on_device(at::kLong));
  return Graph::from_coo(nodes, (nodes + 1).remainder(num_nodes), num_nodes);
}

/// Low ids have most of the edges; some edges are parallel.
inline Graph power_law_graph(std::int64_t num_nodes, std::int64_t num_edges, std::uint64_t seed,
                             IdWidth width = IdWidth::kAutomatic) {
  return Graph(random_topology(num_nodes, num_nodes, num_edges, seed, 3.0, width));
}

/// Graph G: edges 0->1, 0->2, 1->2, 3->2; nodes 0 and 3 have no in-edges.
inline Graph four_node_graph(IdWidth width = IdWidth::kAutomatic) {
  return Graph(four_nodes(width));
}

/// Each of the n^2 directed edges with probability p, in a shuffled order.
inline Graph random_graph(std::int64_t n, double p, std::uint64_t seed,
                          IdWidth width = IdWidth::kAutomatic) {
  std::vector<std::int64_t> src, dst;
  for (std::int64_t i = 0; i < n * n; ++i) {
    const auto edge = static_cast<std::uint64_t>(i);
    if (random_uniform(seed, 21, edge) >= p) continue;
    src.push_back(i / n);
    dst.push_back(i % n);
    const std::uint64_t other = random_below(src.size(), seed, 22, edge);
    std::swap(src.back(), src[other]);
    std::swap(dst.back(), dst[other]);
  }
  return graph_of(src, dst, n, width);
}

struct NamedGraph {
  std::string name;
  Graph graph;
};

/// One of each kind.
inline std::vector<NamedGraph> named_graphs() {
  return {
      {"empty", empty_graph()},
      {"one node", one_node_graph()},
      {"all isolated", isolated_graph(6)},
      {"self loops", self_loop_graph()},
      {"duplicates", duplicate_graph()},
      {"star", star_graph(9)},
      {"cycle", cycle_graph(7)},
      {"power law", power_law_graph(50, 400, 3)},
      {"four nodes", four_node_graph()},
      {"random", random_graph(20, 0.2, 4)},
      {"complete", random_graph(8, 1.0, 5)},
  };
}

}  // namespace mezzo::test
