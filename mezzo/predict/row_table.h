#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

/// Rows of nodes that follow a graph. Internal to predict; not exported.
namespace mezzo::detail {

/// A row for each node, fresh or stale. One thread may refresh stale rows while others ask
/// is_stale() and read fresh rows; other changes need a lock. Does not check its arguments.
class RowTable {
 public:
  /// rows: [num_nodes, width], contiguous, its own; all fresh.
  explicit RowTable(at::Tensor rows);

  /// [at least num_nodes, width].
  const at::Tensor& rows() const { return rows_; }
  bool is_stale(std::int32_t node) const;
  /// Returns whether the row was fresh.
  bool make_stale(std::int32_t node);
  /// Replaces the rows of nodes, which become fresh. rows: a row for each, of the table's dtype,
  /// contiguous.
  void refresh(std::span<const std::int32_t> nodes, const at::Tensor& rows);
  /// If num_nodes rows do not fit, makes the table at least twice as large. New rows are zeros.
  void grow(std::int64_t num_nodes);
  std::int64_t memory_bytes() const;

 private:
  at::Tensor rows_;
  std::vector<std::uint8_t> stale_;  ///< of each row
};

}  // namespace mezzo::detail
