#include "mezzo/nn/model/head.h"

#include <ostream>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "mezzo/core/error.h"
#include "mezzo/nn/layer_support.h"

namespace mezzo::nn {
namespace {

constexpr auto kHeadName = "Head";

}  // namespace

HeadTargets HeadTargets::to(at::Device device) const {
  const auto moved = [device](const at::Tensor& t) { return t.defined() ? t.to(device) : t; };
  return {edges.to(device), moved(edge_features), moved(graph_sizes)};
}

HeadTargets HeadTargets::edges_at(const at::Tensor& ids) const {
  HeadTargets some;
  some.edges =
      Topology::from_coo(edges.src().index_select(0, ids), edges.dst().index_select(0, ids),
                         edges.num_src(), edges.num_dst());
  if (edge_features.defined()) some.edge_features = edge_features.index_select(0, ids);
  return some;
}

HeadImpl::HeadImpl(HeadOptions head_options) : options(head_options) {
  reset();
}

void HeadImpl::reset() {
  detail::check_positive(kHeadName, "in_features", options.in_features);
  detail::check_positive(kHeadName, "hidden_features", options.hidden_features);
  detail::check_positive(kHeadName, "out_features", options.out_features);
  detail::check_probability(kHeadName, "dropout", options.dropout);
  MEZZO_CHECK(options.target != TaskTarget::kNode && options.edge_features >= 0,
              "{}: expected target edge or graph and edge_features of at least 0, got {} and {}",
              kHeadName, name_of(TaskTargets{}, options.target), options.edge_features);
  MEZZO_CHECK(!name_of(Readouts{}, options.readout).empty(), "{}: expected readout to be one of {}",
              kHeadName, mezzo::detail::names(Readouts{}));
  const std::int64_t in = options.in_features, hidden = options.hidden_features;
  const auto without_bias = [hidden](std::int64_t width) {
    return torch::nn::Linear(torch::nn::LinearOptions(width, hidden).bias(false));
  };
  if (options.target == TaskTarget::kEdge) {
    src_ = register_module("src", without_bias(in));
    dst_ = register_module("dst", torch::nn::Linear(in, hidden));
    if (options.edge_features > 0) {
      edge_ = register_module("edge", without_bias(options.edge_features));
    }
  } else {
    hidden_ = register_module("hidden", torch::nn::Linear(in, hidden));
  }
  out_ = register_module("out", torch::nn::Linear(hidden, options.out_features));
}

void HeadImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format(
      "mezzo::nn::Head(target={}, in_features={}, hidden_features={}, "
      "out_features={}, edge_features={}, readout={}, dropout={})",
      name_of(TaskTargets{}, options.target), options.in_features, options.hidden_features,
      options.out_features, options.edge_features, name_of(Readouts{}, options.readout),
      options.dropout);
}

at::Tensor HeadImpl::hidden_of_edges(const at::Tensor& h, const HeadTargets& targets) {
  const Topology& edges = targets.edges;
  const at::Tensor& features = targets.edge_features;
  MEZZO_CHECK(edges.num_src() == h.size(0) && edges.num_dst() == h.size(0),
              "{}: expected edges between the {} rows of nodes, got them from {} to {} nodes",
              kHeadName, h.size(0), edges.num_src(), edges.num_dst());
  MEZZO_CHECK(
      features.defined() == (options.edge_features > 0) &&
          (!features.defined() || (features.dim() == 2 && features.size(0) == edges.num_edges() &&
                                   features.size(1) == options.edge_features)),
      "{}: expected edge_features [{}, {}], got {}", kHeadName, edges.num_edges(),
      options.edge_features, features.defined() ? detail::describe(features) : "none");
  at::Tensor sum = gsddmm(edges, BinaryOp::kAdd, mezzo::linear(h, src_->weight, {}),
                          mezzo::linear(h, dst_->weight, dst_->bias), Target::kSrc, Target::kDst);
  if (edge_) sum = sum + mezzo::linear(features, edge_->weight, {});
  return sum;
}

at::Tensor HeadImpl::hidden_of_graphs(const at::Tensor& h, const HeadTargets& targets) {
  const at::Tensor& sizes = targets.graph_sizes;
  MEZZO_CHECK(sizes.defined() && sizes.dim() == 1 && sizes.scalar_type() == at::kLong,
              "{}: expected graph_sizes int64 [G], got {}", kHeadName,
              sizes.defined() ? detail::describe(sizes) : "none");
  const at::Tensor rows = segment_reduce(options.readout, sizes, h);
  return mezzo::linear(rows, hidden_->weight, hidden_->bias);
}

at::Tensor HeadImpl::forward(const at::Tensor& h, const HeadTargets& targets) {
  detail::check_rows(kHeadName, h, h.defined() && h.dim() == 2 ? h.size(0) : 0,
                     options.in_features);
  const at::Tensor rows = mezzo::feature_dropout(h, options.dropout, is_training());
  const at::Tensor sum = options.target == TaskTarget::kEdge ? hidden_of_edges(rows, targets)
                                                             : hidden_of_graphs(rows, targets);
  const at::Tensor hidden = mezzo::feature_dropout(at::relu(sum), options.dropout, is_training());
  return mezzo::linear(hidden, out_->weight, out_->bias);
}

}  // namespace mezzo::nn
