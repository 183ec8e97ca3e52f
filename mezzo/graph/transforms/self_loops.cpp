#include "mezzo/graph/transforms/self_loops.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/topology_build.h"
#include "mezzo/graph/transforms/transforms.h"

namespace mezzo {
namespace {

/// Whether `dtype` can represent this number: integers exactly, floating dtypes after rounding.
bool holds(at::ScalarType dtype, double number) {
  const at::Tensor exact = at::scalar_tensor(number, at::kDouble);
  const at::Tensor stored = exact.to(dtype).to(at::kDouble);
  if (at::isFloatingType(dtype)) {
    return std::isfinite(stored.item<double>()) || !std::isfinite(number);
  }
  return std::isfinite(number) && stored.equal(exact);
}

}  // namespace

Graph detail::with_self_loops(const Graph& graph, const LoopRows& rows) {
  Columns columns;
  for (const std::string& name : graph.edata().names()) {
    const at::Tensor& column = graph.edata().at(name);
    columns[name] = at::cat({column, rows(name, column)});
  }
  const Topology& old = graph.topology();
  const at::Tensor nodes = at::arange(graph.num_nodes(), old.src().options());
  Graph looped = Graph::from_coo(at::cat({old.src(), nodes}), at::cat({old.dst(), nodes}),
                                 graph.num_nodes(), width_like(old.id_dtype()));
  looped.ndata() = graph.ndata();
  looped.edata().update(columns);
  return looped;
}

Graph add_self_loop(const Graph& graph, double fill) {
  return detail::with_self_loops(graph, [&](const std::string& name, const at::Tensor& column) {
    const at::ScalarType dtype = column.scalar_type();
    MEZZO_CHECK(holds(dtype, fill),
                "add_self_loop: expected a fill that edge column '{}' of {} can hold, got {}", name,
                c10::toString(dtype), fill);
    std::vector<std::int64_t> shape = column.sizes().vec();
    shape[0] = graph.num_nodes();
    return at::full(shape, fill, column.options());
  });
}

}  // namespace mezzo
