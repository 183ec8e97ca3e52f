#include "mezzo/nn/conv/dot_gat_conv.h"

#include <cmath>
#include <ostream>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "mezzo/nn/layer_support.h"
#include "mezzo/ops/ops.h"

namespace mezzo::nn {
namespace {

constexpr auto kDotGatConvName = "DotGatConv";

}  // namespace

DotGatConvImpl::DotGatConvImpl(DotGatConvOptions layer_options) : options(layer_options) {
  reset();
}

void DotGatConvImpl::reset() {
  detail::check_positive(kDotGatConvName, "in_features", options.in_features);
  detail::check_positive(kDotGatConvName, "out_features", options.out_features);
  detail::check_positive(kDotGatConvName, "num_heads", options.num_heads);
  const std::int64_t in_dst = destination_width();
  const auto product = [&](std::int64_t from) {
    const std::int64_t width = options.num_heads * options.out_features;
    return torch::nn::Linear(torch::nn::LinearOptions(from, width).bias(false));
  };
  if (options.in_features_dst == 0) {
    fc = register_module("fc", product(options.in_features));
  } else {
    fc_src = register_module("fc_src", product(options.in_features));
    fc_dst = register_module("fc_dst", product(in_dst));
  }
}

void DotGatConvImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format(
      "mezzo::nn::DotGatConv(in_features={}, in_features_dst={}, out_features={}, "
      "num_heads={}, allow_zero_in_degree={})",
      options.in_features, options.in_features_dst, options.out_features, options.num_heads,
      options.allow_zero_in_degree);
}

void DotGatConvImpl::reset_parameters() {
  for (torch::nn::Linear* part : {&fc, &fc_src, &fc_dst}) {
    if (!part->is_empty()) (*part)->reset_parameters();
  }
}

std::int64_t DotGatConvImpl::destination_width() const {
  return detail::width_of_destinations(kDotGatConvName, options.in_features,
                                       options.in_features_dst);
}

at::Tensor DotGatConvImpl::forward(const Topology& topology, const NodeRows& h) {
  return forward_with_attention(topology, h).first;
}

std::pair<at::Tensor, at::Tensor> DotGatConvImpl::forward_with_attention(const Topology& topology,
                                                                         const NodeRows& h) {
  detail::check_node_rows(kDotGatConvName, topology, h, options.in_features, destination_width());
  detail::check_in_degrees(kDotGatConvName, topology, options.allow_zero_in_degree);
  const std::int64_t heads = options.num_heads, width = options.out_features;
  const std::int64_t num_dst = topology.num_dst();
  const at::Tensor rows = mezzo::linear(h.src(), fc.is_empty() ? fc_src->weight : fc->weight)
                              .reshape({topology.num_src(), heads, width});
  const at::Tensor own =
      h.is_pair() || fc.is_empty()
          ? detail::linear_first_rows(h.dst(), num_dst, fc.is_empty() ? fc_dst->weight : fc->weight)
                .reshape({num_dst, heads, width})
          : detail::first_rows(rows, num_dst);
  // Divides the rows, not their products, which may overflow float16.
  const at::Tensor received = own / std::sqrt(static_cast<double>(width));
  const at::Tensor attention =
      edge_softmax(topology, gsddmm(topology, BinaryOp::kDot, rows, received));
  return {gspmm(topology, BinaryOp::kMul, ReduceOp::kSum, rows, attention), attention};
}

}  // namespace mezzo::nn
