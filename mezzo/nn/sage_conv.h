#pragma once

#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "mezzo/core/export.h"
#include "mezzo/core/type_list.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/graph_conv.h"

namespace mezzo::nn {

/// What SAGEConv makes of the neighbours' rows h_u. A node without in-edges has the value 0 under
/// kMean and kPool.
enum class Aggregator : std::uint8_t {
  kMean,  ///< their mean
  kGcn,   ///< the mean of them and of the node itself: (sum of h_u + h_v) / (in-degree + 1)
  kPool,  ///< the maximum of relu(fc_pool(h_u)), per feature
};

struct MeanAggregator {
  static constexpr Aggregator kind = Aggregator::kMean;
  static constexpr std::string_view name = "mean";
};
struct GcnAggregator {
  static constexpr Aggregator kind = Aggregator::kGcn;
  static constexpr std::string_view name = "gcn";
};
struct PoolAggregator {
  static constexpr Aggregator kind = Aggregator::kPool;
  static constexpr std::string_view name = "pool";
};
/// Every aggregator, with the word that the command line takes.
using Aggregators = TypeList<MeanAggregator, GcnAggregator, PoolAggregator>;

struct SAGEConvOptions {
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  Aggregator aggregator = Aggregator::kMean;
  double feature_dropout = 0;  ///< of the input, in [0, 1); while training
  bool bias = true;
  Activation activation = {};
};

/// GraphSAGE layer (Hamilton et al., NeurIPS'17): fc_self(h_v) + fc_neigh(aggregate of h_u) + bias;
/// kGcn has no fc_self. With DGL's parameters: `fc_self.weight`, `fc_neigh.weight` [out, in],
/// `fc_pool.weight` [in, in] and `fc_pool.bias` [in] (kPool), all Glorot uniform with gain sqrt(2)
/// but for fc_pool.bias (libtorch's default); `bias` [out] (zeros). kMean and kGcn multiply before
/// aggregating when out_features is the smaller.
class MEZZO_API SAGEConvImpl : public torch::nn::Module {
 public:
  /// Throws InvalidArgument unless both sizes are positive and the dropout is in [0, 1).
  explicit SAGEConvImpl(SAGEConvOptions options);
  void reset_parameters();
  /// topology: its destinations are the first num_dst sources. h: [num_src, in], strided or sparse
  /// CSR. Returns [num_dst, out]. Throws InvalidArgument for other shapes. Dropout draws from
  /// libtorch's generator.
  at::Tensor forward(const Topology& topology, const at::Tensor& h);

  SAGEConvOptions options;
  torch::nn::Linear fc_self{nullptr}, fc_neigh{nullptr}, fc_pool{nullptr};
  at::Tensor bias;

 private:
  /// fc_neigh of what the aggregator makes of the neighbours: [num_dst, out].
  at::Tensor neighbours(const Topology& topology, const at::Tensor& h) const;
};
TORCH_MODULE(SAGEConv);

}  // namespace mezzo::nn
