#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/rnn.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/layer.h"

namespace mezzo::nn {

/// Options of GatedGraphConv.
struct GatedGraphConvOptions {
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;  ///< at least in_features; the input is padded with zeros
  std::int64_t num_steps = 1;
  std::int64_t num_edge_types = 1;
  bool bias = true;  ///< of `gru`; `linears` always have theirs
};

/// Gated graph convolution (Li et al., ICLR'16), with DGL's semantics and parameters: from the
/// padded input, num_steps times a_v = sum over the edges e = (u, v) of linears[type of e](h_u),
/// h_v = GRU(a_v, h_v). Linear layers `linears.0`, ... (Glorot normal for ReLU, bias zeros), [out,
/// out], and a cell `gru` as libtorch initialises it.
///
/// A step takes, for each type that some edge has, one product per node and one fused sum over the
/// edges of that type; the sums of the types are added up in the storage type. No [E, F] tensor.
/// The topologies of the types are cached for the next call with the same graph and types; calls
/// from several threads at once are not safe.
class MEZZO_API GatedGraphConvImpl : public torch::nn::Cloneable<GatedGraphConvImpl> {
 public:
  /// Throws InvalidArgument unless sizes and counts are positive and in_features <= out_features.
  explicit GatedGraphConvImpl(GatedGraphConvOptions options);
  /// Creates the parameters; called by the constructor and clone().
  void reset() override;
  /// Reinitializes the parameters.
  void reset_parameters();
  /// Writes the name, sizes and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// topology: of one set of nodes. h: [N, in], strided or sparse CSR. edge_types: integer [E] in
  /// [0, num_edge_types), on the graph's device; may be undefined if num_edge_types is 1. Returns
  /// [N, out]. Throws InvalidArgument for other arguments. With edge_types, synchronises on CUDA.
  at::Tensor forward(const Topology& topology, const at::Tensor& h,
                     const at::Tensor& edge_types = {});

  GatedGraphConvOptions options;
  torch::nn::GRUCell gru{nullptr};
  torch::nn::ModuleList linears;  ///< of torch::nn::Linear

 private:
  /// The edges of one type, over the nodes of the whole graph.
  struct EdgesOfType {
    std::size_t type;
    Topology topology;
  };
  /// Updates split_ if the topology or types changed.
  void split(const Topology& topology, const at::Tensor& edge_types);
  /// The sum of the messages of split_: [N, out].
  at::Tensor received(const at::Tensor& h) const;

  std::vector<EdgesOfType> split_;  // types without edges left out
  Topology split_topology_;         // the topology of split_; unused with one type
  at::Tensor split_types_;          // a copy, because the caller may change the tensor
};
using GatedGraphConv = InOutHolder<GatedGraphConvImpl>;

}  // namespace mezzo::nn
