#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/graph/topology.h"
#include "mezzo/predict/frozen_model.h"
#include "mezzo/predict/live_graph.h"
#include "mezzo/predict/live_model.h"

/// Checks of Predictor's arguments. Internal to predict; not exported. All throw InvalidArgument;
/// `call` names the function.
namespace mezzo::detail {

template <class T>
std::span<const T> span_of(const at::Tensor& values) {
  return {values.const_data_ptr<T>(), static_cast<std::size_t>(values.numel())};
}

/// A copy of `nodes`, integers [n] in [0, num_nodes) on the CPU, as int32.
at::Tensor node_ids(std::string_view call, std::string_view name, const at::Tensor& nodes,
                    std::int64_t num_nodes);

/// Checks that ids, int32, are distinct.
void check_distinct(std::string_view call, const at::Tensor& ids);

/// Checks that nodes fit 32 bits.
void check_node_count(std::string_view call, std::int64_t num_nodes);

/// Checks that there is a fanout for each layer.
void check_fanouts(const std::vector<std::int64_t>& fanouts, std::int64_t num_layers);

/// Edges with ends in [0, num_nodes).
class CheckedEdges {
 public:
  CheckedEdges(std::string_view call, const at::Tensor& src, const at::Tensor& dst,
               std::int64_t num_nodes);
  std::int64_t size() const { return src_.numel(); }
  /// Valid as long as this object and `rows`, from checked_edge_rows().
  LiveEdges with_rows(const at::Tensor& rows) const;

 private:
  at::Tensor src_, dst_;
};

/// Rows of edges as contiguous float32 [num_edges, width]. Checks that they are finite, and weights
/// of kFactors above 0; undefined if width is 0.
at::Tensor checked_edge_rows(std::string_view call, const at::Tensor& rows, std::int64_t num_edges,
                             std::int64_t width, EdgeRead read);

/// What the head of a model reads of each pair of nodes: float32 [num_pairs, edge_features], or
/// int64 [num_pairs], types of links; undefined: none.
at::Tensor checked_pair_rows(std::string_view call, const at::Tensor& rows, std::int64_t num_pairs,
                             const nn::ModelOptions& model);

/// Features as the tables of a LiveModel have them: dense, contiguous, in new memory.
at::Tensor prepared_features(std::string_view call, const at::Tensor& features,
                             const FrozenModel& model, bool normalize);

/// The graph that a Predictor starts from.
struct PredictorData {
  Topology graph;
  at::Tensor features, edge_rows = {};
  bool self_loops = false;
  bool normalize_features = false;
};

/// Copies the data. Checks that they fit the model.
std::unique_ptr<LiveModel> live_model(const FrozenModel& model, const PredictorData& data,
                                      bool resident);

}  // namespace mezzo::detail
