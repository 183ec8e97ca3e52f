#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mezzo/sampling/node_flow/node_flow.h"

namespace mezzo {

namespace detail {

/// Rows of a column of the parent's, gathered before they are asked for.
struct RowsAhead {
  at::Tensor column;         ///< of which they are
  std::int64_t version = 0;  ///< of the column before they were gathered
  at::Tensor rows;
};

/// By name of the column.
using ColumnsAhead = std::map<std::string, RowsAhead>;

/// Gathers for flows before their copy_from_parent().
struct FlowRows {
  /// Gathers the rows of `columns` (of the parent's nodes, on the CPU) for every layer, less those
  /// of columns to which gradients flow. Safe beside reads of the columns.
  static void gather_ahead(NodeFlow& flow, const Columns& columns);
};

}  // namespace detail

// What a NodeFlow shares with its copies; internal to sampling.
struct NodeFlow::State {
  /// The defaults of calls.
  struct Registered {
    explicit Registered(std::size_t num_blocks)
        : message(num_blocks),
          apply_edge(num_blocks),
          reduce(num_blocks),
          apply_node(num_blocks + 1) {}

    std::vector<std::optional<MessageFunction>> message, apply_edge;  ///< one a block
    std::vector<std::optional<ReduceFunction>> reduce;                ///< one a block
    std::vector<ApplyFunction> apply_node;                            ///< one a layer
  };

  /// What one block computes with. Copies: a function may register another while it runs.
  struct BlockFunctions {
    MessageFunction message;
    ReduceFunction reduce;
    ApplyFunction apply;
  };

  Graph parent;
  Parts parts;
  std::vector<Frame> layers, blocks;
  /// Where the flow's ids of each layer (block) begin; one more: where the last one's end.
  std::vector<std::int64_t> layer_begin, block_begin;
  Registered registered;
  std::vector<detail::ColumnsAhead> ahead = {};  ///< one a layer, or none

  /// `layer` (`block`) counted from the beginning. Throws InvalidArgument.
  std::size_t layer_index(std::int64_t layer) const;
  std::size_t block_index(std::int64_t block) const;
  /// Of `block` or, without one, of all: from the first index to before the second. Throws
  /// InvalidArgument.
  std::pair<std::size_t, std::size_t> block_range(std::optional<std::int64_t> block) const;

  /// What a call was given, else what is registered. Throws InvalidArgument, opening with
  /// `operation`, for a message or a reduction that is neither.
  BlockFunctions functions_of(std::string_view operation, std::size_t block,
                              const std::optional<MessageFunction>& message,
                              const std::optional<ReduceFunction>& reduce,
                              const std::optional<ApplyFunction>& apply) const;
  /// Likewise, of apply_layer and of apply_block.
  ApplyFunction function_of_layer(std::size_t layer,
                                  const std::optional<ApplyFunction>& given) const;
  MessageFunction function_of_edges(std::size_t block,
                                    const std::optional<MessageFunction>& given) const;
};

namespace detail {

/// `index`, where negative ones count from the end, counted from the beginning. Throws
/// InvalidArgument unless in [-count, count).
std::size_t flow_index(std::string_view what, std::int64_t index, std::size_t count);

/// Positions within [begin, end) of `ids` of the flow. Throws InvalidArgument for one outside.
at::Tensor flow_positions(std::string_view operation, std::string_view name, const at::Tensor& ids,
                          std::int64_t begin, std::int64_t end, at::Device device);

}  // namespace detail
}  // namespace mezzo
