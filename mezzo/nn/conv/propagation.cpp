#include "mezzo/nn/conv/propagation.h"

#include <utility>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/nn/conv/conv_support.h"
#include "mezzo/ops/ops.h"

namespace mezzo::nn::detail {
namespace {

/// 1 / (the sum of the weights into each destination + eps), or its root; 1 where that is 0, so
/// that no gradient is NaN.
at::Tensor inverse_of_sums(const Topology& topology, const at::Tensor& weight, double eps,
                           bool root) {
  at::Tensor sums = gspmm(topology, BinaryOp::kCopyRhs, ReduceOp::kSum, std::nullopt, weight) + eps;
  sums = sums.masked_fill(at::eq(sums, 0), 1);
  return root ? sums.rsqrt() : sums.reciprocal();
}

}  // namespace

void check_hops(std::string_view layer, std::int64_t hops) {
  MEZZO_CHECK(hops >= 0, "{}: expected k of at least 0, got {}", layer, hops);
}

void check_weight_signs(std::string_view layer, const at::Tensor& weight, WeightSigns signs) {
  const bool positive = signs == WeightSigns::kPositive;
  const at::Tensor bad = positive ? at::le(weight, 0) : at::lt(weight, 0);
  MEZZO_CHECK(!bad.any().item<bool>(),
              "{}: expected {} edge_weight, whose sums are the degrees, got a number {} 0", layer,
              positive ? "positive" : "non-negative", positive ? "of at most" : "below");
}

at::Tensor normalised(const Topology& topology, const at::Tensor& weight, DegreeNorm norm,
                      double eps) {
  const bool both = norm == DegreeNorm::kBoth;
  at::Tensor result = weight;
  if (both || norm == DegreeNorm::kLeft) {
    result =
        gsddmm(topology, BinaryOp::kMul, result,
               inverse_of_sums(topology.reverse(), weight, eps, both), Target::kEdge, Target::kSrc);
  }
  if (both || norm == DegreeNorm::kRight) {
    result = gsddmm(topology, BinaryOp::kMul, result, inverse_of_sums(topology, weight, eps, both),
                    Target::kEdge, Target::kDst);
  }
  return result;
}

Propagation::Propagation(std::string_view layer, const Topology& topology, at::ScalarType dtype,
                         const at::Tensor& edge_weight, SourceDegree source_degree)
    : topology_(topology), dtype_(dtype) {
  if (const auto factors = edge_factors(layer, topology, edge_weight, at::kDouble)) {
    check_weight_signs(layer, *factors, WeightSigns::kPositive);
    weight_ = normalised(topology, *factors, DegreeNorm::kBoth).to(dtype_);
    return;
  }
  dst_scale_ = topology.in_degree_factors(DegreePower::kInverseRoot, dtype_);
  src_scale_ = source_degree == SourceDegree::kIn
                   ? dst_scale_
                   : topology.out_degree_factors(DegreePower::kInverseRoot, dtype_);
}

Propagation Propagation::times(double factor) const {
  return times(at::scalar_tensor(factor, at::kDouble));
}

Propagation Propagation::times(const at::Tensor& factor) const {
  Propagation result = *this;
  std::optional<at::Tensor>& scaled = dst_scale_ ? result.dst_scale_ : result.weight_;
  scaled = (*scaled * factor).to(dtype_);
  return result;
}

Propagation Propagation::with_edge_dropout(double probability, bool training) const {
  if (!training || probability == 0) return *this;
  Propagation result = *this;
  // In float64: autocast would round what remains, 1 / (1 - probability), to 16 bits.
  const at::Tensor whole =
      weight_ ? weight_->to(at::kDouble)
              : at::ones({topology_.num_edges()}, dst_scale_->options().dtype(at::kDouble));
  result.weight_ = mezzo::feature_dropout(whole, probability, training).to(dtype_);
  return result;
}

at::Tensor Propagation::operator()(const at::Tensor& x) const {
  return scaled_sum(topology_, x, weight_, src_scale_, dst_scale_);
}

at::Tensor propagate(const Propagation& propagation, at::Tensor x, std::int64_t hops) {
  for (std::int64_t hop = 0; hop < hops; ++hop) x = propagation(x);
  return x;
}

}  // namespace mezzo::nn::detail
