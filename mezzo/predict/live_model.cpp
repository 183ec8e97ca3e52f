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

/// Nodes that are computed at once: their rows should stay in the cache.
constexpr std::int64_t kNodesOfPart = 4096;

/// `nodes` as a tensor without a copy. They must outlive it.
at::Tensor view_of(const std::int32_t* nodes, std::int64_t count) {
  return at::from_blob(const_cast<std::int32_t*>(nodes), {count}, at::kInt);
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
  for (std::int64_t i = 0; i < model_.num_layers(); ++i) {
    tables_.push_back(layer_of_all(i, tables_.back(), numbers_));
  }
}

at::Tensor LiveModel::inputs_of(std::int64_t index) const {
  return tables_[static_cast<std::size_t>(index)].narrow(0, 0, graph_.num_nodes());
}

template <class Store>
void LiveModel::run_layer(std::int64_t index, std::span<const std::int32_t> nodes,
                          const at::Tensor& inputs, NodeNumbers& numbers,
                          const Store& store) const {
  while (!nodes.empty()) {
    const std::size_t count = std::min(nodes.size(), static_cast<std::size_t>(kNodesOfPart));
    const std::span<const std::int32_t> part = nodes.first(count);
    nodes = nodes.subspan(count);
    numbers.begin(graph_.num_nodes());
    number(part, numbers);
    const LiveBlock block = make_block(graph_, read_, {}, numbers);
    const at::Tensor x =
        gather_rows(inputs, view_of(numbers.nodes<std::int32_t>(), numbers.size()));
    store(part, model_.layer(index, block.topology, x, block.edge_rows).contiguous());
  }
}

at::Tensor LiveModel::layer_of_all(std::int64_t index, const at::Tensor& inputs,
                                   NodeNumbers& numbers) const {
  std::vector<std::int32_t> nodes(static_cast<std::size_t>(graph_.num_nodes()));
  std::iota(nodes.begin(), nodes.end(), 0);
  at::Tensor table;
  run_layer(index, nodes, inputs, numbers,
            [&](std::span<const std::int32_t> part, const at::Tensor& rows) {
              if (!table.defined()) {
                table = at::empty({graph_.num_nodes(), rows.size(1)}, rows.options());
              }
              table.narrow(0, part.front(), rows.size(0)).copy_(rows);
            });
  return table;
}

at::Tensor LiveModel::rows_of_all(NodeNumbers& numbers) const {
  check_fresh();
  const bool resident = tables_.size() > 1;
  if (resident) return inputs_of(model_.num_layers()).clone();
  at::Tensor rows = inputs_of(0);
  for (std::int64_t i = 0; i < model_.num_layers(); ++i) rows = layer_of_all(i, rows, numbers);
  return rows;
}

at::Tensor LiveModel::rows_of(at::Tensor& ids, const SampledNeighbors* sampled,
                              NodeNumbers& numbers) const {
  check_fresh();
  numbers.begin(graph_.num_nodes());
  numbers.add<std::int32_t>(ids.mutable_data_ptr<std::int32_t>(), ids.numel());
  const auto numbered = [&] { return view_of(numbers.nodes<std::int32_t>(), numbers.size()); };
  if (tables_.size() > 1 && sampled == nullptr) {
    return gather_rows(inputs_of(model_.num_layers()), numbered());
  }
  const auto num_layers = static_cast<std::size_t>(model_.num_layers());
  std::vector<LiveBlock> blocks(num_layers);
  for (std::size_t i = num_layers; i-- > 0;) {
    EdgeDraw draw{.layer = static_cast<std::int64_t>(i)};
    if (sampled != nullptr) {
      draw.fanout = sampled->fanouts[i];
      draw.seed = sampled->seed;
    }
    blocks[i] = make_block(graph_, read_, draw, numbers);
  }
  at::Tensor rows = gather_rows(inputs_of(0), numbered());
  for (std::size_t i = 0; i < num_layers; ++i) {
    rows =
        model_.layer(static_cast<std::int64_t>(i), blocks[i].topology, rows, blocks[i].edge_rows);
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
  if (tables_.size() == 1) return;
  is_stale_ = true;
  const FrozenModel::Scope scope(model_);
  for (std::int64_t layer = 0; layer < model_.num_layers(); ++layer) {
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
