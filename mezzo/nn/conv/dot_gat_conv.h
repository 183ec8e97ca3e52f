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

 private:
  std::int64_t destination_width() const;
};
using DotGatConv = InOutHolder<DotGatConvImpl>;

}  // namespace mezzo::nn
