#include "mezzo/nn/conv/sg_conv.h"

#include <ostream>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <torch/nn/init.h>

#include "mezzo/core/error.h"
#include "mezzo/nn/conv/propagation.h"
#include "mezzo/nn/layer_support.h"
#include "mezzo/ops/ops.h"

namespace mezzo::nn {
namespace {

constexpr auto kSgConvName = "SGConv";

at::Tensor dense(const at::Tensor& h) {
  return detail::is_sparse(h) ? h.to_dense() : h;
}

/// Whether libtorch counts in-place changes of the tensor; it does not for inference tensors.
bool counts_changes(const at::Tensor& tensor) {
  return !tensor.defined() || !tensor.is_inference();
}

std::int64_t version(const at::Tensor& tensor) {
  return tensor.defined() && counts_changes(tensor) ? tensor._version() : 0;
}

/// The dtype of sums over rows like h, here and now: that of h, or of a mixed precision region.
at::ScalarType dtype_of_sums(const at::Tensor& h) {
  const at::Tensor no_rows = at::empty({0, 1}, h.options().layout(at::kStrided));
  static const Topology no_nodes;
  return scaled_sum(no_nodes.to(h.device()), no_rows, {}, {}, {}).scalar_type();
}

}  // namespace

SGConvImpl::SGConvImpl(SGConvOptions layer_options) : options(std::move(layer_options)) {
  reset();
}

void SGConvImpl::reset() {
  detail::check_positive(kSgConvName, "in_features", options.in_features);
  detail::check_positive(kSgConvName, "out_features", options.out_features);
  detail::check_hops(kSgConvName, options.k);
  const auto product =
      torch::nn::LinearOptions(options.in_features, options.out_features).bias(options.bias);
  fc = register_module("fc", torch::nn::Linear(product));
  clear_cache();
  reset_parameters();
}

void SGConvImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format(
      "mezzo::nn::SGConv(in_features={}, out_features={}, k={}, cached={}, "
      "bias={}, allow_zero_in_degree={})",
      options.in_features, options.out_features, options.k, options.cached, options.bias,
      options.allow_zero_in_degree);
}

void SGConvImpl::reset_parameters() {
  torch::nn::init::xavier_uniform_(fc->weight);
  if (options.bias) torch::nn::init::zeros_(fc->bias);
}

void SGConvImpl::clear_cache() {
  kept_.reset();
}

at::Tensor SGConvImpl::kept_rows(const Topology& topology, const at::Tensor& h,
                                 const at::Tensor& edge_weight) {
  MEZZO_CHECK(!h.requires_grad() && !(edge_weight.defined() && edge_weight.requires_grad()),
              "{}: cached: expected h and edge_weight without gradients, which would change them",
              kSgConvName);
  MEZZO_CHECK(!kept_ || kept_->topology.is_same(topology),
              "{}: cached: expected the graph of the first call, got another; clear_cache() allows "
              "it",
              kSgConvName);
  MEZZO_CHECK(!kept_ || (kept_->h.is_same(h) && kept_->h_version == version(h)),
              "{}: cached: expected the tensor h of the first call, unchanged, got another or a "
              "changed one; clear_cache() allows it",
              kSgConvName);
  MEZZO_CHECK(
      !kept_ || (kept_->edge_weight.is_same(edge_weight) &&
                 kept_->edge_weight_version == version(edge_weight)),
      "{}: cached: expected the tensor edge_weight of the first call, unchanged, got another "
      "or a changed one; clear_cache() allows it",
      kSgConvName);
  if (!kept_ || kept_->rows.scalar_type() != dtype_of_sums(h)) {
    const c10::InferenceMode no_inference(false);  // a later call may train with the cache
    const detail::Propagation propagation(kSgConvName, topology, detail::scale_dtype(h),
                                          edge_weight);
    at::Tensor rows = detail::propagate(propagation, dense(h), options.k);
    if (!counts_changes(h) || !counts_changes(edge_weight)) return rows;
    kept_ = Kept{.topology = topology,
                 .h = h,
                 .edge_weight = edge_weight,
                 .h_version = version(h),
                 .edge_weight_version = version(edge_weight),
                 .rows = std::move(rows)};
  }
  return kept_->rows;
}

at::Tensor SGConvImpl::forward(const Topology& topology, const at::Tensor& h,
                               const at::Tensor& edge_weight) {
  detail::check_input(kSgConvName, topology, h, options.in_features);
  detail::check_one_node_set(kSgConvName, topology);
  detail::check_in_degrees(kSgConvName, topology, options.allow_zero_in_degree);
  at::Tensor rows;
  if (options.cached) {
    rows = kept_rows(topology, h, edge_weight);
  } else {
    const bool shrinks = options.in_features > options.out_features || detail::is_sparse(h);
    const bool multiplies_first = shrinks && !options.norm;
    const detail::Propagation propagation(
        kSgConvName, topology,
        multiplies_first ? detail::scale_dtype(h, fc->weight) : detail::scale_dtype(h),
        edge_weight);
    if (multiplies_first) {
      const at::Tensor products = mezzo::linear(h, fc->weight);
      return detail::add_parameter(detail::propagate(propagation, products, options.k), fc->bias);
    }
    rows = detail::propagate(propagation, dense(h), options.k);
  }
  if (options.norm) rows = options.norm(rows);
  return mezzo::linear(rows, fc->weight, fc->bias);
}

}  // namespace mezzo::nn
