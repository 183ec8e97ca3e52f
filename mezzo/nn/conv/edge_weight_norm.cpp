#include "mezzo/nn/conv/edge_weight_norm.h"

#include <cmath>
#include <ostream>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "mezzo/core/error.h"
#include "mezzo/nn/conv/propagation.h"
#include "mezzo/nn/layer_support.h"

namespace mezzo::nn {
namespace {

constexpr auto kEdgeWeightNormName = "EdgeWeightNorm";

}  // namespace

EdgeWeightNormImpl::EdgeWeightNormImpl(EdgeWeightNormOptions layer_options)
    : options(layer_options) {
  reset();
}

void EdgeWeightNormImpl::reset() {
  MEZZO_CHECK(std::isfinite(options.eps) && options.eps >= 0,
              "{}: expected eps finite and at least 0, got {}", kEdgeWeightNormName, options.eps);
}

void EdgeWeightNormImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format("mezzo::nn::EdgeWeightNorm(norm={}, eps={})",
                        detail::norm_name(options.norm), options.eps);
}

at::Tensor EdgeWeightNormImpl::forward(const Topology& topology, const at::Tensor& edge_weight) {
  MEZZO_CHECK(edge_weight.defined(),
              "{}: expected floating edge_weight [{}], one number per edge, got {}",
              kEdgeWeightNormName, topology.num_edges(), detail::describe(edge_weight));
  const auto weight = detail::edge_factors(kEdgeWeightNormName, topology, edge_weight, at::kDouble);
  if (options.norm != DegreeNorm::kNone) {
    detail::check_weight_signs(kEdgeWeightNormName, *weight,
                               options.norm == DegreeNorm::kBoth
                                   ? detail::WeightSigns::kPositive
                                   : detail::WeightSigns::kNotNegative);
  }
  return detail::normalised(topology, *weight, options.norm, options.eps)
      .to(edge_weight.scalar_type());
}

}  // namespace mezzo::nn
