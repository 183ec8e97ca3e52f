#pragma once

#include <cstdint>
#include <iosfwd>
#include <utility>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/layer.h"

namespace mezzo::nn {

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
  std::int64_t destination_width() const;
  /// fc_dst of the destinations' rows of h: [num_dst, heads, out]. `sent` is fc_src of the sources.
  at::Tensor received(const NodeRows& h, const at::Tensor& sent, std::int64_t num_dst) const;
};
using GATv2Conv = InOutHolder<GATv2ConvImpl>;

}  // namespace mezzo::nn
