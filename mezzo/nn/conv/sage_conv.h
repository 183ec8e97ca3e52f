#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/conv/aggregator.h"
#include "mezzo/nn/layer.h"

namespace mezzo::nn {

/// Options of SAGEConv.
struct SAGEConvOptions {
  std::int64_t in_features = 0;
  std::int64_t in_features_dst = 0;  ///< width of the destinations of a pair; 0: in_features
  std::int64_t out_features = 0;
  Aggregator aggregator = Aggregator::kMean;  ///< one of SageAggregators
  double feature_dropout = 0;                 ///< of the input, in [0, 1); while training
  bool bias = true;                           ///< of fc_self, of kGcn the layer's
  Activation activation = {};
};

/// GraphSAGE layer (Hamilton et al., NeurIPS'17): fc_self(h_v) + fc_neigh(aggregate of h_u), of
/// kGcn fc_neigh(aggregate) + bias. With DGL's parameters, in its order: `fc_pool.weight` [in, in]
/// and `fc_pool.bias` [in] (kPool) or those of `lstm`, input and state [in] (kLstm);
/// `fc_neigh.weight` [out, in]; `fc_self.weight` [out, in] (with in_features_dst [out, in_dst]) and
/// `fc_self.bias` [out] (all but kGcn) or, before the others, `bias` [out] (kGcn; of every
/// aggregator, without fc_self.bias, in DGL before 1.0). The weights start Glorot uniform with gain
/// sqrt(2), fc_self.bias, fc_pool.bias and the LSTM by libtorch's default, `bias` at zero. kMean
/// and kGcn multiply before aggregating when out_features is the smaller. kLstm is a user-defined
/// reduction: it copies the rows to the edges, [E, in], keeps its states for the backward, and
/// takes, for every in-degree that there is, as many steps (on CUDA it synchronises).
class MEZZO_API SAGEConvImpl : public torch::nn::Cloneable<SAGEConvImpl> {
 public:
  /// Throws InvalidArgument unless both sizes are positive, the dropout is in [0, 1) and the
  /// aggregator one of SageAggregators, and for kGcn with two widths.
  explicit SAGEConvImpl(SAGEConvOptions options);
  /// Creates the parameters; called by the constructor and clone().
  void reset() override;
  /// Reinitializes the parameters.
  void reset_parameters();
  /// Writes the name, sizes and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// h: [num_src, in], strided or sparse CSR; the destinations are the first num_dst sources. Or a
  /// pair of [num_src, in] and [num_dst, in_dst], for any topology. edge_weight: undefined, or
  /// floating [E]; multiplies the messages (kPool: after the relu; means still divide by the number
  /// of edges). Returns [num_dst, out]. Throws InvalidArgument for other shapes. Dropout draws from
  /// libtorch's generator.
  at::Tensor forward(const Topology& topology, const NodeRows& h,
                     const at::Tensor& edge_weight = {});

  SAGEConvOptions options;
  torch::nn::Linear fc_self{nullptr}, fc_neigh{nullptr}, fc_pool{nullptr};
  torch::nn::LSTM lstm{nullptr};
  at::Tensor bias;  ///< of kGcn with options.bias, else undefined

 private:
  /// fc_neigh of the aggregated neighbours: [num_dst, out].
  at::Tensor neighbours(const Topology& topology, const NodeRows& h,
                        const std::optional<at::Tensor>& edge_weight) const;
};
using SAGEConv = InOutHolder<SAGEConvImpl>;

}  // namespace mezzo::nn
