#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/linear.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/graph.h"
#include "mezzo/nn/layer.h"

/// Poolings that coarsen: they keep some nodes of each graph of a batch and the edges among them.
namespace mezzo::nn {

/// Options of TopKPooling and SAGPooling.
struct TopKPoolingOptions {
  std::int64_t in_features = 0;
  /// In (0, 1): the share of the nodes that each graph keeps, rounded up. A whole number of at
  /// least 1: the number of nodes, so 1 keeps one node.
  double ratio = 0.5;
  /// If set, ratio is ignored. Scores are then a softmax over the graph's nodes; a node is kept if
  /// its score is above min_score or within 1e-7 of the graph's highest.
  std::optional<double> min_score = std::nullopt;
  double multiplier = 1;  ///< of the result's rows
  /// Applied to the scores without min_score; {}: none.
  Activation nonlinearity = [](const at::Tensor& score) { return score.tanh(); };
};
using SAGPoolingOptions = TopKPoolingOptions;

/// What a pooling keeps: K nodes.
struct CoarsenedGraph {
  /// subgraph(graph, perm), with gathered columns and the old ids in column "_ID", as a batch of as
  /// many graphs.
  Graph graph;
  at::Tensor h;      ///< [K, in], the rows times score and multiplier, in the dtype of the input
  at::Tensor perm;   ///< int64 [K], the old ids of the nodes, graph by graph
  at::Tensor score;  ///< [K], float32 (float64 for float64)
};

// Both have PyG's parameters and values. Each graph's nodes are kept by descending score, equal
// scores and min_score by ascending id; NaN counts as highest. Scores are computed in float32
// (float64 for float64), also under autocast, and h is rounded once. The gradient flows through h
// and score. The same bits for any number of threads. O(N log N + E); synchronises on CUDA. h:
// floating, strided [N, in], on the graph's device. Throw InvalidArgument for other rows, and if
// the options are out of range.

/// Top-k pooling (Gao & Ji, ICML'19): the score of a node is tanh(h . p / |p|), with min_score the
/// softmax of h . p. Parameter `select.weight`, p as [1, in], uniform in +-1/sqrt(in).
class MEZZO_API TopKPoolingImpl : public torch::nn::Cloneable<TopKPoolingImpl> {
 public:
  explicit TopKPoolingImpl(TopKPoolingOptions options);
  /// Creates the parameter; called by the constructor and clone().
  void reset() override;
  /// Reinitializes the parameter.
  void reset_parameters();
  /// Writes the name and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// Keeps some nodes of each graph.
  CoarsenedGraph forward(const Graph& graph, const at::Tensor& h);

  TopKPoolingOptions options;
  torch::nn::Linear select{nullptr};
};
using TopKPooling = LayerHolder<TopKPoolingImpl, &TopKPoolingOptions::in_features>;

/// Self-attention graph pooling (Lee et al., ICML'19): as TopKPooling of one number for each node
/// v, root . h_v + rel . (the sum of h_u over the edges from u into v) + bias. Parameters
/// `gnn.lin_rel.weight` [1, in], `gnn.lin_rel.bias` [1], `gnn.lin_root.weight` [1, in], initialised
/// as in libtorch, and `select.weight` [1, 1].
class MEZZO_API SAGPoolingImpl : public torch::nn::Cloneable<SAGPoolingImpl> {
 public:
  explicit SAGPoolingImpl(SAGPoolingOptions options);
  /// Creates the parameters; called by the constructor and clone().
  void reset() override;
  /// Reinitializes the parameters.
  void reset_parameters();
  /// Writes the name and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// Keeps some nodes of each graph.
  CoarsenedGraph forward(const Graph& graph, const at::Tensor& h);

  SAGPoolingOptions options;
  torch::nn::ModuleDict gnn{nullptr};
  torch::nn::Linear select{nullptr};
};
using SAGPooling = LayerHolder<SAGPoolingImpl, &SAGPoolingOptions::in_features>;

}  // namespace mezzo::nn
