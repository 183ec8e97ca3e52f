#pragma once

#include <cmath>
#include <cstdint>

#include "tests/definitions/array.h"

namespace mezzo::definition {

/// The scores [E, heads] and the gradients of src, dst and attn. src, dst: [nodes, heads, F]; attn:
/// heads * F numbers of any sizes; grad: of the scores.
inline Result gatv2_scores(const Edges& edges, const Array& src, const Array& dst,
                           const Array& attn, double slope, const Array& grad) {
  const std::int64_t heads = src.sizes[1], features = src.sizes[2], width = heads * features;
  Sums scores({edges.count(), heads}), of_src(src.sizes), of_dst(dst.sizes), of_attn(attn.sizes);
  for (std::int64_t e = 0; e < edges.count(); ++e) {
    for (std::int64_t i = 0; i < width; ++i) {
      const std::int64_t score = edges.row(Target::kEdge, e) * heads + i / features;
      const std::int64_t s = edges.row(Target::kSrc, e) * width + i;
      const std::int64_t d = edges.row(Target::kDst, e) * width + i;
      const double factor = src[s] + dst[d] > 0 ? 1 : slope;
      const double x = factor * (src[s] + dst[d]);
      const double size = std::abs(factor) * (std::abs(src[s]) + std::abs(dst[d]));
      scores.add(score, attn[i] * x, std::abs(attn[i]) * size);
      of_src.add(s, grad[score] * attn[i] * factor);
      of_dst.add(d, grad[score] * attn[i] * factor);
      of_attn.add(i, grad[score] * x, std::abs(grad[score]) * size);
    }
  }
  // The sum of two rows, the slope and two products come before the sums.
  const double before = 4;
  scores.terms = static_cast<double>(features) + before;
  of_src.terms = of_dst.terms = edges.max_degree() + before;
  of_attn.terms = static_cast<double>(edges.count() + edges.num_dst) + before;
  return {scores, {of_src, of_dst, of_attn}};
}

}  // namespace mezzo::definition
