#pragma once

#include <ATen/core/Tensor.h>

#include "mezzo/message_passing/arguments.h"

namespace mezzo {

/// out[e] = rows[slots[e]]: what a kernel stored by slot in the order of the edges. rows: [E, ...]
/// contiguous on the CPU; slots: Topology::csr_slots() or csc_slots(), undefined for the same
/// order, which gives `rows` itself. Internal to message_passing.
at::Tensor by_edge(const at::Tensor& rows, const at::Tensor& slots);

/// Where a kernel stores one row for each edge. Rows shorter than a cache line go by slot, lest
/// threads share lines (docs/decisions/0016-edge-results-by-slot.md), the others by edge.
class EdgeResult {
 public:
  /// rows: [E, ...] contiguous, to be written by a kernel over the rows of `side`.
  EdgeResult(const Topology& topology, RowSide side, at::Tensor rows);
  /// The place of each slot's row, as the kernels take it.
  Ids places() const { return places_; }
  void* data() const { return rows_.mutable_data_ptr(); }
  /// What was written, in the order of the edges.
  at::Tensor in_edge_order() const { return by_edge(rows_, slots_); }

 private:
  at::Tensor rows_, slots_;
  Ids places_ = {};
};

}  // namespace mezzo
