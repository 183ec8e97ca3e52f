#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/layer.h"

/// Layers that weight the rows of the in-neighbours by attention.
namespace mezzo::nn {

/// Options of GATConv.
struct GATConvOptions {
  std::int64_t in_features = 0;
  std::int64_t in_features_dst = 0;  ///< width of the destinations of a pair; 0: in_features
  std::int64_t out_features = 0;     ///< per head
  std::int64_t num_heads = 1;
  double feature_dropout = 0;    ///< of the input, in [0, 1); while training
  double attention_dropout = 0;  ///< of the attention, in [0, 1); while training
  double negative_slope = 0.2;   ///< of the leaky ReLU on the logits
  bool residual = false;         ///< add the node's own row, projected if the widths differ
  bool bias = true;
  Activation activation = {};
  bool allow_zero_in_degree = false;  ///< otherwise such nodes are an error
};

/// Graph attention (Velickovic et al., ICLR'18). Per head: z = fc(h), logits of an edge (u, v)
/// leaky_relu(attn_l . z_u + attn_r . z_v), softmax over the edges into v, weighted sum of z_u;
/// then residual, bias, activation. DGL's parameters: `fc.weight` [heads * out, in], `attn_l`,
/// `attn_r` [1, heads, out], `res_fc.weight` [heads * out, in] (if residual and in differs from
/// heads * out), all Glorot normal with gain sqrt(2), and `bias` [heads * out] (zeros), named
/// `res_fc.bias` if `res_fc` exists (as in DGL since 1.1). With in_features_dst, also if equal to
/// in_features, `fc_src.weight` [heads * out, in] and `fc_dst.weight` [heads * out, in_dst] replace
/// `fc.weight` for z_u and z_v, and `res_fc` has input width in_dst. From the scores on, one fused
/// operation (gat_attention) that saves two numbers per node and head besides the rows. One product
/// computes the scores of all heads: an infinity or NaN in one head of a row makes its scores NaN
/// in all heads; in DGL the other heads are unaffected.
class MEZZO_API GATConvImpl : public torch::nn::Cloneable<GATConvImpl> {
 public:
  /// Throws InvalidArgument unless the sizes are positive (in_features_dst: or 0), the dropouts in
  /// [0, 1) and the slope finite.
  explicit GATConvImpl(GATConvOptions options);
  /// Creates the parameters; called by the constructor and clone().
  void reset() override;
  /// Reinitializes the parameters.
  void reset_parameters();
  /// Writes the name, sizes and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// h: [num_src, in], strided or sparse CSR; the destinations are the first num_dst sources. Or a
  /// pair of [num_src, in] and [num_dst, in_dst], for any topology. edge_weight: undefined, or
  /// floating [E]; multiplies the attention of all heads after its dropout. Returns [num_dst,
  /// heads, out]. Throws InvalidArgument for other shapes, dtypes and devices, and for destinations
  /// without in-edges unless allow_zero_in_degree. Dropout draws from libtorch's generator.
  at::Tensor forward(const Topology& topology, const NodeRows& h,
                     const at::Tensor& edge_weight = {});

  /// Also returns the attention of the edges, [E, heads, 1], after dropout and edge weight (DGL's
  /// get_attention): float64 for float64 rows, else float32. Drops the same edges as forward with
  /// the same seed. Not fused: saves numbers per edge and head for the backward; the result may
  /// differ from forward's in the last bits.
  std::pair<at::Tensor, at::Tensor> forward_with_attention(const Topology& topology,
                                                           const NodeRows& h,
                                                           const at::Tensor& edge_weight = {});

  GATConvOptions options;
  torch::nn::Linear fc{nullptr};                       ///< empty with in_features_dst
  torch::nn::Linear fc_src{nullptr}, fc_dst{nullptr};  ///< with in_features_dst
  torch::nn::Linear res_fc{nullptr};
  at::Tensor attn_l, attn_r, bias;

 private:
  /// The inputs of the attention, after feature dropout.
  struct Projected {
    NodeRows h;
    at::Tensor rows;                        ///< [num_src, heads, out]
    at::Tensor score_src, score_dst;        ///< [num_src, heads], [num_dst, heads]
    std::optional<at::Tensor> edge_weight;  ///< in the type of the attention
  };
  /// Checks the arguments too.
  Projected project(const Topology& topology, const NodeRows& h, const at::Tensor& edge_weight);
  /// The attention, not fused: [E, heads].
  at::Tensor attention_of(const Topology& topology, const Projected& projected) const;
  /// Residual, bias and activation.
  at::Tensor finish(const NodeRows& h, at::Tensor out) const;
  /// [2 * heads, heads * out]: row k holds attn_l of head k in the columns of that head and zeros
  /// elsewhere; row heads + k holds attn_r in the same way.
  at::Tensor score_weight() const;
};
using GATConv = InOutHolder<GATConvImpl>;

/// Options of GATv2Conv.
struct GATv2ConvOptions {
  std::int64_t in_features = 0;
  std::int64_t in_features_dst = 0;  ///< width of the destinations of a pair; 0: in_features
  std::int64_t out_features = 0;     ///< per head
  std::int64_t num_heads = 1;
  double feature_dropout = 0;    ///< of the input, in [0, 1); while training
  double attention_dropout = 0;  ///< of the attention, in [0, 1); while training
  double negative_slope = 0.2;   ///< of the leaky ReLU inside the scores
  bool residual = false;         ///< add the node's own row, projected if the widths differ
  bool bias = true;              ///< of the linear parts
  bool share_weights = false;    ///< fc_dst is fc_src
  Activation activation = {};
  bool allow_zero_in_degree = false;  ///< otherwise such nodes are an error
};

/// Graph attention with dynamic scores (GATv2: Brody et al., ICLR'22). Per head: logits of an edge
/// (u, v) attn . leaky_relu(fc_src(h_u) + fc_dst(h_v)), softmax over the edges into v, weighted sum
/// of fc_src(h_u); then residual and activation. DGL's parameters: `fc_src`, `fc_dst` and `res_fc`
/// (if residual and in differs from heads * out), each `.weight` [heads * out, in] and `.bias`
/// [heads * out], and `attn` [1, heads, out]; weights and attn Glorot normal with gain sqrt(2),
/// biases zero. With in_features_dst, `fc_dst` and `res_fc` have that input width. With
/// share_weights only `fc_src` is registered. Saves numbers per edge and head, float32 for 16-bit
/// rows, never per edge and feature.
class MEZZO_API GATv2ConvImpl : public torch::nn::Cloneable<GATv2ConvImpl> {
 public:
  /// Throws InvalidArgument unless the sizes are positive (in_features_dst: or 0), the dropouts in
  /// [0, 1) and the slope finite, and for share_weights with two widths.
  explicit GATv2ConvImpl(GATv2ConvOptions options);
  /// Creates the parameters; called by the constructor and clone().
  void reset() override;
  /// Reinitializes the parameters.
  void reset_parameters();
  /// Writes the name, sizes and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// h: [num_src, in], strided or sparse CSR; the destinations are the first num_dst sources. Or a
  /// pair of [num_src, in] and [num_dst, in_dst], for any topology. Returns [num_dst, heads, out].
  /// Throws InvalidArgument for other shapes, and for destinations without in-edges unless
  /// allow_zero_in_degree. Dropout draws from libtorch's generator.
  at::Tensor forward(const Topology& topology, const NodeRows& h);
  /// Also returns the attention of the edges, [E, heads, 1], after dropout (DGL's get_attention):
  /// float32 with 16-bit rows. Costs no more than forward.
  std::pair<at::Tensor, at::Tensor> forward_with_attention(const Topology& topology,
                                                           const NodeRows& h);

  GATv2ConvOptions options;
  torch::nn::Linear fc_src{nullptr}, fc_dst{nullptr}, res_fc{nullptr};
  at::Tensor attn;

 private:
  /// fc_dst of the destinations' rows of h: [num_dst, heads, out]. `sent` is fc_src of the sources.
  at::Tensor received(const NodeRows& h, const at::Tensor& sent, std::int64_t num_dst) const;
};
using GATv2Conv = InOutHolder<GATv2ConvImpl>;

/// Options of DotGatConv.
struct DotGatConvOptions {
  std::int64_t in_features = 0;
  std::int64_t in_features_dst = 0;  ///< width of the destinations of a pair; 0: in_features
  std::int64_t out_features = 0;     ///< per head
  std::int64_t num_heads = 1;
  bool allow_zero_in_degree = false;  ///< otherwise such nodes are an error
};

/// Graph attention by dot products (Vaswani et al., NeurIPS'17). Per head: z = fc(h), logits of an
/// edge (u, v) z_u . z_v / sqrt(out), softmax over the edges into v, sum of z_u by it. With DGL's
/// parameter `fc.weight` [heads * out, in], which starts as a linear layer's; with
/// in_features_dst `fc_src.weight` [heads * out, in] and `fc_dst.weight` [heads * out, in_dst] take
/// its place, for z_u and z_v, also where the widths are equal.
class MEZZO_API DotGatConvImpl : public torch::nn::Cloneable<DotGatConvImpl> {
 public:
  /// Throws InvalidArgument unless the sizes are positive (in_features_dst: or 0).
  explicit DotGatConvImpl(DotGatConvOptions options);
  /// Creates the parameters; called by the constructor and clone().
  void reset() override;
  /// Reinitializes the parameters.
  void reset_parameters();
  /// Writes the name, sizes and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// h: [num_src, in], strided or sparse CSR; the destinations are the first num_dst sources. Or a
  /// pair of [num_src, in] and [num_dst, in_dst], for any topology. Returns [num_dst, heads, out].
  /// Throws InvalidArgument for other shapes, and for destinations without in-edges unless
  /// allow_zero_in_degree.
  at::Tensor forward(const Topology& topology, const NodeRows& h);
  /// Also returns the attention of the edges, [E, heads, 1], in the dtype of the result (DGL's
  /// get_attention). Costs no more than forward.
  std::pair<at::Tensor, at::Tensor> forward_with_attention(const Topology& topology,
                                                           const NodeRows& h);

  DotGatConvOptions options;
  torch::nn::Linear fc{nullptr};                       ///< empty with in_features_dst
  torch::nn::Linear fc_src{nullptr}, fc_dst{nullptr};  ///< with in_features_dst
};
using DotGatConv = InOutHolder<DotGatConvImpl>;

}  // namespace mezzo::nn
