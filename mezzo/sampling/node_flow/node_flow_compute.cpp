// Message passing of a NodeFlow and its registered functions.
#include <optional>
#include <string_view>
#include <vector>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/selection.h"
#include "mezzo/message_passing/update_all.h"
#include "mezzo/sampling/node_flow/node_flow_state.h"

namespace mezzo {
namespace {

at::Tensor distinct_flow_positions(std::string_view operation, std::string_view name,
                                   const at::Tensor& ids, std::int64_t begin, std::int64_t end,
                                   at::Device device) {
  at::Tensor positions = detail::flow_positions(operation, name, ids, begin, end, device);
  detail::check_distinct(operation, name, positions + begin);
  return positions;
}

/// `function`, else the registered one of block `block`. Throws InvalidArgument if both are
/// missing.
template <class Function>
Function or_registered(std::string_view operation, std::string_view name, std::size_t block,
                       const std::optional<Function>& function,
                       const std::optional<Function>& registered) {
  MEZZO_CHECK(function || registered,
              "{}: expected the {} function of block {}, as an argument or by register_{}_func, "
              "got none",
              operation, name, block, name);
  return function ? *function : *registered;
}

template <class Registered, class Function>
void register_function(std::vector<Registered>& functions, std::size_t begin, std::size_t end,
                       const Function& function) {
  for (std::size_t i = begin; i < end; ++i) functions[i] = function;
}

}  // namespace

NodeFlow::State::BlockFunctions NodeFlow::State::functions_of(
    std::string_view operation, std::size_t block, const std::optional<MessageFunction>& message,
    const std::optional<ReduceFunction>& reduce, const std::optional<ApplyFunction>& apply) const {
  return {or_registered(operation, "message", block, message, registered.message[block]),
          or_registered(operation, "reduce", block, reduce, registered.reduce[block]),
          apply ? *apply : registered.apply_node[block + 1]};
}

ApplyFunction NodeFlow::State::function_of_layer(
    std::size_t layer, const std::optional<ApplyFunction>& function) const {
  ApplyFunction result = function ? *function : registered.apply_node[layer];
  MEZZO_CHECK(result,
              "apply_layer: expected the apply_node function of layer {}, as an argument or by "
              "register_apply_node_func, got none",
              layer);
  return result;
}

MessageFunction NodeFlow::State::function_of_edges(
    std::size_t block, const std::optional<MessageFunction>& function) const {
  return or_registered("apply_block", "apply_edge", block, function, registered.apply_edge[block]);
}

void NodeFlow::register_message_func(const MessageFunction& function,
                                     std::optional<std::int64_t> block) {
  const auto [begin, end] = state_->block_range(block);
  register_function(state_->registered.message, begin, end, function);
}

void NodeFlow::register_reduce_func(const ReduceFunction& function,
                                    std::optional<std::int64_t> block) {
  const auto [begin, end] = state_->block_range(block);
  register_function(state_->registered.reduce, begin, end, function);
}

void NodeFlow::register_apply_node_func(const ApplyFunction& function,
                                        std::optional<std::int64_t> block) {
  const auto [begin, end] = state_->block_range(block);
  // The layers that the blocks run into; layer 0 only together with all.
  register_function(state_->registered.apply_node, block ? begin + 1 : 0, end + 1, function);
}

void NodeFlow::register_apply_edge_func(const MessageFunction& function,
                                        std::optional<std::int64_t> block) {
  const auto [begin, end] = state_->block_range(block);
  register_function(state_->registered.apply_edge, begin, end, function);
}

void NodeFlow::block_compute(std::int64_t block, const std::optional<MessageFunction>& message,
                             const std::optional<ReduceFunction>& reduce,
                             const std::optional<ApplyFunction>& apply,
                             const std::optional<at::Tensor>& nodes) {
  const std::size_t i = state_->block_index(block);
  const auto functions = state_->functions_of("block_compute", i, message, reduce, apply);
  const Topology& edges = state_->parts.blocks[i];
  if (!nodes) {
    update_all(edges, state_->layers[i], state_->blocks[i], state_->layers[i + 1],
               functions.message, functions.reduce, functions.apply);
    return;
  }
  const at::Tensor positions =
      distinct_flow_positions("block_compute", "nodes", *nodes, state_->layer_begin[i + 1],
                              state_->layer_begin[i + 2], device());
  pull(edges, state_->layers[i], state_->blocks[i], state_->layers[i + 1], positions,
       functions.message, functions.reduce, functions.apply);
}

void NodeFlow::apply_layer(std::int64_t layer, const std::optional<ApplyFunction>& function,
                           const std::optional<at::Tensor>& nodes) {
  const std::size_t i = state_->layer_index(layer);
  std::optional<at::Tensor> positions;
  const ApplyFunction selected = state_->function_of_layer(i, function);
  if (nodes) {
    positions = distinct_flow_positions("apply_layer", "nodes", *nodes, state_->layer_begin[i],
                                        state_->layer_begin[i + 1], device());
  }
  apply_nodes(state_->layers[i], selected, positions);
}

void NodeFlow::apply_block(std::int64_t block, const std::optional<MessageFunction>& function,
                           const std::optional<at::Tensor>& edges) {
  const std::size_t i = state_->block_index(block);
  std::optional<at::Tensor> positions;
  const MessageFunction selected = state_->function_of_edges(i, function);
  if (edges) {
    positions = distinct_flow_positions("apply_block", "edges", *edges, state_->block_begin[i],
                                        state_->block_begin[i + 1], device());
  }
  apply_edges(state_->parts.blocks[i], state_->layers[i], state_->blocks[i], state_->layers[i + 1],
              selected, positions);
}

void NodeFlow::prop_flow(const std::optional<MessageFunction>& message,
                         const std::optional<ReduceFunction>& reduce,
                         const std::optional<ApplyFunction>& apply) {
  std::vector<State::BlockFunctions> functions;
  for (std::size_t i = 0; i < state_->blocks.size(); ++i) {
    functions.push_back(state_->functions_of("prop_flow", i, message, reduce, apply));
  }
  for (std::size_t i = 0; i < functions.size(); ++i) {
    block_compute(static_cast<std::int64_t>(i), functions[i].message, functions[i].reduce,
                  functions[i].apply);
  }
}

}  // namespace mezzo
