#pragma once

#include <utility>

#include <ATen/core/Tensor.h>

#include "mezzo/message_passing/device.h"

namespace mezzo {

/// Where a kernel stores one row for each edge, by slot or by edge as suits the device. Internal to
/// message_passing.
template <class Device>
class EdgeResult {
 public:
  /// rows: [E, ...] contiguous, to be written by a kernel over the rows of `side`.
  EdgeResult(const Topology& topology, RowSide side, at::Tensor rows) : rows_(std::move(rows)) {
    const bool of_dst = side == RowSide::kDst;
    if (Device::stores_by_slot(rows_)) {
      slots_ = of_dst ? topology.csc_slots() : topology.csr_slots();
    } else {
      places_ = ids_of((of_dst ? topology.csc() : topology.csr()).edge_ids);
    }
  }
  /// The place of each slot's row, as the kernels take it.
  Ids places() const { return places_; }
  void* data() const { return rows_.mutable_data_ptr(); }
  /// What was written, in the order of the edges.
  at::Tensor in_edge_order() const { return Device::by_edge(rows_, slots_); }

 private:
  at::Tensor rows_, slots_;
  Ids places_ = {};
};

}  // namespace mezzo
