#include "mezzo/sampling/node_flow/node_flow.h"

#include <string_view>
#include <utility>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/graph/selection.h"
#include "mezzo/graph/topology_build.h"
#include "mezzo/sampling/node_flow/node_flow_state.h"

namespace mezzo {
namespace {

void check_flow_ids(const std::string& name, const at::Tensor& ids, std::int64_t count,
                    at::Device device) {
  MEZZO_CHECK(ids.defined() && ids.scalar_type() == at::kLong && ids.dim() == 1 &&
                  ids.size(0) == count && ids.device() == device,
              "NodeFlow: expected {} as int64 [{}] on {}, got {}", name, count, device.str(),
              detail::describe(ids));
}

void check_flow_parts(const NodeFlow::Parts& parts) {
  const std::size_t num_blocks = parts.blocks.size();
  MEZZO_CHECK(
      num_blocks > 0 && parts.nodes.size() == num_blocks + 1 && parts.edges.size() == num_blocks,
      "NodeFlow: expected at least one block, one layer more and edges of each block, got "
      "{} blocks, {} layers and edges of {}",
      num_blocks, parts.nodes.size(), parts.edges.size());
  const at::Device device = parts.blocks.front().device();
  for (std::size_t i = 0; i < num_blocks; ++i) {
    const Topology& block = parts.blocks[i];
    MEZZO_CHECK(block.device() == device, "NodeFlow: expected block {} on {}, got {}", i,
                device.str(), block.device().str());
    check_flow_ids(fmt::format("nodes of layer {}", i), parts.nodes[i], block.num_src(), device);
    check_flow_ids(fmt::format("nodes of layer {}", i + 1), parts.nodes[i + 1], block.num_dst(),
                   device);
    check_flow_ids(fmt::format("edges of block {}", i), parts.edges[i], block.num_edges(), device);
  }
}

/// The first id of each part, then the number of ids.
template <class SizeOf>
std::vector<std::int64_t> flow_offsets(std::size_t count, const SizeOf& size_of) {
  std::vector<std::int64_t> offsets = {0};
  for (std::size_t i = 0; i < count; ++i) offsets.push_back(offsets.back() + size_of(i));
  return offsets;
}

at::Tensor flow_id_range(std::int64_t begin, std::int64_t end, at::Device device) {
  return at::arange(begin, end, at::device(device).dtype(at::kLong));
}

/// 1 (float32) at each (rows[i], columns[i]).
at::Tensor sparse_ones(const at::Tensor& rows, const at::Tensor& columns, at::IntArrayRef sizes) {
  const at::Tensor indices = at::stack({rows.to(at::kLong), columns.to(at::kLong)});
  const at::TensorOptions options = indices.options().dtype(at::kFloat);
  return at::sparse_coo_tensor(indices, at::ones({rows.numel()}, options), sizes);
}

}  // namespace

std::size_t NodeFlow::State::layer_index(std::int64_t layer) const {
  return detail::flow_index("layer", layer, parts.nodes.size());
}

std::size_t NodeFlow::State::block_index(std::int64_t block) const {
  return detail::flow_index("block", block, parts.blocks.size());
}

std::pair<std::size_t, std::size_t> NodeFlow::State::block_range(
    std::optional<std::int64_t> block) const {
  if (!block) return {0, blocks.size()};
  const std::size_t i = block_index(*block);
  return {i, i + 1};
}

std::size_t detail::flow_index(std::string_view what, std::int64_t index, std::size_t count) {
  const auto bound = static_cast<std::int64_t>(count);
  MEZZO_CHECK(index >= -bound && index < bound,
              "NodeFlow: expected {} in [{}, {}), negative ones count from the end, got {}", what,
              -bound, bound, index);
  return static_cast<std::size_t>(index < 0 ? index + bound : index);
}

at::Tensor detail::flow_positions(std::string_view operation, std::string_view name,
                                  const at::Tensor& ids, std::int64_t begin, std::int64_t end,
                                  at::Device device) {
  const at::Tensor flow_ids = check_vector(operation, name, ids).to(at::kLong);
  MEZZO_CHECK(flow_ids.device() == device, "{}: expected {} on {}, got {}", operation, name,
              device.str(), flow_ids.device().str());
  const at::Tensor outside = at::logical_or(flow_ids < begin, flow_ids >= end).nonzero();
  MEZZO_CHECK(outside.size(0) == 0, "{}: expected {} in [{}, {}), ids of the flow, got {}",
              operation, name, begin, end,
              flow_ids[outside[0].item<std::int64_t>()].item<std::int64_t>());
  return flow_ids - begin;
}

NodeFlow::NodeFlow(Graph parent, Parts parts) {
  check_flow_parts(parts);
  const at::Device device = parts.blocks.front().device();
  std::vector<Frame> layers, blocks;
  for (std::size_t i = 0; i < parts.nodes.size(); ++i) {
    layers.emplace_back(fmt::format("layer {} node", i), parts.nodes[i].size(0), device);
  }
  for (std::size_t i = 0; i < parts.blocks.size(); ++i) {
    blocks.emplace_back(fmt::format("block {} edge", i), parts.blocks[i].num_edges(), device);
  }
  auto layer_begin =
      flow_offsets(parts.nodes.size(), [&](std::size_t i) { return parts.nodes[i].size(0); });
  auto block_begin =
      flow_offsets(parts.blocks.size(), [&](std::size_t i) { return parts.blocks[i].num_edges(); });
  State::Registered registered(parts.blocks.size());
  state_ = std::make_shared<State>(State{std::move(parent), std::move(parts), std::move(layers),
                                         std::move(blocks), std::move(layer_begin),
                                         std::move(block_begin), std::move(registered)});
}

std::int64_t NodeFlow::num_layers() const {
  return static_cast<std::int64_t>(state_->layers.size());
}

std::int64_t NodeFlow::num_blocks() const {
  return static_cast<std::int64_t>(state_->blocks.size());
}

std::int64_t NodeFlow::layer_size(std::int64_t layer) const {
  return state_->layers[state_->layer_index(layer)].num_rows();
}

std::int64_t NodeFlow::block_size(std::int64_t block) const {
  return state_->blocks[state_->block_index(block)].num_rows();
}

std::int64_t NodeFlow::num_nodes() const {
  return state_->layer_begin.back();
}

std::int64_t NodeFlow::num_edges() const {
  return state_->block_begin.back();
}

at::Device NodeFlow::device() const {
  return state_->layers.front().device();
}

const Graph& NodeFlow::parent() const {
  return state_->parent;
}

NodeFlow::View NodeFlow::layers(std::int64_t layer) {
  return View(state_->layers[state_->layer_index(layer)]);
}

NodeFlow::View NodeFlow::blocks(std::int64_t block) {
  return View(state_->blocks[state_->block_index(block)]);
}

const Topology& NodeFlow::block_topology(std::int64_t block) const {
  return state_->parts.blocks[state_->block_index(block)];
}

at::Tensor NodeFlow::layer_nid(std::int64_t layer) const {
  const std::size_t i = state_->layer_index(layer);
  return flow_id_range(state_->layer_begin[i], state_->layer_begin[i + 1], device());
}

at::Tensor NodeFlow::layer_parent_nid(std::int64_t layer) const {
  return state_->parts.nodes[state_->layer_index(layer)];
}

at::Tensor NodeFlow::block_eid(std::int64_t block) const {
  const std::size_t i = state_->block_index(block);
  return flow_id_range(state_->block_begin[i], state_->block_begin[i + 1], device());
}

at::Tensor NodeFlow::block_parent_eid(std::int64_t block) const {
  return state_->parts.edges[state_->block_index(block)];
}

at::Tensor NodeFlow::layer_in_degree(std::int64_t layer) const {
  const std::size_t i = state_->layer_index(layer);
  if (i == 0) return at::zeros_like(state_->parts.nodes[i]);
  return state_->parts.blocks[i - 1].in_degrees();
}

at::Tensor NodeFlow::layer_out_degree(std::int64_t layer) const {
  const std::size_t i = state_->layer_index(layer);
  if (i == state_->blocks.size()) return at::zeros_like(state_->parts.nodes[i]);
  return state_->parts.blocks[i].out_degrees();
}

at::Tensor NodeFlow::map_to_parent_nid(const at::Tensor& ids) const {
  const at::Tensor positions =
      detail::flow_positions("map_to_parent_nid", "ids", ids, 0, num_nodes(), device());
  return at::cat(state_->parts.nodes).index_select(0, positions);
}

at::Tensor NodeFlow::map_to_parent_eid(const at::Tensor& ids) const {
  const at::Tensor positions =
      detail::flow_positions("map_to_parent_eid", "ids", ids, 0, num_edges(), device());
  return at::cat(state_->parts.edges).index_select(0, positions);
}

at::Tensor NodeFlow::map_from_parent_nid(std::int64_t layer, const at::Tensor& parent_ids,
                                         bool local) const {
  constexpr const char* kOperation = "map_from_parent_nid";
  const std::size_t i = state_->layer_index(layer);
  const at::Tensor requested = detail::selected_ids(
      kOperation, "parent_ids", detail::check_vector(kOperation, "parent_ids", parent_ids),
      state_->parent.num_nodes(), device());
  // An entry above the largest id, so every search ends inside.
  const at::Tensor ending = at::full({1}, state_->parent.num_nodes(), requested.options());
  const auto [sorted, order] = at::cat({state_->parts.nodes[i], ending}).sort();
  const at::Tensor positions = at::searchsorted(sorted, requested);
  const at::Tensor missing = (sorted.index_select(0, positions) != requested).nonzero();
  MEZZO_CHECK(missing.size(0) == 0, "{}: expected nodes of layer {}, got node {}, which is not",
              kOperation, i, requested[missing[0].item<std::int64_t>()].item<std::int64_t>());
  const at::Tensor local_ids = order.index_select(0, positions);
  return local ? local_ids : local_ids + state_->layer_begin[i];
}

NodeFlow::BlockEdges NodeFlow::block_edges(std::int64_t block, bool local) const {
  const std::size_t i = state_->block_index(block);
  const Topology& topology = state_->parts.blocks[i];
  BlockEdges edges{topology.src().to(at::kLong), topology.dst().to(at::kLong),
                   flow_id_range(0, topology.num_edges(), device())};
  if (local) return edges;
  return {edges.src + state_->layer_begin[i], edges.dst + state_->layer_begin[i + 1],
          edges.edges + state_->block_begin[i]};
}

at::Tensor NodeFlow::block_adjacency_matrix(std::int64_t block) const {
  const Topology& edges = block_topology(block);
  return sparse_ones(edges.dst(), edges.src(), {edges.num_dst(), edges.num_src()});
}

at::Tensor NodeFlow::block_incidence_matrix(std::int64_t block, Incidence incidence) const {
  const Topology& edges = block_topology(block);
  const bool is_in = incidence == Incidence::kIn;
  const at::Tensor& ends = is_in ? edges.dst() : edges.src();
  return sparse_ones(ends, at::arange(edges.num_edges(), ends.options()),
                     {is_in ? edges.num_dst() : edges.num_src(), edges.num_edges()});
}

}  // namespace mezzo
