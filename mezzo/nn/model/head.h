#pragma once

#include <cstdint>
#include <iosfwd>
#include <string_view>

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

/// How a Head scores a pair of nodes (u, v) with an edge type t, which has a row w_t of weights:
///
///     kMlp:        as an edge, whatever its type
///     kDot:        sum of h_u h_v, whatever its type
///     kDistMult:   sum of h_u w_t h_v
///     kComplEx:    the real part of the sum of h_u w_t conj(h_v); the first half of the columns
///                  are real parts, the second half imaginary ones
enum class Decoder : std::uint8_t { kMlp, kDot, kDistMult, kComplEx };

struct MlpDecoder {
  static constexpr Decoder kind = Decoder::kMlp;
  static constexpr std::string_view name = "mlp";
};
struct DotDecoder {
  static constexpr Decoder kind = Decoder::kDot;
  static constexpr std::string_view name = "dot";
};
struct DistMultDecoder {
  static constexpr Decoder kind = Decoder::kDistMult;
  static constexpr std::string_view name = "distmult";
};
struct ComplExDecoder {
  static constexpr Decoder kind = Decoder::kComplEx;
  static constexpr std::string_view name = "complex";
};
using Decoders = TypeList<MlpDecoder, DotDecoder, DistMultDecoder, ComplExDecoder>;

/// Whether the decoder has weights for each edge type.
constexpr bool has_edge_types(Decoder decoder) {
  return decoder == Decoder::kDistMult || decoder == Decoder::kComplEx;
}

/// The edges or graphs that a Head computes outputs for, on the device of the rows of nodes.
struct MEZZO_API HeadTargets {
  Topology edges;              ///< kEdge, kLink: between the rows of nodes
  at::Tensor edge_features;    ///< kEdge: floating [E, edge_features], undefined without
  at::Tensor graph_sizes;      ///< kGraph: int64 [G], how many rows of nodes each graph has
  at::Tensor edge_types = {};  ///< kLink: int64 [E] in [0, edge_types); undefined: all are 0
  /// kEdge, for a GraphModule: int64 [E], which edges of the input's structure these are;
  /// undefined: all, in its order.
  at::Tensor edge_ids = {};

  /// How many there are.
  std::int64_t size() const {
    return graph_sizes.defined() ? graph_sizes.numel() : edges.num_edges();
  }

  HeadTargets to(at::Device device) const;
  /// Some of the edges: int64 [n]. Copies.
  HeadTargets edges_at(const at::Tensor& edges) const;
};

/// Options of Head.
struct HeadOptions {
  std::int64_t in_features = 0;
  std::int64_t hidden_features = 16;
  std::int64_t out_features = 0;
  TaskTarget target = TaskTarget::kGraph;  ///< kEdge, kGraph or kLink
  std::int64_t edge_features = 0;          ///< kEdge; 0: none
  ReduceOp readout = ReduceOp::kMean;      ///< kGraph; one of Readouts
  Decoder decoder = Decoder::kMlp;         ///< kLink
  std::int64_t edge_types = 1;             ///< kLink, if the decoder has_edge_types()
  double dropout = 0.5;                    ///< on the input of each product, in [0, 1)
};

/// Outputs of edges or graphs from the rows of nodes h:
///
///     edge (u, v):   W2 relu(Ws h_u + Wd h_v + We e + b1) + b2
///     graph:         W2 relu(W1 readout(h) + b1) + b2
///
/// and of links as Decoder says. Without a tensor of concatenated rows: nodes are multiplied before
/// edges read them; with edge types one [E, in]. Parameters `src.weight`, `dst.weight`, `dst.bias`
/// and `edge.weight`, or `hidden.weight` and `hidden.bias`; `out.weight`, `out.bias`; or only
/// `types`, [edge_types, in]. Other decoders than kMlp have no dropout. The same bits for any
/// number of threads, except as linear().
class MEZZO_API HeadImpl : public torch::nn::Cloneable<HeadImpl> {
 public:
  /// Throws InvalidArgument unless the sizes are positive, the dropout is in [0, 1), the target is
  /// not kNode, the readout is one of Readouts, and, with another decoder than kMlp, the target is
  /// kLink, out_features 1, and in_features even for kComplEx.
  explicit HeadImpl(HeadOptions options);
  /// Creates the parameters; called by the constructor and clone().
  void reset() override;
  /// Writes the sizes and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// h: floating [N, in]. Returns [E, out] or [G, out]. Throws InvalidArgument for other shapes and
  /// for targets that do not fit h.
  at::Tensor forward(const at::Tensor& h, const HeadTargets& targets);
  /// What forward() computes of the nodes alone, for kEdge and kLink: rows of sources and of
  /// destinations, [N, hidden] with kMlp, else [N, in]. Throws as forward().
  NodeRows rows_for_edges(const at::Tensor& h);
  /// forward() from rows_for_edges(), which serve many calls.
  at::Tensor forward_edges(const NodeRows& rows, const HeadTargets& targets);
  /// Rows [E, in] whose dot product with the row of any node is the score of the edge with this
  /// node as its `answer`, kSrc or kDst. Throws as forward(), and for kMlp.
  at::Tensor queries(const at::Tensor& h, const HeadTargets& targets, Target answer);

  HeadOptions options;

 private:
  /// Whether one row of weights serves all links.
  bool has_one_type() const { return options.edge_types == 1; }
  void check_edges(std::int64_t num_nodes, const HeadTargets& targets) const;
  /// Of each end the row times the weights of its link's type, [E, in].
  at::Tensor times_types(const at::Tensor& h, const at::Tensor& ends, const at::Tensor& edge_types,
                         int turn) const;
  at::Tensor hidden_of_edges(const NodeRows& rows, const HeadTargets& targets);
  at::Tensor hidden_of_graphs(const at::Tensor& h, const HeadTargets& targets);
  /// relu, which changes `sum`, dropout and the output layer.
  at::Tensor finish(at::Tensor sum);

  at::Tensor types_;
  torch::nn::Linear src_{nullptr}, dst_{nullptr}, edge_{nullptr}, hidden_{nullptr}, out_{nullptr};
};
using Head = InOutHolder<HeadImpl>;

}  // namespace mezzo::nn
