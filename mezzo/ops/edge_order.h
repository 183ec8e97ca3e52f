#pragma once

#include <utility>

#include <ATen/ATen.h>

#include "mezzo/ops/arguments.h"
#include "mezzo/ops/device.h"

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

/// What a kernel over the rows of `side` with these slots reads instead of `weights` ([E, ...],
/// contiguous), in sequence where that is faster; its slots then pick numbers by slot. The tensor
/// has to live as long as the kernel runs.
template <class Device>
at::Tensor weights_in_order(const Topology& topology, RowSide side, const at::Tensor& weights,
                            Slots& slots) {
  if (slots.second.data == nullptr || !Device::reads_by_slot(weights)) return weights;
  slots.second = {};
  return Device::by_slot(weights,
                         side == RowSide::kDst ? topology.csc_slots() : topology.csr_slots());
}

/// Likewise of the weights of a sum, if that is what the arguments are: changes them.
template <class Device>
at::Tensor order_weights(const Topology& topology, const Direction& direction, SpmmArgs& args) {
  const bool sums = args.reduce == ReduceOp::kSum || args.reduce == ReduceOp::kMean;
  const bool lhs_by_edge = args.lhs.access == Access::kSecond;
  const bool rhs_by_edge = args.rhs.access == Access::kSecond;
  if (!sums || args.op != BinaryOp::kMul || lhs_by_edge == rhs_by_edge) return {};
  if (args.slots.second.data == nullptr || !direction.device.is_cpu()) return {};
  Operand& weight = lhs_by_edge ? args.lhs : args.rhs;
  const at::ScalarType type = scalar_type_of(args.dtype);
  const at::Tensor given = at::from_blob(
      const_cast<void*>(weight.data), {direction.num_slots, weight.length},
      at::TensorOptions(direction.device).dtype(weight.wide ? accumulator_of(type) : type));
  at::Tensor ordered = weights_in_order<Device>(topology, direction.side, given, args.slots);
  weight.data = ordered.const_data_ptr();
  return ordered;
}

}  // namespace mezzo
