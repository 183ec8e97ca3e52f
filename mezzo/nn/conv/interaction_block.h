#pragma once

#include <cstdint>
#include <iosfwd>
#include <utility>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/sequential.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/layer.h"

namespace mezzo::nn {

/// Options of InteractionBlock.
struct InteractionBlockOptions {
  std::int64_t node_features = 0;
  std::int64_t edge_features = 0;
  std::int64_t hidden_features = 0;  ///< of both MLPs; 0: node_features
  std::int64_t hidden_layers = 1;    ///< of each MLP; MeshGraphNet's paper has 2
};

/// A block of an interaction network (Battaglia et al., NIPS'16) as in MeshGraphNet (Pfaff et al.,
/// ICLR'21) and ACTS: e' = e + edge_mlp(h_u, h_v, e) for each edge e from u to v, then h_v' = h_v +
/// node_mlp(h_v, sum of e' over the edges into v). `edge_mlp` and `node_mlp` are Sequential(Linear,
/// ReLU, ..., Linear, LayerNorm), initialised as in libtorch; the first weights, [hidden, 2 node +
/// edge] and [hidden, node + edge], have their columns in that order.
///
/// The first products are split: one for each node and end, one for each edge. On the CPU edges
/// are computed in blocks that stay in the cache, and the backward computes them again. Beside its
/// results and gradients a block allocates no tensor of E rows, and it keeps only its inputs for
/// the backward. In a region of mixed precision rows are 16-bit, rounded after each product; sums
/// over edges, layer normalization and residuals are float32. The edges' part has the same bits
/// for any number of threads.
class MEZZO_API InteractionBlockImpl : public torch::nn::Cloneable<InteractionBlockImpl> {
 public:
  /// Throws InvalidArgument unless the sizes are positive and hidden_layers is at least 1.
  explicit InteractionBlockImpl(InteractionBlockOptions options);
  /// Creates the parameters; called by the constructor and clone().
  void reset() override;
  /// Writes the name and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// topology: of one set of nodes. h: [N, node_features], e: [E, edge_features], strided, of the
  /// parameters' dtype except in a region of mixed precision. Returns h' and e' of the same shapes.
  /// Throws InvalidArgument for other arguments.
  std::pair<at::Tensor, at::Tensor> forward(const Topology& topology, const at::Tensor& h,
                                            const at::Tensor& e);

  InteractionBlockOptions options;
  torch::nn::Sequential edge_mlp{nullptr}, node_mlp{nullptr};
};
using InteractionBlock = LayerHolder<InteractionBlockImpl, &InteractionBlockOptions::node_features,
                                     &InteractionBlockOptions::edge_features>;

}  // namespace mezzo::nn
