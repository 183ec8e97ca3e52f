#include <ATen/ATen.h>

#include "mezzo/sampling/node_flow/node_flow.h"

namespace mezzo {
namespace {

/// 1 (float32) at each (rows[i], columns[i]).
at::Tensor sparse_ones(const at::Tensor& rows, const at::Tensor& columns, at::IntArrayRef sizes) {
  const at::Tensor places = at::stack({rows.to(at::kLong), columns.to(at::kLong)});
  const at::TensorOptions options = places.options().dtype(at::kFloat);
  return at::sparse_coo_tensor(places, at::ones({rows.numel()}, options), sizes);
}

}  // namespace

at::Tensor NodeFlow::block_adjacency_matrix(std::int64_t block) const {
  const Topology& edges = block_topology(block);
  return sparse_ones(edges.dst(), edges.src(), {edges.num_dst(), edges.num_src()});
}

at::Tensor NodeFlow::block_incidence_matrix(std::int64_t block, Incidence incidence) const {
  const Topology& edges = block_topology(block);
  const bool is_in = incidence == Incidence::kIn;
  const at::Tensor& ends = is_in ? edges.dst() : edges.src();
  return sparse_ones(ends, at::arange(edges.num_edges(), ends.options()),
                     {is_in ? edges.num_dst() : edges.num_src(), edges.num_edges()});
}

}  // namespace mezzo
