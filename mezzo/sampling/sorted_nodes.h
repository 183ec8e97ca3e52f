#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "mezzo/sampling/workspace.h"

namespace mezzo::detail {

/// The distinct nodes of a list, and the position of each list element among them.
struct SortedNodes {
  at::Tensor distinct;   ///< int64 [u], ascending
  at::Tensor positions;  ///< of the list's dtype [n]: distinct[positions[i]] is node i of the list
};

/// nodes: int32 or int64 [n] on the CPU, in [0, num_nodes), not checked. O(n + u log u).
SortedNodes sort_nodes(const at::Tensor& nodes, std::int64_t num_nodes, Workspace& workspace);

}  // namespace mezzo::detail
