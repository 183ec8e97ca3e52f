#pragma once

#include <cstdint>
#include <iosfwd>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>

#include "mezzo/core/export.h"
#include "mezzo/core/task.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/layer.h"
#include "mezzo/nn/model/mlp.h"
#include "mezzo/ops/ops.h"

namespace mezzo::nn {

/// How the rows of a graph's nodes become one row.
using Readouts = TypeList<kernels::Sum, kernels::Mean, kernels::Max>;

/// The edges or graphs that a Head computes outputs for, on the device of the rows of nodes.
struct MEZZO_API HeadTargets {
  Topology edges;            ///< kEdge: between the rows of nodes
  at::Tensor edge_features;  ///< kEdge: floating [E, edge_features], undefined without
  at::Tensor graph_sizes;    ///< kGraph: int64 [G], how many rows of nodes each graph has

  HeadTargets to(at::Device device) const;
  /// Some of the edges: int64 [n]. Copies.
  HeadTargets edges_at(const at::Tensor& edges) const;
};

/// Options of Head.
struct HeadOptions {
  std::int64_t in_features = 0;
  std::int64_t hidden_features = 16;
  std::int64_t out_features = 0;
  TaskTarget target = TaskTarget::kGraph;  ///< kEdge or kGraph
  std::int64_t edge_features = 0;          ///< kEdge; 0: none
  ReduceOp readout = ReduceOp::kMean;      ///< kGraph; one of Readouts
  double dropout = 0.5;                    ///< on the input of each product, in [0, 1)
};

/// Outputs of edges or graphs from the rows of nodes h:
///
///     edge (u, v):   W2 relu(Ws h_u + Wd h_v + We e + b1) + b2
///     graph:         W2 relu(W1 readout(h) + b1) + b2
///
/// Without a tensor of concatenated rows: nodes are multiplied before edges read them. Parameters
/// `src.weight`, `dst.weight`, `dst.bias` and `edge.weight`, or `hidden.weight` and `hidden.bias`;
/// `out.weight`, `out.bias`. The same bits for any number of threads, except as linear().
class MEZZO_API HeadImpl : public torch::nn::Cloneable<HeadImpl> {
 public:
  /// Throws InvalidArgument unless the sizes are positive, the dropout is in [0, 1), the target is
  /// not kNode and the readout is one of Readouts.
  explicit HeadImpl(HeadOptions options);
  /// Creates the parameters; called by the constructor and clone().
  void reset() override;
  /// Writes the sizes and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// h: floating [N, in]. Returns [E, out] or [G, out]. Throws InvalidArgument for other shapes and
  /// for targets that do not fit h.
  at::Tensor forward(const at::Tensor& h, const HeadTargets& targets);

  HeadOptions options;

 private:
  at::Tensor hidden_of_edges(const at::Tensor& h, const HeadTargets& targets);
  at::Tensor hidden_of_graphs(const at::Tensor& h, const HeadTargets& targets);

  torch::nn::Linear src_{nullptr}, dst_{nullptr}, edge_{nullptr}, hidden_{nullptr}, out_{nullptr};
};
using Head = InOutHolder<HeadImpl>;

}  // namespace mezzo::nn
