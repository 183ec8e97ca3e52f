#pragma once

#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/core/type_list.h"
#include "mezzo/graph/graph.h"

namespace mezzo {

/// How reorder numbers the nodes.
enum class NodeOrder : std::uint8_t {
  kKeep,                 ///< as they are; only the edges are sorted
  kDegree,               ///< most edges (in and out) first, ties in the old order
  kReverseCuthillMcKee,  ///< breadth first from nodes of few edges, neighbours of few edges first,
                         ///< then reversed: connected nodes get near numbers (George, 1971)
};

struct KeepOrder {
  static constexpr NodeOrder kind = NodeOrder::kKeep;
  static constexpr std::string_view name = "keep";
};
struct DegreeOrder {
  static constexpr NodeOrder kind = NodeOrder::kDegree;
  static constexpr std::string_view name = "degree";
};
struct ReverseCuthillMcKeeOrder {
  static constexpr NodeOrder kind = NodeOrder::kReverseCuthillMcKee;
  static constexpr std::string_view name = "rcmk";
};
using NodeOrders = TypeList<KeepOrder, DegreeOrder, ReverseCuthillMcKeeOrder>;

/// The same graph stored for locality: nodes renumbered, edges sorted by (destination, source), so
/// that kernels read edge columns sequentially and nearby node rows together. Columns are gathered,
/// differentiably. ndata()["_ID"] and edata()["_ID"] (int64) hold the old ids: x_old.index_copy(0,
/// ndata()["_ID"], x_new) restores the order. Computes the order on the host in O(N + E log E);
/// synchronises on CUDA. Similar to DGL's reorder_graph. Throws InvalidArgument for more than
/// 3,037,000,499 nodes.
MEZZO_API Graph reorder(const Graph& graph, NodeOrder order);

/// As above with a custom order: node i of the result is old node nodes[i]. nodes: a permutation,
/// integer [N]; else InvalidArgument. Synchronises on CUDA.
MEZZO_API Graph reorder(const Graph& graph, const at::Tensor& nodes);

}  // namespace mezzo
