#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"

namespace mezzo::nn {

struct DotGatConvOptions {
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;  ///< per head
  std::int64_t num_heads = 1;
  bool allow_zero_in_degree = false;  ///< otherwise such nodes are an error
};

/// Graph attention by dot products (Vaswani et al., NeurIPS'17). Per head: z = fc(h), logits of an
/// edge (u, v) z_u . z_v / sqrt(out), softmax over the edges into v, sum of z_u by it. With DGL's
/// parameter `fc.weight` [heads * out, in], which starts as a linear layer's.
class MEZZO_API DotGatConvImpl : public torch::nn::Module {
 public:
  /// Throws InvalidArgument unless the sizes are positive.
  explicit DotGatConvImpl(DotGatConvOptions options);
  void reset_parameters();
  /// topology: its destinations are the first num_dst sources. h: [num_src, in], strided or sparse
  /// CSR. Returns [num_dst, heads, out]. Throws InvalidArgument for other shapes, and for
  /// destinations without in-edges unless they are allowed.
  at::Tensor forward(const Topology& topology, const at::Tensor& h);

  DotGatConvOptions options;
  torch::nn::Linear fc{nullptr};
};
TORCH_MODULE(DotGatConv);

}  // namespace mezzo::nn
