#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "mezzo/sampling/node_flow.h"

namespace mezzo {

// What a NodeFlow shares with its copies; internal to sampling.
struct NodeFlow::State {
  Graph parent;
  Parts parts;
  std::vector<Frame> layers, blocks;
  /// Where the flow's ids of each layer (block) begin; one more: where the last one's end.
  std::vector<std::int64_t> layer_begin, block_begin;

  /// `layer` (`block`) counted from the beginning. Throws InvalidArgument.
  std::size_t layer_index(std::int64_t layer) const;
  std::size_t block_index(std::int64_t block) const;
};

namespace detail {

/// `index`, where negative ones count from the end, counted from the beginning. Throws
/// InvalidArgument unless in [-count, count).
std::size_t flow_index(std::string_view what, std::int64_t index, std::size_t count);

}  // namespace detail
}  // namespace mezzo
