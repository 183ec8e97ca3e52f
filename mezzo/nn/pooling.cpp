#include "mezzo/nn/pooling.h"

#include <ostream>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/nn/modules/linear.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/nn/conv/recurrent.h"
#include "mezzo/nn/layer_support.h"
#include "mezzo/ops/ops.h"
#include "mezzo/ops/segment.h"

namespace mezzo::nn {
namespace {

using mezzo::detail::describe;

constexpr auto kGlobalAttentionPooling = "GlobalAttentionPooling";
constexpr auto kSet2Set = "Set2Set";

void check_nodes(std::string_view layer, const Graph& graph, const at::Tensor& h) {
  MEZZO_CHECK(h.defined() && h.layout() == at::kStrided && h.dim() >= 1 &&
                  h.size(0) == graph.num_nodes() && at::isFloatingType(h.scalar_type()),
              "{}: expected floating, strided h [{}, ...], one row per node, got {}", layer,
              graph.num_nodes(), describe(h));
  MEZZO_CHECK(h.device() == graph.device(), "{}: expected h on the graph's device {}, got {}",
              layer, graph.device().str(), h.device().str());
}

void check_width(std::string_view layer, const at::Tensor& h, std::int64_t in_features) {
  MEZZO_CHECK(h.dim() == 2 && h.size(1) == in_features, "{}: expected h [{}, {}], got {}", layer,
              h.size(0), in_features, describe(h));
}

at::Tensor pool(std::string_view layer, ReduceOp reduce, const Graph& graph, const at::Tensor& h) {
  check_nodes(layer, graph, h);
  return segment_reduce(reduce, graph.batch_num_nodes().to(graph.device()), h);
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

void SumPoolingImpl::pretty_print(std::ostream& stream) const {
  stream << "mezzo::nn::SumPooling()";
}

at::Tensor SumPoolingImpl::forward(const Graph& graph, const at::Tensor& h) {
  return pool("SumPooling", ReduceOp::kSum, graph, h);
}

void AvgPoolingImpl::pretty_print(std::ostream& stream) const {
  stream << "mezzo::nn::AvgPooling()";
}

at::Tensor AvgPoolingImpl::forward(const Graph& graph, const at::Tensor& h) {
  return pool("AvgPooling", ReduceOp::kMean, graph, h);
}

void MaxPoolingImpl::pretty_print(std::ostream& stream) const {
  stream << "mezzo::nn::MaxPooling()";
}

at::Tensor MaxPoolingImpl::forward(const Graph& graph, const at::Tensor& h) {
  return pool("MaxPooling", ReduceOp::kMax, graph, h);
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
  check_nodes(kGlobalAttentionPooling, graph, h);
  const at::Tensor gate = gate_nn.forward(h);
  MEZZO_CHECK(gate.dim() == 2 && gate.size(0) == h.size(0) && gate.size(1) == 1,
              "{}: expected gate_nn to return [{}, 1], got {}", kGlobalAttentionPooling, h.size(0),
              describe(gate));
  const at::Tensor rows = feat_nn.is_empty() ? h : feat_nn.forward(h);
  MEZZO_CHECK(rows.dim() == 2 && rows.size(0) == h.size(0),
              "{}: expected rows [{}, out] to weight, got {}", kGlobalAttentionPooling, h.size(0),
              describe(rows));
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
  check_nodes("WeightAndSum", graph, h);
  check_width("WeightAndSum", h, in_features);
  const auto& weighting = weighting_->at<torch::nn::LinearImpl>(0);
  const at::Tensor weights = at::sigmoid(mezzo::linear(h, weighting.weight, weighting.bias));
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
  check_nodes(kSet2Set, graph, h);
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
