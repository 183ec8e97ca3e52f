#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology_build.h"

/// What topology_build.h does with tensors on a CUDA device: the same results by libtorch's
/// operations, where the tensors are (which may also be the CPU). Internal to graph.
namespace mezzo::detail {

/// As sort_edges, for fewer than 2^31 edges: a stable radix sort on a GPU. Synchronises once, to
/// learn whether the keys are sorted.
MEZZO_API Adjacency sort_edges_by_ops(const at::Tensor& keys, const at::Tensor& others,
                                      std::int64_t num_rows);

/// As expand_rows. Does not synchronise.
MEZZO_API EdgeList expand_rows_by_ops(const Adjacency& rows);

/// As count_ids. Does not synchronise.
MEZZO_API at::Tensor count_ids_by_ops(const at::Tensor& ids, std::int64_t bound);

/// Whether check_indptr accepts `indptr` (not empty). Synchronises once.
MEZZO_API bool is_indptr(const at::Tensor& indptr, std::int64_t num_edges);

/// How the edge ids run within the rows, none where they are no permutation. edge_ids: in
/// [0, their number). Synchronises once.
MEZZO_API std::optional<SlotOrder> slot_order(const at::Tensor& indptr, const at::Tensor& edge_ids);

}  // namespace mezzo::detail
