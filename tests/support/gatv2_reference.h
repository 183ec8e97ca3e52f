#pragma once

#include "support/reference.h"
#include "support/tensors.h"

/// Reference for gatv2_scores in float64, in plain loops.
namespace mezzo::test::gatv2 {

struct Operands {
  at::Tensor src, dst, attn;
};

struct Definition {
  Reference scores, src, dst, attn;
};

/// The scores and the gradients of the operands for the output gradient `grad`.
inline Definition define(const Topology& g, const Operands& in, const at::Tensor& grad,
                         double slope) {
  const auto float64 = [](const at::Tensor& t) {
    return t.detach().to(at::kCPU, at::kDouble).contiguous();
  };
  const auto zeros = [](at::IntArrayRef sizes) {
    return Reference{at::zeros(sizes, at::kDouble), at::zeros(sizes, at::kDouble)};
  };
  const auto add = [](const Reference& to, std::int64_t i, double value, double size) {
    to.value.data_ptr<double>()[i] += value;
    to.abs_sum.data_ptr<double>()[i] += size;
  };
  const at::Tensor src = float64(in.src), dst = float64(in.dst), attn = float64(in.attn),
                   up = float64(grad);
  const at::Tensor u = row_ids(g, Target::kSrc).cpu(), v = row_ids(g, Target::kDst).cpu();
  const std::int64_t heads = src.size(1), features = src.size(2), num_edges = g.num_edges();
  Definition definition{zeros({num_edges, heads}), zeros(src.sizes()), zeros(dst.sizes()),
                        zeros(attn.sizes())};
  for (std::int64_t i = 0; i < num_edges * heads * features; ++i) {
    const std::int64_t edge = i / (heads * features), place = i % (heads * features);
    const std::int64_t score = edge * heads + place / features;
    const std::int64_t s = u.data_ptr<std::int64_t>()[edge] * heads * features + place;
    const std::int64_t d = v.data_ptr<std::int64_t>()[edge] * heads * features + place;
    const double a = attn.data_ptr<double>()[place], from_above = up.data_ptr<double>()[score];
    const double left = src.data_ptr<double>()[s], right = dst.data_ptr<double>()[d];
    const double factor = left + right > 0 ? 1 : slope;
    const double x = factor * (left + right);
    const double size = std::abs(factor) * (std::abs(left) + std::abs(right));
    const double row = from_above * a * factor;
    add(definition.scores, score, a * x, std::abs(a) * size);
    add(definition.src, s, row, std::abs(row));
    add(definition.dst, d, row, std::abs(row));
    add(definition.attn, place, from_above * x, std::abs(from_above) * size);
  }
  // The sum of two rows, the slope and two products come before the sums.
  const double before = 4;
  definition.scores.terms = static_cast<double>(features) + before;
  definition.src.terms = definition.dst.terms = internal::max_degree(g) + before;
  definition.attn.terms = static_cast<double>(num_edges + g.num_dst()) + before;
  return definition;
}

}  // namespace mezzo::test::gatv2
