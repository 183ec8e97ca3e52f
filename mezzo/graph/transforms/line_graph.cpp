#include <ATen/ATen.h>

#include "mezzo/graph/selection.h"
#include "mezzo/graph/topology_build.h"
#include "mezzo/graph/transforms/transforms.h"

namespace mezzo {

Graph line_graph(const Graph& graph, bool backtracking) {
  const Topology& old = graph.topology();
  const at::Tensor middle = old.dst().to(at::kLong);
  // Pairs (from, to): for each edge, the edges out of its destination.
  const at::Tensor to = detail::edges_into(old.reverse(), middle);
  const at::Tensor from = at::repeat_interleave(old.out_degrees().index_select(0, middle));
  at::Tensor is_pair = at::ne(from, to);
  if (!backtracking) {
    is_pair.logical_and_(at::ne(old.src().index_select(0, from), old.dst().index_select(0, to)));
  }
  return Graph::from_coo(from.masked_select(is_pair), to.masked_select(is_pair), graph.num_edges(),
                         detail::width_like(old.id_dtype()));
}

}  // namespace mezzo
