#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tests/definitions/array.h"

namespace mezzo::definition {

/// The operands of gat_attention.
struct Attention {
  const Edges& edges;
  Array z;             ///< [num_src, heads, F]
  Array src, dst;      ///< scores [nodes, heads]
  Array weight = {};   ///< [E], [E, 1] or [E, heads]; absent: 1
  Array dropout = {};  ///< factors [E, heads]; absent: 1
  double slope = 0.2;
  std::int64_t heads = z.sizes[1], features = z.sizes[2];

  /// The index of edge e's, its source's or its destination's number of a head.
  std::int64_t at(Target target, std::int64_t e, std::int64_t head) const {
    return edges.row(target, e) * heads + head;
  }
  std::int64_t weight_at(std::int64_t e, std::int64_t head) const {
    const std::int64_t own = weight.row_length();
    return edges.row(Target::kEdge, e) * own + (own == 1 ? 0 : head);
  }
  double sum(std::int64_t e, std::int64_t head) const {
    return src[at(Target::kSrc, e, head)] + dst[at(Target::kDst, e, head)];
  }
  double logit(std::int64_t e, std::int64_t head) const {
    return sum(e, head) > 0 ? sum(e, head) : slope * sum(e, head);
  }
  double dropped(std::int64_t e, std::int64_t head) const {
    return dropout.is_present() ? dropout[at(Target::kEdge, e, head)] : 1;
  }
  /// What multiplies a share.
  double factor(std::int64_t e, std::int64_t head) const {
    return dropped(e, head) * (weight.is_present() ? weight[weight_at(e, head)] : 1);
  }
  /// Rounding steps of the accumulator: over the edges of a node and the features of a head; the
  /// rounding of a logit becomes a relative one of the exponential and of the sum it is divided by.
  double terms() const {
    double range = 0;
    for (const Array* scores : {&src, &dst}) {
      double largest = 0;
      for (const double one : scores->values) largest = std::max(largest, std::abs(one));
      range += 2 * std::max(1.0, std::abs(slope)) * largest;
    }
    return 2 * edges.max_degree() + static_cast<double>(features) + 2 * range + 24;
  }
  template <class Visit>
  void for_each(Visit visit) const {
    for (std::int64_t e = 0; e < edges.count(); ++e) {
      for (std::int64_t head = 0; head < heads; ++head) visit(e, head);
    }
  }
};

/// The result, and the largest logit and the sum of the exponentials of each row and head.
struct AttentionResult {
  Sums out;
  Array largest;
  Sums sum;
};

inline AttentionResult gat_attention(const Attention& in) {
  const Sizes rows = {in.edges.num_dst, in.heads};
  AttentionResult all{Sums({in.edges.num_dst, in.heads, in.features}),
                      filled(rows, -std::numeric_limits<double>::infinity()), Sums(rows)};
  in.for_each([&](std::int64_t e, std::int64_t head) {
    double& largest = all.largest[in.at(Target::kDst, e, head)];
    largest = std::max(largest, in.logit(e, head));
  });
  const auto power = [&](std::int64_t e, std::int64_t head) {
    return std::exp(in.logit(e, head) - all.largest[in.at(Target::kDst, e, head)]);
  };
  in.for_each([&](std::int64_t e, std::int64_t head) {
    all.sum.add(in.at(Target::kDst, e, head), power(e, head));
  });
  in.for_each([&](std::int64_t e, std::int64_t head) {
    const std::int64_t to = in.at(Target::kDst, e, head), from = in.at(Target::kSrc, e, head);
    const double share = power(e, head) / all.sum.value[to];
    for (std::int64_t f = 0; f < in.features; ++f) {
      all.out.add(to * in.features + f, share * in.factor(e, head) * in.z[from * in.features + f]);
    }
  });
  all.out.terms = in.terms();
  return all;
}

/// What the gradient reads of each row and head: how its shares come from the logits, and the
/// product of the result and its gradient, the mean gradient of the shares.
struct AttentionState {
  Array largest, sum, mean, mean_size;
};

/// smallest_normal: of the stored result; below it, it is rounded as if it were that large.
inline AttentionState attention_state(const Attention& in, const AttentionResult& result,
                                      const Array& grad, double smallest_normal = 0) {
  AttentionState state{result.largest, result.sum.value, filled(result.largest.sizes, 0),
                       filled(result.largest.sizes, 0)};
  for (std::int64_t i = 0; i < product(grad.sizes); ++i) {
    state.mean[i / in.features] += result.out.value[i] * grad[i];
    state.mean_size[i / in.features] += (result.out.size[i] + smallest_normal) * std::abs(grad[i]);
  }
  return state;
}

/// Of the operands, and of the sum of the two scores of each edge.
struct AttentionGradients {
  Sums z, src, dst, weight, sum;
};

/// grad: of the result.
inline AttentionGradients gat_attention_gradients(const Attention& in, const AttentionState& state,
                                                  const Array& grad) {
  AttentionGradients all{Sums(in.z.sizes), Sums(in.src.sizes), Sums(in.dst.sizes),
                         Sums(in.weight.sizes), Sums({in.edges.count(), in.heads})};
  in.for_each([&](std::int64_t e, std::int64_t head) {
    const std::int64_t to = in.at(Target::kDst, e, head), from = in.at(Target::kSrc, e, head);
    const double share = std::exp(in.logit(e, head) - state.largest[to]) / state.sum[to];
    const double factor = in.factor(e, head);
    Term dot{0, 0};
    for (std::int64_t f = 0; f < in.features; ++f) {
      const double up = grad[to * in.features + f], z = in.z[from * in.features + f];
      all.z.add(from * in.features + f, share * factor * up);
      dot.value += up * z;
      dot.size += std::abs(up * z);
    }
    const double slope = in.sum(e, head) > 0 ? 1 : in.slope;
    const double sum = slope * share * (factor * dot.value - state.mean[to]);
    const double size = share * (std::abs(factor) * dot.size + state.mean_size[to]) *
                        std::max(1.0, std::abs(in.slope));
    all.src.add(from, sum, size);
    all.dst.add(to, sum, size);
    all.sum.add(in.at(Target::kEdge, e, head), sum, size);
    if (!in.weight.is_present()) return;
    all.weight.add(in.weight_at(e, head), share * in.dropped(e, head) * dot.value,
                   share * in.dropped(e, head) * dot.size);
  });
  for (Sums* one : {&all.z, &all.src, &all.dst, &all.weight, &all.sum}) one->terms = in.terms();
  return all;
}

}  // namespace mezzo::definition
