#include "mezzo/sampling/loader_support.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/sampling/gather.h"

namespace mezzo::detail {

Columns select_columns(std::string_view operation, std::string_view option, const Frame& nodes,
                       const std::vector<std::string>& names) {
  Columns columns;
  for (const std::string& name : names) {
    MEZZO_CHECK(nodes.contains(name), "{}: expected {} to name columns of the nodes ({}), got '{}'",
                operation, option, fmt::join(nodes.names(), ", "), name);
    const at::Tensor& column = nodes.at(name);
    MEZZO_CHECK(
        column.layout() == at::kStrided || (column.layout() == at::kSparseCsr && column.dim() == 2),
        "{}: expected the column '{}' of {} as dense or as sparse rows (CSR), got {}", operation,
        name, option, describe(column));
    columns.emplace(name, column);
  }
  return columns;
}

Columns gather_columns(const Columns& columns, const at::Tensor& ids, at::Device device) {
  const RowMemory memory = device.is_cuda() ? RowMemory::kPinned : RowMemory::kPageable;
  Columns rows;
  for (const auto& [name, column] : columns) rows[name] = gather_rows(column, ids, memory);
  return rows;
}

void prepare_rows(const Topology& topology, bool backward) {
  static_cast<void>(topology.csc());
  if (backward) static_cast<void>(topology.csr());
}

ParentDegrees parent_degrees_of(const Topology& topology) {
  const at::Tensor* in = topology.parent_in_degrees();
  const at::Tensor* out = topology.parent_out_degrees();
  return {.in = in != nullptr ? *in : topology.in_degrees(),
          .out = out != nullptr ? *out : topology.out_degrees()};
}

}  // namespace mezzo::detail
