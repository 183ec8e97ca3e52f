#include "mezzo/predict/live_model.h"

#include <algorithm>
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

std::vector<std::int32_t> nodes_of(const NodeNumbers& numbers) {
  const auto* nodes = numbers.nodes<std::int32_t>();
  return {nodes, nodes + numbers.size()};
}

/// Numbers nodes; `numbers` needs a copy of their ids.
void number(std::span<const std::int32_t> nodes, NodeNumbers& numbers) {
  std::vector<std::int32_t> ids(nodes.begin(), nodes.end());
  numbers.add<std::int32_t>(ids.data(), static_cast<std::int64_t>(ids.size()));
}

}  // namespace

LiveModel::LiveModel(const FrozenModel& model, LiveGraph graph, at::Tensor features, bool resident)
    : model_(model),
      graph_(std::move(graph)),
      read_(edge_read_of(model.options().kind, graph_.row_width() > 0)) {
  tables_.emplace_back(std::move(features));
  if (!resident) return;
  const FrozenModel::Scope scope(model_);
  for (std::int64_t i = 0; i + 1 < model_.num_layers(); ++i) {
    tables_.emplace_back(layer_of_all(i, tables_.back().rows(), numbers_));
  }
}

at::Tensor LiveModel::inputs_of(std::int64_t index) const {
  return tables_[static_cast<std::size_t>(index)].rows().narrow(0, 0, graph_.num_nodes());
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
  return layer_of(index, all_nodes(), inputs, numbers);
}

LiveModel::Nodes LiveModel::all_nodes() const {
  Nodes nodes(static_cast<std::size_t>(graph_.num_nodes()));
  std::iota(nodes.begin(), nodes.end(), 0);
  return nodes;
}

at::Tensor LiveModel::rows_of_all(NodeNumbers& numbers) const {
  refresh();
  at::Tensor rows = inputs_of(num_kept());
  for (std::int64_t i = num_kept(); i < model_.num_layers(); ++i) {
    rows = layer_of_all(i, rows, numbers);
  }
  return rows;
}

at::Tensor LiveModel::rows_of(at::Tensor& ids, const SampledNeighbors* sampled,
                              NodeNumbers& numbers) const {
  check_whole();
  numbers.begin(graph_.num_nodes());
  numbers.add<std::int32_t>(ids.mutable_data_ptr<std::int32_t>(), ids.numel());
  const std::int64_t num_layers = model_.num_layers();
  const std::int64_t first = sampled == nullptr ? num_kept() : 0;
  if (first + 1 == num_layers && sampled == nullptr) {
    const Nodes nodes = nodes_of(numbers);
    refresh_inputs(first, nodes);
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

template <class Holds>
bool LiveModel::any_input(std::span<const std::int32_t> nodes, const Holds& holds) const {
  for (const std::int32_t node : nodes) {
    if (holds(node)) return true;
    if (read_ == EdgeRead::kNothing) continue;
    for (const LiveEdge& edge : graph_.in_edges(node)) {
      if (holds(edge.node)) return true;
    }
  }
  return false;
}

void LiveModel::refresh_inputs(std::int64_t index, std::span<const std::int32_t> nodes) const {
  const RowTable& table = tables_[static_cast<std::size_t>(index)];
  if (!any_input(nodes, [&](std::int32_t node) { return table.is_stale(node); })) return;
  const std::lock_guard lock(refreshing_);
  refresh_locked(index, nodes);
}

void LiveModel::refresh_locked(std::int64_t index, std::span<const std::int32_t> nodes) const {
  RowTable& table = tables_[static_cast<std::size_t>(index)];
  Nodes stale;
  any_input(nodes, [&](std::int32_t node) {
    if (table.is_stale(node)) stale.push_back(node);
    return false;
  });
  if (stale.empty()) return;
  numbers_.begin(graph_.num_nodes());
  number(stale, numbers_);  // each node once
  stale = nodes_of(numbers_);
  std::sort(stale.begin(), stale.end());  // reads memory in ascending order
  refresh_locked(index - 1, stale);
  run_layer(index - 1, stale, inputs_of(index - 1), numbers_,
            [&](std::span<const std::int32_t> part, const at::Tensor& rows) {
              table.refresh(part, rows);
            });
}

void LiveModel::refresh() const {
  check_whole();
  refresh_inputs(num_kept(), all_nodes());
}

template <class Change>
void LiveModel::update(const Change& change) {
  check_whole();
  is_half_updated_ = true;
  change();
  is_half_updated_ = false;
}

void LiveModel::make_stale(Nodes nodes) {
  for (std::int64_t layer = 1; layer <= num_kept(); ++layer) {
    RowTable& table = tables_[static_cast<std::size_t>(layer)];
    if (layer > 1) nodes = with_readers(std::move(nodes));
    std::erase_if(nodes, [&](std::int32_t node) { return !table.make_stale(node); });
  }
}

LiveModel::Nodes LiveModel::with_readers(Nodes nodes) const {
  if (read_ == EdgeRead::kNothing) return nodes;
  const std::size_t count = nodes.size();
  for (std::size_t i = 0; i < count; ++i) {
    for (const LiveEdge& edge : graph_.out_edges(nodes[i])) nodes.push_back(edge.node);
  }
  return nodes;
}

/// If the degrees of a node count, so do they for all that read it.
void LiveModel::make_stale_after(const ChangedEnds& changed) {
  if (read_ == EdgeRead::kNothing) return;
  Nodes touched = reads_out_edges(read_) ? with_readers(changed.src) : Nodes();
  touched.insert(touched.end(), changed.dst.begin(), changed.dst.end());
  make_stale(std::move(touched));
}

void LiveModel::add_edges(const LiveEdges& edges) {
  update([&] { make_stale_after(graph_.add(edges)); });
}

void LiveModel::remove_edges(const LiveEdges& edges) {
  update([&] { make_stale_after(graph_.remove(edges)); });
}

void LiveModel::set_features(std::span<const std::int32_t> nodes, const at::Tensor& features) {
  update([&] {
    tables_.front().refresh(nodes, features);
    make_stale(with_readers({nodes.begin(), nodes.end()}));
  });
}

void LiveModel::add_nodes(const at::Tensor& features) {
  update([&] {
    const std::int64_t first = graph_.num_nodes(), count = features.size(0);
    for (RowTable& table : tables_) table.grow(first + count);
    graph_.add_nodes(count);
    Nodes added(static_cast<std::size_t>(count));
    std::iota(added.begin(), added.end(), static_cast<std::int32_t>(first));
    tables_.front().refresh(added, features);
    make_stale(std::move(added));
  });
}

void LiveModel::check_whole() const {
  if (!is_half_updated_) return;
  raise<LogicError>("Predictor: an update has failed halfway; make the Predictor again");
}

std::int64_t LiveModel::memory_bytes() const {
  std::int64_t bytes = graph_.memory_bytes();
  for (const RowTable& table : tables_) bytes += table.memory_bytes();
  const std::lock_guard lock(refreshing_);
  return bytes + numbers_.table_bytes() + numbers_.buffer_bytes();
}

}  // namespace mezzo::detail
