#pragma once

#include <utility>

#include <ATen/ATen.h>

#include "mezzo/ops/arguments.h"
#include "mezzo/ops/device.h"

namespace mezzo::detail {

/// The result of a kernel with one row an edge, stored in CSR or edge-id order as suits the device.
template <class Device>
class EdgeResult {
 public:
  /// rows: [E, ...] contiguous, which a kernel over the rows of `side` writes.
  EdgeResult(const Topology& topology, RowSide side, at::Tensor rows) : rows_(std::move(rows)) {
    const bool of_dst = side == RowSide::kDst;
    if (Device::stores_in_csr_order(rows_)) {
      entries_ = of_dst ? topology.csc_entries() : topology.csr_entries();
    } else {
      row_ids_ = ids_of((of_dst ? topology.csc() : topology.csr()).edge_ids);
    }
  }
  /// The row of each edge in CSR order, for the kernel.
  kernels::Ids row_ids() const { return row_ids_; }
  void* data() const { return rows_.mutable_data_ptr(); }
  /// The result in edge-id order.
  at::Tensor in_edge_order() const { return Device::to_edge_order(rows_, entries_); }

 private:
  at::Tensor rows_, entries_;
  kernels::Ids row_ids_ = {};
};

/// `weights` ([E, ...], contiguous) for a kernel over the rows of `side`. If reading in sequence is
/// faster, returns them in CSR order and changes `entries` to match. The tensor must live as long
/// as the kernel runs.
template <class Device>
at::Tensor weights_in_order(const Topology& topology, RowSide side, const at::Tensor& weights,
                            kernels::Entries& entries) {
  if (entries.second.data == nullptr || !Device::reads_in_csr_order(weights)) return weights;
  entries.second = {};
  return Device::to_csr_order(
      weights, side == RowSide::kDst ? topology.csc_entries() : topology.csr_entries());
}

/// The same for the weights in `args`, if `args` is a weighted sum. Changes `args`.
template <class Device>
at::Tensor order_weights(const Topology& topology, const Direction& direction,
                         kernels::SpmmArgs& args) {
  const bool sums = args.reduce == ReduceOp::kSum || args.reduce == ReduceOp::kMean;
  const bool lhs_is_weight = args.lhs.access == kernels::Access::kSecond;
  const bool rhs_is_weight = args.rhs.access == kernels::Access::kSecond;
  if (!sums || args.op != BinaryOp::kMul || lhs_is_weight == rhs_is_weight) return {};
  if (args.entries.second.data == nullptr || !direction.device.is_cpu()) return {};
  kernels::Operand& weight = lhs_is_weight ? args.lhs : args.rhs;
  const at::ScalarType type = scalar_type_of(args.dtype);
  const at::Tensor weights = at::from_blob(
      const_cast<void*>(weight.data), {direction.num_entries, weight.length},
      at::TensorOptions(direction.device).dtype(weight.is_accum ? accumulator_of(type) : type));
  at::Tensor ordered = weights_in_order<Device>(topology, direction.side, weights, args.entries);
  weight.data = ordered.const_data_ptr();
  return ordered;
}

}  // namespace mezzo::detail
