#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <utility>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/conv/aggregation_layers.h"
#include "mezzo/nn/layer.h"

/// Layers that multiply the rows of the in-neighbours by numbers computed from the edges.
namespace mezzo::nn {

/// Options of NNConv.
struct NNConvOptions {
  std::int64_t in_features = 0;
  std::int64_t in_features_dst = 0;  ///< width of the destinations of a pair; 0: in_features
  std::int64_t out_features = 0;
  Aggregator aggregator = Aggregator::kMean;  ///< kSum, kMean or kMax
  bool residual = false;                      ///< add the node's own row, projected if needed
  bool bias = true;
};

/// Edge-conditioned convolution (Gilmer et al., ICML'17): the aggregate of h_u W_e, plus residual
/// and bias, where W_e = edge_func(e) viewed as [in, out]. As in DGL, kMax takes the maximum of
/// each h_u[i] W_e[i, o] and then the sum over i. With DGL's parameters: those of `edge_func`,
/// `res_fc.weight` [out, in_dst] (if residual and in_dst differs from out; Glorot normal with gain
/// sqrt(2)) and `bias` [out] (zeros).
///
/// Cost: the weights of the edges, [E, in * out], and [num_dst, in, out]. If edge_func is a
/// torch::nn::Linear or a Sequential that ends in one, of K inputs, then kSum and kMean aggregate
/// h_u outer e instead, [num_dst, K, in], where that is smaller: no [E, in * out] tensor exists.
class MEZZO_API NNConvImpl : public torch::nn::Cloneable<NNConvImpl> {
 public:
  /// edge_func: a module from [E, ...] to [E, in * out]. Throws InvalidArgument if it is empty,
  /// unless the sizes are positive (in_features_dst: or 0), and for other aggregators.
  NNConvImpl(NNConvOptions options, TensorModule edge_func);
  /// Creates the parameters, and for clone() a copy of edge_func.
  void reset() override;
  /// Reinitializes res_fc and bias; does not change edge_func.
  void reset_parameters();
  /// Writes the name, sizes and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// h: [num_src, in], strided or sparse CSR, which is copied to a dense tensor; the destinations
  /// are the first num_dst sources. Or a pair of [num_src, in] and [num_dst, in_dst], for any
  /// topology. edge_features: [E, ...], of what edge_func takes. Returns [num_dst, out]. Throws
  /// InvalidArgument for other shapes, and if edge_func returns another shape.
  at::Tensor forward(const Topology& topology, const NodeRows& h, const at::Tensor& edge_features);

  NNConvOptions options;
  TensorModule edge_func;
  torch::nn::Linear res_fc{nullptr};
  at::Tensor bias;
};

/// `NNConv(16, 32, edge_func, {.residual = true})`: sizes and edge_func first, as in DGL.
class NNConv : public torch::nn::ModuleHolder<NNConvImpl> {
 public:
  NNConv(std::nullptr_t) : ModuleHolder(nullptr) {}  // NOLINT: as libtorch's
  NNConv(std::shared_ptr<NNConvImpl> layer) : ModuleHolder(std::move(layer)) {}  // NOLINT
  NNConv(std::int64_t in_features, std::int64_t out_features, TensorModule edge_func,
         NNConvOptions options = {})
      : ModuleHolder(std::make_shared<NNConvImpl>(
            (options.in_features = in_features, options.out_features = out_features, options),
            std::move(edge_func))) {}
};

/// Options of CFConv.
struct CFConvOptions {
  std::int64_t in_features = 0;
  std::int64_t edge_features = 0;
  std::int64_t hidden_features = 0;
  std::int64_t out_features = 0;
};

/// Continuous-filter convolution (SchNet: Schuett et al., NeurIPS'17): s(project_out(sum of
/// project_node(h_u) * filter(e))), where s(x) = softplus(x) - log 2 and filter is a linear layer,
/// s, a linear layer and s. With DGL's parameters: `project_edge.0` [hidden, edge],
/// `project_edge.2` [hidden, hidden], `project_node` [hidden, in] and `project_out.0` [out,
/// hidden], each with weight and bias, as libtorch starts them. Saves four tensors [E, hidden] for
/// the backward.
class MEZZO_API CFConvImpl : public torch::nn::Cloneable<CFConvImpl> {
 public:
  /// Throws InvalidArgument unless the sizes are positive.
  explicit CFConvImpl(CFConvOptions options);
  /// Creates the parameters; called by the constructor and clone().
  void reset() override;
  /// Writes the name and sizes in one line.
  void pretty_print(std::ostream& stream) const override;
  /// topology: any. h: the rows of the sources, [num_src, in], strided or sparse CSR, or a pair,
  /// whose destinations are ignored, as in DGL. edge_features: [E, edge]. Returns [num_dst, out].
  /// Throws InvalidArgument for other shapes.
  at::Tensor forward(const Topology& topology, const NodeRows& h, const at::Tensor& edge_features);

  CFConvOptions options;
  torch::nn::Sequential project_edge{nullptr}, project_out{nullptr};
  torch::nn::Linear project_node{nullptr};
};
using CFConv = LayerHolder<CFConvImpl, &CFConvOptions::in_features, &CFConvOptions::edge_features,
                           &CFConvOptions::hidden_features, &CFConvOptions::out_features>;

/// Options of GatedGCNConv.
struct GatedGCNConvOptions {
  std::int64_t in_features = 0;
  std::int64_t edge_features = 0;
  std::int64_t out_features = 0;
  double dropout = 0;      ///< of the new rows of nodes and edges, in [0, 1); while training
  bool batch_norm = true;  ///< of nodes and of edges
  bool residual = true;    ///< add the old rows, if all three sizes are equal
  Activation activation = [](const at::Tensor& h) { return h.relu(); };  ///< {}: none
};

/// Gated graph convolution (Bresson and Laurent, 2017; Dwivedi et al., 2020): f = D(h_u) + E(h_v) +
/// C(e) is an edge's new row and g = sigmoid(f) its gate; a node's is A(h_v) + (sum of g * B(h_u))
/// / (sum of g + 1e-6). Both then get batch normalization, activation, residual and dropout. With
/// DGL's parameters: linear layers `A`, `B`, `D`, `E` [out, in] and `C` [out, edge] with bias, as
/// libtorch starts them, and `bn_node` and `bn_edge` [out], also without batch_norm.
class MEZZO_API GatedGCNConvImpl : public torch::nn::Cloneable<GatedGCNConvImpl> {
 public:
  /// The new rows of the nodes, [num_dst, out], and of the edges, [E, out].
  using Result = std::pair<at::Tensor, at::Tensor>;

  /// Throws InvalidArgument unless the sizes are positive and dropout is in [0, 1).
  explicit GatedGCNConvImpl(GatedGCNConvOptions options);
  /// Creates the parameters; called by the constructor and clone().
  void reset() override;
  /// Writes the name, sizes and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// h: [num_src, in], strided or sparse CSR; the destinations are the first num_dst sources. Or a
  /// pair with [num_dst, in], for any topology. edge_features: [E, edge]. Throws InvalidArgument
  /// for other shapes, and for fewer than 2 rows while training with batch_norm.
  Result forward(const Topology& topology, const NodeRows& h, const at::Tensor& edge_features);

  GatedGCNConvOptions options;
  torch::nn::Linear A{nullptr}, B{nullptr}, C{nullptr}, D{nullptr}, E{nullptr};

 private:
  std::function<at::Tensor(const at::Tensor&)> normalize_nodes_, normalize_edges_;
};
using GatedGCNConv =
    LayerHolder<GatedGCNConvImpl, &GatedGCNConvOptions::in_features,
                &GatedGCNConvOptions::edge_features, &GatedGCNConvOptions::out_features>;

}  // namespace mezzo::nn
