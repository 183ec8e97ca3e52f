#include "mezzo/nn/conv/propagation.h"

#include <utility>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/nn/layer_support.h"
#include "mezzo/ops/ops.h"

namespace mezzo::nn::detail {
namespace {

void check_device(std::string_view layer, std::string_view name, const Topology& topology,
                  const at::Tensor& tensor) {
  MEZZO_CHECK(tensor.device() == topology.device(),
              "{}: expected {} on the graph's device {}, got {}", layer, name,
              topology.device().str(), tensor.device().str());
}

/// 1 / (the sum of the weights into each destination + eps), or its root; 1 where that is 0, so
/// that no gradient is NaN.
at::Tensor inverse_of_sums(const Topology& topology, const at::Tensor& weight, double eps,
                           bool root) {
  at::Tensor sums = gspmm(topology, BinaryOp::kCopyRhs, ReduceOp::kSum, std::nullopt, weight) + eps;
  sums = sums.masked_fill(at::eq(sums, 0), 1);
  return root ? sums.rsqrt() : sums.reciprocal();
}

}  // namespace

void check_node_rows(std::string_view layer, const Topology& topology, const at::Tensor& h) {
  MEZZO_CHECK(h.defined() && at::isFloatingType(h.scalar_type()) && h.dim() >= 1 &&
                  h.size(0) == topology.num_src(),
              "{}: expected floating h [{}, ...], one row per source node, got {}", layer,
              topology.num_src(), describe(h));
  MEZZO_CHECK(h.layout() == at::kStrided || h.layout() == at::kSparseCsr,
              "{}: expected h strided or sparse CSR, got another layout", layer);
  check_device(layer, "h", topology, h);
}

void check_one_node_set(std::string_view layer, const Topology& topology) {
  MEZZO_CHECK(topology.num_src() == topology.num_dst(),
              "{}: expected a topology of one set of nodes, got {} sources and {} destinations",
              layer, topology.num_src(), topology.num_dst());
  check_prefix(layer, topology);
}

ReduceOp reduction(Aggregator aggregator) {
  if (aggregator == Aggregator::kMean) return ReduceOp::kMean;
  return aggregator == Aggregator::kMax ? ReduceOp::kMax : ReduceOp::kSum;
}

void check_hops(std::string_view layer, std::int64_t hops) {
  MEZZO_CHECK(hops >= 0, "{}: expected k of at least 0, got {}", layer, hops);
}

std::optional<at::Tensor> edge_factors(std::string_view layer, const Topology& topology,
                                       const at::Tensor& edge_weight, at::ScalarType dtype) {
  if (!edge_weight.defined()) return std::nullopt;
  const bool is_column = edge_weight.dim() == 2 && edge_weight.size(1) == 1;
  MEZZO_CHECK((edge_weight.dim() == 1 || is_column) &&
                  edge_weight.size(0) == topology.num_edges() &&
                  at::isFloatingType(edge_weight.scalar_type()),
              "{}: expected floating edge_weight [{}] or [{}, 1], one number per edge, got {}",
              layer, topology.num_edges(), topology.num_edges(), describe(edge_weight));
  check_device(layer, "edge_weight", topology, edge_weight);
  return (is_column ? edge_weight.squeeze(1) : edge_weight).to(dtype);
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

at::Tensor linear_of_terms(std::vector<at::Tensor> terms, const at::Tensor& weight,
                           const at::Tensor& bias) {
  // Inside a 16-bit region the input rows are still float32, the later terms 16-bit.
  terms.front() = terms.front().to(terms.back().scalar_type());
  return mezzo::linear(at::cat(terms, 1), weight, bias);
}

std::vector<at::Tensor> linear_by_blocks(const at::Tensor& h, const at::Tensor& weight,
                                         std::int64_t count) {
  const std::int64_t out = weight.size(0), in = weight.size(1) / count;
  const at::Tensor stacked = weight.reshape({out, count, in}).transpose(0, 1).flatten(0, 1);
  return mezzo::linear(h, stacked).split(out, 1);
}

}  // namespace mezzo::nn::detail
