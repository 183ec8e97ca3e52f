#include "mezzo/nn/conv/cheb_conv.h"

#include <ostream>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "mezzo/core/error.h"
#include "mezzo/nn/conv/propagation.h"
#include "mezzo/nn/layer_support.h"

namespace mezzo::nn {
namespace {

constexpr auto kChebConvName = "ChebConv";

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
              "{}: lambda_max is a constant, gradients to it are not available", kChebConvName);
  MEZZO_CHECK(at::gt(lambda_max, 0).all().item<bool>(), "{}: expected a positive lambda_max",
              kChebConvName);
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
  detail::check_positive(kChebConvName, "in_features", options.in_features);
  detail::check_positive(kChebConvName, "out_features", options.out_features);
  detail::check_positive(kChebConvName, "k", options.k);
  const std::int64_t width = options.k * options.in_features;
  const auto product = torch::nn::LinearOptions(width, options.out_features).bias(options.bias);
  linear = register_module("linear", torch::nn::Linear(product));
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
