#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "mezzo/amp/precision.h"
#include "mezzo/nn/model/model.h"
#include "mezzo/predict/predictor.h"

#include "support/draw.h"
#include "support/tensors.h"

/// Models with random weights, and graphs as lists of edges.
namespace mezzo::test {

/// Widths that fill no vector.
inline constexpr std::int64_t kInputs = 19, kHidden = 13, kOutputs = 5, kEdgeFeatures = 3;

/// A model and the numbers of an edge's row that it reads.
struct ModelCase {
  std::string name;
  nn::ModelOptions options;
  std::int64_t row_width = 0;
};

inline ModelCase model_case(std::string name, nn::ModelOptions options,
                            std::int64_t row_width = 0) {
  options.in_features = kInputs;
  options.hidden_features = kHidden;
  options.out_features = kOutputs;
  options.num_layers = 3;
  options.num_heads = 2;
  options.num_output_heads = 3;
  if (options.kind == nn::ModelKind::kGine) options.edge_features = kEdgeFeatures;
  return {std::move(name), std::move(options), row_width};
}

/// Every kind of model that a Predictor takes, with and without edge rows.
inline std::vector<ModelCase> model_cases() {
  using nn::Aggregator;
  using nn::ModelKind;
  return {model_case("gcn", {.kind = ModelKind::kGcn}),
          model_case("gcn with weights", {.kind = ModelKind::kGcn}, 1),
          model_case("sage", {.kind = ModelKind::kSage}),
          model_case("sage with weights", {.kind = ModelKind::kSage}, 1),
          model_case("sage pool", {.kind = ModelKind::kSage, .aggregator = Aggregator::kPool}),
          model_case("sage gcn", {.kind = ModelKind::kSage, .aggregator = Aggregator::kGcn}),
          model_case("gat", {.kind = ModelKind::kGat}),
          model_case("gin", {.kind = ModelKind::kGin}),
          model_case("gine", {.kind = ModelKind::kGine}, kEdgeFeatures),
          model_case("mlp", {.kind = ModelKind::kMlp})};
}

/// Layers that sum rows before they multiply them, in the precision of the rows.
inline std::vector<ModelCase> widening_cases() {
  using nn::ModelKind;
  std::vector<ModelCase> cases = {
      model_case("widening gcn", {.kind = ModelKind::kGcn}),
      model_case("widening gcn with weights", {.kind = ModelKind::kGcn}, 1),
      model_case("widening sage", {.kind = ModelKind::kSage}),
      model_case("widening sage with weights", {.kind = ModelKind::kSage, .skip = true}, 1)};
  for (ModelCase& one : cases) {
    one.options.hidden_features = kInputs + 2;
    one.options.out_features = kInputs + 4;
  }
  return cases;
}

/// A model with a head that scores pairs of nodes.
inline std::vector<ModelCase> head_cases() {
  nn::ModelOptions of_edges{.kind = nn::ModelKind::kGcn, .target = TaskTarget::kEdge};
  of_edges.edge_features = kEdgeFeatures;
  nn::ModelOptions of_links{.kind = nn::ModelKind::kSage, .target = TaskTarget::kLink};
  std::vector<ModelCase> cases = {model_case("edge", std::move(of_edges)),
                                  model_case("link", std::move(of_links))};
  cases.back().options.out_features = 1;
  return cases;
}

/// The same cases with a normalization and skip connections.
inline std::vector<ModelCase> model_cases_with(nn::Normalization normalization) {
  std::vector<ModelCase> cases = model_cases();
  for (ModelCase& one : cases) {
    one.options.normalization = normalization;
    one.options.skip = true;
  }
  return cases;
}

inline constexpr amp::Precision kPredictorPrecisions[] = {
    amp::Precision::kFloat32, amp::Precision::kBFloat16, amp::Precision::kFloat16};

/// In evaluation mode, with random weights and statistics.
inline nn::Model random_model(const nn::ModelOptions& options) {
  torch::manual_seed(5);
  nn::Model model(options);
  const at::NoGradGuard no_grad;
  for (const auto& buffer : model->named_buffers()) {
    if (buffer.key().ends_with("running_mean")) buffer.value().normal_();
    if (buffer.key().ends_with("running_var")) buffer.value().uniform_(0.5, 2);
  }
  for (const auto& parameter : model->named_parameters()) {
    if (parameter.value().dim() == 1) parameter.value().normal_();
  }
  model->eval();
  return model;
}

/// The order of the rows of parallel edges.
inline bool row_before(const std::vector<float>& a, const std::vector<float>& b) {
  return !a.empty() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) < 0;
}

/// A graph that changes, as a list of edges in any order.
struct EdgeGraph {
  struct Edge {
    std::int64_t src, dst;
    std::vector<float> row;
  };
  std::int64_t num_nodes = 0, row_width = 0;
  std::vector<Edge> edges = {};
  at::Tensor features = {};

  at::Tensor ids(bool of_src) const {
    at::Tensor result = at::empty({static_cast<std::int64_t>(edges.size())}, at::kLong);
    auto* id = result.mutable_data_ptr<std::int64_t>();
    for (const Edge& edge : edges) *id++ = of_src ? edge.src : edge.dst;
    return result;
  }
  at::Tensor rows() const {
    if (row_width == 0) return {};
    const auto count = static_cast<std::int64_t>(edges.size());
    at::Tensor result = row_width == 1 ? at::empty({count}) : at::empty({count, row_width});
    auto* to = result.mutable_data_ptr<float>();
    for (const Edge& edge : edges) to = std::copy(edge.row.begin(), edge.row.end(), to);
    return result;
  }
  Topology topology() const {
    return Topology::from_coo(ids(true), ids(false), num_nodes, num_nodes);
  }
  Predictor predictor(const nn::Model& model, const PredictorOptions& options) const {
    return Predictor(model, topology(), features, options, rows());
  }

  /// The place of the edge that Predictor::remove_edges() takes.
  std::size_t first_parallel(std::size_t of) const {
    std::size_t first = of;
    for (std::size_t i = 0; i < edges.size(); ++i) {
      if (edges[i].src != edges[of].src || edges[i].dst != edges[of].dst) continue;
      if (row_before(edges[i].row, edges[first].row)) first = i;
    }
    return first;
  }
};

inline std::vector<float> random_row(Draw& draw, std::int64_t width) {
  std::vector<float> row(static_cast<std::size_t>(width));
  // Few values, so that parallel edges may be equal; above 0 for gcn.
  for (float& number : row) number = 0.25F * static_cast<float>(1 + draw.below(5));
  return row;
}

inline EdgeGraph::Edge random_edge(Draw& draw, const EdgeGraph& graph) {
  // Half of the edges come from or go to a few nodes.
  const auto end = [&] { return draw.coin() ? draw.below(graph.num_nodes) : draw.below(4); };
  const std::int64_t src = end();
  return {src, end(), random_row(draw, graph.row_width)};
}

/// A graph with parallel edges, loops and nodes without edges.
inline EdgeGraph random_edge_graph(Draw& draw, std::int64_t num_nodes, std::int64_t num_edges,
                                   std::int64_t row_width) {
  EdgeGraph graph{.num_nodes = num_nodes, .row_width = row_width};
  for (std::int64_t i = 0; i < num_edges; ++i) graph.edges.push_back(random_edge(draw, graph));
  torch::manual_seed(static_cast<std::uint64_t>(draw.below(1000)));
  graph.features = at::randn({num_nodes, kInputs});
  return graph;
}

}  // namespace mezzo::test
