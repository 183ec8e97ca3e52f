#pragma once

#include <utility>

#include <ATen/core/Tensor.h>

namespace mezzo::nn {

/// The rows that a layer takes: one tensor for all nodes, the destinations first, or a pair, one
/// tensor for the sources and one for the destinations, of widths of their own where the layer's
/// options say so (DGL's pairs for bipartite graphs and blocks). A tensor converts, and so does a
/// std::pair of tensors: `layer(graph, std::pair(h_src, h_dst))`. Checks nothing; the layers do.
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
  /// Those of the destinations, [num_dst, ...]; unless is_pair(), with the other sources behind.
  const at::Tensor& dst() const { return is_pair_ ? dst_ : src_; }

 private:
  at::Tensor src_, dst_;
  bool is_pair_ = false;
};

}  // namespace mezzo::nn
