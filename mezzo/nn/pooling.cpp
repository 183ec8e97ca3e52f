#include "mezzo/nn/pooling.h"

#include <cstdint>
#include <optional>
#include <ostream>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/format.h>
#include <torch/nn/modules/linear.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/nn/layer_support.h"
#include "mezzo/nn/recurrent.h"
#include "mezzo/ops/ops.h"

namespace mezzo::nn {
namespace {

constexpr auto kGlobalAttentionPooling = "GlobalAttentionPooling";
constexpr auto kSet2Set = "Set2Set";

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
              "{}: expected floating, strided {} [{}, ...], one row per {}, got {}{}", function,
              name, num_rows, owner, detail::describe(x), mezzo::detail::dense_hint(x));
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
                       std::string_view name, const at::Tensor& x, const at::Tensor& weight) {
  check_members(function, name, graph, x, rows);
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

void check_width(std::string_view layer, const at::Tensor& h, std::int64_t in_features) {
  MEZZO_CHECK(h.dim() == 2 && h.size(1) == in_features, "{}: expected h [{}, {}], got {}", layer,
              h.size(0), in_features, detail::describe(h));
}

Topology nodes_to_graphs(const Graph& graph) {
  return detail::rows_to_graphs(graph.batch_num_nodes(), graph.device());
}

/// The sum over the nodes of each graph of weights[v] * h[v]. weights: [N, 1].
at::Tensor weighted_sum(const Topology& membership, const at::Tensor& h,
                        const at::Tensor& weights) {
  return gspmm(membership, BinaryOp::kMul, ReduceOp::kSum, h, weights);
}

}  // namespace

at::Tensor sum_nodes(const Graph& graph, const at::Tensor& x, const at::Tensor& weight) {
  return reduce_rows("sum_nodes", ReduceOp::kSum, RowsOf::kNodes, graph, "x", x, weight);
}

at::Tensor mean_nodes(const Graph& graph, const at::Tensor& x, const at::Tensor& weight) {
  return reduce_rows("mean_nodes", ReduceOp::kMean, RowsOf::kNodes, graph, "x", x, weight);
}

at::Tensor max_nodes(const Graph& graph, const at::Tensor& x, const at::Tensor& weight) {
  return reduce_rows("max_nodes", ReduceOp::kMax, RowsOf::kNodes, graph, "x", x, weight);
}

at::Tensor sum_edges(const Graph& graph, const at::Tensor& x, const at::Tensor& weight) {
  return reduce_rows("sum_edges", ReduceOp::kSum, RowsOf::kEdges, graph, "x", x, weight);
}

at::Tensor mean_edges(const Graph& graph, const at::Tensor& x, const at::Tensor& weight) {
  return reduce_rows("mean_edges", ReduceOp::kMean, RowsOf::kEdges, graph, "x", x, weight);
}

at::Tensor max_edges(const Graph& graph, const at::Tensor& x, const at::Tensor& weight) {
  return reduce_rows("max_edges", ReduceOp::kMax, RowsOf::kEdges, graph, "x", x, weight);
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

void SumPoolingImpl::pretty_print(std::ostream& stream) const {
  stream << "mezzo::nn::SumPooling()";
}

at::Tensor SumPoolingImpl::forward(const Graph& graph, const at::Tensor& h) {
  return reduce_rows("SumPooling", ReduceOp::kSum, RowsOf::kNodes, graph, "h", h, {});
}

void AvgPoolingImpl::pretty_print(std::ostream& stream) const {
  stream << "mezzo::nn::AvgPooling()";
}

at::Tensor AvgPoolingImpl::forward(const Graph& graph, const at::Tensor& h) {
  return reduce_rows("AvgPooling", ReduceOp::kMean, RowsOf::kNodes, graph, "h", h, {});
}

void MaxPoolingImpl::pretty_print(std::ostream& stream) const {
  stream << "mezzo::nn::MaxPooling()";
}

at::Tensor MaxPoolingImpl::forward(const Graph& graph, const at::Tensor& h) {
  return reduce_rows("MaxPooling", ReduceOp::kMax, RowsOf::kNodes, graph, "h", h, {});
}

GlobalAttentionPoolingImpl::GlobalAttentionPoolingImpl(TensorModule gate, TensorModule feat)
    : gate_nn(std::move(gate)), feat_nn(std::move(feat)) {
  MEZZO_CHECK(!gate_nn.is_empty(), "{}: expected a module gate_nn, got none",
              kGlobalAttentionPooling);
  gate_nn.register_in(*this, "gate_nn");
  feat_nn.register_in(*this, "feat_nn");
}

void GlobalAttentionPoolingImpl::reset() {
  gate_nn = gate_nn.clone();
  feat_nn = feat_nn.clone();
  gate_nn.register_in(*this, "gate_nn");
  feat_nn.register_in(*this, "feat_nn");
}

void GlobalAttentionPoolingImpl::pretty_print(std::ostream& stream) const {
  stream << "mezzo::nn::GlobalAttentionPooling()";
}

at::Tensor GlobalAttentionPoolingImpl::forward(const Graph& graph, const at::Tensor& h) {
  return forward_with_attention(graph, h).first;
}

std::pair<at::Tensor, at::Tensor> GlobalAttentionPoolingImpl::forward_with_attention(
    const Graph& graph, const at::Tensor& h) {
  check_members(kGlobalAttentionPooling, "h", graph, h, RowsOf::kNodes);
  const at::Tensor gate = gate_nn.forward(h);
  MEZZO_CHECK(gate.dim() == 2 && gate.size(0) == h.size(0) && gate.size(1) == 1,
              "{}: expected gate_nn to return [{}, 1], got {}", kGlobalAttentionPooling, h.size(0),
              detail::describe(gate));
  const at::Tensor rows = feat_nn.is_empty() ? h : feat_nn.forward(h);
  MEZZO_CHECK(rows.dim() == 2 && rows.size(0) == h.size(0),
              "{}: expected rows [{}, out] to weight, got {}", kGlobalAttentionPooling, h.size(0),
              detail::describe(rows));
  const Topology membership = nodes_to_graphs(graph);
  const at::Tensor attention = edge_softmax(membership, gate);
  return {weighted_sum(membership, rows, attention), attention};
}

WeightAndSumImpl::WeightAndSumImpl(std::int64_t width) : in_features(width) {
  reset();
}

void WeightAndSumImpl::reset() {
  detail::check_positive("WeightAndSum", "in_features", in_features);
  weighting_ = torch::nn::ModuleList(torch::nn::Linear(in_features, 1));
  register_module("atom_weighting", weighting_);
}

void WeightAndSumImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format("mezzo::nn::WeightAndSum(in_features={})", in_features);
}

at::Tensor WeightAndSumImpl::forward(const Graph& graph, const at::Tensor& h) {
  check_members("WeightAndSum", "h", graph, h, RowsOf::kNodes);
  check_width("WeightAndSum", h, in_features);
  const auto& weighting = weighting_->at<torch::nn::LinearImpl>(0);
  const at::Tensor weights = at::sigmoid(detail::apply_linear(weighting, h));
  return weighted_sum(nodes_to_graphs(graph), h, weights);
}

Set2SetImpl::Set2SetImpl(Set2SetOptions layer_options) : options(layer_options) {
  reset();
}

void Set2SetImpl::reset() {
  detail::check_positive(kSet2Set, "in_features", options.in_features);
  detail::check_positive(kSet2Set, "num_iterations", options.num_iterations);
  detail::check_positive(kSet2Set, "num_layers", options.num_layers);
  lstm = register_module(
      "lstm", torch::nn::LSTM(torch::nn::LSTMOptions(2 * options.in_features, options.in_features)
                                  .num_layers(options.num_layers)));
}

void Set2SetImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format("mezzo::nn::Set2Set(in_features={}, num_iterations={}, num_layers={})",
                        options.in_features, options.num_iterations, options.num_layers);
}

void Set2SetImpl::reset_parameters() {
  lstm->reset_parameters();
}

at::Tensor Set2SetImpl::forward(const Graph& graph, const at::Tensor& h) {
  check_members(kSet2Set, "h", graph, h, RowsOf::kNodes);
  check_width(kSet2Set, h, options.in_features);
  const Topology membership = nodes_to_graphs(graph);
  const std::int64_t batch_size = graph.batch_size();
  const std::vector<detail::LstmWeights> weights = detail::lstm_weights(lstm);
  std::vector<detail::LstmState> states(weights.size(), detail::lstm_start(lstm, batch_size, h));
  at::Tensor query = at::zeros({batch_size, 2 * options.in_features}, h.options());
  for (std::int64_t i = 0; i < options.num_iterations; ++i) {
    at::Tensor question = query;
    for (std::size_t layer = 0; layer < weights.size(); ++layer) {
      states[layer] = detail::lstm_step(weights[layer], question, states[layer]);
      question = states[layer].hidden;
    }
    const at::Tensor scores =
        gsddmm(membership, BinaryOp::kDot, h, question, Target::kSrc, Target::kDst);
    const at::Tensor answer = weighted_sum(membership, h, edge_softmax(membership, scores));
    query = at::cat({question, answer}, 1);
  }
  return query;
}

}  // namespace mezzo::nn
