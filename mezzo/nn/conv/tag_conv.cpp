#include "mezzo/nn/conv/tag_conv.h"

#include <cmath>
#include <ostream>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/nn/init.h>

#include "mezzo/nn/conv/propagation.h"
#include "mezzo/nn/layer_support.h"

namespace mezzo::nn {
namespace {

constexpr auto kTagConvName = "TAGConv";

}  // namespace

TAGConvImpl::TAGConvImpl(TAGConvOptions layer_options) : options(std::move(layer_options)) {
  reset();
}

void TAGConvImpl::reset() {
  detail::check_positive(kTagConvName, "in_features", options.in_features);
  detail::check_positive(kTagConvName, "out_features", options.out_features);
  detail::check_hops(kTagConvName, options.k);
  const std::int64_t width = options.in_features * (options.k + 1);
  const auto product = torch::nn::LinearOptions(width, options.out_features).bias(options.bias);
  lin = register_module("lin", torch::nn::Linear(product));
  reset_parameters();
}

void TAGConvImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format("mezzo::nn::TAGConv(in_features={}, out_features={}, k={}, bias={})",
                        options.in_features, options.out_features, options.k, options.bias);
}

void TAGConvImpl::reset_parameters() {
  lin->reset_parameters();
  torch::nn::init::xavier_normal_(lin->weight, std::sqrt(2.0));  // the gain of relu
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

}  // namespace mezzo::nn
