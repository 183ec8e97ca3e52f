#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/dist/group/process_group.h"

namespace mezzo::dist {

/// Rows of all nodes ([N, ...], any dtype) of which each rank holds a range of consecutive ones:
/// features that are too big for one process. A light handle.
class MEZZO_API ShardedFeatures {
 public:
  /// This rank's even share of `table` (dense [N, ...] on the group's kind of device, also mapped
  /// from a file, of which only the share is read): rows [N * rank / P, N * (rank + 1) / P). Copies
  /// them, so that `table` may go. A collective; throws InvalidArgument on all ranks unless dtype
  /// and shape are the same everywhere.
  static ShardedFeatures from_table(const at::Tensor& table, const ProcessGroup& group);

  /// Of what each rank has already: `rows` ([n, ...] dense, on the group's kind of device; n may
  /// differ by rank and be 0) follow those of the ranks below. Shares memory with `rows`. A
  /// collective; throws InvalidArgument on all ranks unless dtype and trailing dimensions are the
  /// same everywhere.
  static ShardedFeatures from_part(const at::Tensor& rows, const ProcessGroup& group);

  std::int64_t num_rows() const;   ///< N, of all ranks
  std::int64_t first_row() const;  ///< of this rank
  const at::Tensor& part() const;  ///< this rank's rows

  /// The rows `ids`: [n, ...] in fresh memory, on the device of part(); the bits that index_select
  /// of the whole table gives, whatever the number of ranks. ids: int32 or int64 [n] in [0, N) on
  /// any device, in any order, also repeated; each rank asks for its own, n may differ and be 0. No
  /// gradient flows through.
  ///
  /// A collective. Three exchanges: numbers of ids (8 bytes for each pair of ranks), ids (8 bytes
  /// each), rows; an id named twice travels twice. Allocates the rows that this rank serves and
  /// twice those that it gets. Synchronises a GPU. Throws InvalidArgument on all ranks for wrong
  /// ids on one, which is named.
  at::Tensor gather(const at::Tensor& ids) const;

 private:
  ShardedFeatures(at::Tensor rows, std::vector<std::int64_t> starts, ProcessGroup group);

  at::Tensor part_;
  std::vector<std::int64_t> starts_;  // [P + 1]: rank r has rows [starts_[r], starts_[r + 1])
  ProcessGroup group_;
};

}  // namespace mezzo::dist
