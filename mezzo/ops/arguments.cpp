#include "mezzo/ops/arguments.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/runtime/sixteen_bits.h"

namespace mezzo::detail {
namespace {

const char* rows_name(Target target) {
  switch (target) {
    case Target::kSrc:
      return "source node";
    case Target::kDst:
      return "destination node";
    case Target::kEdge:
      return "edge";
  }
  return "";
}

const at::Tensor& operand_of(const char* what, const char* name,
                             const std::optional<at::Tensor>& operand) {
  MEZZO_CHECK(operand && operand->defined(), "{}: the op needs {}, which is absent", what, name);
  return *operand;
}

}  // namespace

void check_defined(const char* what, const char* name, const at::Tensor& tensor) {
  MEZZO_CHECK(tensor.defined(), "{}: expected {}, got an undefined tensor", what, name);
}

void check_strided(const char* what, const char* name, const at::Tensor& tensor) {
  check_defined(what, name, tensor);
  check_strided(what, name, std::optional(tensor));
}

void check_strided(const char* what, const char* name, const std::optional<at::Tensor>& tensor) {
  MEZZO_CHECK(!tensor || !tensor->defined() || tensor->layout() == at::kStrided,
              "{}: expected a strided {}, got {}{}", what, name, c10::str(tensor->layout()),
              dense_hint(*tensor));
}

void check_negative_slope(const char* what, double negative_slope, at::ScalarType accumulator) {
  const double largest = accumulator == at::kDouble ? std::numeric_limits<double>::max()
                                                    : std::numeric_limits<float>::max();
  MEZZO_CHECK(std::abs(negative_slope) <= largest,
              "{}: expected a negative_slope that is finite in {}, got {}", what,
              c10::toString(accumulator), negative_slope);
}

std::int64_t length_of(at::IntArrayRef shape) {
  std::int64_t length = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) length *= shape[i];
  return length;
}

kernels::Ids ids_of(const at::Tensor& ids) {
  if (!ids.defined()) return {};
  return {ids.const_data_ptr(), ids.scalar_type() == at::kLong};
}

DType dtype_of(const char* what, at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return DType::kFloat32;
    case at::kDouble:
      return DType::kFloat64;
    case at::kBFloat16:
      return DType::kBFloat16;
    case at::kHalf:
      return DType::kFloat16;
    default:
      raise<InvalidArgument>("{}: expected one of {}, got {}", what, names(DTypes{}),
                             c10::toString(type));
  }
}

at::ScalarType scalar_type_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return at::kFloat;
    case DType::kFloat64:
      return at::kDouble;
    case DType::kBFloat16:
      return at::kBFloat16;
    case DType::kFloat16:
      return at::kHalf;
  }
  return at::kFloat;
}

at::ScalarType accumulator_of(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

at::ScalarType accumulator_of(DType dtype) {
  return accumulator_of(scalar_type_of(dtype));
}

std::int64_t rows_of(const Topology& topology, Target target) {
  switch (target) {
    case Target::kSrc:
      return topology.num_src();
    case Target::kDst:
      return topology.num_dst();
    case Target::kEdge:
      return topology.num_edges();
  }
  return 0;
}

Direction::Direction(const Topology& topology, RowSide row_side)
    : side(row_side), device(topology.device()), num_entries(topology.num_edges()) {
  const Adjacency& rows = side == RowSide::kDst ? topology.csc() : topology.csr();
  num_rows = side == RowSide::kDst ? topology.num_dst() : topology.num_src();
  num_others = side == RowSide::kDst ? topology.num_src() : topology.num_dst();
  indptr = rows.indptr.const_data_ptr<std::int64_t>();
  entries = {indptr, ids_of(rows.indices), ids_of(rows.edge_ids), rows.longest_row};
}

kernels::Access Direction::access(Target target) const {
  if (target == Target::kEdge) return kernels::Access::kSecond;
  return (target == Target::kDst) == (side == RowSide::kDst) ? kernels::Access::kRow
                                                             : kernels::Access::kFirst;
}

CheckedMessage::CheckedMessage(const char* what, const Topology& topology, const Message& message)
    : lhs_target_(message.lhs_target), rhs_target_(message.rhs_target) {
  if (uses_lhs(message.op)) {
    lhs_ = check(what, "lhs", topology, message.lhs, lhs_target_);
  }
  if (uses_rhs(message.op)) {
    rhs_ = check(what, "rhs", topology, message.rhs, rhs_target_);
  }
  result_type_ = result_type_of(what, message);
  const auto trailing = [](const at::Tensor& t) {
    return t.defined() ? t.sizes().slice(1) : at::IntArrayRef();
  };
  broadcast_.emplace(what, message.op, trailing(lhs_), trailing(rhs_));
}

at::Tensor CheckedMessage::check(const char* what, const char* name, const Topology& topology,
                                 const std::optional<at::Tensor>& tensor, Target target) const {
  const at::Tensor& t = operand_of(what, name, tensor);
  check_strided(what, name, tensor);
  MEZZO_CHECK(t.device() == topology.device(), "{}: expected {} on the graph's device {}, got {}",
              what, name, topology.device().str(), t.device().str());
  const std::int64_t rows = rows_of(topology, target);
  MEZZO_CHECK(t.dim() >= 1 && t.size(0) == rows,
              "{}: expected {} [{}, ...], one row a {}, got shape {}", what, name, rows,
              rows_name(target), c10::str(t.sizes()));
  dtype_of(fmt::format("{}: dtype of {}", what, name).c_str(), t.scalar_type());
  return t.contiguous();
}

at::ScalarType result_type_of(const char* what, const Message& message) {
  const auto type_of = [&](const char* name, const std::optional<at::Tensor>& operand) {
    return operand_of(what, name, operand).scalar_type();
  };
  if (!uses_rhs(message.op)) return type_of("lhs", message.lhs);
  if (!uses_lhs(message.op)) return type_of("rhs", message.rhs);
  const at::ScalarType l = type_of("lhs", message.lhs), r = type_of("rhs", message.rhs);
  const bool lhs_by_edge = message.lhs_target == Target::kEdge;
  const bool rhs_by_edge = message.rhs_target == Target::kEdge;
  const bool float32_rhs = rhs_by_edge && !lhs_by_edge && r == at::kFloat && is_16_bit(l);
  const bool float32_lhs = lhs_by_edge && !rhs_by_edge && l == at::kFloat && is_16_bit(r);
  MEZZO_CHECK(l == r || float32_lhs || float32_rhs,
              "{}: expected operands of one dtype (or a float32 edge operand beside 16-bit nodes), "
              "got lhs {} and rhs {}",
              what, c10::toString(l), c10::toString(r));
  return float32_lhs ? r : l;
}

kernels::Operand CheckedMessage::operand(const at::Tensor& tensor, Target target,
                                         const Direction& direction) const {
  if (!tensor.defined()) return {};
  return {.data = tensor.const_data_ptr(),
          .is_accum = tensor.scalar_type() != result_type_,
          .access = direction.access(target),
          .length = length_of(tensor.sizes())};
}

}  // namespace mezzo::detail
