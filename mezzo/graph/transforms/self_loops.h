#pragma once

#include <functional>
#include <string>

#include <ATen/core/Tensor.h>

#include "mezzo/graph/graph.h"

/// Internal: shared by the two overloads of add_self_loop.
namespace mezzo::detail {

/// Returns the rows of the loops in the edge column `name`: [num_nodes, ...], rows shaped as in
/// `column`.
using LoopRows = std::function<at::Tensor(const std::string& name, const at::Tensor& column)>;

/// Returns `graph` with one more self loop per node after the old edges. Node columns are shared;
/// `rows` provides the new rows of the edge columns.
Graph with_self_loops(const Graph& graph, const LoopRows& rows);

}  // namespace mezzo::detail
