#include "mezzo/nn/conv/appnp_conv.h"

#include <ostream>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "mezzo/core/error.h"
#include "mezzo/nn/conv/propagation.h"
#include "mezzo/nn/layer_support.h"

namespace mezzo::nn {
namespace {

constexpr auto kAppnpConvName = "APPNPConv";

}  // namespace

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

}  // namespace mezzo::nn
