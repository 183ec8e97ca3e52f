#include "mezzo/nn/conv/pna_conv.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <ostream>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/modules/activation.h>

#include "mezzo/core/error.h"
#include "mezzo/nn/conv/conv_support.h"
#include "mezzo/nn/layer_support.h"
#include "mezzo/nn/normalization.h"
#include "mezzo/ops/ops.h"

namespace mezzo::nn {
namespace {

constexpr auto kPnaConvName = "PNAConv";

/// The names of the values, which index `names`.
template <class Value, std::size_t kCount>
std::string names_of(const std::vector<Value>& values,
                     const std::array<std::string_view, kCount>& names) {
  std::vector<std::string_view> all;
  for (const Value value : values) all.push_back(names.at(static_cast<std::size_t>(value)));
  return fmt::format("[{}]", fmt::join(all, ", "));
}

/// The messages but for their part of the destination, which is the same for all of a node's: one
/// row a source, or an edge.
class Messages {
 public:
  Messages(const Topology& topology, at::Tensor rows, Target target)
      : topology_(topology),
        rows_(std::move(rows)),
        target_(target),
        wide_(rows_.to(detail::scale_dtype(rows_))) {}

  at::Tensor reduced(ReduceOp reduce) const { return reduced(reduce, rows_); }

  /// Below, from float32 (float64) rows, because the differences cancel: of rows in 16 bits nothing
  /// would be left.
  const at::Tensor& variance() {
    if (!variance_.defined()) {
      variance_ = at::relu(reduced(ReduceOp::kMean, wide_ * wide_) - mean() * mean());
    }
    return variance_;
  }
  at::Tensor moment(int order) {
    const at::Tensor centred =
        gsddmm(topology_, BinaryOp::kSub, wide_, mean(), target_, Target::kDst);
    const at::Tensor powers =
        gspmm(topology_, BinaryOp::kCopyRhs, ReduceOp::kMean, std::nullopt, centred.pow(order));
    return powers.sign() * (powers.abs() + 1e-30).pow(1.0 / order);
  }
  const at::Tensor& mean() {
    if (!mean_.defined()) mean_ = reduced(ReduceOp::kMean, wide_);
    return mean_;
  }

 private:
  at::Tensor reduced(ReduceOp reduce, const at::Tensor& rows) const {
    if (target_ == Target::kEdge) {
      return gspmm(topology_, BinaryOp::kCopyRhs, reduce, std::nullopt, rows);
    }
    return gspmm(topology_, BinaryOp::kCopyLhs, reduce, rows, std::nullopt);
  }

  const Topology& topology_;
  at::Tensor rows_;
  Target target_;
  at::Tensor wide_, mean_, variance_;
};

/// 1 / sqrt(number of nodes of its graph) for each node, [N, 1]; for one graph [].
at::Tensor graph_norms(const at::Tensor& h, const at::Tensor& batch_num_nodes) {
  const std::int64_t num_nodes = h.size(0);
  if (!batch_num_nodes.defined()) {
    const auto count = static_cast<double>(std::max<std::int64_t>(num_nodes, 1));
    return at::scalar_tensor(1 / std::sqrt(count), h.options().dtype(at::kDouble));
  }
  MEZZO_CHECK(
      batch_num_nodes.dim() == 1 && batch_num_nodes.scalar_type() == at::kLong &&
          batch_num_nodes.device().is_cpu() && (batch_num_nodes >= 0).all().item<bool>() &&
          batch_num_nodes.sum().item<std::int64_t>() == num_nodes,
      "{}: expected batch_num_nodes int64 [number of graphs] on the CPU with sum {}, got {}",
      kPnaConvName, num_nodes, detail::describe(batch_num_nodes));
  return batch_num_nodes.to(at::kDouble)
      .rsqrt()
      .repeat_interleave(batch_num_nodes)
      .unsqueeze(1)
      .to(h.options());
}

}  // namespace

PNATowerImpl::PNATowerImpl(std::int64_t in_size, std::int64_t message_size,
                           std::int64_t update_size, std::int64_t out_size)
    : in(in_size), message_width(message_size), update_width(update_size), out(out_size) {
  reset();
}

void PNATowerImpl::reset() {
  M = register_module("M", torch::nn::Linear(message_width, in));
  U = register_module("U", torch::nn::Linear(update_width, out));
  normalize = detail::add_normalization(*this, "batchnorm", Normalization::kBatch, out);
}

PNAConvImpl::PNAConvImpl(PNAConvOptions layer_options) : options(std::move(layer_options)) {
  reset();
}

void PNAConvImpl::reset() {
  const std::int64_t in = options.in_features, out = options.out_features;
  const std::int64_t count = options.num_towers;
  detail::check_in_and_out(kPnaConvName, options);
  detail::check_positive(kPnaConvName, "num_towers", count);
  detail::check_probability(kPnaConvName, "dropout", options.dropout);
  MEZZO_CHECK(
      in % count == 0 && out % count == 0,
      "{}: expected num_towers that divides in_features and out_features, {} and {}, got {}",
      kPnaConvName, in, out, count);
  MEZZO_CHECK(options.edge_features >= 0, "{}: expected edge_features of at least 0, got {}",
              kPnaConvName, options.edge_features);
  MEZZO_CHECK(options.delta > 0 && std::isfinite(options.delta),
              "{}: expected a positive, finite delta, got {}", kPnaConvName, options.delta);
  MEZZO_CHECK(!options.aggregators.empty() && !options.scalers.empty(),
              "{}: expected at least one of aggregators and of scalers, got {} and {}",
              kPnaConvName, options.aggregators.size(), options.scalers.size());
  const auto reductions =
      static_cast<std::int64_t>(options.aggregators.size() * options.scalers.size());
  const std::int64_t share = in / count;
  towers = register_module("towers", torch::nn::ModuleList());
  for (std::int64_t i = 0; i < count; ++i) {
    towers->push_back(std::make_shared<PNATowerImpl>(share, 2 * share + options.edge_features,
                                                     (reductions + 1) * share, out / count));
  }
  mixing_layer = register_module(
      "mixing_layer", torch::nn::Sequential(torch::nn::Linear(out, out), torch::nn::LeakyReLU()));
}

void PNAConvImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format(
      "mezzo::nn::PNAConv(in_features={}, out_features={}, aggregators={}, scalers={}, delta={}, "
      "dropout={}, num_towers={}, edge_features={}, residual={})",
      options.in_features, options.out_features, names_of(options.aggregators, kPnaAggregatorNames),
      names_of(options.scalers, kPnaScalerNames), options.delta, options.dropout,
      options.num_towers, options.edge_features, options.residual);
}

std::vector<at::Tensor> PNAConvImpl::aggregates(const Topology& topology, const at::Tensor& h,
                                                const at::Tensor& edge_features) const {
  std::vector<at::Tensor> sent, received, of_edges;
  for (std::size_t i = 0; i < towers->size(); ++i) {
    const auto& tower = towers->at<PNATowerImpl>(i);
    const auto part = [&](std::int64_t begin, std::int64_t width) {
      return tower.M->weight.narrow(1, begin, width);
    };
    const at::Tensor rows = h.narrow(1, static_cast<std::int64_t>(i) * tower.in, tower.in);
    sent.push_back(mezzo::linear(rows, part(0, tower.in)));
    received.push_back(mezzo::linear(rows, part(tower.in, tower.in), tower.M->bias));
    if (options.edge_features == 0) continue;
    of_edges.push_back(mezzo::linear(edge_features, part(2 * tower.in, options.edge_features)));
  }
  // Rows of 16 bits go with float32 numbers below; a region must not round those.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  at::Tensor rows = at::cat(sent, 1);
  if (!of_edges.empty()) {
    rows =
        gsddmm(topology, BinaryOp::kAdd, rows, at::cat(of_edges, 1), Target::kSrc, Target::kEdge);
  }
  const at::ScalarType dtype = rows.scalar_type();
  Messages messages(topology, rows, of_edges.empty() ? Target::kSrc : Target::kEdge);
  const at::Tensor degrees = topology.in_degrees().to(dtype).unsqueeze(1);
  const at::Tensor own = at::cat(received, 1);
  const at::Tensor shift = topology.has_zero_in_degree() ? own * degrees.clamp_max(1) : own;
  std::vector<at::Tensor> all;
  for (const PnaAggregator aggregator : options.aggregators) {
    switch (aggregator) {
      case PnaAggregator::kMean:
        all.push_back(messages.mean().to(dtype) + shift);
        break;
      case PnaAggregator::kSum:
        all.push_back(messages.reduced(ReduceOp::kSum) + own * degrees);
        break;
      case PnaAggregator::kMax:
        all.push_back(messages.reduced(ReduceOp::kMax) + shift);
        break;
      case PnaAggregator::kMin:
        all.push_back(messages.reduced(ReduceOp::kMin) + shift);
        break;
      case PnaAggregator::kStd:
        all.push_back((messages.variance() + 1e-30).sqrt().to(dtype));
        break;
      case PnaAggregator::kVar:
        all.push_back(messages.variance().to(dtype));
        break;
      default: {
        const int order =
            3 + static_cast<int>(aggregator) - static_cast<int>(PnaAggregator::kMoment3);
        all.push_back(messages.moment(order).to(dtype));
      }
    }
  }
  return all;
}

at::Tensor PNAConvImpl::scales(const Topology& topology, at::ScalarType dtype) const {
  // What a node without in-edges scales is 0.
  const at::Tensor logs = topology.in_degrees().clamp_min(1).to(at::kDouble).log1p();
  std::vector<at::Tensor> all;
  for (const PnaScaler scaler : options.scalers) {
    all.push_back(scaler == PnaScaler::kIdentity        ? at::ones_like(logs)
                  : scaler == PnaScaler::kAmplification ? logs / options.delta
                                                        : options.delta / logs);
  }
  return at::stack(all, 1).to(dtype);
}

at::Tensor PNAConvImpl::forward(const Topology& topology, const at::Tensor& features,
                                const at::Tensor& edge_features,
                                const at::Tensor& batch_num_nodes) {
  detail::check_input(kPnaConvName, topology, features, options.in_features);
  detail::check_one_node_set(kPnaConvName, topology);
  if (options.edge_features > 0) {
    detail::check_edge_features(kPnaConvName, topology, edge_features, features,
                                {topology.num_edges(), options.edge_features});
  } else {
    MEZZO_CHECK(!edge_features.defined(),
                "{}: expected no edge_features, because the option edge_features is 0, got {}",
                kPnaConvName, detail::describe(edge_features));
  }
  const at::Tensor h = detail::is_sparse(features) ? features.to_dense() : features;
  const std::vector<at::Tensor> reduced = aggregates(topology, h, edge_features);
  const at::Tensor factors = scales(topology, reduced.front().scalar_type()).unsqueeze(-1);
  const at::Tensor norms = graph_norms(reduced.front(), batch_num_nodes);
  std::vector<at::Tensor> of_towers;
  for (std::size_t i = 0; i < towers->size(); ++i) {
    auto& tower = towers->at<PNATowerImpl>(i);
    const std::int64_t begin = static_cast<std::int64_t>(i) * tower.in;
    std::vector<at::Tensor> parts;
    for (const at::Tensor& one : reduced) parts.push_back(one.narrow(1, begin, tower.in));
    // U of the scaled parts is the sum over the scalers of scale times U's block for it.
    const auto products = detail::linear_by_blocks(
        at::cat(parts, 1), tower.U->weight.narrow(1, tower.in, tower.update_width - tower.in),
        factors.size(1));
    at::Tensor out = mezzo::linear(h.narrow(1, begin, tower.in),
                                   tower.U->weight.narrow(1, 0, tower.in), tower.U->bias);
    for (std::size_t s = 0; s < products.size(); ++s) {
      out = out + products[s] * factors.select(1, static_cast<std::int64_t>(s));
    }
    of_towers.push_back(
        mezzo::feature_dropout(tower.normalize(out * norms), options.dropout, is_training()));
  }
  const auto& mixing = mixing_layer->at<torch::nn::LinearImpl>(0);
  const at::Tensor mixed =
      at::leaky_relu(detail::apply_linear(mixing, at::cat(of_towers, 1)), 0.01);
  if (!options.residual || options.in_features != options.out_features) return mixed;
  return mixed + h.to(mixed.scalar_type());
}

}  // namespace mezzo::nn
