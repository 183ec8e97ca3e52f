#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/pimpl.h>

#include "mezzo/core/export.h"
#include "mezzo/core/type_list.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/layer.h"

/// Layers that reduce the rows of the in-neighbours and transform the result.
namespace mezzo::nn {

/// How a layer combines the rows h_u of the in-neighbours of a node. A node without in-edges gets 0
/// under all but kGcn. Each layer rejects the aggregators that it does not support.
enum class Aggregator : std::uint8_t {
  kMean,  ///< their mean
  kGcn,   ///< the mean of them and of the node itself: (sum of h_u + h_v) / (in-degree + 1)
  kPool,  ///< the maximum of relu(fc_pool(h_u)), per feature
  kSum,   ///< their sum
  kMax,   ///< their maximum, per feature
  kLstm,  ///< the last state of an LSTM that reads them in the order of their edges
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
struct SumAggregator {
  static constexpr Aggregator kind = Aggregator::kSum;
  static constexpr std::string_view name = "sum";
};
struct MaxAggregator {
  static constexpr Aggregator kind = Aggregator::kMax;
  static constexpr std::string_view name = "max";
};
struct LstmAggregator {
  static constexpr Aggregator kind = Aggregator::kLstm;
  static constexpr std::string_view name = "lstm";
};

/// Every aggregator, with its name.
using Aggregators = TypeList<MeanAggregator, GcnAggregator, PoolAggregator, SumAggregator,
                             MaxAggregator, LstmAggregator>;
/// Those of SAGEConv.
using SageAggregators = TypeList<MeanAggregator, GcnAggregator, PoolAggregator, LstmAggregator>;
/// Those of GINConv.
using GinAggregators = TypeList<SumAggregator, MeanAggregator, MaxAggregator>;

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
/// and `fc_pool.bias` [in] (kPool) or the parameters of `lstm`, input and state [in] (kLstm);
/// `fc_neigh.weight` [out, in]; `fc_self.weight` [out, in] (with in_features_dst [out, in_dst]) and
/// `fc_self.bias` [out] (all but kGcn) or, before the others, `bias` [out] (kGcn; of every
/// aggregator, without fc_self.bias, in DGL before 1.0). The weights start Glorot uniform with gain
/// sqrt(2), fc_self.bias, fc_pool.bias and the LSTM by libtorch's default, `bias` at zero. kMean
/// and kGcn multiply before aggregating when out_features is the smaller. kLstm is a user-defined
/// reduction: it copies the rows to the edges, [E, in], keeps its states for the backward, and
/// runs d steps for each in-degree d that occurs (on CUDA it synchronises).
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

/// Options of GINConv.
struct GINConvOptions {
  Aggregator aggregator = Aggregator::kSum;  ///< one of GinAggregators
  double initial_eps = 0;
  bool learn_eps = false;  ///< eps is a parameter, otherwise a buffer
  Activation activation = {};
};

/// Graph isomorphism network layer (Xu et al., ICLR'19): apply_func((1 + eps) h_v + aggregate of
/// h_u). With DGL's parameters: `eps` [1] and the parameters of `apply_func`.
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

/// Options of GINEConv.
struct GINEConvOptions {
  double initial_eps = 0;
  bool learn_eps = false;  ///< eps is a parameter, otherwise a buffer
};

/// GINConv with edge features (Hu et al., ICLR'20): apply_func((1 + eps) h_v + sum of relu(h_u +
/// e)). With DGL's parameters: `eps` [1] and the parameters of `apply_func`. One fused kernel: no
/// tensor of the edges besides edge_features and their gradient.
class MEZZO_API GINEConvImpl : public torch::nn::Cloneable<GINEConvImpl> {
 public:
  /// apply_func: a module from a tensor to a tensor, such as torch::nn::Sequential, or empty.
  /// Throws InvalidArgument unless initial_eps is finite.
  explicit GINEConvImpl(GINEConvOptions options, TensorModule apply_func = {});
  /// Creates eps, and for clone() a copy of apply_func.
  void reset() override;
  /// Sets eps to initial_eps; does not change apply_func.
  void reset_parameters();
  /// Writes the name, sizes and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// h: as GINConv's, of at least one dimension. edge_features: [E, ...] with the trailing sizes
  /// and the dtype of h, or float32 beside 16-bit h; a region does not cast them. Returns
  /// apply_func of [num_dst, ...]. Throws InvalidArgument for other shapes.
  at::Tensor forward(const Topology& topology, const NodeRows& h, const at::Tensor& edge_features);

  GINEConvOptions options;
  at::Tensor eps;
  TensorModule apply_func;
};

/// The holder of GINConv and GINEConv. Can be constructed from braces: `GINConv({.learn_eps =
/// true}, apply_func)`.
template <class Impl>
class IsomorphismHolder : public torch::nn::ModuleHolder<Impl> {
 public:
  using torch::nn::ModuleHolder<Impl>::ModuleHolder;
  explicit IsomorphismHolder(decltype(Impl::options) options, TensorModule apply_func = {})
      : torch::nn::ModuleHolder<Impl>(
            std::make_shared<Impl>(std::move(options), std::move(apply_func))) {}
};
using GINConv = IsomorphismHolder<GINConvImpl>;
using GINEConv = IsomorphismHolder<GINEConvImpl>;

}  // namespace mezzo::nn
