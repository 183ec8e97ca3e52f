#include "mezzo/sampling/edges/edge_lookup.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "mezzo/graph/topology_build.h"

namespace mezzo::detail {

EdgeLookup::EdgeLookup(const Topology& topology)
    : row_begin_(static_cast<std::size_t>(topology.num_src()) + 1),
      destinations_(static_cast<std::size_t>(topology.num_edges())),
      edges_(destinations_.size()) {
  const Adjacency& rows = topology.csc();
  const auto* indptr = rows.indptr.const_data_ptr<std::int64_t>();
  visit(IdTypes{}, topology.id_dtype(), [&]<class IdType>() {
    using Id = typename IdType::Type;
    const auto* sources = rows.indices.const_data_ptr<Id>();
    const Id* ids = rows.edge_ids.defined() ? rows.edge_ids.const_data_ptr<Id>() : nullptr;
    for (std::int64_t i = 0; i < topology.num_edges(); ++i) {
      ++row_begin_[static_cast<std::size_t>(sources[i]) + 1];
    }
    for (std::size_t row = 1; row < row_begin_.size(); ++row) {
      row_begin_[row] += row_begin_[row - 1];
    }
    std::vector<std::int64_t> next(row_begin_.begin(), row_begin_.end() - 1);
    // Destinations ascend, so every row of sources is sorted.
    for (std::int64_t dst = 0; dst < topology.num_dst(); ++dst) {
      for (std::int64_t i = indptr[dst]; i < indptr[dst + 1]; ++i) {
        const auto entry = static_cast<std::size_t>(next[static_cast<std::size_t>(sources[i])]++);
        destinations_[entry] = dst;
        edges_[entry] = ids != nullptr ? static_cast<std::int64_t>(ids[i]) : i;
      }
    }
  });
}

std::span<const std::int64_t> EdgeLookup::destinations(std::int64_t src) const {
  const auto row = static_cast<std::size_t>(src);
  return {destinations_.data() + row_begin_[row], destinations_.data() + row_begin_[row + 1]};
}

bool EdgeLookup::contains(std::int64_t src, std::int64_t dst) const {
  const std::span<const std::int64_t> row = destinations(src);
  return std::binary_search(row.begin(), row.end(), dst);
}

std::span<const std::int64_t> EdgeLookup::edges(std::int64_t src, std::int64_t dst) const {
  const std::span<const std::int64_t> row = destinations(src);
  const auto range = std::equal_range(row.begin(), row.end(), dst);
  const auto* first = edges_.data() + row_begin_[static_cast<std::size_t>(src)];
  return {first + (range.first - row.begin()), first + (range.second - row.begin())};
}

}  // namespace mezzo::detail
