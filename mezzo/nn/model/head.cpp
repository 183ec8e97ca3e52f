#include "mezzo/nn/model/head.h"

#include <ostream>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/nn/init.h>

#include "mezzo/core/error.h"
#include "mezzo/nn/layer_support.h"

namespace mezzo::nn {
namespace {

constexpr auto kHeadName = "Head";

/// Products of rows of nodes and of weights, as times(rows, weights) makes them. turn: 1, or -1 for
/// the conjugate weights of kComplEx.
template <class Times>
at::Tensor weighted(Decoder decoder, const at::Tensor& h, const at::Tensor& weights, int turn,
                    const Times& times) {
  if (decoder == Decoder::kDistMult) return times(h, weights);
  const std::int64_t half = h.size(1) / 2;
  const at::Tensor real = h.narrow(1, 0, half), imaginary = h.narrow(1, half, half);
  const at::Tensor parts = h.reshape({-1, 2, half});
  const at::Tensor turned = at::stack({imaginary.neg(), real}, 1) * turn;  // times i or -i
  const at::Tensor of_weights = weights.view({-1, 2, half});
  return (times(parts, of_weights.narrow(1, 0, 1)) + times(turned, of_weights.narrow(1, 1, 1)))
      .flatten(1);
}

}  // namespace

HeadTargets HeadTargets::to(at::Device device) const {
  const auto moved = [device](const at::Tensor& t) { return t.defined() ? t.to(device) : t; };
  return {edges.to(device), moved(edge_features), moved(graph_sizes), moved(edge_types),
          moved(edge_ids)};
}

HeadTargets HeadTargets::edges_at(const at::Tensor& ids) const {
  HeadTargets some;
  some.edges =
      Topology::from_coo(edges.src().index_select(0, ids), edges.dst().index_select(0, ids),
                         edges.num_src(), edges.num_dst());
  if (edge_features.defined()) some.edge_features = edge_features.index_select(0, ids);
  if (edge_types.defined()) some.edge_types = edge_types.index_select(0, ids);
  if (edge_ids.defined()) some.edge_ids = edge_ids.index_select(0, ids);
  return some;
}

HeadImpl::HeadImpl(HeadOptions head_options) : options(head_options) {
  reset();
}

void HeadImpl::reset() {
  detail::check_in_and_out(kHeadName, options);
  detail::check_positive(kHeadName, "hidden_features", options.hidden_features);
  detail::check_probability(kHeadName, "dropout", options.dropout);
  MEZZO_CHECK(options.target != TaskTarget::kNode && options.edge_features >= 0,
              "{}: expected target edge, graph or link and edge_features of at least 0, got {} and "
              "{}",
              kHeadName, name_of(TaskTargets{}, options.target), options.edge_features);
  MEZZO_CHECK(!name_of(Readouts{}, options.readout).empty(), "{}: expected readout to be one of {}",
              kHeadName, mezzo::detail::names(Readouts{}));
  const Decoder decoder = options.decoder;
  MEZZO_CHECK(!name_of(Decoders{}, decoder).empty() && options.edge_types >= 1,
              "{}: expected decoder to be one of {} and edge_types of at least 1, got {}",
              kHeadName, mezzo::detail::names(Decoders{}), options.edge_types);
  if (decoder != Decoder::kMlp) {
    MEZZO_CHECK(options.target == TaskTarget::kLink && options.out_features == 1,
                "{}: expected target link and out_features 1 for decoder {}, got {} and {}",
                kHeadName, name_of(Decoders{}, decoder), name_of(TaskTargets{}, options.target),
                options.out_features);
    MEZZO_CHECK(decoder != Decoder::kComplEx || options.in_features % 2 == 0,
                "{}: expected an even number of in_features for decoder complex, got {}", kHeadName,
                options.in_features);
    if (!has_edge_types(decoder)) return;
    types_ = register_parameter("types", at::empty({options.edge_types, options.in_features}));
    torch::nn::init::xavier_uniform_(types_);
    return;
  }
  const std::int64_t in = options.in_features, hidden = options.hidden_features;
  if (options.target != TaskTarget::kGraph) {
    src_ = register_module("src", detail::linear_layer(in, hidden, /*bias=*/false));
    dst_ = register_module("dst", torch::nn::Linear(in, hidden));
    if (options.edge_features > 0) {
      edge_ = register_module("edge",
                              detail::linear_layer(options.edge_features, hidden, /*bias=*/false));
    }
  } else {
    hidden_ = register_module("hidden", torch::nn::Linear(in, hidden));
  }
  out_ = register_module("out", torch::nn::Linear(hidden, options.out_features));
}

void HeadImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format(
      "mezzo::nn::Head(target={}, in_features={}, hidden_features={}, "
      "out_features={}, edge_features={}, readout={}, decoder={}, edge_types={}, dropout={})",
      name_of(TaskTargets{}, options.target), options.in_features, options.hidden_features,
      options.out_features, options.edge_features, name_of(Readouts{}, options.readout),
      name_of(Decoders{}, options.decoder), options.edge_types, options.dropout);
}

void HeadImpl::check_edges(std::int64_t num_nodes, const HeadTargets& targets) const {
  const Topology& edges = targets.edges;
  MEZZO_CHECK(edges.num_src() == num_nodes && edges.num_dst() == num_nodes,
              "{}: expected edges between the {} rows of nodes, got them from {} to {} nodes",
              kHeadName, num_nodes, edges.num_src(), edges.num_dst());
  const at::Tensor& types = targets.edge_types;
  MEZZO_CHECK(!types.defined() || (types.dim() == 1 && types.size(0) == edges.num_edges() &&
                                   types.scalar_type() == at::kLong),
              "{}: expected edge_types int64 [{}], got {}", kHeadName, edges.num_edges(),
              detail::describe(types));
}

at::Tensor HeadImpl::times_types(const at::Tensor& h, const at::Tensor& ends,
                                 const at::Tensor& edge_types, int turn) const {
  const at::Tensor types = edge_types.defined() ? edge_types : at::zeros_like(ends);
  const Topology type_of_end = Topology::from_coo(ends, types, h.size(0), options.edge_types);
  return weighted(options.decoder, h, types_, turn,
                  [&](const at::Tensor& rows, const at::Tensor& weights) {
                    return gsddmm(type_of_end, BinaryOp::kMul, rows, weights);
                  });
}

at::Tensor HeadImpl::queries(const at::Tensor& h, const HeadTargets& targets, Target answer) {
  check_edges(h.size(0), targets);
  const Decoder decoder = options.decoder;
  MEZZO_CHECK(decoder != Decoder::kMlp,
              "{}: expected decoder dot, distmult or complex, whose scores of all nodes are a "
              "product, got mlp",
              kHeadName);
  const bool of_src = answer == Target::kDst;
  const at::Tensor& ends = of_src ? targets.edges.src() : targets.edges.dst();
  if (decoder == Decoder::kDot) return h.index_select(0, ends);
  return times_types(h, ends, targets.edge_types, of_src ? 1 : -1);
}

NodeRows HeadImpl::rows_for_edges(const at::Tensor& h) {
  detail::check_rows(kHeadName, h, h.defined() && h.dim() == 2 ? h.size(0) : 0,
                     options.in_features);
  if (options.decoder == Decoder::kMlp) {
    const at::Tensor rows = mezzo::feature_dropout(h, options.dropout, is_training());
    return {detail::apply_linear(*src_, rows), detail::apply_linear(*dst_, rows)};
  }
  if (!has_edge_types(options.decoder) || !has_one_type()) return {h, h};
  const Topology to_type = detail::rows_to_one(h.size(0), h.device());
  const auto times = [&](const at::Tensor& rows, const at::Tensor& weights) {
    return gsddmm(to_type, BinaryOp::kMul, rows, weights);
  };
  return {weighted(options.decoder, h, types_, /*turn=*/1, times), h};
}

at::Tensor HeadImpl::forward_edges(const NodeRows& rows, const HeadTargets& targets) {
  check_edges(rows.src().size(0), targets);
  const Topology& edges = targets.edges;
  if (options.decoder == Decoder::kMlp) return finish(hidden_of_edges(rows, targets));
  if (!has_edge_types(options.decoder) || has_one_type()) {
    return gsddmm(edges, BinaryOp::kDot, rows.src(), rows.dst());
  }
  return gsddmm(edges, BinaryOp::kDot,
                times_types(rows.src(), edges.src(), targets.edge_types, /*turn=*/1), rows.dst(),
                Target::kEdge, Target::kDst);
}

at::Tensor HeadImpl::hidden_of_edges(const NodeRows& rows, const HeadTargets& targets) {
  const Topology& edges = targets.edges;
  const at::Tensor& features = targets.edge_features;
  MEZZO_CHECK(
      features.defined() == (options.edge_features > 0) &&
          (!features.defined() || (features.dim() == 2 && features.size(0) == edges.num_edges() &&
                                   features.size(1) == options.edge_features)),
      "{}: expected edge_features [{}, {}], got {}", kHeadName, edges.num_edges(),
      options.edge_features, features.defined() ? detail::describe(features) : "none");
  const at::Tensor sum =
      gsddmm(edges, BinaryOp::kAdd, rows.src(), rows.dst(), Target::kSrc, Target::kDst);
  return edge_ ? sum + detail::apply_linear(*edge_, features) : sum;
}

at::Tensor HeadImpl::hidden_of_graphs(const at::Tensor& h, const HeadTargets& targets) {
  const at::Tensor& sizes = targets.graph_sizes;
  MEZZO_CHECK(sizes.defined() && sizes.dim() == 1 && sizes.scalar_type() == at::kLong,
              "{}: expected graph_sizes int64 [G], got {}", kHeadName,
              sizes.defined() ? detail::describe(sizes) : "none");
  const at::Tensor rows = segment_reduce(options.readout, sizes, h);
  return detail::apply_linear(*hidden_, rows);
}

at::Tensor HeadImpl::finish(at::Tensor sum) {
  sum.relu_();  // as no gradient reads the sum
  return detail::apply_linear(*out_, mezzo::feature_dropout(sum, options.dropout, is_training()));
}

at::Tensor HeadImpl::forward(const at::Tensor& h, const HeadTargets& targets) {
  if (options.target != TaskTarget::kGraph) return forward_edges(rows_for_edges(h), targets);
  detail::check_rows(kHeadName, h, h.defined() && h.dim() == 2 ? h.size(0) : 0,
                     options.in_features);
  const at::Tensor rows = mezzo::feature_dropout(h, options.dropout, is_training());
  return finish(hidden_of_graphs(rows, targets));
}

}  // namespace mezzo::nn
