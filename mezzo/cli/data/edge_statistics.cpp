#include "mezzo/cli/data/edge_statistics.h"

#include <algorithm>
#include <vector>

#include <ATen/ATen.h>

#include "mezzo/data/dataset.h"

namespace mezzo::cli {
namespace {

/// Rows by destination.
template <class Id>
struct SourceRows {
  const std::int64_t* start;  // [num_rows + 1]
  const Id* source;           // [num_edges]
  std::int64_t num_rows;
};

template <class Id>
bool sources_ascend(const SourceRows<Id>& rows) {
  for (std::int64_t row = 0; row < rows.num_rows; ++row) {
    if (!std::is_sorted(rows.source + rows.start[row], rows.source + rows.start[row + 1])) {
      return false;
    }
  }
  return true;
}

/// label: one a row, or nullptr. The sources of each row ascend.
template <class Id>
void count_edges(const SourceRows<Id>& rows, const std::int64_t* label,
                 EdgeStatistics& statistics) {
  for (std::int64_t row = 0; row < rows.num_rows; ++row) {
    for (std::int64_t entry = rows.start[row]; entry < rows.start[row + 1]; ++entry) {
      const Id source = rows.source[entry];
      if (entry > rows.start[row] && source == rows.source[entry - 1]) ++statistics.parallel_edges;
      if (source == row) {
        ++statistics.self_loops;
      } else if (label != nullptr && label[row] != kNoLabel && label[source] != kNoLabel) {
        ++statistics.labelled;
        statistics.between_equals += label[source] == label[row] ? 1 : 0;
      }
    }
  }
}

/// The sources of each row ascend. Met row by row, the edges out of a node come in the order of
/// their destinations, so that in an undirected graph they are, one by one, those into it.
template <class Id>
bool all_have_reverse(const SourceRows<Id>& rows) {
  std::vector<std::int64_t> next(rows.start, rows.start + rows.num_rows);
  for (std::int64_t row = 0; row < rows.num_rows; ++row) {
    for (std::int64_t entry = rows.start[row]; entry < rows.start[row + 1]; ++entry) {
      const Id source = rows.source[entry];
      if (entry > rows.start[row] && source == rows.source[entry - 1]) continue;
      std::int64_t& reverse = next[static_cast<std::size_t>(source)];
      const std::int64_t end = rows.start[source + 1];
      if (reverse == end || rows.source[reverse] != row) return false;
      while (reverse < end && rows.source[reverse] == row) ++reverse;
    }
  }
  return true;
}

template <class Id>
EdgeStatistics statistics_of(const Adjacency& in_edges, const std::int64_t* label) {
  const at::Tensor indptr = in_edges.indptr.contiguous();
  at::Tensor indices = in_edges.indices.contiguous();
  SourceRows<Id> rows{.start = indptr.const_data_ptr<std::int64_t>(),
                      .source = indices.const_data_ptr<Id>(),
                      .num_rows = indptr.numel() - 1};
  if (!sources_ascend(rows)) {
    indices = indices.clone();
    Id* const sorted = indices.mutable_data_ptr<Id>();
    for (std::int64_t row = 0; row < rows.num_rows; ++row) {
      std::sort(sorted + rows.start[row], sorted + rows.start[row + 1]);
    }
    rows.source = sorted;
  }
  EdgeStatistics statistics;
  count_edges(rows, label, statistics);
  statistics.is_undirected = all_have_reverse(rows);
  return statistics;
}

}  // namespace

EdgeStatistics edge_statistics(const Topology& topology, const at::Tensor& labels) {
  const at::Tensor contiguous_labels = labels.defined() ? labels.contiguous() : labels;
  const std::int64_t* label =
      contiguous_labels.defined() ? contiguous_labels.const_data_ptr<std::int64_t>() : nullptr;
  return topology.id_dtype() == at::kInt ? statistics_of<std::int32_t>(topology.csc(), label)
                                         : statistics_of<std::int64_t>(topology.csc(), label);
}

}  // namespace mezzo::cli
