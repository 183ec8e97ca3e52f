#include "mezzo/nn/readout.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "mezzo/core/error.h"
#include "mezzo/nn/layer_support.h"
#include "mezzo/ops/ops.h"
#include "mezzo/ops/segment.h"

namespace mezzo::nn {
namespace {

/// Whether rows belong to nodes or edges.
enum class RowsOf { kNodes, kEdges };

std::string_view one_of(RowsOf rows) {
  return rows == RowsOf::kNodes ? "node" : "edge";
}

/// int64 [B], on the CPU.
at::Tensor sizes_of(const Graph& graph, RowsOf rows) {
  return rows == RowsOf::kNodes ? graph.batch_num_nodes() : graph.batch_num_edges();
}

void check_tensor(std::string_view function, std::string_view name, const Graph& graph,
                  const at::Tensor& x, std::int64_t num_rows, std::string_view owner) {
  MEZZO_CHECK(x.defined() && x.layout() == at::kStrided && x.dim() >= 1 && x.size(0) == num_rows &&
                  at::isFloatingType(x.scalar_type()),
              "{}: expected floating, strided {} [{}, ...], one row per {}, got {}", function, name,
              num_rows, owner, detail::describe(x));
  MEZZO_CHECK(x.device() == graph.device(), "{}: expected {} on the graph's device {}, got {}",
              function, name, graph.device().str(), x.device().str());
}

void check_members(std::string_view function, std::string_view name, const Graph& graph,
                   const at::Tensor& x, RowsOf rows) {
  const std::int64_t count = rows == RowsOf::kNodes ? graph.num_nodes() : graph.num_edges();
  check_tensor(function, name, graph, x, count, one_of(rows));
}

/// Reshapes the weight to the rank of x with leading dimensions of size 1, in the dtype of row
/// factors for x.
at::Tensor aligned_weight(std::string_view function, const at::Tensor& weight,
                          const at::Tensor& x) {
  std::vector<std::int64_t> shape = weight.sizes().vec();
  while (static_cast<std::int64_t>(shape.size()) < x.dim()) shape.insert(shape.begin() + 1, 1);
  bool fits = static_cast<std::int64_t>(shape.size()) == x.dim();
  for (std::size_t d = 1; fits && d < shape.size(); ++d) {
    const std::int64_t size = x.size(static_cast<std::int64_t>(d));
    fits = shape[d] == size || shape[d] == 1 || size == 1;
  }
  MEZZO_CHECK(fits, "{}: expected a weight that broadcasts with x {}, got {}", function,
              detail::describe(x), detail::describe(weight));
  return weight.reshape(shape).to(detail::scale_dtype(x));
}

at::Tensor reduce_rows(std::string_view function, ReduceOp reduce, RowsOf rows, const Graph& graph,
                       const at::Tensor& x, const at::Tensor& weight) {
  check_members(function, "x", graph, x, rows);
  const at::Tensor sizes = sizes_of(graph, rows);
  if (!weight.defined()) return segment_reduce(reduce, sizes.to(graph.device()), x);
  check_members(function, "weight", graph, weight, rows);
  return gspmm(detail::rows_to_graphs(sizes, graph.device()), BinaryOp::kMul, reduce, x,
               aligned_weight(function, weight, x));
}

at::Tensor softmax_rows(std::string_view function, RowsOf rows, const Graph& graph,
                        const at::Tensor& x) {
  check_members(function, "x", graph, x, rows);
  return segment_softmax(sizes_of(graph, rows).to(graph.device()), x);
}

/// Uses gsddmm because its gradient is summed in float32, unlike that of repeat_interleave.
at::Tensor broadcast_rows(std::string_view function, RowsOf rows, const Graph& graph,
                          const at::Tensor& x) {
  check_tensor(function, "x", graph, x, graph.batch_size(), "graph");
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  return gsddmm(detail::rows_to_graphs(sizes_of(graph, rows), graph.device()), BinaryOp::kCopyLhs,
                x, std::nullopt, Target::kDst, Target::kEdge);
}

}  // namespace

at::Tensor sum_nodes(const Graph& graph, const at::Tensor& x, const at::Tensor& weight) {
  return reduce_rows("sum_nodes", ReduceOp::kSum, RowsOf::kNodes, graph, x, weight);
}

at::Tensor mean_nodes(const Graph& graph, const at::Tensor& x, const at::Tensor& weight) {
  return reduce_rows("mean_nodes", ReduceOp::kMean, RowsOf::kNodes, graph, x, weight);
}

at::Tensor max_nodes(const Graph& graph, const at::Tensor& x, const at::Tensor& weight) {
  return reduce_rows("max_nodes", ReduceOp::kMax, RowsOf::kNodes, graph, x, weight);
}

at::Tensor sum_edges(const Graph& graph, const at::Tensor& x, const at::Tensor& weight) {
  return reduce_rows("sum_edges", ReduceOp::kSum, RowsOf::kEdges, graph, x, weight);
}

at::Tensor mean_edges(const Graph& graph, const at::Tensor& x, const at::Tensor& weight) {
  return reduce_rows("mean_edges", ReduceOp::kMean, RowsOf::kEdges, graph, x, weight);
}

at::Tensor max_edges(const Graph& graph, const at::Tensor& x, const at::Tensor& weight) {
  return reduce_rows("max_edges", ReduceOp::kMax, RowsOf::kEdges, graph, x, weight);
}

at::Tensor softmax_nodes(const Graph& graph, const at::Tensor& x) {
  return softmax_rows("softmax_nodes", RowsOf::kNodes, graph, x);
}

at::Tensor softmax_edges(const Graph& graph, const at::Tensor& x) {
  return softmax_rows("softmax_edges", RowsOf::kEdges, graph, x);
}

at::Tensor broadcast_nodes(const Graph& graph, const at::Tensor& x) {
  return broadcast_rows("broadcast_nodes", RowsOf::kNodes, graph, x);
}

at::Tensor broadcast_edges(const Graph& graph, const at::Tensor& x) {
  return broadcast_rows("broadcast_edges", RowsOf::kEdges, graph, x);
}

}  // namespace mezzo::nn
