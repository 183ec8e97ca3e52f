#pragma once

#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"
#include "mezzo/kernels/operand.h"
#include "mezzo/ops/broadcast.h"
#include "mezzo/ops/schema.h"

// Checks of tensors, and tensors as arguments of kernels.

namespace mezzo::detail {

/// The kernels' dtype. Throws InvalidArgument, which starts with `what`, for an unsupported type.
DType dtype_of(const char* what, at::ScalarType type);
at::ScalarType scalar_type_of(DType dtype);
/// float64 for float64, else float32.
at::ScalarType accumulator_of(at::ScalarType type);
at::ScalarType accumulator_of(DType dtype);

// The checks throw InvalidArgument with `what`, the operator, and `name`, the argument. Public
// functions check layouts themselves, because the dispatcher has no kernel for other layouts.

/// Python's None arrives as an undefined tensor.
void check_defined(const char* what, const char* name, const at::Tensor& tensor);

/// Defined and strided.
void check_strided(const char* what, const char* name, const at::Tensor& tensor);
/// Strided, if present and defined.
void check_strided(const char* what, const char* name, const std::optional<at::Tensor>& tensor);

/// Finite in the accumulator's type.
void check_negative_slope(const char* what, double negative_slope, at::ScalarType accumulator);

/// Elements of a row: the product of all sizes but the first.
std::int64_t length_of(at::IntArrayRef shape);

/// Ids for a kernel; an undefined tensor means 0, 1, 2, ...
kernels::Ids ids_of(const at::Tensor& ids);

/// The number of rows of an operand of `target`.
std::int64_t rows_of(const Topology& topology, Target target);

/// Which nodes the kernel's rows are.
enum class RowSide : std::uint8_t { kDst, kSrc };

/// The edges in CSR order of one side's rows, and the access to operands of each target.
struct MEZZO_API Direction {
  Direction(const Topology& topology, RowSide side);
  kernels::Access access(Target target) const;
  RowSide side;
  at::Device device;
  std::int64_t num_rows, num_others, num_entries;  ///< num_others: nodes of the other side
  const std::int64_t* indptr;                      ///< on the device
  kernels::Entries entries;
};

/// The dtype of a message. Throws InvalidArgument if the op needs an operand that is absent, or if
/// the dtypes differ, except that an edge operand may be float32 beside 16-bit nodes.
at::ScalarType result_type_of(const char* what, const Message& message);

/// The checked, contiguous operands of a message.
class CheckedMessage {
 public:
  /// Checks presence, layout, device, dtype, number of rows and trailing shapes. Throws
  /// InvalidArgument.
  CheckedMessage(const char* what, const Topology& topology, const Message& message);

  at::ScalarType result_type() const { return result_type_; }
  const Broadcast& broadcast() const { return *broadcast_; }
  kernels::Operand lhs(const Direction& direction) const {
    return operand(lhs_, lhs_target_, direction);
  }
  kernels::Operand rhs(const Direction& direction) const {
    return operand(rhs_, rhs_target_, direction);
  }

 private:
  at::Tensor check(const char* what, const char* name, const Topology& topology,
                   const std::optional<at::Tensor>& tensor, Target target) const;
  kernels::Operand operand(const at::Tensor& tensor, Target target,
                           const Direction& direction) const;

  at::Tensor lhs_, rhs_;  ///< undefined if the op does not use it
  Target lhs_target_, rhs_target_;
  at::ScalarType result_type_ = at::kFloat;
  std::optional<Broadcast> broadcast_;
};

}  // namespace mezzo::detail
