#include "mezzo/graph/transforms/transforms.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "mezzo/core/error.h"
#include "mezzo/core/random.h"
#include "mezzo/graph/selection.h"
#include "mezzo/graph/topology_build.h"

namespace mezzo {
namespace {

constexpr std::int64_t kGrain = 1 << 14;            // drawn edges per task
constexpr std::int64_t kMostNodes = 3'037'000'499;  // its square is the last below 2^63

/// The IdWidth of a graph derived from `graph`; int64 stays int64.
IdWidth width_of(const Graph& graph) {
  return detail::width_like(graph.topology().id_dtype());
}

/// Draws `count` distinct numbers below `bound`, ascending: the first distinct numbers of a uniform
/// stream, so that every set is equally likely. count <= bound / 2 limits repeats.
std::vector<std::uint64_t> draw_distinct(std::uint64_t bound, std::size_t count,
                                         std::uint64_t seed) {
  std::vector<std::uint64_t> drawn;
  std::uint64_t index = 0;
  while (drawn.size() < count) {  // draws only the missing ones, so it cannot overshoot
    const std::size_t old_size = drawn.size();
    drawn.resize(count);
    at::parallel_for(static_cast<std::int64_t>(old_size), static_cast<std::int64_t>(count), kGrain,
                     [&](std::int64_t begin, std::int64_t end) {
                       for (std::int64_t i = begin; i < end; ++i) {
                         const auto place = static_cast<std::size_t>(i);
                         drawn[place] = random_below(bound, seed, 0, index + (place - old_size));
                       }
                     });
    index += count - old_size;
    const auto middle = drawn.begin() + static_cast<std::ptrdiff_t>(old_size);
    std::sort(middle, drawn.end());
    std::inplace_merge(drawn.begin(), middle, drawn.end());
    drawn.erase(std::unique(drawn.begin(), drawn.end()), drawn.end());
  }
  return drawn;
}

/// The numbers below `bound` that are not in `holes` (ascending).
std::vector<std::uint64_t> all_but(std::uint64_t bound, const std::vector<std::uint64_t>& holes) {
  std::vector<std::uint64_t> numbers;
  numbers.reserve(static_cast<std::size_t>(bound) - holes.size());
  auto hole = holes.begin();
  for (std::uint64_t i = 0; i < bound; ++i) {
    if (hole != holes.end() && *hole == i) {
      ++hole;
    } else {
      numbers.push_back(i);
    }
  }
  return numbers;
}

/// A graph on the CPU whose edge i is edge(i), a pair (source, destination) of valid ids.
template <class Edge>
Graph graph_of(std::string_view operation, std::int64_t num_nodes, std::int64_t num_edges,
               const Edge& edge) {
  const at::ScalarType dtype =
      detail::choose_id_dtype(operation, IdWidth::kAutomatic, num_nodes, num_nodes, num_edges);
  at::Tensor src = at::empty({num_edges}, dtype);
  at::Tensor dst = at::empty({num_edges}, dtype);
  detail::visit(detail::IdTypes{}, dtype, [&]<class Id>() {
    using Type = typename Id::Type;
    Type* sources = src.mutable_data_ptr<Type>();
    Type* destinations = dst.mutable_data_ptr<Type>();
    at::parallel_for(0, num_edges, kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const auto [from, to] = edge(i);
        sources[i] = static_cast<Type>(from);
        destinations[i] = static_cast<Type>(to);
      }
    });
  });
  return Graph::from_coo(src, dst, num_nodes);
}

struct Ends {
  std::uint64_t src, dst;
};

/// Sixteen random bits choose the quadrant of a level; probabilities are exact to 2^-17. A Philox
/// block covers eight levels.
Ends rmat_edge(int scale, std::uint64_t seed, std::uint64_t edge) {
  constexpr std::uint32_t kFirst = 37356;   // 0.57 * 2^16: both halves low
  constexpr std::uint32_t kSecond = 49807;  // 0.76 * 2^16: destination high
  constexpr std::uint32_t kThird = 62259;   // 0.95 * 2^16: source high; beyond: both high
  Ends ends{0, 0};
  for (int level = 0; level < scale; level += 8) {
    const auto bits = philox(seed, static_cast<std::uint64_t>(level / 8), edge);
    for (int i = 0; i < std::min(8, scale - level); ++i) {
      const std::uint32_t word = bits[static_cast<std::size_t>(i / 2)];
      const std::uint32_t draw = i % 2 == 0 ? word & 0xFFFFU : word >> 16;
      const bool source_high = draw >= kSecond;
      const bool destination_high = draw >= kThird || (draw >= kFirst && draw < kSecond);
      ends.src = ends.src << 1 | static_cast<std::uint64_t>(source_high);
      ends.dst = ends.dst << 1 | static_cast<std::uint64_t>(destination_high);
    }
  }
  return ends;
}

/// A graph with `num_nodes` nodes, the edges `keep` (int64) of `graph` and their columns. src, dst:
/// the new endpoints of each edge of `graph`.
Graph edges_of(const Graph& graph, const at::Tensor& keep, const at::Tensor& src,
               const at::Tensor& dst, std::int64_t num_nodes) {
  Graph part = Graph::from_coo(src.index_select(0, keep), dst.index_select(0, keep), num_nodes,
                               width_of(graph));
  part.edata() = graph.edata().rows(keep);
  return part;
}

/// For each node of `graph` its position in `nodes` (int64, distinct), or -1.
at::Tensor positions(const Graph& graph, const at::Tensor& nodes) {
  at::Tensor position = at::full({graph.num_nodes()}, -1, nodes.options());
  return position.index_copy_(0, nodes, at::arange(nodes.numel(), nodes.options()));
}

/// Edges between relabelled nodes; `nodes` are the old ids.
struct Relabelled {
  at::Tensor src, dst, nodes;
};

/// Relabels endpoints by first appearance in src, then in dst.
Relabelled relabelled(const at::Tensor& src, const at::Tensor& dst, std::int64_t num_nodes) {
  const at::Tensor ends = at::cat({src, dst}).to(at::kCPU, at::kLong);
  at::Tensor numbers = at::empty_like(ends);
  const auto* end = ends.const_data_ptr<std::int64_t>();
  auto* number = numbers.mutable_data_ptr<std::int64_t>();
  std::vector<std::int64_t> number_of(static_cast<std::size_t>(num_nodes), -1), nodes;
  for (std::int64_t i = 0; i < ends.numel(); ++i) {
    std::int64_t& new_id = number_of[static_cast<std::size_t>(end[i])];
    if (new_id < 0) {
      new_id = static_cast<std::int64_t>(nodes.size());
      nodes.push_back(end[i]);
    }
    number[i] = new_id;
  }
  numbers = numbers.to(src.device());
  return {numbers.narrow(0, 0, src.numel()), numbers.narrow(0, src.numel(), dst.numel()),
          at::tensor(nodes, at::kLong).to(src.device())};
}

/// All nodes of `graph` and the edges `keep` (int64).
Graph with_all_nodes(const Graph& graph, const at::Tensor& keep) {
  const Topology& old = graph.topology();
  Graph part = edges_of(graph, keep, old.src(), old.dst(), graph.num_nodes());
  part.ndata() = graph.ndata();
  part.edata()["_ID"] = keep;
  return part;
}

/// `nodes` as distinct int64 ids, copied so that the caller cannot change them.
at::Tensor distinct_nodes(std::string_view operation, const Graph& graph, const at::Tensor& nodes) {
  at::Tensor ids =
      detail::selected_ids(operation, "nodes", nodes, graph.num_nodes(), graph.device()).clone();
  detail::check_distinct(operation, "nodes", ids);
  return ids;
}

/// The nodes that reach `nodes` (int64) in at most k steps, including `nodes`: int64, ascending.
at::Tensor reaching(const Topology& topology, const at::Tensor& nodes, std::int64_t k) {
  const at::TensorOptions flags = nodes.options().dtype(at::kBool);
  at::Tensor reached = at::zeros({topology.num_dst()}, flags).index_fill_(0, nodes, true);
  at::Tensor newest = nodes;
  for (std::int64_t hop = 0; hop < k && newest.numel() > 0; ++hop) {
    const at::Tensor edges = detail::edges_into(topology, newest);
    const at::Tensor sources = topology.src().index_select(0, edges).to(at::kLong);
    at::Tensor fresh = at::zeros({topology.num_src()}, flags).index_fill_(0, sources, true);
    fresh.logical_and_(reached.logical_not());
    reached.logical_or_(fresh);
    newest = fresh.nonzero().squeeze(1);
  }
  return reached.nonzero().squeeze(1);
}

}  // namespace

// Edges are sorted by (source, destination), so CSR needs no edge ids. If more than half of all
// pairs are requested, draws the omitted pairs instead.
Graph rand_graph(std::int64_t num_nodes, std::int64_t num_edges, std::uint64_t seed) {
  MEZZO_CHECK(num_nodes >= 0 && num_nodes <= kMostNodes,
              "rand_graph: expected num_nodes in [0, {}], got {}", kMostNodes, num_nodes);
  const std::int64_t pairs = num_nodes * num_nodes;
  MEZZO_CHECK(num_edges >= 0 && num_edges <= pairs,
              "rand_graph: expected num_edges in [0, num_nodes^2 = {}], got {}", pairs, num_edges);
  const bool dense = num_edges > pairs / 2;
  const auto bound = static_cast<std::uint64_t>(pairs);
  std::vector<std::uint64_t> keys =
      draw_distinct(bound, static_cast<std::size_t>(dense ? pairs - num_edges : num_edges), seed);
  if (dense) keys = all_but(bound, keys);
  const auto n = static_cast<std::uint64_t>(num_nodes);
  return graph_of("rand_graph", num_nodes, num_edges, [&](std::int64_t i) {
    const std::uint64_t key = keys[static_cast<std::size_t>(i)];
    return Ends{key / n, key % n};
  });
}

Graph rmat_graph(int scale, std::int64_t num_edges, std::uint64_t seed) {
  MEZZO_CHECK(scale >= 0 && scale <= 40, "rmat_graph: expected scale in [0, 40], got {}", scale);
  MEZZO_CHECK(num_edges >= 0, "rmat_graph: expected num_edges >= 0, got {}", num_edges);
  return graph_of("rmat_graph", std::int64_t{1} << scale, num_edges, [&](std::int64_t i) {
    return rmat_edge(scale, seed, static_cast<std::uint64_t>(i));
  });
}

Graph remove_self_loop(const Graph& graph) {
  const Topology& old = graph.topology();
  const at::Tensor keep = (old.src() != old.dst()).nonzero().squeeze(1);
  Graph part = edges_of(graph, keep, old.src(), old.dst(), graph.num_nodes());
  part.ndata() = graph.ndata();
  if (graph.batch_size() == 1) return part;
  const at::Tensor ends = graph.batch_num_edges().cumsum(0);
  const at::Tensor part_ends = at::searchsorted(keep.cpu(), ends);
  part.set_batch(graph.batch_num_nodes(), at::diff(part_ends, 1, 0, at::zeros({1}, at::kLong)));
  return part;
}

Graph reverse(const Graph& graph) {
  Graph turned(graph.topology().reverse());
  turned.ndata() = graph.ndata();
  turned.edata() = graph.edata();
  return turned;
}

Graph subgraph(const Graph& graph, const at::Tensor& nodes) {
  const at::Tensor ids = distinct_nodes("subgraph", graph, nodes);
  const at::Tensor position = positions(graph, ids);
  const at::Tensor src = position.index_select(0, graph.topology().src());
  const at::Tensor dst = position.index_select(0, graph.topology().dst());
  const at::Tensor keep = (src >= 0).logical_and_(dst >= 0).nonzero().squeeze(1);
  Graph part = edges_of(graph, keep, src, dst, ids.numel());
  part.ndata() = graph.ndata().rows(ids);
  part.ndata()["_ID"] = ids;
  part.edata()["_ID"] = keep;
  return part;
}

Graph edge_subgraph(const Graph& graph, const at::Tensor& edges, bool relabel_nodes) {
  const at::Tensor keep =
      detail::selected_ids("edge_subgraph", "edges", edges, graph.num_edges(), graph.device())
          .clone();
  if (!relabel_nodes) return with_all_nodes(graph, keep);
  const Topology& old = graph.topology();
  const Relabelled ends = relabelled(old.src().index_select(0, keep),
                                     old.dst().index_select(0, keep), graph.num_nodes());
  Graph part = Graph::from_coo(ends.src, ends.dst, ends.nodes.numel(), width_of(graph));
  part.ndata() = graph.ndata().rows(ends.nodes);
  part.edata() = graph.edata().rows(keep);
  part.ndata()["_ID"] = ends.nodes;
  part.edata()["_ID"] = keep;
  return part;
}

Graph in_subgraph(const Graph& graph, const at::Tensor& nodes) {
  const at::Tensor ids = distinct_nodes("in_subgraph", graph, nodes);
  return with_all_nodes(graph, detail::edges_into(graph.topology(), ids));
}

Graph out_subgraph(const Graph& graph, const at::Tensor& nodes) {
  const at::Tensor ids = distinct_nodes("out_subgraph", graph, nodes);
  return with_all_nodes(graph, detail::edges_into(graph.topology().reverse(), ids));
}

HopSubgraph khop_in_subgraph(const Graph& graph, const at::Tensor& nodes, std::int64_t k) {
  MEZZO_CHECK(k >= 0, "khop_in_subgraph: expected k >= 0, got {}", k);
  const at::Tensor seeds = distinct_nodes("khop_in_subgraph", graph, nodes);
  const at::Tensor part_nodes = reaching(graph.topology(), seeds, k);
  return {subgraph(graph, part_nodes), at::searchsorted(part_nodes, seeds)};
}

}  // namespace mezzo
