// Graphs without parallel edges, with edges sorted by their endpoints.
#include <cstdint>

#include <ATen/ATen.h>

#include "mezzo/graph/topology_build.h"
#include "mezzo/graph/transforms/transforms.h"

namespace mezzo {
namespace {

/// Sorts the edges of `topology`, which has one node set, by (source, destination). Two counting
/// sorts: first by destination, then stably by source.
Topology sorted_by_ends(const Topology& topology, IdWidth width) {
  const std::int64_t n = topology.num_src();
  const Topology by_dst =
      Topology::from_csc(topology.csc().indptr, topology.csc().indices, n, /*edge_ids=*/{}, width);
  return Topology::from_csr(by_dst.csr().indptr, by_dst.csr().indices, n, /*edge_ids=*/{}, width);
}

/// The first of each group of parallel edges: int64, ascending.
at::Tensor first_between_ends(const Topology& sorted) {
  at::Tensor fresh = at::ones({sorted.num_edges()}, sorted.src().options().dtype(at::kBool));
  if (sorted.num_edges() > 1) {
    fresh.narrow(0, 1, sorted.num_edges() - 1)
        .copy_((sorted.src().diff() != 0).logical_or_(sorted.dst().diff() != 0));
  }
  return fresh.nonzero().squeeze(1);
}

/// The nodes of `graph`, with shared columns, and the edges `keep` (int64) of `sorted`.
Graph simple_graph(const Graph& graph, const Topology& sorted, const at::Tensor& keep,
                   IdWidth width) {
  Graph simple = Graph::from_coo(sorted.src().index_select(0, keep),
                                 sorted.dst().index_select(0, keep), graph.num_nodes(), width);
  simple.ndata() = graph.ndata();
  return simple;
}

}  // namespace

Graph to_simple(const Graph& graph) {
  const IdWidth width = detail::width_like(graph.topology().id_dtype());
  const Topology sorted = sorted_by_ends(graph.topology(), width);
  const at::Tensor first = first_between_ends(sorted);
  Graph simple = simple_graph(graph, sorted, first, width);
  const at::Tensor end = at::full({1}, sorted.num_edges(), first.options());
  simple.edata()["count"] = at::cat({first, end}).diff();
  return simple;
}

Graph to_bidirected(const Graph& graph) {
  const Topology& old = graph.topology();
  const std::int64_t n = graph.num_nodes();
  const IdWidth width = detail::width_like(old.id_dtype());
  const Topology both = Topology::from_coo(at::cat({old.src(), old.dst()}),
                                           at::cat({old.dst(), old.src()}), n, n, width);
  const Topology sorted = sorted_by_ends(both, width);
  return simple_graph(graph, sorted, first_between_ends(sorted), width);
}

}  // namespace mezzo
