#include <algorithm>

#include "mezzo/data/checks/checks.h"

namespace mezzo::data {
namespace {

class EdgeChecks : public DatasetCheck {
 public:
  using DatasetCheck::DatasetCheck;

  void run() const {
    check(data_.num_nodes > 0, "it has no nodes");
    if (data_.indptr.defined() || data_.indices.defined()) {
      check_rows();
    } else {
      check_pairs();
    }
    check_edge_weights();
    check_edge_features();
    check_edge_types();
    check_graphs();
  }

 private:
  void check_pairs() const {
    check_column(data_.src, at::kLong, 1, "src");
    check_column(data_.dst, at::kLong, 1, "dst");
    check(data_.src.numel() == data_.dst.numel(), "{} sources for {} destinations",
          data_.src.numel(), data_.dst.numel());
    check_range(data_.src, data_.num_nodes, "src");
    check_range(data_.dst, data_.num_nodes, "dst");
  }

  void check_edge_weights() const {
    const at::Tensor& weights = data_.edge_weights;
    if (!weights.defined()) return;
    check_column(weights, at::kFloat, 1, "edge_weights");
    check(weights.numel() == data_.num_edges(), "edge_weights: {} numbers for {} edges",
          weights.numel(), data_.num_edges());
    const at::Tensor values = weights.contiguous();
    const auto* value = values.const_data_ptr<float>();
    const std::int64_t bad =
        first_bad(values.numel(), [&](std::int64_t i) { return !std::isfinite(value[i]); });
    check(bad == values.numel(), "edge_weights: number {} is {}, expected finite numbers", bad,
          bad < values.numel() ? value[bad] : 0);
  }

  void check_edge_features() const {
    const at::Tensor& features = data_.edge_features;
    if (!features.defined()) return;
    check_column(features, at::kFloat, 2, "edge features");
    check(features.size(0) == data_.num_edges() && features.size(1) > 0,
          "edge features: expected shape [{}, F], got {}", data_.num_edges(), shape_text(features));
    check_finite<float>(features.contiguous(), "edge features");
  }

  void check_edge_types() const {
    const at::Tensor& types = data_.edge_types;
    check(data_.num_edge_types >= 1 && (types.defined() || data_.num_edge_types == 1),
          "edge types: {} without the type of each edge", data_.num_edge_types);
    if (!types.defined()) return;
    check_column(types, at::kLong, 1, "edge types");
    check(types.numel() == data_.num_edges(), "edge types: {} for {} edges", types.numel(),
          data_.num_edges());
    check_range(types, data_.num_edge_types, "edge types");
  }

  void check_graphs() const {
    const at::Tensor& offsets = data_.graph_offsets;
    check(offsets.defined() || data_.target != TaskTarget::kGraph,
          "graph_offsets is undefined, but the labels belong to graphs");
    if (!offsets.defined()) return;
    check_column(offsets, at::kLong, 1, "graph_offsets");
    const std::int64_t graphs = offsets.numel() - 1;
    check(graphs > 0, "it has no graphs");
    const at::Tensor starts = offsets.contiguous();
    const auto* start = starts.const_data_ptr<std::int64_t>();
    check(start[0] == 0 && start[graphs] == data_.num_nodes,
          "graph_offsets: they run from {} to {}, expected 0 to {}", start[0], start[graphs],
          data_.num_nodes);
    const std::int64_t bad =
        first_bad(graphs, [&](std::int64_t i) { return start[i] > start[i + 1]; });
    check(bad == graphs, "graph_offsets: they decrease after graph {}", bad);
    if (data_.indptr.defined()) {
      data_.indices.scalar_type() == at::kInt ? check_rows_of_graphs<std::int32_t>(start)
                                              : check_rows_of_graphs<std::int64_t>(start);
      return;
    }
    const at::Tensor sources = data_.src.contiguous(), targets = data_.dst.contiguous();
    const auto *src = sources.const_data_ptr<std::int64_t>(),
               *dst = targets.const_data_ptr<std::int64_t>();
    const std::int64_t across = first_bad(data_.num_edges(), [&](std::int64_t i) {
      const std::int64_t* const end = std::upper_bound(start, start + graphs + 1, src[i]);
      return dst[i] >= *end || dst[i] < *(end - 1);
    });
    check(across == data_.num_edges(), "edge {} joins two graphs", across);
  }

  /// start: graph_offsets.
  template <class Id>
  void check_rows_of_graphs(const std::int64_t* start) const {
    const at::Tensor rows = data_.indptr.contiguous(), values = data_.indices.contiguous();
    const auto* row = rows.const_data_ptr<std::int64_t>();
    const auto* source = values.const_data_ptr<Id>();
    const std::int64_t bad = first_bad(data_.num_graphs(), [&](std::int64_t i) {
      return !std::all_of(source + row[start[i]], source + row[start[i + 1]],
                          [&](Id node) { return node >= start[i] && node < start[i + 1]; });
    });
    check(bad == data_.num_graphs(), "an edge joins graph {} and another", bad);
  }

  void check_rows() const {
    check(!data_.src.defined() && !data_.dst.defined(),
          "both indptr and indices, and src or dst; expected the edges once");
    check_column(data_.indptr, at::kLong, 1, "indptr");
    const bool is_int32 = data_.indices.defined() && data_.indices.scalar_type() == at::kInt;
    check_column(data_.indices, is_int32 ? at::kInt : at::kLong, 1, "indices");
    const std::int64_t nodes = data_.num_nodes, edges = data_.indices.numel();
    check(data_.indptr.numel() == nodes + 1, "indptr: {} row starts for {} nodes",
          data_.indptr.numel(), nodes);
    const at::Tensor starts = data_.indptr.contiguous();
    const auto* start = starts.const_data_ptr<std::int64_t>();
    check(start[0] == 0 && start[nodes] == edges, "indptr: it runs from {} to {}, expected 0 to {}",
          start[0], start[nodes], edges);
    const std::int64_t row =
        first_bad(nodes, [&](std::int64_t i) { return start[i] > start[i + 1]; });
    check(row == nodes, "indptr: it decreases after row {}", row);
    if (is_int32) {
      check_sources<std::int32_t>();
    } else {
      check_sources<std::int64_t>();
    }
  }

  template <class Id>
  void check_sources() const {
    const at::Tensor values = data_.indices.contiguous();
    const auto* source = values.const_data_ptr<Id>();
    const std::int64_t nodes = data_.num_nodes, edges = values.numel();
    const std::int64_t entry =
        first_bad(edges, [&](std::int64_t i) { return source[i] < 0 || source[i] >= nodes; });
    check(entry == edges, "indices: item {} is {}, outside [0, {})", entry,
          entry == edges ? Id{} : source[entry], nodes);
  }
};

}  // namespace

void check_edges(const Dataset& dataset) {
  EdgeChecks(dataset).run();
}

}  // namespace mezzo::data
