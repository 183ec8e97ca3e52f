#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/dist/group/process_group.h"

namespace mezzo::dist {

/// Rows of all nodes ([N, ...], any dtype), split into one consecutive range per rank, for features
/// that do not fit into one process. Cheap to copy.
class MEZZO_API ShardedFeatures {
 public:
  /// Copies this rank's even share of `table`: rows [N * rank / P, N * (rank + 1) / P). table:
  /// dense [N, ...] on the group's device type; if mapped from a file, only the share is read. A
  /// collective; throws InvalidArgument on all ranks unless dtype and shape are equal everywhere.
  static ShardedFeatures from_table(const at::Tensor& table, const ProcessGroup& group);

  /// Joins the rows that each rank already has, in rank order. rows: dense [n, ...] on the group's
  /// device type; n may differ by rank and be 0. Shares memory with `rows`. A collective; throws
  /// InvalidArgument on all ranks unless dtype and trailing dimensions are equal everywhere.
  static ShardedFeatures from_part(const at::Tensor& rows, const ProcessGroup& group);

  std::int64_t num_rows() const;   ///< N, over all ranks
  std::int64_t first_row() const;  ///< first row of this rank
  const at::Tensor& part() const;  ///< this rank's rows

  /// Returns the rows `ids` as a new tensor [n, ...] on the device of part(), bitwise equal to
  /// index_select on the whole table for any number of ranks. ids: int32 or int64 [n] in [0, N), on
  /// any device, in any order, repeats allowed; ids and n may differ by rank, n may be 0. Not
  /// differentiable.
  ///
  /// A collective with three exchanges: id counts (8 bytes per pair of ranks), ids (8 bytes each),
  /// rows; repeated ids are sent repeatedly. Allocates the rows that this rank sends and twice the
  /// rows that it receives. Synchronizes a GPU. Throws InvalidArgument on all ranks, with the
  /// failed rank, if ids are invalid on one.
  at::Tensor gather(const at::Tensor& ids) const;

 private:
  ShardedFeatures(at::Tensor rows, std::vector<std::int64_t> starts, ProcessGroup group);

  at::Tensor part_;
  std::vector<std::int64_t> starts_;  // [P + 1]: rank r has rows [starts_[r], starts_[r + 1])
  ProcessGroup group_;
};

}  // namespace mezzo::dist
