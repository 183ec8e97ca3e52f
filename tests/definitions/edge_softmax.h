#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tests/definitions/array.h"

namespace mezzo::definition {

/// Of logits [E, ...] over the edges of each node at the `side` ends. The size is the value.
inline Sums edge_softmax(const Edges& edges, const Array& logits, Target side = Target::kDst) {
  const std::int64_t width = logits.row_length();
  const Sizes nodes = with_rows(logits.sizes, edges.rows(side));
  Array largest = filled(nodes, -std::numeric_limits<double>::infinity()), sum = filled(nodes, 0);
  Sums out(logits.sizes);
  const auto for_each = [&](auto visit) {
    for (std::int64_t e = 0; e < edges.count(); ++e) {
      for (std::int64_t f = 0; f < width; ++f) {
        visit(edges.row(Target::kEdge, e) * width + f, edges.row(side, e) * width + f);
      }
    }
  };
  for_each(
      [&](std::int64_t i, std::int64_t at) { largest[at] = std::max(largest[at], logits[i]); });
  for_each([&](std::int64_t i, std::int64_t at) {
    out.value[i] = std::exp(logits[i] - largest[at]);
    sum[at] += out.value[i];
  });
  for_each([&](std::int64_t i, std::int64_t at) { out.value[i] /= sum[at]; });
  out.size = out.value;
  out.terms = edges.max_degree();
  return out;
}

/// p (g - sum over the edges of the node of p g), of the softmax p and its gradient g.
inline Sums edge_softmax_gradient(const Edges& edges, const Array& p, const Array& grad,
                                  Target side = Target::kDst) {
  const std::int64_t width = p.row_length();
  Sums mean(with_rows(p.sizes, edges.rows(side))), out(p.sizes);
  for (const bool adds : {true, false}) {
    for (std::int64_t e = 0; e < edges.count(); ++e) {
      for (std::int64_t f = 0; f < width; ++f) {
        const std::int64_t i = edges.row(Target::kEdge, e) * width + f;
        const std::int64_t at = edges.row(side, e) * width + f;
        if (adds) {
          mean.add(at, p[i] * grad[i]);
        } else {
          out.add(i, p[i] * (grad[i] - mean.value[at]), p[i] * (std::abs(grad[i]) + mean.size[at]));
        }
      }
    }
  }
  out.terms = edges.max_degree();
  return out;
}

}  // namespace mezzo::definition
