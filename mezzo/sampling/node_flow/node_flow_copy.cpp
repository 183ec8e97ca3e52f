#include <utility>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/graph/selection.h"
#include "mezzo/sampling/gather.h"
#include "mezzo/sampling/node_flow/node_flow_state.h"

namespace mezzo {
namespace {

using FlowColumnLists = std::vector<std::vector<std::string>>;

/// The rows `ids` of a column of the parent.
at::Tensor parent_rows(const at::Tensor& column, const at::Tensor& ids, at::Device device) {
  const at::Tensor rows = ids.to(column.device());
  const bool is_plain = column.is_cpu() && !column.requires_grad();
  return (is_plain ? gather_rows(column, rows) : column.index_select(0, rows)).to(device);
}

/// Removes and returns the prefetched rows of `column`; undefined if no rows were prefetched or the
/// column has changed.
at::Tensor take_prefetched(detail::PrefetchedColumns& prefetched, const std::string& name,
                           const at::Tensor& column) {
  const auto entry = prefetched.find(name);
  if (entry == prefetched.end()) return {};
  const detail::PrefetchedRows rows = std::move(entry->second);
  prefetched.erase(entry);
  const bool is_unchanged =
      rows.column.is_same(column) && !column.requires_grad() && column._version() == rows.version;
  return is_unchanged ? rows.rows : at::Tensor();
}

/// Throws InvalidArgument if an edge of the block is not in the parent.
void check_no_added_loop(std::string_view operation, std::size_t block, const at::Tensor& edges) {
  MEZZO_CHECK(edges.numel() == 0 || edges.min().item<std::int64_t>() >= 0,
              "{}: expected only edges of the parent to copy edge columns, but block {} has an "
              "added self loop",
              operation, block);
}

/// One list for each of `count` parts. Throws InvalidArgument for another number except 0.
FlowColumnLists one_list_each(std::string_view operation, std::string_view what,
                              FlowColumnLists lists, std::size_t count) {
  if (lists.empty()) return FlowColumnLists(count);
  MEZZO_CHECK(lists.size() == count, "{}: expected a list of columns for each of the {} {}, got {}",
              operation, count, what, lists.size());
  return lists;
}

/// prefetched: one for each list, or empty.
std::vector<Columns> flow_columns(const Frame& parent, const FlowColumnLists& lists,
                                  const std::vector<at::Tensor>& ids, at::Device device,
                                  std::vector<detail::PrefetchedColumns>& prefetched) {
  std::vector<Columns> columns(lists.size());
  for (std::size_t i = 0; i < lists.size(); ++i) {
    for (const std::string& name : lists[i]) {
      const at::Tensor& column = parent.at(name);
      at::Tensor rows;
      if (!prefetched.empty()) rows = take_prefetched(prefetched[i], name, column);
      columns[i][name] = rows.defined() ? rows.to(device) : parent_rows(column, ids[i], device);
    }
  }
  return columns;
}

/// Whether the column's rows can be written in place: it owns its memory (unlike a mapped file),
/// its elements do not overlap, and no gradient depends on them.
bool is_writable(const at::Tensor& column) {
  return column.is_non_overlapping_and_dense() && !column.requires_grad() &&
         !column.is_inference() && column.storage().resizable();
}

/// The writes of copy_to_parent() to one frame of the parent, checked before any is done.
class ParentWrites {
 public:
  /// Adds rows for the parent's column `name`; they overwrite the rows of earlier calls.
  void add(const Frame& parent, const std::string& name, const at::Tensor& ids,
           const at::Tensor& rows) {
    at::Tensor& whole = columns_[name];
    if (!whole.defined()) whole = writable_column(parent, name, rows);
    MEZZO_CHECK(whole.sizes().slice(1) == rows.sizes().slice(1),
                "copy_to_parent: expected rows of column '{}' as in {}, got {}", name,
                detail::describe(whole), detail::describe(rows));
    at::Tensor source = rows.detach().to(whole.options());
    if (source.is_alias_of(whole)) source = source.clone();
    writes_.push_back({whole, ids.to(whole.device()), std::move(source)});
  }

  void write_to(Frame& parent) {
    for (Write& write : writes_) write.whole.index_copy_(0, write.ids, write.rows);
    parent.update(columns_);
  }

 private:
  struct Write {
    at::Tensor whole, ids, rows;
  };

  /// The parent's column, a copy if it is not writable, or a new one of zeros.
  static at::Tensor writable_column(const Frame& parent, const std::string& name,
                                    const at::Tensor& rows) {
    if (parent.contains(name)) {
      const at::Tensor& column = parent.at(name);
      MEZZO_CHECK(column.layout() == at::kStrided,
                  "copy_to_parent: expected a dense column '{}' of the parent, got {}", name,
                  detail::describe(column));
      return is_writable(column) ? column : column.detach().clone();
    }
    auto shape = rows.sizes().vec();
    shape[0] = parent.num_rows();
    return at::zeros(shape, rows.options().device(parent.device()).requires_grad(false));
  }

  Columns columns_;
  std::vector<Write> writes_;
};

/// The rows of the frames for the parent's columns, in the order of the frames.
ParentWrites parent_writes(const Frame& parent, const FlowColumnLists& lists,
                           const std::vector<Frame>& frames, const std::vector<at::Tensor>& ids) {
  ParentWrites writes;
  for (std::size_t i = 0; i < lists.size(); ++i) {
    for (const std::string& name : lists[i]) {
      writes.add(parent, name, ids[i], frames[i].at(name));
    }
  }
  return writes;
}

}  // namespace

void detail::FlowRows::prefetch(NodeFlow& flow, const Columns& columns) {
  if (columns.empty()) return;
  NodeFlow::State& state = *flow.state_;
  state.prefetched.resize(state.parts.nodes.size());
  for (const auto& [name, column] : columns) {
    // Tensors of inference mode have no version.
    if (column.requires_grad() || column.is_inference()) continue;
    const auto version = static_cast<std::int64_t>(column._version());
    for (std::size_t i = 0; i < state.prefetched.size(); ++i) {
      state.prefetched[i][name] = {column, version, gather_rows(column, state.parts.nodes[i])};
    }
  }
}

void NodeFlow::copy_from_parent() {
  copy_from_parent(state_->parent.ndata().names(), state_->parent.edata().names());
}

void NodeFlow::copy_from_parent(const std::vector<std::string>& node_columns,
                                const std::vector<std::string>& edge_columns) {
  copy_from_parent(ColumnsByLayer{.nodes = FlowColumnLists(state_->layers.size(), node_columns),
                                  .edges = FlowColumnLists(state_->blocks.size(), edge_columns)});
}

void NodeFlow::copy_from_parent(const ColumnsByLayer& columns) {
  constexpr const char* kOperation = "copy_from_parent";
  const Parts& parts = state_->parts;
  const auto nodes = one_list_each(kOperation, "layers", columns.nodes, parts.nodes.size());
  const auto edges = one_list_each(kOperation, "blocks", columns.edges, parts.edges.size());
  for (std::size_t i = 0; i < edges.size(); ++i) {
    if (!edges[i].empty()) check_no_added_loop(kOperation, i, parts.edges[i]);
  }
  const Graph& parent = state_->parent;
  std::vector<detail::PrefetchedColumns> no_edges;
  const auto of_nodes =
      flow_columns(parent.ndata(), nodes, parts.nodes, device(), state_->prefetched);
  const auto of_edges = flow_columns(parent.edata(), edges, parts.edges, device(), no_edges);
  for (std::size_t i = 0; i < of_nodes.size(); ++i) state_->layers[i].update(of_nodes[i]);
  for (std::size_t i = 0; i < of_edges.size(); ++i) state_->blocks[i].update(of_edges[i]);
}

void NodeFlow::copy_to_parent(const ColumnsByLayer& columns) {
  constexpr const char* kOperation = "copy_to_parent";
  const Parts& parts = state_->parts;
  const auto nodes = one_list_each(kOperation, "layers", columns.nodes, parts.nodes.size());
  const auto edges = one_list_each(kOperation, "blocks", columns.edges, parts.edges.size());
  for (std::size_t i = 0; i < edges.size(); ++i) {
    if (edges[i].empty()) continue;
    check_no_added_loop(kOperation, i, parts.edges[i]);
    detail::check_distinct(kOperation, fmt::format("edges of block {}", i), parts.edges[i]);
  }
  Graph& parent = state_->parent;
  ParentWrites of_nodes = parent_writes(parent.ndata(), nodes, state_->layers, parts.nodes);
  ParentWrites of_edges = parent_writes(parent.edata(), edges, state_->blocks, parts.edges);
  of_nodes.write_to(parent.ndata());
  of_edges.write_to(parent.edata());
}

void NodeFlow::to(at::Device device) {
  State moved = *state_;
  for (Topology& block : moved.parts.blocks) block = block.to(device);
  for (at::Tensor& nodes : moved.parts.nodes) nodes = nodes.to(device);
  for (at::Tensor& edges : moved.parts.edges) edges = edges.to(device);
  for (Frame& layer : moved.layers) layer = layer.to(device);
  for (Frame& block : moved.blocks) block = block.to(device);
  state_->parts = std::move(moved.parts);
  // Frame by frame, so that an earlier View shows the new columns.
  std::move(moved.layers.begin(), moved.layers.end(), state_->layers.begin());
  std::move(moved.blocks.begin(), moved.blocks.end(), state_->blocks.begin());
}

}  // namespace mezzo
