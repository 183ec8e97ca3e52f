#pragma once

#include <cstdint>
#include <iosfwd>
#include <tuple>
#include <utility>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/layer.h"

/// Layers whose attention reads features of the edges.
namespace mezzo::nn {

/// Options of EGATConv.
struct EGATConvOptions {
  std::int64_t in_features = 0;
  std::int64_t in_features_dst = 0;  ///< width of the destinations of a pair; 0: in_features
  std::int64_t in_edge_features = 0;
  std::int64_t out_features = 0;       ///< per head
  std::int64_t out_edge_features = 0;  ///< per head
  std::int64_t num_heads = 1;
  bool bias = true;  ///< of the new edge features
};

/// Graph attention with new edge features (Kaminski et al., 2022). Per head: f = leaky_relu(fc_ni(
/// h_u) + fc_nj(h_v) + fc_fij(e) + bias) with slope 0.01 are the new features of an edge (u, v),
/// its logit is attn . f; softmax over the edges into v, weighted sum of fc_node_src(h_u). DGL's
/// parameters: `fc_node_src.weight` [heads * out, in], `fc_ni.weight` [heads * out_edge, in],
/// `fc_nj.weight` [heads * out_edge, in_dst], `fc_fij.weight` [heads * out_edge, in_edge] and
/// `attn` [1, heads, out_edge], all Glorot normal with gain sqrt(2), and `bias` [heads * out_edge]
/// (zeros). The largest tensors are [E, heads * out_edge]: the new features, which are saved, and
/// one beside them in the forward and two in the backward.
class MEZZO_API EGATConvImpl : public torch::nn::Cloneable<EGATConvImpl> {
 public:
  /// The new rows of the nodes, [num_dst, heads, out], and of the edges, [E, heads, out_edge].
  using Result = std::pair<at::Tensor, at::Tensor>;

  /// Throws InvalidArgument unless the sizes are positive (in_features_dst: or 0).
  explicit EGATConvImpl(EGATConvOptions options);
  /// Creates the parameters; called by the constructor and clone().
  void reset() override;
  /// Reinitializes the parameters.
  void reset_parameters();
  /// Writes the name, sizes and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// h: [num_src, in], strided or sparse CSR; the destinations are the first num_dst sources. Or a
  /// pair of [num_src, in] and [num_dst, in_dst], for any topology. edge_features: [E, in_edge].
  /// edge_weight: undefined, or floating [E]; multiplies the attention of all heads. Throws
  /// InvalidArgument for other shapes, dtypes and devices, and for destinations without in-edges.
  Result forward(const Topology& topology, const NodeRows& h, const at::Tensor& edge_features,
                 const at::Tensor& edge_weight = {});
  /// Also returns the attention of the edges, [E, heads, 1], times their weight (DGL's
  /// get_attention): float32 with 16-bit rows. Costs no more than forward.
  std::tuple<at::Tensor, at::Tensor, at::Tensor> forward_with_attention(
      const Topology& topology, const NodeRows& h, const at::Tensor& edge_features,
      const at::Tensor& edge_weight = {});

  EGATConvOptions options;
  torch::nn::Linear fc_node_src{nullptr}, fc_ni{nullptr}, fc_nj{nullptr}, fc_fij{nullptr};
  at::Tensor attn, bias;
};
using EGATConv =
    LayerHolder<EGATConvImpl, &EGATConvOptions::in_features, &EGATConvOptions::in_edge_features,
                &EGATConvOptions::out_features, &EGATConvOptions::out_edge_features>;

/// Options of EdgeGATConv.
struct EdgeGATConvOptions {
  std::int64_t in_features = 0;
  std::int64_t in_features_dst = 0;  ///< width of the destinations of a pair; 0: in_features
  std::int64_t edge_features = 0;
  std::int64_t out_features = 0;  ///< per head
  std::int64_t num_heads = 1;
  double feature_dropout = 0;    ///< of the nodes' rows, in [0, 1); while training
  double attention_dropout = 0;  ///< of the attention, in [0, 1); while training
  double negative_slope = 0.2;   ///< of the leaky ReLU on the logits
  bool residual = true;          ///< add the node's own row, projected
  Activation activation = {};
  bool allow_zero_in_degree = false;  ///< otherwise such nodes are an error
  bool bias = true;
};

/// Graph attention with edge features (Monninger et al., 2023). Per head: z = fc(h), y =
/// fc_edge(e), logits of an edge (u, v) leaky_relu(attn_l . z_u + attn_r . z_v + attn_edge . y),
/// softmax over the edges into v, weighted sum of z_u + y; then residual, bias, activation. DGL's
/// parameters: `fc.weight` [heads * out, in], with in_features_dst `fc_src.weight` and
/// `fc_dst.weight` (its input in_dst), `fc_edge.weight` [heads * out, edge], `attn_l`, `attn_r`,
/// `attn_edge` [1, heads, out], `res_fc.weight` [heads * out, in_dst], all Glorot normal with gain
/// sqrt(2), and `bias` [heads * out] (zeros). fc_edge is linear, so the layer multiplies it with
/// attn_edge for the logits, and with the weighted sums of e, [num_dst, heads, edge], for the
/// result: no tensor of the edges is wider than their features.
class MEZZO_API EdgeGATConvImpl : public torch::nn::Cloneable<EdgeGATConvImpl> {
 public:
  /// Throws InvalidArgument unless the sizes are positive (in_features_dst: or 0), the dropouts in
  /// [0, 1) and the slope finite.
  explicit EdgeGATConvImpl(EdgeGATConvOptions options);
  /// Creates the parameters; called by the constructor and clone().
  void reset() override;
  /// Reinitializes the parameters.
  void reset_parameters();
  /// Writes the name, sizes and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// h: [num_src, in], strided or sparse CSR; the destinations are the first num_dst sources. Or a
  /// pair of [num_src, in] and [num_dst, in_dst], for any topology. edge_features: [E, edge].
  /// Returns [num_dst, heads, out]. Throws InvalidArgument for other shapes, dtypes and devices,
  /// and for destinations without in-edges unless allow_zero_in_degree. Dropout draws from
  /// libtorch's generator.
  at::Tensor forward(const Topology& topology, const NodeRows& h, const at::Tensor& edge_features);
  /// Also returns the attention of the edges, [E, heads, 1], after dropout (DGL's get_attention):
  /// float32 with 16-bit rows. Costs no more than forward.
  std::pair<at::Tensor, at::Tensor> forward_with_attention(const Topology& topology,
                                                           const NodeRows& h,
                                                           const at::Tensor& edge_features);

  EdgeGATConvOptions options;
  torch::nn::Linear fc{nullptr};                       ///< empty with in_features_dst
  torch::nn::Linear fc_src{nullptr}, fc_dst{nullptr};  ///< with in_features_dst
  torch::nn::Linear fc_edge{nullptr}, res_fc{nullptr};
  at::Tensor attn_l, attn_r, attn_edge, bias;
};
using EdgeGATConv =
    LayerHolder<EdgeGATConvImpl, &EdgeGATConvOptions::in_features,
                &EdgeGATConvOptions::edge_features, &EdgeGATConvOptions::out_features>;

}  // namespace mezzo::nn
