#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/layer.h"

namespace mezzo::nn {

/// How PNAConv reduces the messages of a node, per feature; a node without in-edges gets 0. kStd is
/// sqrt(variance + 1e-30), a moment of order n the n-th root of the mean of (m - mean)^n, with
/// sign.
enum class PnaAggregator : std::uint8_t {
  kMean,
  kSum,
  kMax,
  kMin,
  kStd,
  kVar,
  kMoment3,
  kMoment4,
  kMoment5
};
/// Their names, which are DGL's.
inline constexpr std::array<std::string_view, 9> kPnaAggregatorNames = {
    "mean", "sum", "max", "min", "std", "var", "moment3", "moment4", "moment5"};

/// The factor of what PNAConv reduced at a node of d in-edges: 1, log(d + 1) / delta, or delta /
/// log(d + 1).
enum class PnaScaler : std::uint8_t { kIdentity, kAmplification, kAttenuation };
/// Their names, which are DGL's.
inline constexpr std::array<std::string_view, 3> kPnaScalerNames = {"identity", "amplification",
                                                                    "attenuation"};

/// Options of PNAConv.
struct PNAConvOptions {
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  std::vector<PnaAggregator> aggregators = {};
  std::vector<PnaScaler> scalers = {};
  double delta = 0;                ///< the mean of log(d + 1) over the nodes of the training set
  double dropout = 0;              ///< after the batch normalization, in [0, 1); while training
  std::int64_t num_towers = 1;     ///< divides both sizes
  std::int64_t edge_features = 0;  ///< their width, or 0
  bool residual = true;            ///< add the node's own row, if both sizes are equal
};

/// The parameters of one of PNAConv's towers.
struct MEZZO_API PNATowerImpl : torch::nn::Cloneable<PNATowerImpl> {
  /// M: from `message_width` to `in`; U: from `update_width` to `out`.
  PNATowerImpl(std::int64_t in, std::int64_t message_width, std::int64_t update_width,
               std::int64_t out);
  /// Creates the parameters; called by the constructor and clone().
  void reset() override;

  std::int64_t in, message_width, update_width, out;
  torch::nn::Linear M{nullptr}, U{nullptr};
  std::function<at::Tensor(const at::Tensor&)> normalize;  ///< `batchnorm`
};

/// Principal neighbourhood aggregation (Corso et al., NeurIPS'20). Each tower takes its share of
/// the columns of h: messages M([h_u, h_v, e]), every aggregator of them times every scaler, U of
/// h_v and all of these, divided by the root of the number of nodes in the graph, batch
/// normalization, dropout. Then a linear layer and leaky ReLU of all towers, and the residual. With
/// DGL's parameters: of tower i `towers.i.M` [in / towers, 2 in / towers + edge], `towers.i.U` [out
/// / towers, (aggregators * scalers + 1) in / towers] and `towers.i.batchnorm`; `mixing_layer.0`
/// [out, out]; weights and biases as libtorch starts them.
///
/// M is linear, so without edge features the layer reduces rows of nodes: no tensor of the edges
/// exists but for moments, which make three of [E, in]; with edge features the messages, [E, in],
/// and their squares for kStd and kVar. Scalers multiply the products of U, [N, scalers * out],
/// not its input. kStd, kVar and moments are float32 (float64), also in a 16-bit region. They do
/// not depend on M's part of h_v, which all messages of v share. If there is no other aggregator,
/// the bias of M gets no gradient; in DGL it gets one near 0.
class MEZZO_API PNAConvImpl : public torch::nn::Cloneable<PNAConvImpl> {
 public:
  /// Throws InvalidArgument unless the sizes, num_towers, which divides them, and delta are
  /// positive, edge_features is at least 0, dropout in [0, 1), and both lists have an entry.
  explicit PNAConvImpl(PNAConvOptions options);
  /// Creates the parameters; called by the constructor and clone().
  void reset() override;
  /// Writes the name, sizes and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// topology: of one set of nodes. h: [N, in], strided, or sparse CSR, which is copied to a dense
  /// tensor. edge_features: [E, edge], or undefined if options.edge_features is 0. batch_num_nodes:
  /// int64 [number of graphs] on the CPU, of a batch (Graph::batch_num_nodes()); undefined: one
  /// graph. Returns [N, out]. Throws InvalidArgument for other shapes, and for fewer than 2 nodes
  /// while training.
  at::Tensor forward(const Topology& topology, const at::Tensor& h,
                     const at::Tensor& edge_features = {}, const at::Tensor& batch_num_nodes = {});

  PNAConvOptions options;
  torch::nn::ModuleList towers{nullptr};
  torch::nn::Sequential mixing_layer{nullptr};

 private:
  /// Of all towers side by side, in the order of the options: [N, in] each.
  std::vector<at::Tensor> aggregates(const Topology& topology, const at::Tensor& h,
                                     const at::Tensor& edge_features) const;
  /// [N, number of scalers]
  at::Tensor scales(const Topology& topology, at::ScalarType dtype) const;
};
using PNAConv = InOutHolder<PNAConvImpl>;

}  // namespace mezzo::nn
