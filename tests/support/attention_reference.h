#pragma once

#include <algorithm>

#include "mezzo/ops/ops.h"

#include "support/reference.h"
#include "support/tensors.h"

/// Reference for gat_attention in float64, with the magnitudes of its sums and of its gradients.
namespace mezzo::test::gat {

/// The operands of one attention. `weight`: undefined, [E] or [E, H]; `dropout` draws under kSeed.
struct Inputs {
  at::Tensor z, src, dst, weight;
  double slope = 0.2;
  double dropout = 0;
};

inline constexpr std::uint64_t kSeed = 7;

inline at::Tensor run(const Topology& g, const Inputs& in) {
  at::manual_seed(kSeed);
  return gat_attention(g, in.z, in.src, in.dst,
                       {.negative_slope = in.slope,
                        .dropout = in.dropout,
                        .training = true,
                        .edge_weight = in.weight});
}

inline std::vector<at::Tensor> operands(const Inputs& in) {
  std::vector<at::Tensor> all = {in.z, in.src, in.dst};
  if (in.weight.defined()) all.push_back(in.weight);
  return all;
}

inline Inputs float64_leaves(const Inputs& in) {
  const auto float64_leaf = [](const at::Tensor& t) {
    return t.defined() ? leaf(t.to(at::kDouble)) : at::Tensor();
  };
  return {float64_leaf(in.z),
          float64_leaf(in.src),
          float64_leaf(in.dst),
          float64_leaf(in.weight),
          in.slope,
          in.dropout};
}

/// Dropout's factor of each edge and head, from the operator for whole tensors.
inline at::Tensor dropout_factors(const Topology& g, const Inputs& in) {
  at::manual_seed(kSeed);
  return mezzo::feature_dropout(at::ones({g.num_edges(), in.z.size(1)}, on_device(at::kDouble)),
                                in.dropout, true);
}

/// Rows of a node tensor by edge, in float64.
inline at::Tensor by_edge(const Topology& g, const at::Tensor& t, Target target) {
  return t.to(at::kDouble).index_select(0, row_ids(g, target));
}

inline at::Tensor added_up(const Topology& g, const at::Tensor& messages, Target target) {
  std::vector<std::int64_t> shape = messages.sizes().vec();
  shape[0] = num_rows(g, target);
  return at::zeros(shape, on_device(at::kDouble)).index_add(0, row_ids(g, target), messages);
}

/// The softmax of each edge and head.
inline at::Tensor shares(const Topology& g, const Inputs& in) {
  const at::Tensor sum = by_edge(g, in.src, Target::kSrc) + by_edge(g, in.dst, Target::kDst);
  const at::Tensor power = at::where(sum > 0, sum, sum * in.slope).exp();
  return power / added_up(g, power, Target::kDst).index_select(0, row_ids(g, Target::kDst));
}

/// The factor of a softmax value: dropout times weight, [E, H].
inline at::Tensor factors(const Topology& g, const Inputs& in) {
  const at::Tensor drawn = dropout_factors(g, in);
  if (!in.weight.defined()) return drawn;
  const std::int64_t length = in.weight.dim() == 1 ? 1 : in.weight.size(1);
  return drawn * in.weight.to(at::kDouble).reshape({g.num_edges(), length});
}

/// The definition in float64 as a differentiable formula.
inline at::Tensor definition(const Topology& g, const Inputs& in) {
  const at::Tensor attention = shares(g, in) * factors(g, in);
  return added_up(g, attention.unsqueeze(-1) * by_edge(g, in.z, Target::kSrc), Target::kDst);
}

/// The magnitudes of the terms of the result and of each gradient.
struct Sizes {
  at::Tensor out;
  std::vector<at::Tensor> gradients;
};

inline Sizes sizes_of_terms(const Topology& g, const Inputs& in, const at::Tensor& grad) {
  const Inputs detached = {in.z.detach(),   in.src.detach(),
                           in.dst.detach(), in.weight.defined() ? in.weight.detach() : at::Tensor(),
                           in.slope,        in.dropout};
  const at::Tensor share = shares(g, detached), attention = share * factors(g, detached).abs();
  const at::Tensor z = by_edge(g, detached.z, Target::kSrc).abs();
  const at::Tensor upstream = by_edge(g, grad, Target::kDst).abs();
  Sizes all;
  all.out = added_up(g, attention.unsqueeze(-1) * z, Target::kDst);
  const at::Tensor product = (upstream * z).sum(-1);
  // The mean gradient of a row is the product of its gradient and its stored result. A result below
  // the smallest normal number is rounded like that number.
  const DTypeInfo& stored = info(in.z.scalar_type());
  const double smallest_normal = stored.smallest / stored.epsilon;
  const at::Tensor result = by_edge(g, all.out, Target::kDst) + smallest_normal;
  const at::Tensor mean = (upstream * result).sum(-1);
  const at::Tensor sum =
      (attention * product + share * mean) * std::max(1.0, std::abs(detached.slope));
  all.gradients = {added_up(g, attention.unsqueeze(-1) * upstream, Target::kSrc),
                   added_up(g, sum, Target::kSrc), added_up(g, sum, Target::kDst)};
  if (detached.weight.defined()) {
    const at::Tensor each = share * dropout_factors(g, detached) * product;
    const bool single = detached.weight.dim() == 1;
    all.gradients.push_back((single ? each.sum(1) : each).reshape(detached.weight.sizes()));
  }
  return all;
}

/// Rounding steps of the accumulator: over the edges of a node and the features of a head; the
/// rounding of a logit of at most `range` becomes a relative one of the exponential and of the sum
/// it is divided by.
inline double terms(const Topology& g, const Inputs& in) {
  const auto largest = [](const at::Tensor& t) {
    return t.numel() == 0 ? 0.0 : t.detach().to(at::kDouble).abs().max().item<double>();
  };
  const double range = 2 * std::max(1.0, std::abs(in.slope)) * (largest(in.src) + largest(in.dst));
  return 2 * internal::max_degree(g) + static_cast<double>(in.z.size(2)) + 2 * range + 24;
}

}  // namespace mezzo::test::gat
