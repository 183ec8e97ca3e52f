#include "mezzo/nn/conv/graph_conv.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <optional>
#include <ostream>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/nn/init.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/topology_build.h"
#include "mezzo/nn/conv/conv_support.h"
#include "mezzo/nn/conv/propagation.h"
#include "mezzo/nn/layer_support.h"
#include "mezzo/ops/ops.h"

namespace mezzo::nn {
namespace {

constexpr auto kGraphConvName = "GraphConv";
constexpr auto kEdgeWeightNormName = "EdgeWeightNorm";

/// The name of the norm in DGL.
std::string_view norm_name(DegreeNorm norm) {
  constexpr std::array<std::string_view, 4> kNames = {"both", "right", "left", "none"};
  return kNames.at(static_cast<std::size_t>(norm));
}

DegreePower power_of(DegreeNorm norm) {
  return norm == DegreeNorm::kBoth ? DegreePower::kInverseRoot : DegreePower::kInverse;
}

std::optional<at::Tensor> source_scale(const Topology& topology, const GraphConvOptions& options,
                                       at::ScalarType dtype) {
  const DegreeNorm norm = options.norm;
  if (norm == DegreeNorm::kRight || norm == DegreeNorm::kNone) return std::nullopt;
  const at::Tensor* whole = options.parent_degrees ? topology.parent_out_degrees() : nullptr;
  const DegreePower power = power_of(norm);
  return whole != nullptr ? mezzo::detail::degree_factors(*whole, power, dtype)
                          : topology.out_degree_factors(power, dtype);
}

/// With k_v of the parent's d_v edges here, the factor of d_v times d_v / k_v.
std::optional<at::Tensor> destination_scale(const Topology& topology,
                                            const GraphConvOptions& options, at::ScalarType dtype) {
  const DegreeNorm norm = options.norm;
  const at::Tensor* whole = options.parent_degrees ? topology.parent_in_degrees() : nullptr;
  if (norm == DegreeNorm::kNone || (norm == DegreeNorm::kLeft && whole == nullptr)) {
    return std::nullopt;
  }
  if (norm == DegreeNorm::kRight || whole == nullptr) {  // kRight: d_v cancels
    return topology.in_degree_factors(power_of(norm), dtype);
  }
  const at::Tensor counts = whole->clamp_min(1).to(dtype);
  const at::Tensor drawn = topology.in_degrees().clamp_min(1).to(dtype);
  return (norm == DegreeNorm::kBoth ? counts.sqrt() : counts) / drawn;
}

at::Tensor normalised_sum(const Topology& topology, const at::Tensor& x,
                          const std::optional<at::Tensor>& edge_weight,
                          const GraphConvOptions& options) {
  const at::ScalarType dtype = detail::scale_dtype(x);
  return scaled_sum(topology, x, edge_weight, source_scale(topology, options, dtype),
                    destination_scale(topology, options, dtype));
}

}  // namespace

GraphConvImpl::GraphConvImpl(GraphConvOptions layer_options) : options(std::move(layer_options)) {
  reset();
}

void GraphConvImpl::reset() {
  detail::check_in_and_out(kGraphConvName, options);
  if (options.weight) {
    weight = register_parameter("weight", at::empty({options.in_features, options.out_features}));
  }
  if (options.bias) bias = register_parameter("bias", at::empty({options.out_features}));
  reset_parameters();
}

void GraphConvImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format(
      "mezzo::nn::GraphConv(in_features={}, out_features={}, norm={}, weight={}, "
      "bias={}, allow_zero_in_degree={}, parent_degrees={})",
      options.in_features, options.out_features, norm_name(options.norm), options.weight,
      options.bias, options.allow_zero_in_degree, options.parent_degrees);
}

void GraphConvImpl::reset_parameters() {
  if (options.weight) torch::nn::init::xavier_uniform_(weight);
  if (options.bias) torch::nn::init::zeros_(bias);
}

at::Tensor GraphConvImpl::weight_or(const at::Tensor& external_weight, at::Device device) const {
  const std::int64_t in = options.in_features, out = options.out_features;
  if (!external_weight.defined()) {
    MEZZO_CHECK(options.weight || in == out,
                "{}: expected external_weight [{}, {}], because the layer has no weight, got none",
                kGraphConvName, in, out);
    return weight;
  }
  MEZZO_CHECK(
      !options.weight,
      "{}: expected no external_weight, because the layer has a weight (options.weight), got {}",
      kGraphConvName, detail::describe(external_weight));
  MEZZO_CHECK(external_weight.layout() == at::kStrided && external_weight.dim() == 2 &&
                  external_weight.size(0) == in && external_weight.size(1) == out &&
                  at::isFloatingType(external_weight.scalar_type()),
              "{}: expected floating external_weight [{}, {}], got {}", kGraphConvName, in, out,
              detail::describe(external_weight));
  MEZZO_CHECK(external_weight.device() == device,
              "{}: expected external_weight on the graph's device {}, got {}", kGraphConvName,
              device.str(), external_weight.device().str());
  return external_weight;
}

at::Tensor GraphConvImpl::forward(const Topology& topology, const at::Tensor& h,
                                  const at::Tensor& edge_weight,
                                  const at::Tensor& external_weight) {
  detail::check_input(kGraphConvName, topology, h, options.in_features);
  const at::Tensor matrix = weight_or(external_weight, topology.device());
  const std::optional<at::Tensor> factors = detail::edge_factors(
      kGraphConvName, topology, edge_weight,
      matrix.defined() ? detail::scale_dtype(h, matrix) : detail::scale_dtype(h));
  detail::check_in_degrees(kGraphConvName, topology, options.allow_zero_in_degree);

  at::Tensor out;
  if (!matrix.defined()) {
    const at::Tensor rows = detail::is_sparse(h) ? h.to_dense() : h;
    out = detail::add_parameter(normalised_sum(topology, rows, factors, options), bias);
  } else if (options.in_features > options.out_features || detail::is_sparse(h)) {
    out = normalised_sum(topology, mezzo::linear(h, matrix.t()), factors, options);
    out = detail::add_parameter(out, bias);
  } else {
    out = mezzo::linear(normalised_sum(topology, h, factors, options), matrix.t(), bias);
  }
  return detail::activate(options.activation, out);
}

EdgeWeightNormImpl::EdgeWeightNormImpl(EdgeWeightNormOptions layer_options)
    : options(layer_options) {
  reset();
}

void EdgeWeightNormImpl::reset() {
  MEZZO_CHECK(std::isfinite(options.eps) && options.eps >= 0,
              "{}: expected eps finite and at least 0, got {}", kEdgeWeightNormName, options.eps);
}

void EdgeWeightNormImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format("mezzo::nn::EdgeWeightNorm(norm={}, eps={})", norm_name(options.norm),
                        options.eps);
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
