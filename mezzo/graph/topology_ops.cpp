#include "mezzo/graph/topology_ops.h"

#include <ATen/ATen.h>

namespace mezzo::detail {
namespace {

/// Whether each entry but the first is less than the entry before it: bool [n - 1].
at::Tensor falls(const at::Tensor& values) {
  return at::gt(values.slice(0, 0, values.numel() - 1), values.slice(0, 1));
}

}  // namespace

Adjacency sort_edges_by_ops(const at::Tensor& keys, const at::Tensor& others,
                            std::int64_t num_rows) {
  Adjacency rows;
  rows.longest_row = keys.numel();
  bool is_sorted = true;
  if (keys.numel() > 1) {
    const at::Tensor facts =
        at::stack({count_ids_by_ops(keys, num_rows).max(), falls(keys).any().to(at::kLong)}).cpu();
    const auto* fact = facts.const_data_ptr<std::int64_t>();
    rows.longest_row = fact[0];
    is_sorted = fact[1] == 0;
  }
  at::Tensor sorted = keys, order;
  if (!is_sorted) {
    std::tie(sorted, order) = keys.sort(/*stable=*/std::optional<bool>(true), /*dim=*/0);
  }
  rows.indptr = at::searchsorted(sorted, at::arange(num_rows + 1, keys.options()));
  rows.indices = is_sorted ? others : others.index_select(0, order);
  if (!is_sorted) rows.edge_ids = order.to(keys.scalar_type());
  return rows;
}

EdgeList expand_rows_by_ops(const Adjacency& rows) {
  const at::Tensor counts = rows.indptr.diff().to(rows.indices.scalar_type());
  // optional selects the right overload; a plain integer would select another.
  const std::optional<std::int64_t> num_edges = rows.indices.numel();
  const at::Tensor sources = at::repeat_interleave(counts, num_edges);
  if (!rows.edge_ids.defined()) return {sources, rows.indices};
  const at::Tensor edges = rows.edge_ids.to(at::kLong);
  return {at::empty_like(sources).scatter_(0, edges, sources),
          at::empty_like(sources).scatter_(0, edges, rows.indices)};
}

at::Tensor count_ids_by_ops(const at::Tensor& ids, std::int64_t bound) {
  const at::TensorOptions options = ids.options().dtype(at::kLong);
  // Integer sums do not depend on the order of the atomic additions.
  return at::zeros({bound}, options)
      .index_add_(0, ids, at::ones({1}, options).expand({ids.numel()}));
}

std::optional<std::int64_t> longest_row(const at::Tensor& indptr, std::int64_t num_edges) {
  const at::Tensor offsets = indptr.to(at::kLong);
  const at::Tensor lengths = at::cat({offsets.slice(0, 0, 1), offsets.diff()});  // 0 without rows
  const at::Tensor facts =
      at::stack({offsets[0], offsets[-1], falls(offsets).any().to(at::kLong), lengths.max()}).cpu();
  const auto* fact = facts.const_data_ptr<std::int64_t>();
  if (fact[0] != 0 || fact[1] != num_edges || fact[2] != 0) return std::nullopt;
  return fact[3];
}

std::optional<EntryOrder> entry_order(const at::Tensor& indptr, const at::Tensor& edge_ids) {
  const std::int64_t num_edges = edge_ids.numel();
  if (num_edges == 0) return EntryOrder::kIdentity;
  const at::Tensor numbers = at::arange(num_edges, edge_ids.options());
  // Ids may decrease at row boundaries.
  const at::Tensor begins_row = at::zeros({num_edges + 1}, edge_ids.options().dtype(at::kBool))
                                    .index_fill_(0, indptr.to(at::kLong), true);
  const at::Tensor falls_within =
      falls(edge_ids).logical_and(begins_row.slice(0, 1, num_edges).logical_not());
  const at::Tensor facts = at::stack({at::ne(std::get<0>(edge_ids.sort()), numbers).any(),
                                      at::ne(edge_ids, numbers).any(), falls_within.any()})
                               .cpu();
  const bool* const fact = facts.const_data_ptr<bool>();
  if (fact[0]) return std::nullopt;
  if (!fact[1]) return EntryOrder::kIdentity;
  return fact[2] ? EntryOrder::kOther : EntryOrder::kAscending;
}

}  // namespace mezzo::detail
