#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"

namespace mezzo::nn {

/// An elementwise function applied to a layer's output; empty: none.
using Activation = std::function<at::Tensor(const at::Tensor&)>;

/// By which degrees GraphConv divides: kBoth 1/sqrt(d_out(u) d_in(v)), kRight 1/d_in(v), kLeft
/// 1/d_out(u), kNone 1. Degrees count as at least 1.
enum class DegreeNorm : std::uint8_t { kBoth, kRight, kLeft, kNone };

struct GraphConvOptions {
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  DegreeNorm norm = DegreeNorm::kBoth;
  bool bias = true;
  Activation activation = {};
  bool allow_zero_in_degree = false;  ///< otherwise such nodes are an error
};

/// Graph convolution (Kipf & Welling, ICLR'17), with DGL's parameters: `weight` [in, out] (Glorot
/// uniform), `bias` [out] (zeros). Multiplies before aggregating when out_features is the smaller.
class MEZZO_API GraphConvImpl : public torch::nn::Module {
 public:
  /// Throws InvalidArgument unless both sizes are positive.
  explicit GraphConvImpl(GraphConvOptions options);
  void reset_parameters();
  /// h: [num_src, in], strided or sparse CSR; edge_weight: floating [E], multiplies the messages,
  /// or undefined. Returns [num_dst, out]. Throws InvalidArgument for other shapes, dtypes and
  /// devices, and for destinations without in-edges unless they are allowed.
  at::Tensor forward(const Topology& topology, const at::Tensor& h,
                     const at::Tensor& edge_weight = {});

  GraphConvOptions options;
  at::Tensor weight, bias;
};
TORCH_MODULE(GraphConv);

}  // namespace mezzo::nn
