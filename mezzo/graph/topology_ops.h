#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology_build.h"

/// Internal: the CUDA path of topology_build.h. Computes the same results with libtorch operations
/// on the tensors' device (also works on the CPU).
namespace mezzo::detail {

/// As sort_edges, for fewer than 2^31 edges: a stable radix sort on a GPU. Synchronises once, to
/// read the longest row and whether the keys are sorted.
MEZZO_API Adjacency sort_edges_by_ops(const at::Tensor& keys, const at::Tensor& others,
                                      std::int64_t num_rows);

/// As expand_rows. Does not synchronise.
MEZZO_API EdgeList expand_rows_by_ops(const Adjacency& rows);

/// As count_ids. Does not synchronise.
MEZZO_API at::Tensor count_ids_by_ops(const at::Tensor& ids, std::int64_t bound);

/// Returns what check_indptr returns for `indptr` (not empty), nullopt if it throws. Synchronises
/// once.
MEZZO_API std::optional<std::int64_t> longest_row(const at::Tensor& indptr, std::int64_t num_edges);

/// Returns the order of the edge ids within the rows, nullopt if they are not a permutation.
/// edge_ids: in [0, E). Synchronises once.
MEZZO_API std::optional<EntryOrder> entry_order(const at::Tensor& indptr,
                                                const at::Tensor& edge_ids);

}  // namespace mezzo::detail
