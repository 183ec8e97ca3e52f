#include "mezzo/nn/dot_gat_conv.h"

#include <cmath>

#include <ATen/ATen.h>

#include "mezzo/message_passing/ops.h"
#include "mezzo/nn/layer_support.h"

namespace mezzo::nn {
namespace {

constexpr auto kDotGatConvName = "DotGatConv";

}  // namespace

DotGatConvImpl::DotGatConvImpl(DotGatConvOptions given) : options(given) {
  detail::check_positive(kDotGatConvName, "in_features", options.in_features);
  detail::check_positive(kDotGatConvName, "out_features", options.out_features);
  detail::check_positive(kDotGatConvName, "num_heads", options.num_heads);
  fc = register_module(
      "fc", torch::nn::Linear(torch::nn::LinearOptions(options.in_features,
                                                       options.num_heads * options.out_features)
                                  .bias(false)));
}

void DotGatConvImpl::reset_parameters() {
  fc->reset_parameters();
}

at::Tensor DotGatConvImpl::forward(const Topology& topology, const at::Tensor& h) {
  detail::check_input(kDotGatConvName, topology, h, options.in_features);
  detail::check_prefix(kDotGatConvName, topology);
  detail::check_in_degrees(kDotGatConvName, topology, options.allow_zero_in_degree);
  const at::Tensor rows =
      mezzo::linear(h, fc->weight)
          .reshape({topology.num_src(), options.num_heads, options.out_features});
  // The rows are divided rather than their products, which may leave float16's range before.
  const at::Tensor received = detail::first_rows(rows, topology.num_dst()) /
                              std::sqrt(static_cast<double>(options.out_features));
  const at::Tensor attention =
      edge_softmax(topology, gsddmm(topology, BinaryOp::kDot, rows, received));
  return gspmm(topology, BinaryOp::kMul, ReduceOp::kSum, rows, attention);
}

}  // namespace mezzo::nn
