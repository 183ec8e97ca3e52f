#pragma once

#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "mezzo/graph/topology.h"
#include "mezzo/kernels/operand.h"
#include "mezzo/ops/broadcast.h"
#include "mezzo/ops/schema.h"

// From checked tensors to the kernels' arguments; internal to message_passing.

namespace mezzo {

/// The kernels' name of a dtype. Throws InvalidArgument naming `what` for others.
DType dtype_of(const char* what, at::ScalarType type);
at::ScalarType scalar_type_of(DType dtype);
/// float64 for float64, float32 for the others.
at::ScalarType accumulator_of(at::ScalarType type);
at::ScalarType accumulator_of(DType dtype);

/// Throws InvalidArgument naming `what` and the argument for an undefined tensor, as which Python's
/// None arrives.
void check_defined(const char* what, const char* name, const at::Tensor& tensor);

/// Throws InvalidArgument naming `what` and the argument for a tensor that is present and not
/// strided: before the dispatcher, which has no kernel for other layouts.
void check_strided(const char* what, const char* name, const std::optional<at::Tensor>& tensor);

/// Throws InvalidArgument naming `what` unless the slope is finite in the accumulator's type.
void check_negative_slope(const char* what, double negative_slope, at::ScalarType accumulator);

/// Elements of a row: the product of all sizes but the first.
std::int64_t length_of(at::IntArrayRef shape);

/// An array of ids as the kernels take it; undefined: 0, 1, 2, ...
Ids ids_of(const at::Tensor& ids);

/// Number of rows that operands of `target` have.
std::int64_t rows_of(const Topology& topology, Target target);

/// Which nodes the kernel's rows are.
enum class RowSide : std::uint8_t { kDst, kSrc };

/// The slots of one direction, and where operands of each target are found from there.
struct Direction {
  Direction(const Topology& topology, RowSide side);
  Access access(Target target) const;
  RowSide side;
  at::Device device;
  std::int64_t num_rows, num_slots;
  const std::int64_t* indptr;  ///< on the device
  Slots slots;
};

/// The operands of one message, checked and made contiguous.
class CheckedMessage {
 public:
  /// Throws InvalidArgument naming `what`, the operand, expected and given: presence, device,
  /// dtype, rows, trailing shapes.
  CheckedMessage(const char* what, const Topology& topology, const Message& message);

  at::ScalarType result_type() const { return result_type_; }
  const Broadcast& broadcast() const { return *broadcast_; }
  Operand lhs(const Direction& direction) const { return operand(lhs_, lhs_target_, direction); }
  Operand rhs(const Direction& direction) const { return operand(rhs_, rhs_target_, direction); }

 private:
  at::Tensor check(const char* what, const char* name, const Topology& topology,
                   const std::optional<at::Tensor>& tensor, Target target) const;
  void choose_result_type(const char* what, const Message& message);
  Operand operand(const at::Tensor& tensor, Target target, const Direction& direction) const;

  at::Tensor lhs_, rhs_;  ///< undefined where the op does not use the side
  Target lhs_target_, rhs_target_;
  at::ScalarType result_type_ = at::kFloat;
  std::optional<Broadcast> broadcast_;
};

}  // namespace mezzo
