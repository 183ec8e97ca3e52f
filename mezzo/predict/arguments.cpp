#include "mezzo/predict/arguments.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/data/dataset.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/graph/topology_build.h"

namespace mezzo::detail {
namespace {

constexpr auto kPredictor = "Predictor";

at::Tensor checked_ids(std::string_view call, std::string_view name, const at::Tensor& nodes,
                       std::int64_t num_nodes) {
  const at::Tensor ids = check_vector(call, name, nodes);
  MEZZO_CHECK(ids.is_cpu(), "{}: expected {} on the CPU, got them on {}", call, name,
              ids.device().str());
  check_range(call, name, ids, num_nodes);
  return ids;
}

/// Numbers of an edge's row; 0: none.
std::int64_t row_width(const FrozenModel& model, const at::Tensor& edge_rows) {
  const nn::ModelOptions& options = model.options();
  if (options.kind == nn::ModelKind::kMlp) return 0;
  if (nn::takes_edge_features(options.kind)) {
    MEZZO_CHECK(edge_rows.defined(),
                "{}: expected edge_rows [E, {}], the features of the edges, got none", kPredictor,
                options.edge_features);
    return options.edge_features;
  }
  MEZZO_CHECK(!edge_rows.defined() || nn::takes_edge_weights(options.kind),
              "{}: expected no edge_rows, which {} does not read, got {}", kPredictor,
              nn::to_string(options.kind), describe(edge_rows));
  return edge_rows.defined() ? 1 : 0;
}

}  // namespace

at::Tensor node_ids(std::string_view call, std::string_view name, const at::Tensor& nodes,
                    std::int64_t num_nodes) {
  return checked_ids(call, name, nodes, num_nodes)
      .to(at::kInt, /*non_blocking=*/false, /*copy=*/true);
}

void check_distinct(std::string_view call, const at::Tensor& ids) {
  const std::span<const std::int32_t> given = span_of<std::int32_t>(ids);
  std::vector<std::int32_t> sorted(given.begin(), given.end());
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  MEZZO_CHECK(twice == sorted.end(), "{}: expected distinct nodes, got {} more than once", call,
              *twice);
}

void check_node_count(std::string_view call, std::int64_t num_nodes) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max() - 1;
  MEZZO_CHECK(num_nodes <= kMost, "{}: expected at most {} nodes, got {}", call, kMost, num_nodes);
}

void check_fanouts(const std::vector<std::int64_t>& fanouts, std::int64_t num_layers) {
  MEZZO_CHECK(static_cast<std::int64_t>(fanouts.size()) == num_layers,
              "predict: expected {} fanouts, one for each layer, got {}", num_layers,
              fanouts.size());
  for (const std::int64_t fanout : fanouts) {
    MEZZO_CHECK(fanout >= 0 || fanout == kAllNeighbors,
                "predict: expected a fanout of at least 0, or -1 for all neighbours, got {}",
                fanout);
  }
}

CheckedEdges::CheckedEdges(std::string_view call, const at::Tensor& src, const at::Tensor& dst,
                           std::int64_t num_nodes)
    : src_(checked_ids(call, "src", src, num_nodes).to(at::kLong)),
      dst_(checked_ids(call, "dst", dst, num_nodes).to(at::kLong)) {
  MEZZO_CHECK(src_.numel() == dst_.numel(), "{}: expected as many src as dst, got {} and {}", call,
              src_.numel(), dst_.numel());
}

LiveEdges CheckedEdges::with_rows(const at::Tensor& rows) const {
  return {span_of<std::int64_t>(src_), span_of<std::int64_t>(dst_),
          rows.defined() ? rows.const_data_ptr<float>() : nullptr};
}

at::Tensor checked_edge_rows(std::string_view call, const at::Tensor& rows, std::int64_t num_edges,
                             std::int64_t width, EdgeRead read) {
  if (width == 0) {
    MEZZO_CHECK(!rows.defined(), "{}: expected no rows, as none are read, got {}", call,
                describe(rows));
    return {};
  }
  const bool are_weights = read != EdgeRead::kRows;
  const bool fits = rows.defined() && rows.is_cpu() && rows.layout() == at::kStrided &&
                    rows.scalar_type() == at::kFloat && rows.dim() == (are_weights ? 1 : 2) &&
                    rows.size(0) == num_edges && (are_weights || rows.size(1) == width);
  MEZZO_CHECK(fits, "{}: expected rows float32 [{}{}] on the CPU, got {}", call, num_edges,
              are_weights ? "" : ", " + std::to_string(width), describe(rows));
  MEZZO_CHECK(at::isfinite(rows).all().item<bool>(), "{}: expected finite rows, got others", call);
  MEZZO_CHECK(read != EdgeRead::kFactors || rows.gt(0).all().item<bool>(),
              "{}: expected weights above 0, of whose sums gcn takes the root, got others", call);
  return rows.detach().contiguous();
}

at::Tensor checked_pair_rows(std::string_view call, const at::Tensor& rows, std::int64_t num_pairs,
                             const nn::ModelOptions& model) {
  if (model.target == TaskTarget::kEdge) {
    const bool is_floating = rows.defined() && at::isFloatingType(rows.scalar_type());
    return checked_edge_rows(call, is_floating ? rows.to(at::kFloat) : rows, num_pairs,
                             model.edge_features, EdgeRead::kRows);
  }
  if (!rows.defined()) return {};
  constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
  const at::Tensor types =
      checked_ids(call, "rows", rows, nn::has_edge_types(model.decoder) ? model.edge_types : kAny);
  MEZZO_CHECK(types.numel() == num_pairs, "{}: expected rows [{}], a type of each link, got [{}]",
              call, num_pairs, types.numel());
  return types.to(at::kLong);
}

at::Tensor prepared_features(std::string_view call, const at::Tensor& features,
                             const FrozenModel& model, bool normalize) {
  const std::int64_t width = model.options().in_features;
  MEZZO_CHECK(features.defined() && features.dim() == 2 && features.size(1) == width &&
                  at::isFloatingType(features.scalar_type()) && features.is_cpu(),
              "{}: expected floating features [n, {}] on the CPU, got {}", call, width,
              describe(features));
  at::Tensor rows = features.detach();
  if (rows.layout() != at::kStrided) rows = rows.to_dense();
  MEZZO_CHECK(at::isfinite(rows).all().item<bool>(), "{}: expected finite features, got others",
              call);
  if (normalize) rows = normalize_rows(rows.to(at::kFloat));
  // A table of its own: the caller's may change.
  return rows.to(model.feature_dtype(), /*non_blocking=*/false, /*copy=*/true).contiguous();
}

std::unique_ptr<LiveModel> live_model(const FrozenModel& model, const PredictorData& data,
                                      bool resident) {
  const nn::ModelOptions& options = model.options();
  const Topology& graph = data.graph;
  MEZZO_CHECK(
      options.kind != nn::ModelKind::kSgc,
      "{}: expected another model than sgc, whose one layer reads all hops; without a graph "
      "predict(input, x) takes it",
      kPredictor);
  MEZZO_CHECK(graph.device().is_cpu() && graph.num_src() == graph.num_dst() && graph.num_src() > 0,
              "{}: expected a graph on the CPU of one set of nodes, got {} sources and {} "
              "destinations on {}",
              kPredictor, graph.num_src(), graph.num_dst(), graph.device().str());
  check_node_count(kPredictor, graph.num_src());
  const std::int64_t width = row_width(model, data.edge_rows);
  const EdgeRead read = edge_read_of(options.kind, width > 0);
  at::Tensor features =
      prepared_features(kPredictor, data.features, model, data.normalize_features);
  MEZZO_CHECK(features.size(0) == graph.num_src(),
              "{}: expected a row of features for each of {} "
              "nodes, got {}",
              kPredictor, graph.num_src(), features.size(0));
  const at::Tensor rows = checked_edge_rows(kPredictor, width > 0 ? data.edge_rows : at::Tensor(),
                                            graph.num_edges(), width, read);
  LiveGraph live({.num_nodes = graph.num_src(),
                  .row_width = width,
                  .self_loops = data.self_loops,
                  .sums_weights = read == EdgeRead::kFactors});
  const CheckedEdges edges(kPredictor, graph.src(), graph.dst(), graph.num_src());
  live.add(edges.with_rows(rows));
  return std::make_unique<LiveModel>(model, std::move(live), std::move(features), resident);
}

}  // namespace mezzo::detail
