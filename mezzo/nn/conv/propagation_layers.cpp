#include "mezzo/nn/conv/propagation_layers.h"

#include <cmath>
#include <ostream>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <torch/nn/init.h>

#include "mezzo/core/error.h"
#include "mezzo/nn/conv/conv_support.h"
#include "mezzo/nn/conv/propagation.h"
#include "mezzo/nn/layer_support.h"
#include "mezzo/ops/ops.h"

namespace mezzo::nn {
namespace {

constexpr auto kSgConvName = "SGConv";
constexpr auto kTagConvName = "TAGConv";
constexpr auto kAppnpConvName = "APPNPConv";
constexpr auto kChebConvName = "ChebConv";

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

/// The current dtype of sums over rows like h: h's dtype, or the mixed precision region's.
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
  detail::check_in_and_out(kSgConvName, options);
  detail::check_hops(kSgConvName, options.k);
  fc = register_module(
      "fc", detail::linear_layer(options.in_features, options.out_features, options.bias));
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
  cache_.reset();
}

at::Tensor SGConvImpl::cached_rows(const Topology& topology, const at::Tensor& h,
                                   const at::Tensor& edge_weight) {
  MEZZO_CHECK(
      !h.requires_grad() && !(edge_weight.defined() && edge_weight.requires_grad()),
      "{}: cached: expected h and edge_weight without gradients, got one that requires them",
      kSgConvName);
  MEZZO_CHECK(!cache_ || cache_->topology.is_same(topology),
              "{}: cached: expected the graph of the first call, got another; clear_cache() allows "
              "it",
              kSgConvName);
  MEZZO_CHECK(!cache_ || (cache_->h.is_same(h) && cache_->h_version == version(h)),
              "{}: cached: expected the tensor h of the first call, unchanged, got another or a "
              "changed one; clear_cache() allows it",
              kSgConvName);
  MEZZO_CHECK(
      !cache_ || (cache_->edge_weight.is_same(edge_weight) &&
                  cache_->edge_weight_version == version(edge_weight)),
      "{}: cached: expected the tensor edge_weight of the first call, unchanged, got another "
      "or a changed one; clear_cache() allows it",
      kSgConvName);
  if (!cache_ || cache_->rows.scalar_type() != dtype_of_sums(h)) {
    const c10::InferenceMode no_inference(false);  // a later call may train with the cache
    const detail::Propagation propagation(kSgConvName, topology, detail::scale_dtype(h),
                                          edge_weight);
    at::Tensor rows = detail::propagate(propagation, dense(h), options.k);
    if (!counts_changes(h) || !counts_changes(edge_weight)) return rows;
    cache_ = Cache{.topology = topology,
                   .h = h,
                   .edge_weight = edge_weight,
                   .h_version = version(h),
                   .edge_weight_version = version(edge_weight),
                   .rows = std::move(rows)};
  }
  return cache_->rows;
}

at::Tensor SGConvImpl::forward(const Topology& topology, const at::Tensor& h,
                               const at::Tensor& edge_weight) {
  detail::check_input(kSgConvName, topology, h, options.in_features);
  detail::check_one_node_set(kSgConvName, topology);
  detail::check_in_degrees(kSgConvName, topology, options.allow_zero_in_degree);
  at::Tensor rows;
  if (options.cached) {
    rows = cached_rows(topology, h, edge_weight);
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
  return detail::apply_linear(*fc, rows);
}

TAGConvImpl::TAGConvImpl(TAGConvOptions layer_options) : options(std::move(layer_options)) {
  reset();
}

void TAGConvImpl::reset() {
  detail::check_in_and_out(kTagConvName, options);
  detail::check_hops(kTagConvName, options.k);
  const std::int64_t width = options.in_features * (options.k + 1);
  lin = register_module("lin", detail::linear_layer(width, options.out_features, options.bias));
  reset_parameters();
}

void TAGConvImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format("mezzo::nn::TAGConv(in_features={}, out_features={}, k={}, bias={})",
                        options.in_features, options.out_features, options.k, options.bias);
}

void TAGConvImpl::reset_parameters() {
  lin->reset_parameters();
  detail::reset_weights({&lin});
}

at::Tensor TAGConvImpl::forward(const Topology& topology, const at::Tensor& h,
                                const at::Tensor& edge_weight) {
  detail::check_input(kTagConvName, topology, h, options.in_features);
  detail::check_one_node_set(kTagConvName, topology);
  const detail::Propagation propagation(kTagConvName, topology, detail::scale_dtype(h, lin->weight),
                                        edge_weight);
  at::Tensor out;
  if (options.in_features > options.out_features || detail::is_sparse(h)) {
    const auto products = detail::linear_by_blocks(h, lin->weight, options.k + 1);
    out = products.back();
    for (auto next = products.rbegin() + 1; next != products.rend(); ++next) {
      out = *next + propagation(out);
    }
    out = detail::add_parameter(out, lin->bias);
  } else {
    std::vector<at::Tensor> hops = {h};
    for (std::int64_t hop = 0; hop < options.k; ++hop) hops.push_back(propagation(hops.back()));
    out = detail::linear_of_terms(std::move(hops), lin->weight, lin->bias);
  }
  return detail::activate(options.activation, out);
}

APPNPConvImpl::APPNPConvImpl(APPNPConvOptions layer_options) : options(layer_options) {
  reset();
}

void APPNPConvImpl::reset() {
  detail::check_hops(kAppnpConvName, options.k);
  MEZZO_CHECK(options.alpha >= 0 && options.alpha <= 1, "{}: expected alpha in [0, 1], got {}",
              kAppnpConvName, options.alpha);
  detail::check_probability(kAppnpConvName, "edge_drop", options.edge_drop);
}

void APPNPConvImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format("mezzo::nn::APPNPConv(k={}, alpha={}, edge_drop={})", options.k,
                        options.alpha, options.edge_drop);
}

at::Tensor APPNPConvImpl::forward(const Topology& topology, const at::Tensor& h,
                                  const at::Tensor& edge_weight) {
  detail::check_node_rows(kAppnpConvName, topology, h);
  MEZZO_CHECK(!detail::is_sparse(h), "{}: expected h strided, got sparse CSR", kAppnpConvName);
  detail::check_one_node_set(kAppnpConvName, topology);
  const detail::Propagation step =
      detail::Propagation(kAppnpConvName, topology, detail::scale_dtype(h), edge_weight,
                          detail::SourceDegree::kOut)
          .times(1 - options.alpha);
  at::Tensor first = h, out = h;
  for (std::int64_t i = 0; i < options.k; ++i) {
    out = step.with_edge_dropout(options.edge_drop, is_training())(out);
    first = first.to(out.scalar_type());  // the dtype of a mixed precision region, from step one on
    out = at::add(out, first, options.alpha);
  }
  return out;
}

namespace {

/// L = (r - 1) I - r P, where P is the propagation and r = 2 / lambda_max.
class Laplacian {
 public:
  /// lambda_max: checked; undefined: 2, which makes (r - 1) I zero.
  Laplacian(const detail::Propagation& propagation, const at::Tensor& lambda_max)
      : once_(propagation), twice_(propagation) {
    if (!lambda_max.defined()) {
      once_ = propagation.times(-1);
      twice_ = propagation.times(-2);
      return;
    }
    const at::Tensor ratio = 2 / lambda_max.to(at::kDouble);
    once_ = propagation.times(-ratio);
    twice_ = propagation.times(-2 * ratio);
    shift_ = ratio.dim() == 0 ? ratio - 1 : (ratio - 1).unsqueeze(1);
  }

  /// L x.
  at::Tensor once(const at::Tensor& x) const { return shifted(once_(x), x, 1); }
  /// 2 L x.
  at::Tensor twice(const at::Tensor& x) const { return shifted(twice_(x), x, 2); }

 private:
  at::Tensor shifted(const at::Tensor& sum, const at::Tensor& x, double factor) const {
    if (!shift_.defined()) return sum;
    return at::addcmul(sum, x.to(sum.scalar_type()), shift_.to(sum.scalar_type()), factor);
  }

  detail::Propagation once_, twice_;
  at::Tensor shift_;  // r - 1, [] or [N, 1]
};

/// lambda_max as [] or [N], checked; undefined as it is.
at::Tensor checked_lambda_max(const Topology& topology, const at::Tensor& lambda_max) {
  if (!lambda_max.defined()) return lambda_max;
  const std::int64_t count = lambda_max.numel();
  MEZZO_CHECK(at::isFloatingType(lambda_max.scalar_type()) && lambda_max.dim() <= 1 &&
                  (count == 1 || count == topology.num_src()),
              "{}: expected floating lambda_max [], [1] or [{}], one number per node, got {}",
              kChebConvName, topology.num_src(), c10::str(lambda_max.sizes()));
  MEZZO_CHECK(!lambda_max.requires_grad(),
              "{}: expected lambda_max without gradient, got one that requires it", kChebConvName);
  MEZZO_CHECK(at::gt(lambda_max, 0).all().item<bool>(), "{}: expected positive lambda_max, got {}",
              kChebConvName, lambda_max.min().item<double>());
  return (count == 1 ? lambda_max.squeeze() : lambda_max).to(topology.device());
}

/// [T_0 h, ..., T_(count - 1) h].
std::vector<at::Tensor> polynomials(const Laplacian& laplacian, const at::Tensor& h,
                                    std::int64_t count) {
  std::vector<at::Tensor> terms = {h};
  if (count == 1) return terms;
  terms.push_back(laplacian.once(h));
  terms[0] = h.to(terms[1].scalar_type());  // the dtype of a mixed precision region
  for (std::int64_t i = 2; i < count; ++i) {
    const auto last = terms.rbegin();
    terms.push_back(laplacian.twice(last[0]) - last[1]);
  }
  return terms;
}

/// The sum of T_i products[i], by Clenshaw's rule.
at::Tensor sum_of_polynomials(const Laplacian& laplacian, const std::vector<at::Tensor>& products) {
  at::Tensor next, second_next;
  for (std::size_t i = products.size(); i-- > 0;) {
    at::Tensor sum = products[i];
    if (next.defined()) sum = sum + (i == 0 ? laplacian.once(next) : laplacian.twice(next));
    if (second_next.defined()) sum = sum - second_next;
    second_next = std::exchange(next, sum);
  }
  return next;
}

}  // namespace

ChebConvImpl::ChebConvImpl(ChebConvOptions layer_options) : options(std::move(layer_options)) {
  reset();
}

void ChebConvImpl::reset() {
  detail::check_in_and_out(kChebConvName, options);
  detail::check_positive(kChebConvName, "k", options.k);
  const std::int64_t width = options.k * options.in_features;
  linear =
      register_module("linear", detail::linear_layer(width, options.out_features, options.bias));
}

void ChebConvImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format("mezzo::nn::ChebConv(in_features={}, out_features={}, k={}, bias={})",
                        options.in_features, options.out_features, options.k, options.bias);
}

void ChebConvImpl::reset_parameters() {
  linear->reset_parameters();
}

at::Tensor ChebConvImpl::forward(const Topology& topology, const at::Tensor& h,
                                 const at::Tensor& lambda_max) {
  detail::check_input(kChebConvName, topology, h, options.in_features);
  detail::check_one_node_set(kChebConvName, topology);
  const at::ScalarType dtype = detail::scale_dtype(h, linear->weight);
  const Laplacian laplacian(detail::Propagation(kChebConvName, topology, dtype, {}),
                            checked_lambda_max(topology, lambda_max));
  at::Tensor out;
  if (options.in_features > options.out_features || detail::is_sparse(h)) {
    const auto products = detail::linear_by_blocks(h, linear->weight, options.k);
    out = detail::add_parameter(sum_of_polynomials(laplacian, products), linear->bias);
  } else {
    out =
        detail::linear_of_terms(polynomials(laplacian, h, options.k), linear->weight, linear->bias);
  }
  return detail::activate(options.activation, out);
}

}  // namespace mezzo::nn
