#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include <ATen/ATen.h>

#include "bench/cases/kernels.h"
#include "bench/harness/operator_case.h"

// Internal: shared by the comparisons of operations.

namespace mezzo::bench {

/// Sizes of the work, and the bytes that follow from them. Elements have `size` bytes.
struct Sizes {
  std::int64_t num_src, num_dst, num_edges, width, id_bytes;
  Pass pass;

  Sizes(const Workload& load, std::int64_t features, Pass what)
      : num_src(load.topology.num_src()),
        num_dst(load.topology.num_dst()),
        num_edges(load.topology.num_edges()),
        width(features),
        id_bytes(load.topology.id_dtype() == at::kInt ? 4 : 8),
        pass(what) {}

  bool backward() const { return pass == Pass::kForwardBackward; }
  std::int64_t nodes(std::int64_t size) const { return (num_src + num_dst) * width * size; }
  std::int64_t edges(std::int64_t size) const { return num_edges * size; }
  /// One E x F tensor of float32.
  std::int64_t messages() const { return num_edges * width * kFloatBytes; }
  /// Memory for scatter_add's sort and libtorch's copies of the structure.
  std::int64_t sorting() const { return num_edges * 24; }

  /// A sum over the edges: every neighbour's row, its id, the result, the row pointers.
  std::int64_t sum(std::int64_t size, bool weighted) const {
    const std::int64_t weight = weighted ? size + id_bytes : 0;
    return num_edges * (width * size + id_bytes + weight) + num_dst * (width * size + 8);
  }
  /// A dot product per edge: one endpoint's row per edge, the other's once per node.
  std::int64_t dot(std::int64_t size) const { return sum(size, true); }
};

/// Operands in float32 and in every 16-bit type, float32 results and the memory to compare them.
inline std::int64_t operand_bytes(const Workload& load, std::int64_t operands,
                                  std::int64_t results) {
  const auto num_16_bit = std::count_if(load.precisions.begin(), load.precisions.end(),
                                        [](auto p) { return element_bytes(p) < kFloatBytes; });
  return operands * (kFloatBytes + 2 * num_16_bit) + 3 * results * kFloatBytes;
}

/// For an operator on rows of both sides with `per_edge` more numbers per edge.
inline std::int64_t operand_bytes(const Workload& load, const Sizes& sizes, std::int64_t per_edge) {
  const std::int64_t nodes = sizes.nodes(1);
  return operand_bytes(load, nodes + per_edge * sizes.num_edges, nodes);
}

/// bytes, make: of Plan; the plan keeps the workload.
inline Plan graph_plan(const std::string& work, const Workload& load, const Sizes& sizes,
                       std::int64_t bytes,
                       std::function<Comparison(const Workload&, const Sizes&)> make) {
  return {.work = work + suffix(sizes.pass),
          .width = sizes.width,
          .bytes = bytes,
          .make = [load, sizes, make = std::move(make)] { return make(load, sizes); }};
}

}  // namespace mezzo::bench
