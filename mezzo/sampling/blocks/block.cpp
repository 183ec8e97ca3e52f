#include "mezzo/sampling/blocks/block.h"

#include <mutex>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/graph/selection.h"
#include "mezzo/graph/topology_build.h"
#include "mezzo/message_passing/update_all.h"

namespace mezzo {

struct Block::State {
  State(Topology structure, at::Tensor nodes, at::Tensor edge_list, at::Tensor edge_table)
      : topology(std::move(structure)),
        srcdata("source", topology.num_src(), topology.device()),
        dstdata("destination", topology.num_dst(), topology.device()),
        edata("edge", topology.num_edges(), topology.device()),
        src_nodes(std::move(nodes)),
        edges(std::move(edge_list)),
        edge_ids(std::move(edge_table)) {}

  /// The state of a block of the same nodes and edges with `structure`, on the same or another
  /// device, and empty frames.
  std::shared_ptr<State> with_structure(Topology structure) {
    const std::lock_guard lock(mutex);
    auto state = std::make_shared<State>(std::move(structure), src_nodes, edges, edge_ids);
    state->dst_nodes = dst_nodes;
    return state;
  }

  Topology topology;
  Frame srcdata, dstdata, edata;
  std::mutex mutex;      ///< guards the ids below; their getters convert them to int64 on the
                         ///< topology's device
  at::Tensor src_nodes;  ///< [num_src]
  at::Tensor dst_nodes;  ///< [num_dst], if they are not the first of src_nodes
  at::Tensor edges;      ///< [num_edges], or undefined
  at::Tensor edge_ids;   ///< indexed by `edges`; undefined: `edges` are ids
};

namespace {

void check_block_ids(std::string_view name, const at::Tensor& ids, std::int64_t count,
                     at::Device device) {
  const at::Tensor checked = detail::check_vector("Block", name, ids);
  MEZZO_CHECK(checked.numel() == count && checked.device() == device,
              "Block: expected {} of length {} on {}, got {} on {}", name, count, device.str(),
              checked.numel(), checked.device().str());
}

}  // namespace

Block::Block(Topology topology, at::Tensor src_nodes, at::Tensor edges) {
  MEZZO_CHECK(topology.num_src() >= topology.num_dst(),
              "Block: expected the destinations among the sources, got {} destinations and {} "
              "sources",
              topology.num_dst(), topology.num_src());
  MEZZO_CHECK(!topology.has_separate_destinations(),
              "Block: expected the destinations among the sources, got a topology with separate "
              "destinations (to_block with include_dst_in_src = false)");
  check_block_ids("src_nodes", src_nodes, topology.num_src(), topology.device());
  if (edges.defined()) {
    check_block_ids("edges", edges, topology.num_edges(), topology.device());
  }
  state_ = std::make_shared<State>(std::move(topology), std::move(src_nodes), std::move(edges),
                                   at::Tensor());
}

Block::Block(Topology topology, at::Tensor src_nodes, at::Tensor entries, at::Tensor edge_ids)
    : state_(std::make_shared<State>(std::move(topology), std::move(src_nodes), std::move(entries),
                                     std::move(edge_ids))) {}

Block::Block(std::shared_ptr<State> state) : state_(std::move(state)) {}

const Topology& Block::topology() const {
  return state_->topology;
}

at::Tensor Block::src_nodes() const {
  const std::lock_guard lock(state_->mutex);
  const c10::InferenceMode no_inference(false);
  state_->src_nodes = state_->src_nodes.to(device(), at::kLong);
  return state_->src_nodes;
}

at::Tensor Block::dst_nodes() const {
  if (!topology().has_separate_destinations()) return src_nodes().narrow(0, 0, num_dst());
  const std::lock_guard lock(state_->mutex);
  const c10::InferenceMode no_inference(false);
  state_->dst_nodes = state_->dst_nodes.to(device());
  return state_->dst_nodes;
}

at::Tensor Block::parent_edges() const {
  const std::lock_guard lock(state_->mutex);
  MEZZO_CHECK(state_->edges.defined(), "parent_edges: this block has no ids of its edges");
  const c10::InferenceMode no_inference(false);
  if (state_->edge_ids.defined()) {
    state_->edges = state_->edge_ids.index_select(0, state_->edges);
    state_->edge_ids.reset();
  }
  state_->edges = state_->edges.to(device(), at::kLong);
  return state_->edges;
}

Frame& Block::srcdata() {
  return state_->srcdata;
}

const Frame& Block::srcdata() const {
  return state_->srcdata;
}

Frame& Block::dstdata() {
  return state_->dstdata;
}

const Frame& Block::dstdata() const {
  return state_->dstdata;
}

Frame& Block::edata() {
  return state_->edata;
}

const Frame& Block::edata() const {
  return state_->edata;
}

Block Block::to(at::Device to_device) const {
  const at::Device target = detail::resolve_device("Block::to", to_device);
  if (target == device()) return *this;
  auto moved = state_->with_structure(topology().to(target));
  moved->srcdata = srcdata().to(target);
  moved->dstdata = dstdata().to(target);
  moved->edata = edata().to(target);
  return Block(std::move(moved));
}

Block Block::local_var() const {
  auto own = state_->with_structure(topology());
  own->srcdata = srcdata();
  own->dstdata = dstdata();
  own->edata = edata();
  return Block(std::move(own));
}

Block::LocalScope Block::local_scope() {
  return LocalScope(*this);
}

Block::LocalScope::LocalScope(Block block)
    : block_(std::move(block)),
      srcdata_(block_.srcdata()),
      dstdata_(block_.dstdata()),
      edata_(block_.edata()) {}

Block::LocalScope::~LocalScope() {
  detail::restore(block_.srcdata(), srcdata_);
  detail::restore(block_.dstdata(), dstdata_);
  detail::restore(block_.edata(), edata_);
}

void Block::update_all(const MessageFunction& message, const ReduceFunction& reduce,
                       const ApplyFunction& apply) {
  mezzo::update_all(topology(), srcdata(), edata(), dstdata(), message, reduce, apply);
}

void Block::apply_edges(const MessageFunction& function, const std::optional<at::Tensor>& edges) {
  mezzo::apply_edges(topology(), srcdata(), edata(), dstdata(), function, edges);
}

Block Block::with_own_destinations(Topology topology, at::Tensor src_nodes, at::Tensor dst_nodes,
                                   at::Tensor edges) {
  auto state = std::make_shared<State>(std::move(topology), std::move(src_nodes), std::move(edges),
                                       at::Tensor());
  state->dst_nodes = std::move(dst_nodes);
  return Block(std::move(state));
}

Block to_block(const Topology& topology, const at::Tensor& edges, const at::Tensor& dst_nodes,
               bool include_dst_in_src) {
  constexpr std::string_view kOperation = "to_block";
  const std::int64_t num_nodes = topology.num_dst();
  MEZZO_CHECK(topology.device().is_cpu(), "{}: expected a topology on the CPU, got {}", kOperation,
              topology.device().str());
  MEZZO_CHECK(topology.num_src() == num_nodes,
              "{}: expected a topology of one set of nodes, got {} sources and {} destinations",
              kOperation, topology.num_src(), num_nodes);
  const c10::InferenceMode no_inference(false);
  const at::Tensor edge_list =  // a copy, which the block keeps
      detail::selected_ids(kOperation, "edges", edges, topology.num_edges(), topology.device())
          .clone();
  const at::Tensor destinations =
      detail::selected_ids(kOperation, "dst_nodes", dst_nodes, num_nodes, topology.device());
  detail::check_distinct(kOperation, "dst_nodes", destinations);

  at::Tensor numbers = at::full({num_nodes}, -1, at::kLong);
  numbers.index_put_({destinations}, at::arange(destinations.numel()));
  const at::Tensor dst = numbers.index_select(0, topology.dst().index_select(0, edge_list));
  const at::Tensor outside = (dst < 0).nonzero();
  if (outside.numel() > 0) {
    const auto edge = edge_list[outside[0].item<std::int64_t>()].item<std::int64_t>();
    detail::raise<InvalidArgument>(
        "{}: expected only edges into dst_nodes, got edge {} into node {}", kOperation, edge,
        topology.dst()[edge].item<std::int64_t>());
  }

  const at::Tensor parents = topology.src().index_select(0, edge_list).to(at::kLong);
  at::Tensor src = at::empty_like(parents),
             nodes = at::empty({destinations.numel() + parents.numel()}, at::kLong);
  std::int64_t num_src = 0;
  if (include_dst_in_src) {
    num_src = destinations.numel();
    nodes.narrow(0, 0, num_src).copy_(destinations);
  } else {
    numbers.index_fill_(0, destinations, -1);
  }
  const auto* parent = parents.const_data_ptr<std::int64_t>();
  auto* number = numbers.mutable_data_ptr<std::int64_t>();
  auto* local = src.mutable_data_ptr<std::int64_t>();
  auto* node = nodes.mutable_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < parents.numel(); ++i) {
    if (number[parent[i]] < 0) {
      number[parent[i]] = num_src;
      node[num_src++] = parent[i];
    }
    local[i] = number[parent[i]];
  }
  const Topology structure = Topology::from_coo(src, dst, num_src, destinations.numel());
  at::Tensor sources = nodes.narrow(0, 0, num_src).clone();
  if (include_dst_in_src) return Block(structure, std::move(sources), edge_list);
  return Block::with_own_destinations(structure.with_separate_destinations(), std::move(sources),
                                      destinations.clone(), edge_list);
}

}  // namespace mezzo
