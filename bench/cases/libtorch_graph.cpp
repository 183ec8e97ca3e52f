#include "bench/cases/libtorch_graph.h"

#include <algorithm>
#include <vector>

#include <ATen/ATen.h>

namespace mezzo::bench {
namespace {

Adjacency for_mkl(const Adjacency& rows) {
  return {.indptr = rows.indptr.to(rows.indices.scalar_type()),
          .indices = rows.indices,
          .edge_ids = rows.edge_ids};
}

at::Tensor edges_of(const Adjacency& rows) {
  return rows.edge_ids.defined() ? rows.edge_ids.to(at::kLong)
                                 : at::arange(rows.indices.size(0), at::kLong);
}

at::Tensor sparse_matrix(const Adjacency& rows, const at::Tensor& values, std::int64_t columns) {
  return at::_sparse_csr_tensor_unsafe(
      rows.indptr, rows.indices, values, {rows.indptr.size(0) - 1, columns},
      at::TensorOptions().dtype(values.scalar_type()).layout(at::kSparseCsr));
}

/// matrix x, in float64.
at::Tensor product_by_columns(const at::Tensor& matrix, const at::Tensor& x) {
  constexpr std::int64_t kColumns = 32;
  at::Tensor out = at::empty({matrix.size(0), x.size(1)}, at::kFloat);
  for (std::int64_t begin = 0; begin < x.size(1); begin += kColumns) {
    const std::int64_t count = std::min(kColumns, x.size(1) - begin);
    const at::Tensor columns = x.narrow(1, begin, count).to(at::kDouble).contiguous();
    out.narrow(1, begin, count).copy_(at::mm(matrix, columns));
  }
  return out;
}

}  // namespace

LibtorchGraph::LibtorchGraph(const Topology& topology)
    : num_src_(topology.num_src()),
      num_dst_(topology.num_dst()),
      rows_(for_mkl(topology.csc())),
      transposed_rows_(for_mkl(topology.csr())),
      edge_ids_(edges_of(rows_)),
      src_(topology.src().to(at::kLong)),
      dst_(topology.dst().to(at::kLong)) {
  transposed_entries_ =
      to_edge_order(at::arange(num_edges(), at::kLong)).index_select(0, edges_of(transposed_rows_));
}

at::Tensor LibtorchGraph::matrix(const at::Tensor& values) const {
  return sparse_matrix(rows_, values, num_src_);
}

at::Tensor LibtorchGraph::transpose(const at::Tensor& values) const {
  return sparse_matrix(transposed_rows_, values.index_select(0, transposed_entries_), num_dst_);
}

at::Tensor LibtorchGraph::to_csr_order(const at::Tensor& by_edge) const {
  return by_edge.index_select(0, edge_ids_);
}

at::Tensor LibtorchGraph::to_edge_order(const at::Tensor& csr_weights) const {
  return at::empty_like(csr_weights).index_copy_(0, edge_ids_, csr_weights);
}

at::Tensor LibtorchGraph::zeros_of_destinations(const at::Tensor& messages) const {
  auto shape = messages.sizes().vec();
  shape.front() = num_dst_;
  return at::zeros(shape, messages.options());
}

at::Tensor LibtorchGraph::dst_like(const at::Tensor& messages) const {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(messages.dim()), 1);
  shape.front() = -1;
  return dst_.view(shape).expand_as(messages);
}

at::Tensor LibtorchGraph::gather_scatter(const at::Tensor& x, const at::Tensor& weight) const {
  at::Tensor messages = x.index_select(0, src_);
  if (weight.defined()) messages = messages * weight;
  return zeros_of_destinations(messages).scatter_add(0, dst_like(messages), messages);
}

at::Tensor LibtorchGraph::gather_dot(const at::Tensor& x, const at::Tensor& y) const {
  return (x.index_select(0, src_) * y.index_select(0, dst_)).sum(-1, /*keepdim=*/true);
}

at::Tensor LibtorchGraph::gather_softmax(const at::Tensor& logits) const {
  const at::Tensor largest =
      zeros_of_destinations(logits.detach())
          .scatter_reduce(0, dst_like(logits), logits.detach(), "amax", /*include_self=*/false);
  const at::Tensor exponentials = (logits - largest.index_select(0, dst_)).exp();
  const at::Tensor sums =
      zeros_of_destinations(exponentials).scatter_add(0, dst_like(exponentials), exponentials);
  return exponentials / sums.index_select(0, dst_);
}

at::Tensor reference_sum(const LibtorchGraph& torch, const at::Tensor& x,
                         const at::Tensor& weight) {
  return product_by_columns(torch.matrix(weight.to(at::kDouble)), x);
}

at::Tensor reference_transposed_sum(const LibtorchGraph& torch, const at::Tensor& y,
                                    const at::Tensor& weight) {
  return product_by_columns(torch.transpose(weight.to(at::kDouble)), y);
}

at::Tensor reference_dot(const LibtorchGraph& torch, const at::Tensor& x, const at::Tensor& y,
                         std::int64_t stride) {
  constexpr std::int64_t kRows = 1 << 14;
  const auto every = [stride](const at::Tensor& ids) {
    return ids.slice(0, 0, ids.size(0), stride);
  };
  const at::Tensor src = every(torch.src()), dst = every(torch.dst());
  at::Tensor out = at::empty({src.size(0), 1}, at::kFloat);
  for (std::int64_t begin = 0; begin < src.size(0); begin += kRows) {
    const std::int64_t count = std::min(kRows, src.size(0) - begin);
    const auto rows = [&](const at::Tensor& of, const at::Tensor& ids) {
      return of.index_select(0, ids.narrow(0, begin, count)).to(at::kDouble);
    };
    out.narrow(0, begin, count).copy_((rows(x, src) * rows(y, dst)).sum(-1, /*keepdim=*/true));
  }
  return out;
}

std::int64_t checked_edges_stride(std::int64_t num_edges) {
  constexpr std::int64_t kChecked = 1 << 18;
  return std::max<std::int64_t>(1, (num_edges + kChecked - 1) / kChecked);
}

}  // namespace mezzo::bench
