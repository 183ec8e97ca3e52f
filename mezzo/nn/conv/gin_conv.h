#pragma once

#include <iosfwd>
#include <memory>
#include <utility>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/conv/aggregator.h"
#include "mezzo/nn/layer.h"

namespace mezzo::nn {

/// Options of GINConv.
struct GINConvOptions {
  Aggregator aggregator = Aggregator::kSum;  ///< one of GinAggregators
  double initial_eps = 0;
  bool learn_eps = false;  ///< eps is a parameter, otherwise a buffer
  Activation activation = {};
};

/// Graph isomorphism network layer (Xu et al., ICLR'19): apply_func((1 + eps) h_v + aggregate of
/// h_u). With DGL's parameters: `eps` [1] and those of `apply_func`.
class MEZZO_API GINConvImpl : public torch::nn::Cloneable<GINConvImpl> {
 public:
  /// apply_func: a module from a tensor to a tensor, such as torch::nn::Sequential, or empty.
  /// Throws InvalidArgument unless initial_eps is finite and the aggregator is one of
  /// GinAggregators.
  explicit GINConvImpl(GINConvOptions options, TensorModule apply_func = {});
  /// Creates eps, and for clone() a copy of apply_func.
  void reset() override;
  /// Sets eps to initial_eps; does not change apply_func.
  void reset_parameters();
  /// Writes the name, sizes and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// h: [num_src, ...], strided, or sparse CSR, which is copied to a dense tensor; the destinations
  /// are the first num_dst sources. Or a pair with [num_dst, ...], for any topology. edge_weight:
  /// undefined, or floating [E]; multiplies the messages. Returns apply_func of [num_dst, ...].
  /// With learn_eps, 16-bit rows of the destinations are copied to float32 and saved. Throws
  /// InvalidArgument for other shapes.
  at::Tensor forward(const Topology& topology, const NodeRows& h,
                     const at::Tensor& edge_weight = {});

  GINConvOptions options;
  at::Tensor eps;
  TensorModule apply_func;
};

/// Can be constructed from braces: `GINConv({.learn_eps = true}, apply_func)`.
class GINConv : public torch::nn::ModuleHolder<GINConvImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  explicit GINConv(GINConvOptions options, TensorModule apply_func = {})
      : ModuleHolder(std::make_shared<GINConvImpl>(std::move(options), std::move(apply_func))) {}
};

}  // namespace mezzo::nn
