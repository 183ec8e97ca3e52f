#include "mezzo/nn/conv/gated_graph_conv.h"

#include <cmath>
#include <optional>
#include <ostream>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/graph/topology_build.h"
#include "mezzo/nn/layer_support.h"
#include "mezzo/nn/recurrent.h"
#include "mezzo/ops/ops.h"

namespace mezzo::nn {
namespace {

constexpr auto kGatedGraphConvName = "GatedGraphConv";

void check_options(const GatedGraphConvOptions& options) {
  detail::check_in_and_out(kGatedGraphConvName, options);
  detail::check_positive(kGatedGraphConvName, "num_steps", options.num_steps);
  detail::check_positive(kGatedGraphConvName, "num_edge_types", options.num_edge_types);
  MEZZO_CHECK(options.in_features <= options.out_features,
              "{}: expected out_features of at least in_features, {}, got {}", kGatedGraphConvName,
              options.in_features, options.out_features);
}

void check_edge_types(const Topology& topology, const at::Tensor& edge_types,
                      std::int64_t num_edge_types) {
  MEZZO_CHECK(edge_types.dim() == 1 && edge_types.size(0) == topology.num_edges() &&
                  at::isIntegralType(edge_types.scalar_type(), /*includeBool=*/false),
              "{}: expected integer edge_types [{}], one per edge, got {}", kGatedGraphConvName,
              topology.num_edges(), detail::describe(edge_types));
  MEZZO_CHECK(edge_types.device() == topology.device(),
              "{}: expected edge_types on the graph's device {}, got {}", kGatedGraphConvName,
              topology.device().str(), edge_types.device().str());
  if (edge_types.numel() == 0) return;
  const auto least = edge_types.min().item<std::int64_t>();
  const auto most = edge_types.max().item<std::int64_t>();
  MEZZO_CHECK(least >= 0 && most < num_edge_types, "{}: expected edge_types in [0, {}), got {}",
              kGatedGraphConvName, num_edge_types, least < 0 ? least : most);
}

/// The edges `ids` (int64, ascending) alone.
Topology edges_at(const Topology& topology, const at::Tensor& ids) {
  return Topology::from_coo(topology.src().index_select(0, ids),
                            topology.dst().index_select(0, ids), topology.num_src(),
                            topology.num_dst(), mezzo::detail::width_like(topology.id_dtype()));
}

}  // namespace

GatedGraphConvImpl::GatedGraphConvImpl(GatedGraphConvOptions layer_options)
    : options(std::move(layer_options)) {
  reset();
}

void GatedGraphConvImpl::reset() {
  check_options(options);
  const std::int64_t out = options.out_features;
  linears = register_module("linears", torch::nn::ModuleList());
  for (std::int64_t i = 0; i < options.num_edge_types; ++i) {
    linears->push_back(torch::nn::Linear(out, out));
  }
  gru = register_module("gru",
                        torch::nn::GRUCell(torch::nn::GRUCellOptions(out, out).bias(options.bias)));
  reset_parameters();
}

void GatedGraphConvImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format(
      "mezzo::nn::GatedGraphConv(in_features={}, out_features={}, num_steps={}, "
      "num_edge_types={}, bias={})",
      options.in_features, options.out_features, options.num_steps, options.num_edge_types,
      options.bias);
}

void GatedGraphConvImpl::reset_parameters() {
  gru->reset_parameters();
  for (std::size_t type = 0; type < linears->size(); ++type) {
    const auto& linear = linears->at<torch::nn::LinearImpl>(type);
    torch::nn::init::xavier_normal_(linear.weight, detail::kReluGain);
    torch::nn::init::zeros_(linear.bias);
  }
}

void GatedGraphConvImpl::split(const Topology& topology, const at::Tensor& edge_types) {
  if (options.num_edge_types == 1) {  // edge_types say nothing
    split_ = {{0, topology}};
    return;
  }
  const at::Tensor types = edge_types.to(at::kLong);
  if (split_types_.defined() && split_topology_.is_same(topology) &&
      at::equal(split_types_, types)) {
    return;
  }
  decltype(split_) parts;
  for (std::size_t type = 0; type < linears->size(); ++type) {
    const at::Tensor ids = at::eq(types, static_cast<std::int64_t>(type)).nonzero().squeeze(1);
    if (ids.numel() > 0) parts.push_back({type, edges_at(topology, ids)});
  }
  split_ = std::move(parts);
  split_topology_ = topology;
  split_types_ = types.clone();
}

at::Tensor GatedGraphConvImpl::received(const at::Tensor& h) const {
  at::Tensor sum;
  for (const auto& [type, topology] : split_) {
    const auto& linear = linears->at<torch::nn::LinearImpl>(type);
    const at::Tensor messages = detail::apply_linear(linear, h);
    const at::Tensor part =
        gspmm(topology, BinaryOp::kCopyLhs, ReduceOp::kSum, messages, std::nullopt);
    sum = sum.defined() ? sum + part : part;
  }
  return sum.defined() ? sum : at::zeros_like(h);  // no edges
}

at::Tensor GatedGraphConvImpl::forward(const Topology& topology, const at::Tensor& h,
                                       const at::Tensor& edge_types) {
  detail::check_input(kGatedGraphConvName, topology, h, options.in_features);
  MEZZO_CHECK(topology.num_src() == topology.num_dst(),
              "{}: expected as many sources as destinations, got {} and {}", kGatedGraphConvName,
              topology.num_src(), topology.num_dst());
  detail::check_prefix(kGatedGraphConvName, topology);
  MEZZO_CHECK(edge_types.defined() || options.num_edge_types == 1,
              "{}: expected edge_types [{}], because there are {} types, got none",
              kGatedGraphConvName, topology.num_edges(), options.num_edge_types);
  if (edge_types.defined()) check_edge_types(topology, edge_types, options.num_edge_types);
  split(topology, edge_types);

  const at::Tensor rows = detail::is_sparse(h) ? h.to_dense() : h;  // the state is dense anyway
  at::Tensor state = at::constant_pad_nd(rows, {0, options.out_features - options.in_features});
  for (std::int64_t step = 0; step < options.num_steps; ++step) {
    state = detail::gru_step(gru, received(state), state);
  }
  return state;
}

}  // namespace mezzo::nn
