#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/aggregator.h"
#include "mezzo/nn/graph_conv.h"

namespace mezzo::nn {

struct SAGEConvOptions {
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  Aggregator aggregator = Aggregator::kMean;  ///< one of SageAggregators
  double feature_dropout = 0;                 ///< of the input, in [0, 1); while training
  bool bias = true;                           ///< of fc_self, of kGcn the layer's
  Activation activation = {};
};

/// GraphSAGE layer (Hamilton et al., NeurIPS'17): fc_self(h_v) + fc_neigh(aggregate of h_u), of
/// kGcn fc_neigh(aggregate) + bias. With DGL's parameters: `fc_neigh.weight` [out, in];
/// `fc_self.weight` [out, in] and `fc_self.bias` [out] (kMean, kPool) or `bias` [out] (kGcn);
/// `fc_pool.weight` [in, in] and `fc_pool.bias` [in] (kPool). The weights start Glorot uniform with
/// gain sqrt(2), fc_self.bias and fc_pool.bias by libtorch's default, `bias` at zero. kMean and
/// kGcn multiply before aggregating when out_features is the smaller.
class MEZZO_API SAGEConvImpl : public torch::nn::Module {
 public:
  /// Throws InvalidArgument unless both sizes are positive, the dropout is in [0, 1) and the
  /// aggregator one of SageAggregators.
  explicit SAGEConvImpl(SAGEConvOptions options);
  void reset_parameters();
  /// topology: its destinations are the first num_dst sources. h: [num_src, in], strided or sparse
  /// CSR. Returns [num_dst, out]. Throws InvalidArgument for other shapes. Dropout draws from
  /// libtorch's generator.
  at::Tensor forward(const Topology& topology, const at::Tensor& h);

  SAGEConvOptions options;
  torch::nn::Linear fc_self{nullptr}, fc_neigh{nullptr}, fc_pool{nullptr};
  at::Tensor bias;  ///< of kGcn with options.bias, else undefined

 private:
  /// fc_neigh of what the aggregator makes of the neighbours: [num_dst, out].
  at::Tensor neighbours(const Topology& topology, const at::Tensor& h) const;
};
TORCH_MODULE(SAGEConv);

}  // namespace mezzo::nn
