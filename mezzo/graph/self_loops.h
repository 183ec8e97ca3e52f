#pragma once

#include <functional>
#include <string>

#include <ATen/core/Tensor.h>

#include "mezzo/graph/graph.h"

/// The library's own: what the two forms of add_self_loop share.
namespace mezzo::detail {

/// What the loops have in the edge column `name`: [num_nodes, ...], a row as one of `column`.
using LoopRows = std::function<at::Tensor(const std::string& name, const at::Tensor& column)>;

/// `graph` and one self loop more per node after the old edges. Node columns are shared, edge
/// columns get the rows that `rows` makes.
Graph with_self_loops(const Graph& graph, const LoopRows& rows);

}  // namespace mezzo::detail
