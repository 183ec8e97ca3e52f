#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/layer_holder.h"

namespace mezzo::nn {

/// An elementwise function applied to a layer's output; empty: none. A function, not a submodule:
/// a module inside has its parameters listed, moved and saved by its owner alone.
using Activation = std::function<at::Tensor(const at::Tensor&)>;

/// By which degrees GraphConv divides: kBoth 1/sqrt(d_out(u) d_in(v)), kRight 1/d_in(v), kLeft
/// 1/d_out(u), kNone 1. Degrees count as at least 1.
///
/// In a sample that remembers its parent's degrees (Topology::with_parent_degrees) they are those
/// of the parent, and except under kNone the sum over the k_v edges drawn of v's d_v stands for the
/// sum over all: it is multiplied by d_v / k_v, which makes kRight the mean of what was drawn.
/// Where each edge of v is as likely to be drawn as any other, that is an unbiased estimate of the
/// whole graph's result, given that k_v > 0, and with every edge drawn it is that result; a v whose
/// draw is empty gets 0. Of draws of random size (LABOR) it is a ratio estimate, the mean of what
/// was drawn for the mean of all, unbiased given k_v alone. kNone sums what was drawn.
enum class DegreeNorm : std::uint8_t { kBoth, kRight, kLeft, kNone };

/// Options of GraphConv.
struct GraphConvOptions {
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  DegreeNorm norm = DegreeNorm::kBoth;
  bool weight = true;  ///< a parameter; otherwise forward is given one, or there is none
  bool bias = true;
  Activation activation = {};
  bool allow_zero_in_degree = false;  ///< otherwise such nodes are an error
};

/// Graph convolution (Kipf & Welling, ICLR'17), with DGL's parameters: `weight` [in, out] (Glorot
/// uniform), `bias` [out] (zeros); without options.weight `bias` alone. Multiplies before
/// aggregating when out_features is the smaller.
class MEZZO_API GraphConvImpl : public torch::nn::Cloneable<GraphConvImpl> {
 public:
  /// Throws InvalidArgument unless both sizes are positive.
  explicit GraphConvImpl(GraphConvOptions options);
  /// Creates the parameters; called by the constructor and clone().
  void reset() override;
  /// Reinitializes the parameters.
  void reset_parameters();
  /// Writes the name, sizes and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// h: [num_src, in], strided or sparse CSR (of DGL's pairs the sources' rows, which are all it
  /// reads); edge_weight: floating [E], multiplies the messages,
  /// or undefined. In a sample that remembers its parent's degrees they must be, except under
  /// kNone, factors for the mean over the edges here: the norm multiplies that by d_v. Such are the
  /// weights of the graph's edges where all edges of v are as likely to be drawn, and those of a
  /// BlockLoader with layer_sizes. Weights for sums, as LABOR's 1 / probability, would make up for
  /// the draw twice. external_weight: floating [in, out], without options.weight in
  /// place of the parameter (DGL's argument `weight`); if undefined there the rows are not
  /// multiplied, and in and out are one width. Returns [num_dst, out]. Throws InvalidArgument for
  /// other shapes, dtypes and devices, and for destinations without in-edges (in a sample that
  /// remembers its parent's degrees: in the parent) unless they are allowed.
  at::Tensor forward(const Topology& topology, const at::Tensor& h,
                     const at::Tensor& edge_weight = {}, const at::Tensor& external_weight = {});

  GraphConvOptions options;
  at::Tensor weight, bias;  ///< undefined where the options say so

 private:
  /// The parameter or what was given, checked; undefined if there is none.
  at::Tensor weight_or(const at::Tensor& external_weight, at::Device device) const;
};
using GraphConv = InOutHolder<GraphConvImpl>;

}  // namespace mezzo::nn
