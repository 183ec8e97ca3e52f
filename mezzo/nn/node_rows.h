#pragma once

#include <utility>

#include <ATen/core/Tensor.h>

namespace mezzo::nn {

/// The node features of a layer's input: one tensor for all nodes, destinations first, or a pair of
/// tensors for sources and destinations (DGL's pairs for bipartite graphs and blocks). The widths
/// of a pair may differ if the layer's options allow it. Converts from a tensor and from a
/// std::pair of tensors: `layer(graph, std::pair(h_src, h_dst))`. Only the layers check the
/// tensors.
class NodeRows {
 public:
  NodeRows(at::Tensor h) : src_(std::move(h)) {}  // NOLINT: converts
  NodeRows(at::Tensor src, at::Tensor dst)
      : src_(std::move(src)), dst_(std::move(dst)), is_pair_(true) {}
  NodeRows(std::pair<at::Tensor, at::Tensor> rows)  // NOLINT: converts
      : NodeRows(std::move(rows.first), std::move(rows.second)) {}

  bool is_pair() const { return is_pair_; }
  /// [num_src, ...]
  const at::Tensor& src() const { return src_; }
  /// The rows of the destinations, [num_dst, ...]; unless is_pair(), the same tensor as src().
  const at::Tensor& dst() const { return is_pair_ ? dst_ : src_; }

 private:
  at::Tensor src_, dst_;
  bool is_pair_ = false;
};

}  // namespace mezzo::nn
