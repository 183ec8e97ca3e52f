#include <algorithm>
#include <numeric>
#include <vector>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/selection.h"
#include "mezzo/graph/topology_build.h"
#include "mezzo/graph/transforms/transforms.h"

namespace mezzo {
namespace {

using Ids = std::vector<std::int64_t>;

Ids on_host(const at::Tensor& ids) {
  const at::Tensor copy = ids.to(at::kCPU, at::kLong).contiguous();
  const auto* data = copy.const_data_ptr<std::int64_t>();
  return {data, data + copy.numel()};
}

Ids degrees_of(const Topology& topology) {
  return on_host(topology.in_degrees() + topology.out_degrees());
}

/// All nodes in ascending order of key, ties by ascending id.
template <class Key>
Ids sorted_nodes(std::int64_t num_nodes, Key key) {
  Ids nodes(static_cast<std::size_t>(num_nodes));
  std::iota(nodes.begin(), nodes.end(), 0);
  std::stable_sort(nodes.begin(), nodes.end(),
                   [&](std::int64_t a, std::int64_t b) { return key(a) < key(b); });
  return nodes;
}

/// The in- and out-neighbours of a node.
class Neighbours {
 public:
  explicit Neighbours(const Topology& topology)
      : in_rows_(on_host(topology.csc().indptr)),
        in_nodes_(on_host(topology.csc().indices)),
        out_rows_(on_host(topology.csr().indptr)),
        out_nodes_(on_host(topology.csr().indices)) {}

  template <class Visit>
  void each(std::int64_t node, Visit visit) const {
    const auto walk = [&](const Ids& rows, const Ids& nodes) {
      const auto row = static_cast<std::size_t>(node);
      for (auto i = rows[row]; i < rows[row + 1]; ++i) visit(nodes[static_cast<std::size_t>(i)]);
    };
    walk(in_rows_, in_nodes_);
    walk(out_rows_, out_nodes_);
  }

 private:
  Ids in_rows_, in_nodes_, out_rows_, out_nodes_;
};

Ids reverse_cuthill_mckee(const Topology& topology) {
  const Ids degree = degrees_of(topology);
  const auto degree_of = [&](std::int64_t node) { return degree[static_cast<std::size_t>(node)]; };
  const Neighbours neighbours(topology);
  const std::int64_t num_nodes = topology.num_src();
  std::vector<char> seen(static_cast<std::size_t>(num_nodes));
  Ids order;
  order.reserve(seen.size());
  const auto take = [&](std::int64_t node) {
    char& mark = seen[static_cast<std::size_t>(node)];
    if (mark == 0) order.push_back(node);
    mark = 1;
  };
  std::size_t next = 0;
  for (const std::int64_t start : sorted_nodes(num_nodes, degree_of)) {
    take(start);
    for (; next < order.size(); ++next) {
      const auto first_new = static_cast<std::ptrdiff_t>(order.size());
      neighbours.each(order[next], take);
      std::stable_sort(order.begin() + first_new, order.end(),
                       [&](std::int64_t a, std::int64_t b) { return degree_of(a) < degree_of(b); });
    }
  }
  std::reverse(order.begin(), order.end());
  return order;
}

Ids nodes_in(NodeOrder order, const Topology& topology) {
  const std::int64_t num_nodes = topology.num_src();
  switch (order) {
    case NodeOrder::kKeep:
      return sorted_nodes(num_nodes, [](std::int64_t) { return 0; });
    case NodeOrder::kDegree: {
      const Ids degree = degrees_of(topology);
      return sorted_nodes(
          num_nodes, [&](std::int64_t node) { return -degree[static_cast<std::size_t>(node)]; });
    }
    case NodeOrder::kReverseCuthillMcKee:
      return reverse_cuthill_mckee(topology);
  }
  detail::raise<InvalidArgument>("reorder: expected order to be one of {}",
                                 detail::names(NodeOrders{}));
}

/// Edges are sorted by dst * num_nodes + src.
void check_num_nodes(std::int64_t num_nodes) {
  constexpr std::int64_t kMostNodes = 3'037'000'499;  // its square is the last below 2^63
  MEZZO_CHECK(num_nodes <= kMostNodes, "reorder: expected at most {} nodes, got {}", kMostNodes,
              num_nodes);
}

}  // namespace

Graph reorder(const Graph& graph, const at::Tensor& nodes) {
  const Topology& old = graph.topology();
  const std::int64_t num_nodes = graph.num_nodes();
  check_num_nodes(num_nodes);
  const at::Tensor order =
      detail::selected_ids("reorder", "nodes", nodes, num_nodes, graph.device()).clone();
  MEZZO_CHECK(order.numel() == num_nodes,
              "reorder: expected nodes to be a permutation of {} nodes, got {} ids", num_nodes,
              order.numel());
  detail::check_distinct("reorder", "nodes", order);
  const at::Tensor number =
      at::empty_like(order).index_copy_(0, order, at::arange(num_nodes, order.options()));
  const at::Tensor src = number.index_select(0, old.src().to(at::kLong));
  const at::Tensor dst = number.index_select(0, old.dst().to(at::kLong));
  const at::Tensor edges =
      std::get<1>((dst * num_nodes + src).sort(/*stable=*/std::optional<bool>(true), /*dim=*/0));
  Graph reordered = Graph::from_coo(src.index_select(0, edges), dst.index_select(0, edges),
                                    num_nodes, detail::width_like(old.id_dtype()));
  reordered.ndata() = graph.ndata().rows(order);
  reordered.edata() = graph.edata().rows(edges);
  reordered.ndata()["_ID"] = order;
  reordered.edata()["_ID"] = edges;
  return reordered;
}

Graph reorder(const Graph& graph, NodeOrder order) {
  check_num_nodes(graph.num_nodes());  // fail before computing the order
  const Ids nodes = nodes_in(order, graph.topology());
  return reorder(graph, at::tensor(nodes, at::kLong).to(graph.device()));
}

}  // namespace mezzo
