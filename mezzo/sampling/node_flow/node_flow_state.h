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

/// Rows of a column of the parent, gathered before copy_from_parent().
struct PrefetchedRows {
  at::Tensor column;         ///< the parent's
  std::int64_t version = 0;  ///< of the column before the gather
  at::Tensor rows;
};

/// Keys are column names.
using PrefetchedColumns = std::map<std::string, PrefetchedRows>;

/// Gathers for flows before their copy_from_parent().
struct FlowRows {
  /// Gathers the rows of `columns` (of the parent's nodes, on the CPU) for every layer; skips
  /// columns that require a gradient. Other threads may read the columns.
  static void prefetch(NodeFlow& flow, const Columns& columns);
};

}  // namespace detail

// The state that copies of a NodeFlow share; internal to sampling.
struct NodeFlow::State {
  /// The default functions.
  struct Registered {
    explicit Registered(std::size_t num_blocks)
        : message(num_blocks),
          apply_edge(num_blocks),
          reduce(num_blocks),
          apply_node(num_blocks + 1) {}

    std::vector<std::optional<MessageFunction>> message, apply_edge;  ///< one per block
    std::vector<std::optional<ReduceFunction>> reduce;                ///< one per block
    std::vector<ApplyFunction> apply_node;                            ///< one per layer
  };

  /// The functions of one block. Copies: a function may register another while it runs.
  struct BlockFunctions {
    MessageFunction message;
    ReduceFunction reduce;
    ApplyFunction apply;
  };

  Graph parent;
  Parts parts;
  std::vector<Frame> layers, blocks;
  /// The first flow id of each layer (block), then the number of all ids.
  std::vector<std::int64_t> layer_begin, block_begin;
  Registered registered;
  std::vector<detail::PrefetchedColumns> prefetched = {};  ///< one per layer, or empty

  /// `layer` (`block`) counted from the beginning. Throws InvalidArgument.
  std::size_t layer_index(std::int64_t layer) const;
  std::size_t block_index(std::int64_t block) const;
  /// [begin, end) of `block` or, without one, of all blocks. Throws InvalidArgument.
  std::pair<std::size_t, std::size_t> block_range(std::optional<std::int64_t> block) const;

  /// The functions passed to a call, else the registered ones. Throws InvalidArgument with the
  /// prefix `operation` for a missing message or reduce function.
  BlockFunctions functions_of(std::string_view operation, std::size_t block,
                              const std::optional<MessageFunction>& message,
                              const std::optional<ReduceFunction>& reduce,
                              const std::optional<ApplyFunction>& apply) const;
  /// The functions of apply_layer and of apply_block.
  ApplyFunction function_of_layer(std::size_t layer,
                                  const std::optional<ApplyFunction>& function) const;
  MessageFunction function_of_edges(std::size_t block,
                                    const std::optional<MessageFunction>& function) const;
};

namespace detail {

/// `index` counted from the beginning; negative ones count from the end. Throws InvalidArgument
/// unless it is in [-count, count).
std::size_t flow_index(std::string_view what, std::int64_t index, std::size_t count);

/// ids - begin for ids of the flow. Throws InvalidArgument unless they are in [begin, end).
at::Tensor flow_positions(std::string_view operation, std::string_view name, const at::Tensor& ids,
                          std::int64_t begin, std::int64_t end, at::Device device);

}  // namespace detail
}  // namespace mezzo
