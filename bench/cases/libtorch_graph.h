#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "mezzo/graph/topology.h"

namespace mezzo::bench {

/// Message passing with libtorch operations. Precomputes what it can: the adjacency and its
/// transpose as sparse CSR matrices (parallel edges are entries of their own), the permutation
/// between them, and the endpoints of the edges as int64. CSR order is the order of the adjacency's
/// entries, row by row; libtorch is fastest with edge weights in it.
///
/// Limits: `at::mm` (MKL) and `at::sparse_sampled_addmm` do not support 16-bit types;
/// `at::_sparse_mm` with a reduction does. The gradient of `at::mm` to the weights is a dense N x N
/// matrix.
class LibtorchGraph {
 public:
  explicit LibtorchGraph(const Topology& topology);

  /// [num_dst, num_src] with `values`, one per entry: the product with it sends x along the edges.
  at::Tensor matrix(const at::Tensor& values) const;
  /// The transpose of the matrix with `values`, one per entry of `matrix`, which it permutes.
  at::Tensor transpose(const at::Tensor& values) const;

  at::Tensor to_csr_order(const at::Tensor& by_edge) const;
  at::Tensor to_edge_order(const at::Tensor& csr_weights) const;

  /// Sum of the messages x[u] * weight[e], each a row of an E x F tensor, by scatter_add.
  /// x: [num_src, ...]; weight, by edge: [E, 1...] broadcasting with it, or undefined.
  at::Tensor gather_scatter(const at::Tensor& x, const at::Tensor& weight = {}) const;
  /// Dot products of the endpoints' rows from two gathered E x F tensors: [E, 1].
  at::Tensor gather_dot(const at::Tensor& x, const at::Tensor& y) const;
  /// Softmax over the edges into each destination, by scatter_reduce and scatter_add, as PyG does.
  at::Tensor gather_softmax(const at::Tensor& logits) const;

  const at::Tensor& src() const { return src_; }  ///< int64 [E]
  const at::Tensor& dst() const { return dst_; }  ///< int64 [E]
  std::int64_t num_src() const { return num_src_; }
  std::int64_t num_dst() const { return num_dst_; }
  std::int64_t num_edges() const { return src_.size(0); }

 private:
  at::Tensor zeros_of_destinations(const at::Tensor& messages) const;
  at::Tensor dst_like(const at::Tensor& messages) const;

  std::int64_t num_src_, num_dst_;
  Adjacency rows_, transposed_rows_;  // indptr has the dtype of indices, as MKL requires
  at::Tensor transposed_entries_;  // int64 [E]: the entry of the matrix for each of its transpose
  at::Tensor edge_ids_;            // int64 [E]: the edge of each entry
  at::Tensor src_, dst_;
};

// Reference results: float32, computed by libtorch in float64.

/// The sum of the messages weight * x[u] at each destination (of the transpose: each source), a few
/// columns at a time. x: [num_src, F]; weight: [E] in CSR order.
at::Tensor reference_sum(const LibtorchGraph& torch, const at::Tensor& x, const at::Tensor& weight);
at::Tensor reference_transposed_sum(const LibtorchGraph& torch, const at::Tensor& y,
                                    const at::Tensor& weight);

/// Dot products of the endpoints' rows of every stride-th edge: [ceil(E / stride), 1].
at::Tensor reference_dot(const LibtorchGraph& torch, const at::Tensor& x, const at::Tensor& y,
                         std::int64_t stride);

/// The stride between checked edges, a compromise between coverage and time.
std::int64_t checked_edges_stride(std::int64_t num_edges);

}  // namespace mezzo::bench
