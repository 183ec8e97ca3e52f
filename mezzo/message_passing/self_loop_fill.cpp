// add_self_loop with values reduced from the in-edges. graph/transforms/transforms.h declares it;
// it is defined here, because it needs gspmm.
#include <optional>
#include <string>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/transforms/self_loops.h"
#include "mezzo/graph/transforms/transforms.h"
#include "mezzo/ops/ops.h"

namespace mezzo {

Graph add_self_loop(const Graph& graph, ReduceOp fill) {
  return detail::with_self_loops(graph, [&](const std::string& name, const at::Tensor& column) {
    MEZZO_CHECK(at::isFloatingType(column.scalar_type()),
                "add_self_loop: expected edge column '{}' of a floating dtype for the {} of its "
                "values, got {}",
                name, name_of(ReduceOps{}, fill), c10::toString(column.scalar_type()));
    return gspmm(graph.topology(), BinaryOp::kCopyRhs, fill, std::nullopt, column);
  });
}

}  // namespace mezzo
