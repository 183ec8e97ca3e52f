#pragma once

#include <cmath>
#include <cstdint>

#include <ATen/ATen.h>

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
  const auto wide = [](const at::Tensor& t) {
    return t.detach().to(at::kCPU, at::kDouble).contiguous();
  };
  const auto zeros = [](at::IntArrayRef sizes) {
    return Reference{at::zeros(sizes, at::kDouble), at::zeros(sizes, at::kDouble)};
  };
  const auto add = [](const Reference& to, std::int64_t i, double value, double size) {
    to.value.data_ptr<double>()[i] += value;
    to.abs_sum.data_ptr<double>()[i] += size;
  };
  const at::Tensor src = wide(in.src), dst = wide(in.dst), attn = wide(in.attn), up = wide(grad);
  const at::Tensor u = row_ids(g, Target::kSrc).cpu(), v = row_ids(g, Target::kDst).cpu();
  const std::int64_t heads = src.size(1), features = src.size(2), num_edges = g.num_edges();
  Definition made{zeros({num_edges, heads}), zeros(src.sizes()), zeros(dst.sizes()),
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
    add(made.scores, score, a * x, std::abs(a) * size);
    add(made.src, s, row, std::abs(row));
    add(made.dst, d, row, std::abs(row));
    add(made.attn, place, from_above * x, std::abs(from_above) * size);
  }
  // The sum of two rows, the slope and two products come before the sums.
  const double before = 4;
  made.scores.terms = static_cast<double>(features) + before;
  made.src.terms = made.dst.terms = internal::max_degree(g) + before;
  made.attn.terms = static_cast<double>(num_edges + g.num_dst()) + before;
  return made;
}

}  // namespace mezzo::test::gatv2
