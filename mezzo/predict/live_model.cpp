#include "mezzo/predict/live_model.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/sampling/gather.h"

namespace mezzo::detail {
namespace {

/// Nodes that are computed at once. If a layer reads a table in place, their rows should stay in
/// the cache. Else many are better: rows that several parts read are copied, and multiplied, for
/// each.
constexpr std::size_t kNodesInPlace = 4096, kNodesOfCopies = 65'536;

/// A layer of fewer edges than 1 / kInPlaceShare of the graph's nodes reads no table in place,
/// which may cost work for each node.
constexpr std::int64_t kInPlaceShare = 8;

/// `nodes` as a tensor without a copy. They must outlive it.
at::Tensor view_of(const std::int32_t* nodes, std::int64_t count) {
  return at::from_blob(const_cast<std::int32_t*>(nodes), {count}, at::kInt);
}

at::Tensor numbered(const NodeNumbers& numbers) {
  return view_of(numbers.nodes<std::int32_t>(), numbers.size());
}

/// Numbers nodes; `numbers` needs a copy of their ids.
void number(std::span<const std::int32_t> nodes, NodeNumbers& numbers) {
  std::vector<std::int32_t> ids(nodes.begin(), nodes.end());
  numbers.add<std::int32_t>(ids.data(), static_cast<std::int64_t>(ids.size()));
}

/// A table with room for more rows: at least twice as many if it has no room.
at::Tensor with_room(const at::Tensor& table, std::int64_t rows) {
  if (rows <= table.size(0)) return table;
  at::Tensor larger =
      at::zeros({std::max(rows, 2 * table.size(0)), table.size(1)}, table.options());
  larger.narrow(0, 0, table.size(0)).copy_(table);
  return larger;
}

}  // namespace

LiveModel::LiveModel(const FrozenModel& model, LiveGraph graph, at::Tensor features, bool resident)
    : model_(model),
      graph_(std::move(graph)),
      read_(edge_read_of(model.options().kind, graph_.row_width() > 0)),
      tables_{std::move(features)} {
  if (!resident) return;
  const FrozenModel::Scope scope(model_);
  for (std::int64_t i = 0; i + 1 < model_.num_layers(); ++i) {
    tables_.push_back(layer_of_all(i, tables_.back(), numbers_));
  }
}

at::Tensor LiveModel::inputs_of(std::int64_t index) const {
  return tables_[static_cast<std::size_t>(index)].narrow(0, 0, graph_.num_nodes());
}

bool LiveModel::reads_in_place(std::int64_t index, std::span<const std::int32_t> nodes,
                               const at::Tensor& inputs) const {
  if (read_ == EdgeRead::kNothing || !model_.sums_inputs(index, inputs.scalar_type())) return false;
  std::int64_t num_edges = 0;
  for (const std::int32_t node : nodes) {
    num_edges += static_cast<std::int64_t>(graph_.in_edges(node).size());
  }
  return kInPlaceShare * num_edges >= graph_.num_nodes();
}

template <class Store>
void LiveModel::run_layer(std::int64_t index, std::span<const std::int32_t> nodes,
                          const at::Tensor& inputs, NodeNumbers& numbers,
                          const Store& store) const {
  const auto for_parts = [&](std::size_t most, const auto& rows_of) {
    for (; !nodes.empty(); nodes = nodes.subspan(std::min(most, nodes.size()))) {
      const auto part = nodes.first(std::min(most, nodes.size()));
      store(part, rows_of(part).contiguous());
    }
  };
  const auto ids_of = [](std::span<const std::int32_t> part) {
    return view_of(part.data(), static_cast<std::int64_t>(part.size()));
  };
  if (reads_in_place(index, nodes, inputs)) {
    const TableBlocks blocks(graph_, read_);
    return for_parts(kNodesInPlace, [&](std::span<const std::int32_t> part) {
      const LiveBlock block = blocks.into(part);
      const nn::NodeRows x(inputs, gather_rows(inputs, ids_of(part)));
      return model_.layer(index, block.topology, x, block.edge_rows);
    });
  }
  for_parts(kNodesOfCopies, [&](std::span<const std::int32_t> part) {
    numbers.begin(graph_.num_nodes());
    number(part, numbers);
    const LiveBlock block = make_block(graph_, read_, {}, numbers);
    const at::Tensor x = gather_rows(inputs, numbered(numbers));
    return model_.layer(index, block.topology, x, block.edge_rows);
  });
}

at::Tensor LiveModel::layer_of(std::int64_t index, std::span<const std::int32_t> nodes,
                               const at::Tensor& inputs, NodeNumbers& numbers) const {
  at::Tensor all;
  std::int64_t first = 0;
  run_layer(
      index, nodes, inputs, numbers,
      [&](std::span<const std::int32_t> part, const at::Tensor& rows) {
        if (part.size() == nodes.size()) {
          all = rows;
          return;
        }
        if (!all.defined()) {
          all = at::empty({static_cast<std::int64_t>(nodes.size()), rows.size(1)}, rows.options());
        }
        all.narrow(0, first, rows.size(0)).copy_(rows);
        first += rows.size(0);
      });
  return all;
}

at::Tensor LiveModel::layer_of_all(std::int64_t index, const at::Tensor& inputs,
                                   NodeNumbers& numbers) const {
  Nodes nodes(static_cast<std::size_t>(graph_.num_nodes()));
  std::iota(nodes.begin(), nodes.end(), 0);
  return layer_of(index, nodes, inputs, numbers);
}

at::Tensor LiveModel::rows_of_all(NodeNumbers& numbers) const {
  check_fresh();
  at::Tensor rows = inputs_of(num_kept());
  for (std::int64_t i = num_kept(); i < model_.num_layers(); ++i) {
    rows = layer_of_all(i, rows, numbers);
  }
  return rows;
}

at::Tensor LiveModel::rows_of(at::Tensor& ids, const SampledNeighbors* sampled,
                              NodeNumbers& numbers) const {
  check_fresh();
  numbers.begin(graph_.num_nodes());
  numbers.add<std::int32_t>(ids.mutable_data_ptr<std::int32_t>(), ids.numel());
  const std::int64_t num_layers = model_.num_layers();
  const std::int64_t first = sampled == nullptr ? num_kept() : 0;
  if (first + 1 == num_layers && sampled == nullptr) {
    const Nodes nodes(numbers.nodes<std::int32_t>(),
                      numbers.nodes<std::int32_t>() + numbers.size());
    return layer_of(first, nodes, inputs_of(first), numbers);
  }
  std::vector<LiveBlock> blocks;  // the last layer first
  for (std::int64_t i = num_layers; i-- > first;) {
    EdgeDraw draw{.layer = i};
    if (sampled != nullptr) {
      draw.fanout = sampled->fanouts[static_cast<std::size_t>(i)];
      draw.seed = sampled->seed;
    }
    blocks.push_back(make_block(graph_, read_, draw, numbers));
  }
  at::Tensor rows = gather_rows(inputs_of(first), numbered(numbers));
  for (std::int64_t i = first; i < num_layers; ++i, blocks.pop_back()) {
    rows = model_.layer(i, blocks.back().topology, rows, blocks.back().edge_rows);
  }
  return rows;
}

LiveModel::Nodes LiveModel::replace_rows(at::Tensor& table, std::span<const std::int32_t> nodes,
                                         const at::Tensor& rows) {
  const auto bytes = static_cast<std::size_t>(rows.size(1)) * rows.element_size();
  const auto* from = static_cast<const char*>(rows.const_data_ptr());
  auto* to = static_cast<char*>(table.mutable_data_ptr());
  Nodes changed;
  for (const std::int32_t node : nodes) {
    char* old = to + static_cast<std::size_t>(node) * bytes;
    if (std::memcmp(old, from, bytes) != 0) {
      std::memcpy(old, from, bytes);
      changed.push_back(node);
    }
    from += bytes;
  }
  return changed;
}

void LiveModel::refresh(const Nodes& touched, Nodes changed) {
  if (num_kept() == 0) return;
  is_stale_ = true;
  const FrozenModel::Scope scope(model_);
  for (std::int64_t layer = 0; layer < num_kept(); ++layer) {
    marks_.begin(graph_.num_nodes());
    number(touched, marks_);
    number(changed, marks_);
    Nodes readers;
    if (read_ != EdgeRead::kNothing) {
      for (const std::int32_t node : changed) {
        for (const LiveEdge& edge : graph_.out_edges(node)) readers.push_back(edge.node);
      }
    }
    number(readers, marks_);
    Nodes dirty(marks_.nodes<std::int32_t>(), marks_.nodes<std::int32_t>() + marks_.size());
    std::sort(dirty.begin(), dirty.end());
    changed.clear();
    at::Tensor& table = tables_[static_cast<std::size_t>(layer) + 1];
    run_layer(layer, dirty, inputs_of(layer), numbers_,
              [&](std::span<const std::int32_t> part, const at::Tensor& rows) {
                const Nodes other = replace_rows(table, part, rows);
                changed.insert(changed.end(), other.begin(), other.end());
              });
  }
  is_stale_ = false;
}

/// If the degrees of a node count, so do they for all that read it.
void LiveModel::follow(const ChangedEnds& changed) {
  if (read_ == EdgeRead::kNothing) return;
  Nodes touched = changed.dst;
  if (reads_out_edges(read_)) {
    for (const std::int32_t node : changed.src) {
      for (const LiveEdge& edge : graph_.out_edges(node)) touched.push_back(edge.node);
    }
  }
  refresh(touched, {});
}

void LiveModel::add_edges(const LiveEdges& edges) {
  check_fresh();
  follow(graph_.add(edges));
}

void LiveModel::remove_edges(const LiveEdges& edges) {
  check_fresh();
  follow(graph_.remove(edges));
}

void LiveModel::set_features(std::span<const std::int32_t> nodes, const at::Tensor& features) {
  check_fresh();
  refresh({}, replace_rows(tables_.front(), nodes, features));
}

void LiveModel::add_nodes(const at::Tensor& features) {
  check_fresh();
  const std::int64_t first = graph_.num_nodes(), count = features.size(0);
  for (at::Tensor& table : tables_) table = with_room(table, first + count);
  graph_.add_nodes(count);
  Nodes added(static_cast<std::size_t>(count));
  std::iota(added.begin(), added.end(), static_cast<std::int32_t>(first));
  replace_rows(tables_.front(), added, features);
  refresh(added, {});
}

void LiveModel::check_fresh() const {
  if (!is_stale_) return;
  raise<LogicError>(
      "Predictor: an update failed before its rows were computed; make the Predictor again");
}

std::int64_t LiveModel::memory_bytes() const {
  std::int64_t bytes = graph_.memory_bytes();
  for (const at::Tensor& table : tables_) bytes += static_cast<std::int64_t>(table.nbytes());
  for (const NodeNumbers* numbers : {&marks_, &numbers_}) {
    bytes += numbers->table_bytes() + numbers->buffer_bytes();
  }
  return bytes;
}

}  // namespace mezzo::detail
