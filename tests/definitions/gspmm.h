#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "mezzo/kernels/reduce_op.h"

#include "tests/definitions/gsddmm.h"

namespace mezzo::definition {

/// A reduction of the messages of each destination.
struct Reduced {
  Sums out;
  std::vector<std::int64_t> winners;  ///< max and min: the id of the chosen edge, -1 without
};

/// Whether `candidate` replaces `best` as the extreme: NaN wins, then the earlier one.
inline bool wins(ReduceOp reduce, double candidate, double best) {
  if (std::isnan(best)) return false;
  if (std::isnan(candidate)) return true;
  return reduce == ReduceOp::kMax ? candidate > best : candidate < best;
}

/// float32's smallest normal number: a product below it is rounded as if it were that large.
inline constexpr double kSmallestNormal = 0x1p-126;

/// [num_dst, ...]; 0 without messages.
inline Reduced gspmm(const Message& message, ReduceOp reduce) {
  const Edges& edges = message.edges;
  const std::int64_t width = message.width();
  const std::vector<std::int64_t> degrees = edges.degrees(Target::kDst);
  Reduced all{Sums(message.sizes(edges.num_dst), reduce == ReduceOp::kProd ? 1 : 0), {}};
  all.winners.assign(all.out.value.values.size(), -1);
  auto& value = all.out.value.values;
  auto& size = all.out.size.values;
  for (std::int64_t e = 0; e < edges.count(); ++e) {
    for (std::int64_t f = 0; f < width; ++f) {
      const auto i = static_cast<std::size_t>(edges.row(Target::kDst, e) * width + f);
      const Term m = message(e, f);
      if (reduce == ReduceOp::kSum || reduce == ReduceOp::kMean) {
        value[i] += m.value;
        size[i] += m.size;
      } else if (reduce == ReduceOp::kProd) {
        value[i] *= m.value;
        size[i] = size[i] * m.size + kSmallestNormal;
      } else {
        if (all.winners[i] < 0 || wins(reduce, m.value, value[i])) {
          value[i] = m.value;
          all.winners[i] = edges.row(Target::kEdge, e);
        }
        size[i] = std::max(size[i], m.size);
      }
    }
  }
  for (std::size_t i = 0; i < value.size(); ++i) {
    const std::int64_t degree = degrees[i / static_cast<std::size_t>(width)];
    if (degree == 0) value[i] = size[i] = 0;
    if (degree == 0 || reduce != ReduceOp::kMean) continue;
    value[i] /= static_cast<double>(degree);
    size[i] /= static_cast<double>(degree);
  }
  all.out.terms = (static_cast<double>(message.run()) + 2) * edges.max_degree(Target::kDst) + 2;
  return all;
}

/// For each message the product of the other messages of its destination: [E, ...].
inline Sums products_of_others(const Message& message) {
  const Edges& edges = message.edges;
  const std::int64_t width = message.width();
  Sums others(message.sizes(edges.count()), 1);
  // In two passes: what precedes an edge, and what follows it.
  for (const bool follows : {false, true}) {
    Sums so_far(message.sizes(edges.num_dst), 1);
    for (std::int64_t n = 0; n < edges.count(); ++n) {
      const std::int64_t e = follows ? edges.count() - 1 - n : n;
      for (std::int64_t f = 0; f < width; ++f) {
        const std::int64_t row = edges.row(Target::kDst, e) * width + f;
        const Term m = message(e, f);
        others.value[e * width + f] *= so_far.value[row];
        others.size[e * width + f] *= so_far.size[row];
        so_far.value[row] *= m.value;
        so_far.size[row] *= m.size;
      }
    }
  }
  return others;
}

/// grad: of the result. reduced: the result.
inline Gradients gspmm_gradients(const Message& message, ReduceOp reduce, const Reduced& reduced,
                                 const Array& grad) {
  const Edges& edges = message.edges;
  const std::int64_t width = message.width();
  const bool selects = reduce == ReduceOp::kMax || reduce == ReduceOp::kMin;
  const std::vector<std::int64_t> degrees = edges.degrees(Target::kDst);
  const Sums others = reduce == ReduceOp::kProd ? products_of_others(message) : Sums();
  Gradients all = operand_gradients(message, [&](std::int64_t e, std::int64_t i) {
    const std::int64_t row = edges.row(Target::kDst, e), at = row * width + i;
    const bool is_chosen =
        !selects || reduced.winners[static_cast<std::size_t>(at)] == edges.row(Target::kEdge, e);
    if (!is_chosen) return Term{0, 0};
    double above = grad[at];
    if (reduce == ReduceOp::kMean) {
      above /= static_cast<double>(degrees[static_cast<std::size_t>(row)]);
    }
    const Term factor = reduce == ReduceOp::kProd ? others[e * width + i] : Term{1, 1};
    return Term{above * factor.value, std::abs(above) * factor.size};
  });
  if (reduce == ReduceOp::kProd) {  // each term is itself a product of the other messages
    all.lhs.terms += reduced.out.terms;
    all.rhs.terms += reduced.out.terms;
  }
  return all;
}

}  // namespace mezzo::definition
