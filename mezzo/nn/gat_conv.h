#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/graph_conv.h"

namespace mezzo::nn {

struct GATConvOptions {
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;  ///< per head
  std::int64_t num_heads = 1;
  double feature_dropout = 0;    ///< of the input, in [0, 1); while training
  double attention_dropout = 0;  ///< of the attention, in [0, 1); while training
  double negative_slope = 0.2;   ///< of the leaky ReLU on the logits
  bool residual = false;         ///< add the node's own row, projected where the widths differ
  bool bias = true;
  Activation activation = {};
  bool allow_zero_in_degree = false;  ///< otherwise such nodes are an error
};

/// Graph attention (Velickovic et al., ICLR'18). Per head: z = fc(h), logits of an edge (u, v)
/// leaky_relu(attn_l . z_u + attn_r . z_v), softmax over the edges into v, sum of z_u by it; then
/// residual, bias, activation. With DGL's parameters: `fc.weight` [heads * out, in], `attn_l`,
/// `attn_r` [1, heads, out], `res_fc.weight` [heads * out, in] (residual, where in is not heads *
/// out), all Glorot normal with gain sqrt(2), and `bias` [heads * out] (zeros). One fused
/// operation (gat_attention) from the scores on: keeps two numbers per node and head beside rows.
class MEZZO_API GATConvImpl : public torch::nn::Module {
 public:
  /// Throws InvalidArgument unless the sizes are positive, the dropouts in [0, 1) and the slope
  /// finite.
  explicit GATConvImpl(GATConvOptions options);
  void reset_parameters();
  /// topology: its destinations are the first num_dst sources. h: [num_src, in], strided or sparse
  /// CSR; edge_weight: floating [E] or undefined, multiplies the attention of all heads after its
  /// dropout. Returns [num_dst, heads, out]. Throws InvalidArgument for other shapes, dtypes and
  /// devices, and for destinations without in-edges unless they are allowed. Dropout draws from
  /// libtorch's generator.
  at::Tensor forward(const Topology& topology, const at::Tensor& h,
                     const at::Tensor& edge_weight = {});

  GATConvOptions options;
  torch::nn::Linear fc{nullptr}, res_fc{nullptr};
  at::Tensor attn_l, attn_r, bias;

 private:
  /// [2 * heads, heads * out]: row k holds attn_l of head k in that head's columns and zeros
  /// elsewhere; row heads + k likewise attn_r.
  at::Tensor score_weight() const;
};
TORCH_MODULE(GATConv);

}  // namespace mezzo::nn
