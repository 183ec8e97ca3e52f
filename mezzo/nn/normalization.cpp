#include "mezzo/nn/normalization.h"

#include <cmath>
#include <optional>
#include <ostream>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/format.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/normalization.h>

#include "mezzo/core/error.h"
#include "mezzo/nn/layer_norm.h"
#include "mezzo/nn/layer_support.h"
#include "mezzo/ops/ops.h"

namespace mezzo::nn {
namespace {

constexpr auto kGraphNorm = "GraphNorm";
constexpr auto kPairNorm = "PairNorm";
constexpr auto kInstanceNorm = "InstanceNorm";

void check_eps(std::string_view layer, double eps) {
  MEZZO_CHECK(std::isfinite(eps) && eps >= 0, "{}: expected a finite eps of at least 0, got {}",
              layer, eps);
}

/// Rows in the accumulator's dtype, and their graphs.
struct GraphRows {
  at::Tensor rows;  ///< [N, F]
  Topology graphs;  ///< rows as sources, graphs as destinations

  GraphRows(const Graph& graph, const at::Tensor& h)
      : rows(h.to(detail::scale_dtype(h))),
        graphs(detail::rows_to_graphs(graph.batch_num_nodes(), graph.device())) {}

  /// [B, ...] of x, [N, ...]; 0 for a graph without rows.
  at::Tensor mean(const at::Tensor& x) const {
    return gspmm(graphs, BinaryOp::kCopyLhs, ReduceOp::kMean, x, std::nullopt);
  }
  /// The mean of the squares of each feature: [B, F].
  at::Tensor mean_of_squares() const {
    return gspmm(graphs, BinaryOp::kMul, ReduceOp::kMean, rows, rows);
  }
  /// rows = op(rows, the row of their graph in `of_graph`, [B, F] or [B, 1]).
  void apply(BinaryOp op, const at::Tensor& of_graph) {
    rows = gsddmm(graphs, op, rows, of_graph, Target::kSrc, Target::kDst);
  }
};

/// `parameter`, [F], for each row of `like`, [B, F], in its dtype.
at::Tensor for_each_row(const at::Tensor& parameter, const at::Tensor& like) {
  return gsddmm(detail::rows_to_one(like.size(0), like.device()), BinaryOp::kCopyLhs,
                parameter.to(like.scalar_type()).unsqueeze(0), std::nullopt, Target::kDst,
                Target::kEdge);
}

/// Moves `statistic`, [F], towards the mean of the rows of `values`, [B, F].
void update_running(at::Tensor& statistic, const at::Tensor& values, double momentum) {
  const at::Tensor mean = gspmm(detail::rows_to_one(values.size(0), values.device()),
                                BinaryOp::kCopyLhs, ReduceOp::kMean, values, std::nullopt);
  const at::Tensor old = statistic.to(mean.scalar_type());
  statistic.copy_((1 - momentum) * old + momentum * mean.squeeze(0));
}

}  // namespace

GraphNormImpl::GraphNormImpl(GraphNormOptions layer_options) : options(layer_options) {
  reset();
}

void GraphNormImpl::reset() {
  detail::check_positive(kGraphNorm, "in_features", options.in_features);
  check_eps(kGraphNorm, options.eps);
  weight = register_parameter("weight", at::empty({options.in_features}));
  bias = register_parameter("bias", at::empty({options.in_features}));
  mean_scale = register_parameter("mean_scale", at::empty({options.in_features}));
  reset_parameters();
}

void GraphNormImpl::reset_parameters() {
  torch::nn::init::ones_(weight);
  torch::nn::init::zeros_(bias);
  torch::nn::init::ones_(mean_scale);
}

void GraphNormImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format("mezzo::nn::GraphNorm(in_features={}, eps={})", options.in_features,
                        options.eps);
}

at::Tensor GraphNormImpl::forward(const Graph& graph, const at::Tensor& h) {
  detail::check_dense_rows(kGraphNorm, graph, h, options.in_features);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  GraphRows part(graph, h);
  const at::Tensor mean = part.mean(part.rows);
  part.apply(BinaryOp::kSub, mean * for_each_row(mean_scale, mean));
  const at::Tensor deviation = (part.mean_of_squares() + options.eps).sqrt();
  part.apply(BinaryOp::kMul, for_each_row(weight, mean) / deviation);
  part.apply(BinaryOp::kAdd, for_each_row(bias, mean));
  return part.rows.to(h.scalar_type());
}

PairNormImpl::PairNormImpl(PairNormOptions layer_options) : options(layer_options) {
  reset();
}

void PairNormImpl::reset() {
  MEZZO_CHECK(std::isfinite(options.scale), "{}: expected a finite scale, got {}", kPairNorm,
              options.scale);
  check_eps(kPairNorm, options.eps);
}

void PairNormImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format("mezzo::nn::PairNorm(scale={}, scale_individually={}, eps={})",
                        options.scale, options.scale_individually, options.eps);
}

at::Tensor PairNormImpl::forward(const Graph& graph, const at::Tensor& h) {
  detail::check_dense_rows(kPairNorm, graph, h, -1);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  GraphRows part(graph, h);
  part.apply(BinaryOp::kSub, part.mean(part.rows));
  const at::Tensor squares =
      gsddmm(part.graphs, BinaryOp::kDot, part.rows, part.rows, Target::kSrc, Target::kEdge);
  if (!options.scale_individually) {
    part.apply(BinaryOp::kMul, options.scale / (part.mean(squares) + options.eps).sqrt());
    return part.rows.to(h.scalar_type());
  }
  // The square root has no derivative at 0.
  const at::Tensor is_zero = squares == 0;
  const at::Tensor length = squares.masked_fill(is_zero, 1).sqrt().masked_fill(is_zero, 0);
  const at::Tensor factor = options.scale / (length + options.eps);
  return gsddmm(part.graphs, BinaryOp::kMul, part.rows, factor, Target::kSrc, Target::kEdge)
      .to(h.scalar_type());
}

InstanceNormImpl::InstanceNormImpl(InstanceNormOptions layer_options) : options(layer_options) {
  reset();
}

void InstanceNormImpl::reset() {
  detail::check_positive(kInstanceNorm, "in_features", options.in_features);
  check_eps(kInstanceNorm, options.eps);
  MEZZO_CHECK(options.momentum >= 0 && options.momentum <= 1,
              "{}: expected a momentum in [0, 1], got {}", kInstanceNorm, options.momentum);
  if (options.affine) {
    weight = register_parameter("weight", at::empty({options.in_features}));
    bias = register_parameter("bias", at::empty({options.in_features}));
  }
  if (options.track_running_stats) {
    running_mean = register_buffer("running_mean", at::empty({options.in_features}));
    running_var = register_buffer("running_var", at::empty({options.in_features}));
    num_batches_tracked = register_buffer("num_batches_tracked", at::zeros({}, at::kLong));
  }
  reset_parameters();
}

void InstanceNormImpl::reset_parameters() {
  if (options.affine) {
    torch::nn::init::ones_(weight);
    torch::nn::init::zeros_(bias);
  }
  if (options.track_running_stats) {
    running_mean.zero_();
    running_var.fill_(1);
    num_batches_tracked.zero_();
  }
}

void InstanceNormImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format(
      "mezzo::nn::InstanceNorm(in_features={}, eps={}, momentum={}, affine={}, "
      "track_running_stats={})",
      options.in_features, options.eps, options.momentum, options.affine,
      options.track_running_stats);
}

at::Tensor InstanceNormImpl::forward(const Graph& graph, const at::Tensor& h) {
  detail::check_dense_rows(kInstanceNorm, graph, h, options.in_features);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  GraphRows part(graph, h);
  at::Tensor mean, variance;
  if (options.track_running_stats && !is_training()) {
    const std::vector<std::int64_t> shape = {graph.batch_size(), options.in_features};
    mean = running_mean.to(part.rows.scalar_type()).expand(shape);
    variance = running_var.to(part.rows.scalar_type()).expand(shape);
    part.apply(BinaryOp::kSub, mean);
  } else {
    mean = part.mean(part.rows);
    part.apply(BinaryOp::kSub, mean);
    variance = part.mean_of_squares();
  }
  if (options.track_running_stats && is_training()) {
    const c10::NoGradGuard no_grad;
    const at::Tensor count = graph.batch_num_nodes().to(variance.options()).unsqueeze(1);
    update_running(running_mean, mean, options.momentum);
    update_running(running_var, variance * (count / (count - 1).clamp_min(1)), options.momentum);
  }
  const at::Tensor deviation = (variance + options.eps).sqrt();
  part.apply(BinaryOp::kMul,
             weight.defined() ? for_each_row(weight, mean) / deviation : deviation.reciprocal());
  if (bias.defined()) part.apply(BinaryOp::kAdd, for_each_row(bias, mean));
  return part.rows.to(h.scalar_type());
}

namespace detail {

std::function<at::Tensor(const at::Tensor&)> add_normalization(
    torch::nn::Module& owner, const std::string& name, Normalization kind, std::int64_t width,
    const NormalizationFactory& make_batch) {
  if (kind == Normalization::kLayer) {
    auto norm = torch::nn::LayerNorm(std::vector<std::int64_t>{width});
    owner.register_module(name, norm);
    return [norm](const at::Tensor& h) mutable { return layer_norm(*norm, h); };
  }
  if (kind == Normalization::kBatch && make_batch) {
    NormalizationModule norm = make_batch(width);
    owner.register_module(name, std::move(norm.module));
    return std::move(norm.apply);
  }
  if (kind == Normalization::kBatch) {
    auto norm = torch::nn::BatchNorm1d(torch::nn::BatchNormOptions(width));
    owner.register_module(name, norm);
    return [norm](const at::Tensor& h) mutable {
      MEZZO_CHECK(!norm->is_training() || h.size(0) > 1,
                  "batch normalization: expected at least 2 rows while training, got {}",
                  h.size(0));
      return norm(h);
    };
  }
  return {};
}

}  // namespace detail
}  // namespace mezzo::nn
