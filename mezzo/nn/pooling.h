#pragma once

#include <cstdint>
#include <iosfwd>
#include <utility>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/pimpl.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/graph.h"
#include "mezzo/nn/layer.h"

/// Readouts: one row for each graph of a batch from the rows of its nodes or edges.
namespace mezzo::nn {

// Readout functions, with DGL's semantics: reduce the rows of the nodes or edges to one row for
// each graph of a batch (B = graph.batch_size(), 1 for a single graph), or broadcast them back. x:
// floating, strided, [N, ...] for nodes or [E, ...] for edges, on the graph's device. A graph
// without rows gets 0, for max too. Sums and exponentials are float32 (float64 for float64) and
// rounded once; the same bits for any number of threads. Differentiable once. Copies the sizes of
// the graphs to the device: synchronises on CUDA. Errors: InvalidArgument. Below are
// the modules, some with parameters.
//
// weight: floating [N] or [N, ...] ([E] or [E, ...] for edges); it broadcasts with x from the last
// dimension on. Multiplies each row of x before the reduction, without a copy of the products. A
// mean divides by the number of rows, not by the sum of the weights. Weights are read in float32
// (float64 for float64 x). Autocast casts x to the 16-bit type, as gspmm does. Undefined: no
// weights.

/// The sum over the nodes of each graph. Returns [B, ...] in the dtype of x.
MEZZO_API at::Tensor sum_nodes(const Graph& graph, const at::Tensor& x,
                               const at::Tensor& weight = {});
/// The mean over the nodes of each graph. Returns [B, ...].
MEZZO_API at::Tensor mean_nodes(const Graph& graph, const at::Tensor& x,
                                const at::Tensor& weight = {});
/// The maximum over the nodes of each graph, per feature. Propagates NaN; the gradient of a tie
/// goes to the lowest row. Returns [B, ...].
MEZZO_API at::Tensor max_nodes(const Graph& graph, const at::Tensor& x,
                               const at::Tensor& weight = {});

/// As sum_nodes, over edges.
MEZZO_API at::Tensor sum_edges(const Graph& graph, const at::Tensor& x,
                               const at::Tensor& weight = {});
/// As mean_nodes, over edges.
MEZZO_API at::Tensor mean_edges(const Graph& graph, const at::Tensor& x,
                                const at::Tensor& weight = {});
/// As max_nodes, over edges.
MEZZO_API at::Tensor max_edges(const Graph& graph, const at::Tensor& x,
                               const at::Tensor& weight = {});

/// The softmax over the nodes of each graph, per trailing element. Returns the shape and dtype of
/// x; autocast does not cast x.
MEZZO_API at::Tensor softmax_nodes(const Graph& graph, const at::Tensor& x);
/// As softmax_nodes, over edges.
MEZZO_API at::Tensor softmax_edges(const Graph& graph, const at::Tensor& x);

/// Copies the row of each graph to its nodes. x: floating, strided [B, ...], on the graph's device.
/// Returns [N, ...] in the dtype of x; gradients are summed in float32.
MEZZO_API at::Tensor broadcast_nodes(const Graph& graph, const at::Tensor& x);
/// The same for edges: returns [E, ...].
MEZZO_API at::Tensor broadcast_edges(const Graph& graph, const at::Tensor& x);

// Modules with DGL's semantics and parameters. h: floating, strided, one row for each node, on the
// graph's device.

/// The sum over the nodes of each graph.
class MEZZO_API SumPoolingImpl : public torch::nn::Cloneable<SumPoolingImpl> {
 public:
  /// Does nothing: the module has no parameters.
  void reset() override {}
  /// Writes the name.
  void pretty_print(std::ostream& stream) const override;
  /// h: [N, ...]. Returns [B, ...].
  at::Tensor forward(const Graph& graph, const at::Tensor& h);
};
TORCH_MODULE(SumPooling);

/// The mean over the nodes of each graph.
class MEZZO_API AvgPoolingImpl : public torch::nn::Cloneable<AvgPoolingImpl> {
 public:
  /// Does nothing: the module has no parameters.
  void reset() override {}
  /// Writes the name.
  void pretty_print(std::ostream& stream) const override;
  /// h: [N, ...]. Returns [B, ...].
  at::Tensor forward(const Graph& graph, const at::Tensor& h);
};
TORCH_MODULE(AvgPooling);

/// The maximum over the nodes of each graph, per feature.
class MEZZO_API MaxPoolingImpl : public torch::nn::Cloneable<MaxPoolingImpl> {
 public:
  /// Does nothing: the module has no parameters.
  void reset() override {}
  /// Writes the name.
  void pretty_print(std::ostream& stream) const override;
  /// h: [N, ...]. Returns [B, ...].
  at::Tensor forward(const Graph& graph, const at::Tensor& h);
};
TORCH_MODULE(MaxPooling);

/// Global attention pooling (Li et al., ICLR'16): the sum of feat_nn(h_v), weighted by the softmax
/// of gate_nn(h_v) over the nodes of each graph. Parameters: the ones of `gate_nn` and `feat_nn`.
class MEZZO_API GlobalAttentionPoolingImpl
    : public torch::nn::Cloneable<GlobalAttentionPoolingImpl> {
 public:
  /// gate_nn: a module from [N, in] to [N, 1], such as torch::nn::Sequential; feat_nn: a module
  /// from [N, in] to [N, out]; if empty, h itself is used. Throws InvalidArgument for an empty
  /// gate_nn.
  explicit GlobalAttentionPoolingImpl(TensorModule gate_nn, TensorModule feat_nn = {});
  /// Copies the modules, for clone().
  void reset() override;
  /// Writes the name.
  void pretty_print(std::ostream& stream) const override;
  /// h: [N, in]. Returns [B, out]. Throws InvalidArgument if a module returns another shape.
  at::Tensor forward(const Graph& graph, const at::Tensor& h);
  /// Also returns the weights of the nodes, [N, 1] (DGL's get_attention).
  std::pair<at::Tensor, at::Tensor> forward_with_attention(const Graph& graph, const at::Tensor& h);

  TensorModule gate_nn, feat_nn;
};
TORCH_MODULE(GlobalAttentionPooling);

/// The sum of h_v, weighted by sigmoid(atom_weighting(h_v)). Parameters `atom_weighting.0.weight`
/// [1, in] and `atom_weighting.0.bias` [1], initialised as in libtorch.
class MEZZO_API WeightAndSumImpl : public torch::nn::Cloneable<WeightAndSumImpl> {
 public:
  /// Throws InvalidArgument unless in_features is positive.
  explicit WeightAndSumImpl(std::int64_t in_features);
  /// Creates the parameters; called by the constructor and clone().
  void reset() override;
  /// Writes the name and width.
  void pretty_print(std::ostream& stream) const override;
  /// h: [N, in]. Returns [B, in].
  at::Tensor forward(const Graph& graph, const at::Tensor& h);

  std::int64_t in_features;

 private:
  torch::nn::ModuleList weighting_;  // one torch::nn::Linear
};
TORCH_MODULE(WeightAndSum);

/// Options of Set2Set.
struct Set2SetOptions {
  std::int64_t in_features = 0;
  std::int64_t num_iterations = 1;
  std::int64_t num_layers = 1;  ///< of the LSTM
};

/// Set2Set (Vinyals et al., ICLR'16). Starts with q* = 0 and repeats num_iterations times: q =
/// LSTM(q*), r = sum of h_v weighted by the softmax of h_v . q over the nodes of each graph, q* =
/// [q, r]. Parameters: `lstm` with input width 2 in_features and hidden width in_features,
/// initialised as in libtorch. For a graph without nodes, r is 0 but q is not.
class MEZZO_API Set2SetImpl : public torch::nn::Cloneable<Set2SetImpl> {
 public:
  /// Throws InvalidArgument unless all options are positive.
  explicit Set2SetImpl(Set2SetOptions options);
  /// Creates the parameters; called by the constructor and clone().
  void reset() override;
  /// Reinitializes the parameters.
  void reset_parameters();
  /// Writes the name, sizes and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// h: [N, in]. Returns [B, 2 in].
  at::Tensor forward(const Graph& graph, const at::Tensor& h);

  Set2SetOptions options;
  torch::nn::LSTM lstm{nullptr};
};
using Set2Set = LayerHolder<Set2SetImpl, &Set2SetOptions::in_features>;

}  // namespace mezzo::nn
