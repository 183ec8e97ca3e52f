#include "mezzo/nn/conv/gcn2_conv.h"

#include <cmath>
#include <ostream>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/nn/init.h>

#include "mezzo/core/error.h"
#include "mezzo/nn/conv/conv_support.h"
#include "mezzo/nn/conv/propagation.h"
#include "mezzo/nn/layer_support.h"
#include "mezzo/ops/ops.h"

namespace mezzo::nn {
namespace {

constexpr auto kGcn2ConvName = "GCN2Conv";

/// initial_h is floating and strided, has the shape of h and lies on its device.
void check_initial_rows(const at::Tensor& h, const at::Tensor& initial_h) {
  MEZZO_CHECK(initial_h.defined() && at::isFloatingType(initial_h.scalar_type()) &&
                  initial_h.layout() == at::kStrided && initial_h.sizes() == h.sizes(),
              "{}: expected floating, strided initial_h [{}, {}], the shape of h, got {}",
              kGcn2ConvName, h.size(0), h.size(1), detail::describe(initial_h));
  MEZZO_CHECK(initial_h.device() == h.device(),
              "{}: expected initial_h on the graph's device {}, got {}", kGcn2ConvName,
              h.device().str(), initial_h.device().str());
}

}  // namespace

GCN2ConvImpl::GCN2ConvImpl(GCN2ConvOptions layer_options) : options(std::move(layer_options)) {
  reset();
}

void GCN2ConvImpl::reset() {
  const std::int64_t width = options.in_features;
  detail::check_positive(kGcn2ConvName, "in_features", width);
  detail::check_positive(kGcn2ConvName, "layer", options.layer);
  MEZZO_CHECK(options.alpha >= 0 && options.alpha <= 1, "{}: expected alpha in [0, 1], got {}",
              kGcn2ConvName, options.alpha);
  const double ratio = options.lambda / static_cast<double>(options.layer);
  MEZZO_CHECK(std::isfinite(ratio) && ratio > -1,
              "{}: expected a finite lambda above {}, minus the layer, got {}", kGcn2ConvName,
              -options.layer, options.lambda);
  weight1 = register_parameter("weight1", at::empty({width, width}));
  if (!options.project_initial_features) {
    weight2 = register_parameter("weight2", at::empty({width, width}));
  }
  if (options.bias) bias = register_parameter("bias", at::empty({width}));
  reset_parameters();
}

void GCN2ConvImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format(
      "mezzo::nn::GCN2Conv(in_features={}, layer={}, alpha={}, lambda={}, "
      "project_initial_features={}, bias={}, allow_zero_in_degree={})",
      options.in_features, options.layer, options.alpha, options.lambda,
      options.project_initial_features, options.bias, options.allow_zero_in_degree);
}

void GCN2ConvImpl::reset_parameters() {
  torch::nn::init::normal_(weight1);
  if (weight2.defined()) torch::nn::init::normal_(weight2);
  if (bias.defined()) torch::nn::init::zeros_(bias);
}

at::Tensor GCN2ConvImpl::forward(const Topology& topology, const at::Tensor& h,
                                 const at::Tensor& initial_h, const at::Tensor& edge_weight) {
  detail::check_input(kGcn2ConvName, topology, h, options.in_features);
  MEZZO_CHECK(!detail::is_sparse(h), "{}: expected h strided, got sparse CSR", kGcn2ConvName);
  check_initial_rows(h, initial_h);
  detail::check_one_node_set(kGcn2ConvName, topology);
  detail::check_in_degrees(kGcn2ConvName, topology, options.allow_zero_in_degree);
  const double alpha = options.alpha;
  const double beta = std::log1p(options.lambda / static_cast<double>(options.layer));

  const detail::Propagation propagation(kGcn2ConvName, topology, detail::scale_dtype(h),
                                        edge_weight);
  const at::Tensor received = propagation.times(1 - alpha)(h);
  const at::Tensor first = initial_h.to(received.scalar_type());  // the dtype of a 16-bit region
  const at::Tensor sum = at::add(received, first, alpha);
  // Not one product with (1 - beta) I + beta weight1: 16 bits would round its diagonal to I's.
  const at::Tensor own = weight1 * beta;
  const at::Tensor product =
      weight2.defined() ? detail::linear_of_terms(
                              {first, received}, at::cat({weight2 * (alpha * beta), own}).t(), bias)
                        : mezzo::linear(sum, own.t(), bias);
  return detail::activate(options.activation, at::add(product, sum, 1 - beta));
}

}  // namespace mezzo::nn
