#include "mezzo/nn/topk_pooling.h"

#include <cmath>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/format.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/topology_build.h"
#include "mezzo/graph/transforms/transforms.h"
#include "mezzo/nn/layer_support.h"
#include "mezzo/ops/ops.h"

namespace mezzo::nn {
namespace {

constexpr auto kTopKPooling = "TopKPooling";
constexpr auto kSAGPooling = "SAGPooling";
constexpr double kScoreTolerance = 1e-7;  // PyG's

void check_options(std::string_view layer, const TopKPoolingOptions& options) {
  detail::check_positive(layer, "in_features", options.in_features);
  const double ratio = options.ratio;
  MEZZO_CHECK(ratio > 0 && ratio < 0x1p53 && (ratio < 1 || ratio == std::floor(ratio)),
              "{}: expected a ratio in (0, 1) or a whole number of at least 1, got {}", layer,
              ratio);
  MEZZO_CHECK(!options.min_score || std::isfinite(*options.min_score),
              "{}: expected a finite min_score, got {}", layer, options.min_score.value_or(0));
  MEZZO_CHECK(std::isfinite(options.multiplier), "{}: expected a finite multiplier, got {}", layer,
              options.multiplier);
}

std::string describe_options(std::string_view layer, const TopKPoolingOptions& options) {
  const std::string kept = options.min_score ? fmt::format("min_score={}", *options.min_score)
                                             : fmt::format("ratio={}", options.ratio);
  return fmt::format("mezzo::nn::{}(in_features={}, {}, multiplier={})", layer, options.in_features,
                     kept, options.multiplier);
}

/// A product without bias, to one number. Its initial values are uniform in +-1/sqrt(in), as PyG's.
torch::nn::Linear to_one(std::int64_t width) {
  return detail::linear_layer(width, 1, /*bias=*/false);
}

/// rows . weight: [N, 1]. rows: float32 or float64 [N, in]; weight: [1, in].
at::Tensor products(const at::Tensor& rows, const at::Tensor& weight) {
  return gsddmm(detail::rows_to_one(rows.size(0), rows.device()), BinaryOp::kDot, rows,
                weight.to(rows.scalar_type()), Target::kSrc, Target::kDst);
}

/// The scores of the nodes, [N], from `rows`, float32 or float64 [N, in].
at::Tensor scores_of(const Graph& graph, const at::Tensor& rows, const at::Tensor& weight,
                     const TopKPoolingOptions& options) {
  if (options.min_score) {
    const at::Tensor sizes = graph.batch_num_nodes().to(graph.device());
    return segment_softmax(sizes, products(rows, weight).squeeze(1));
  }
  const at::Tensor direction = weight.to(rows.scalar_type());
  const at::Tensor score = products(rows, direction / direction.norm()).squeeze(1);
  return detail::activate(options.nonlinearity, score);
}

/// The nodes to keep, int64 [K], graph by graph. sizes: int64 [B], of the graphs; score: [N].
at::Tensor kept_nodes(const at::Tensor& sizes, const at::Tensor& score,
                      const TopKPoolingOptions& options) {
  const at::Tensor graph_of = at::repeat_interleave(sizes);
  if (options.min_score) {
    const at::Tensor highest =
        segment_reduce(ReduceOp::kMax, sizes, score).index_select(0, graph_of);
    return (score > (highest - kScoreTolerance).clamp_max(*options.min_score)).nonzero().squeeze(1);
  }
  const at::Tensor counts = options.ratio < 1
                                ? (options.ratio * sizes.to(at::kDouble)).ceil().to(at::kLong)
                                : at::full_like(sizes, static_cast<std::int64_t>(options.ratio));
  // Both sorts are stable, so equal scores stay in the order of the nodes.
  const at::Tensor by_score = std::get<1>(score.sort(/*stable=*/true, 0, /*descending=*/true));
  const at::Tensor by_graph =
      std::get<1>(graph_of.index_select(0, by_score).sort(/*stable=*/true, 0, false));
  const at::Tensor order = by_score.index_select(0, by_graph);
  const at::Tensor rank = at::arange(order.numel(), order.options()) -
                          (sizes.cumsum(0) - sizes).index_select(0, graph_of);
  return order.masked_select(rank < counts.index_select(0, graph_of));
}

/// How many of `ids` (int64, graph by graph) belong to each of consecutive graphs of these `sizes`.
at::Tensor counts_of(const at::Tensor& ids, const at::Tensor& sizes) {
  const at::Tensor owners =
      at::searchsorted(sizes.cumsum(0), ids.cpu(), /*out_int32=*/false, /*right=*/true);
  return owners.bincount({}, sizes.numel());
}

/// rows[perm] times `factor`, [K]: [K, in] in the dtype of the rows.
at::Tensor scaled_rows(const at::Tensor& rows, const at::Tensor& perm, const at::Tensor& factor) {
  const std::int64_t count = perm.numel();
  const Topology chosen = mezzo::detail::topology_from_rows(
      {at::arange(count + 1, perm.options()), perm, at::Tensor()}, rows.size(0), count);
  return gsddmm(chosen, BinaryOp::kMul, rows, factor.unsqueeze(1), Target::kSrc, Target::kEdge);
}

/// Keeps the nodes with the best of these scores, [N].
CoarsenedGraph coarsened(std::string_view layer, const Graph& graph, const at::Tensor& h,
                         const at::Tensor& score, const TopKPoolingOptions& options) {
  MEZZO_CHECK(score.sizes() == h.sizes().slice(0, 1),
              "{}: expected the nonlinearity to return [{}], got {}", layer, h.size(0),
              detail::describe(score));
  const at::Tensor sizes = graph.batch_num_nodes(), edge_sizes = graph.batch_num_edges();
  const at::Tensor perm = kept_nodes(sizes.to(graph.device()), score.detach(), options);
  CoarsenedGraph result;
  result.graph = subgraph(graph, perm);
  result.perm = perm;
  result.score = score.index_select(0, perm);
  result.graph.set_batch(counts_of(perm, sizes),
                         counts_of(result.graph.edata().at("_ID"), edge_sizes));
  result.h = scaled_rows(h, perm, options.multiplier * result.score);
  return result;
}

}  // namespace

TopKPoolingImpl::TopKPoolingImpl(TopKPoolingOptions layer_options)
    : options(std::move(layer_options)) {
  reset();
}

void TopKPoolingImpl::reset() {
  check_options(kTopKPooling, options);
  select = register_module("select", to_one(options.in_features));
}

void TopKPoolingImpl::reset_parameters() {
  select->reset_parameters();
}

void TopKPoolingImpl::pretty_print(std::ostream& stream) const {
  stream << describe_options(kTopKPooling, options);
}

CoarsenedGraph TopKPoolingImpl::forward(const Graph& graph, const at::Tensor& h) {
  detail::check_dense_rows(kTopKPooling, graph, h, options.in_features);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const at::Tensor rows = h.to(detail::scale_dtype(h));
  return coarsened(kTopKPooling, graph, h, scores_of(graph, rows, select->weight, options),
                   options);
}

SAGPoolingImpl::SAGPoolingImpl(SAGPoolingOptions layer_options)
    : options(std::move(layer_options)) {
  reset();
}

void SAGPoolingImpl::reset() {
  check_options(kSAGPooling, options);
  torch::OrderedDict<std::string, std::shared_ptr<torch::nn::Module>> products;
  products.insert("lin_rel", torch::nn::Linear(options.in_features, 1).ptr());
  products.insert("lin_root", to_one(options.in_features).ptr());
  gnn = register_module("gnn", torch::nn::ModuleDict(products));
  select = register_module("select", to_one(1));
}

void SAGPoolingImpl::reset_parameters() {
  gnn->at<torch::nn::LinearImpl>("lin_rel").reset_parameters();
  gnn->at<torch::nn::LinearImpl>("lin_root").reset_parameters();
  select->reset_parameters();
}

void SAGPoolingImpl::pretty_print(std::ostream& stream) const {
  stream << describe_options(kSAGPooling, options);
}

// The product with lin_rel comes before the sum over the edges, which is then one number wide.
CoarsenedGraph SAGPoolingImpl::forward(const Graph& graph, const at::Tensor& h) {
  detail::check_dense_rows(kSAGPooling, graph, h, options.in_features);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const at::Tensor rows = h.to(detail::scale_dtype(h));
  const auto& rel = gnn->at<torch::nn::LinearImpl>("lin_rel");
  const auto& root = gnn->at<torch::nn::LinearImpl>("lin_root");
  const at::Tensor received =
      gspmm(graph, BinaryOp::kCopyLhs, ReduceOp::kSum, products(rows, rel.weight), std::nullopt);
  const at::Tensor sum = received + products(rows, root.weight);
  const at::Tensor bias = rel.bias.to(rows.scalar_type()).unsqueeze(0);
  const at::Tensor numbers = gsddmm(detail::rows_to_one(h.size(0), h.device()), BinaryOp::kAdd, sum,
                                    bias, Target::kSrc, Target::kDst);
  return coarsened(kSAGPooling, graph, h, scores_of(graph, numbers, select->weight, options),
                   options);
}

}  // namespace mezzo::nn
