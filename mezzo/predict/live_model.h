#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/predict/frozen_model.h"
#include "mezzo/predict/live_block.h"
#include "mezzo/predict/live_graph.h"
#include "mezzo/predict/predictor.h"
#include "mezzo/predict/row_table.h"
#include "mezzo/sampling/workspace_state.h"

/// A model on a graph that changes. Internal to predict; not exported.
namespace mezzo::detail {

/// The features of a graph's nodes and, if resident, the rows of all nodes after every layer but
/// the last. An update makes the kept rows stale that it may change; they are computed when they
/// are read. Does not check its arguments. Const functions may run in several threads at the same
/// time, each with its own NodeNumbers, in a FrozenModel::Scope.
class LiveModel {
 public:
  /// features: [num_nodes, F] of the model's feature_dtype(), contiguous, its own.
  LiveModel(const FrozenModel& model, LiveGraph graph, at::Tensor features, bool resident);

  const LiveGraph& graph() const { return graph_; }
  EdgeRead edge_read() const { return read_; }
  std::int64_t memory_bytes() const;

  /// After the last layer, of all nodes: [num_nodes, width].
  at::Tensor rows_of_all(NodeNumbers& numbers) const;
  /// Of some nodes, in the order of their first appearance. ids: int32 [n] of nodes; becomes their
  /// positions in the result. sampled: null for all neighbours.
  at::Tensor rows_of(at::Tensor& ids, const SampledNeighbors* sampled, NodeNumbers& numbers) const;

  /// Computes all stale rows.
  void refresh() const;

  void add_edges(const LiveEdges& edges);
  void remove_edges(const LiveEdges& edges);
  /// nodes: int32, distinct; features: a row for each, of the dtype of the others, contiguous.
  void set_features(std::span<const std::int32_t> nodes, const at::Tensor& features);
  void add_nodes(const at::Tensor& features);

 private:
  using Nodes = std::vector<std::int32_t>;

  /// Computes rows after layer `index` of nodes from `inputs`, the rows of all nodes before it.
  /// Calls store(nodes, rows) for some after the others.
  template <class Store>
  void run_layer(std::int64_t index, std::span<const std::int32_t> nodes, const at::Tensor& inputs,
                 NodeNumbers& numbers, const Store& store) const;
  /// The same as one tensor: a row for each node.
  at::Tensor layer_of(std::int64_t index, std::span<const std::int32_t> nodes,
                      const at::Tensor& inputs, NodeNumbers& numbers) const;
  at::Tensor layer_of_all(std::int64_t index, const at::Tensor& inputs, NodeNumbers& numbers) const;
  Nodes all_nodes() const;
  /// Whether a layer into `nodes` reads `inputs` in place, and not copies of some of its rows.
  bool reads_in_place(std::int64_t index, std::span<const std::int32_t> nodes,
                      const at::Tensor& inputs) const;
  /// The layers after which rows are kept.
  std::int64_t num_kept() const { return static_cast<std::int64_t>(tables_.size()) - 1; }
  /// The rows before layer `index`, at most num_kept(): [num_nodes, width].
  at::Tensor inputs_of(std::int64_t index) const;
  /// Whether holds(node) for a node whose row a layer reads to compute those of `nodes`.
  template <class Holds>
  bool any_input(std::span<const std::int32_t> nodes, const Holds& holds) const;
  /// Computes the stale rows before layer `index` that it reads to compute those of `nodes`.
  void refresh_inputs(std::int64_t index, std::span<const std::int32_t> nodes) const;
  /// The same for the thread that holds refreshing_.
  void refresh_locked(std::int64_t index, std::span<const std::int32_t> nodes) const;
  /// Runs an update. After one that throws the graph may be half changed.
  template <class Change>
  void update(const Change& change);
  void make_stale_after(const ChangedEnds& changed);
  /// Makes kept rows stale: of `nodes` after the first layer, and all that are computed from stale
  /// rows, which those of already stale rows are.
  void make_stale(Nodes nodes);
  /// The nodes, then those that read their rows in the next layer, some several times.
  Nodes with_readers(Nodes nodes) const;
  void check_whole() const;

  const FrozenModel& model_;
  LiveGraph graph_;
  EdgeRead read_;
  /// The features, which are always fresh, and the kept rows. Const functions refresh them. If a
  /// node's row is stale, so are its rows after later layers and those of its out-neighbours.
  mutable std::vector<RowTable> tables_;
  mutable std::mutex refreshing_;
  mutable NodeNumbers numbers_;   ///< of the thread that holds refreshing_
  bool is_half_updated_ = false;  ///< whether an update has failed
};

}  // namespace mezzo::detail
