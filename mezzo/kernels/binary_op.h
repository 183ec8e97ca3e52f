#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "mezzo/core/type_list.h"

namespace mezzo {

/// The operation that computes a message from its two operands.
enum class BinaryOp : std::uint8_t { kAdd, kSub, kMul, kDiv, kDot, kCopyLhs, kCopyRhs, kAddRelu };

/// The side a message operand is read from.
enum class Target : std::uint8_t { kSrc, kDst, kEdge };

/// What the derivative of an op with respect to one operand reads besides the gradient.
struct Derivative {
  bool reads_lhs = false, reads_rhs = false;
  /// The op that computes it from the gradient (lhs) and the other operand (rhs), if any.
  std::optional<BinaryOp> as_message = {};
};

namespace kernels {

// Each op defines `apply` and the partial derivatives `grad_lhs` and `grad_rhs` in the accumulator
// type. `V` is a vector with + - * / < and select.

struct Add {
  static constexpr BinaryOp kind = BinaryOp::kAdd;
  static constexpr std::string_view name = "add";
  static constexpr bool uses_lhs = true, uses_rhs = true;
  static constexpr Derivative lhs_derivative = {.as_message = BinaryOp::kCopyLhs},
                              rhs_derivative = {.as_message = BinaryOp::kCopyLhs};
  template <class V>
  static constexpr V apply(V a, V b) {
    return a + b;
  }
  template <class V>
  static constexpr V grad_lhs(V g, V /*a*/, V /*b*/) {
    return g;
  }
  template <class V>
  static constexpr V grad_rhs(V g, V /*a*/, V /*b*/) {
    return g;
  }
};

struct Sub {
  static constexpr BinaryOp kind = BinaryOp::kSub;
  static constexpr std::string_view name = "sub";
  static constexpr bool uses_lhs = true, uses_rhs = true;
  static constexpr Derivative lhs_derivative = {.as_message = BinaryOp::kCopyLhs},
                              rhs_derivative = {};
  template <class V>
  static constexpr V apply(V a, V b) {
    return a - b;
  }
  template <class V>
  static constexpr V grad_lhs(V g, V /*a*/, V /*b*/) {
    return g;
  }
  template <class V>
  static constexpr V grad_rhs(V g, V /*a*/, V /*b*/) {
    return V::zero() - g;
  }
};

struct Mul {
  static constexpr BinaryOp kind = BinaryOp::kMul;
  static constexpr std::string_view name = "mul";
  static constexpr bool uses_lhs = true, uses_rhs = true;
  static constexpr Derivative lhs_derivative = {.reads_rhs = true, .as_message = BinaryOp::kMul},
                              rhs_derivative = {.reads_lhs = true, .as_message = BinaryOp::kMul};
  template <class V>
  static constexpr V apply(V a, V b) {
    return a * b;
  }
  template <class V>
  static constexpr V grad_lhs(V g, V /*a*/, V b) {
    return g * b;
  }
  template <class V>
  static constexpr V grad_rhs(V g, V a, V /*b*/) {
    return g * a;
  }
};

struct Div {
  static constexpr BinaryOp kind = BinaryOp::kDiv;
  static constexpr std::string_view name = "div";
  static constexpr bool uses_lhs = true, uses_rhs = true;
  static constexpr Derivative lhs_derivative = {.reads_rhs = true, .as_message = BinaryOp::kDiv},
                              rhs_derivative = {.reads_lhs = true, .reads_rhs = true};
  template <class V>
  static constexpr V apply(V a, V b) {
    return a / b;
  }
  template <class V>
  static constexpr V grad_lhs(V g, V /*a*/, V b) {
    return g / b;
  }
  template <class V>
  static constexpr V grad_rhs(V g, V a, V b) {
    return V::zero() - g * (a / b) / b;
  }
};

/// A product whose last dimension is summed, as an `out_step` of 0 in the layout says.
struct Dot : Mul {
  static constexpr BinaryOp kind = BinaryOp::kDot;
  static constexpr std::string_view name = "dot";
};

struct CopyLhs {
  static constexpr BinaryOp kind = BinaryOp::kCopyLhs;
  static constexpr std::string_view name = "copy_lhs";
  static constexpr bool uses_lhs = true, uses_rhs = false;
  static constexpr Derivative lhs_derivative = {.as_message = BinaryOp::kCopyLhs},
                              rhs_derivative = {};
  template <class V>
  static constexpr V apply(V a, V /*b*/) {
    return a;
  }
  template <class V>
  static constexpr V grad_lhs(V g, V /*a*/, V /*b*/) {
    return g;
  }
  template <class V>
  static constexpr V grad_rhs(V /*g*/, V /*a*/, V /*b*/) {
    return V::zero();
  }
};

struct CopyRhs {
  static constexpr BinaryOp kind = BinaryOp::kCopyRhs;
  static constexpr std::string_view name = "copy_rhs";
  static constexpr bool uses_lhs = false, uses_rhs = true;
  static constexpr Derivative lhs_derivative = {},
                              rhs_derivative = {.as_message = BinaryOp::kCopyLhs};
  template <class V>
  static constexpr V apply(V /*a*/, V b) {
    return b;
  }
  template <class V>
  static constexpr V grad_lhs(V /*g*/, V /*a*/, V /*b*/) {
    return V::zero();
  }
  template <class V>
  static constexpr V grad_rhs(V g, V /*a*/, V /*b*/) {
    return g;
  }
};

/// max(a + b, 0): the message of GINEConv. NaN stays; the derivative at 0 is 0, as of torch.relu.
struct AddRelu {
  static constexpr BinaryOp kind = BinaryOp::kAddRelu;
  static constexpr std::string_view name = "add_relu";
  static constexpr bool uses_lhs = true, uses_rhs = true;
  static constexpr Derivative lhs_derivative = {.reads_lhs = true, .reads_rhs = true},
                              rhs_derivative = {.reads_lhs = true, .reads_rhs = true};
  template <class V>
  static constexpr V apply(V a, V b) {
    return select(a + b < V::zero(), V::zero(), a + b);
  }
  template <class V>
  static constexpr V grad_lhs(V g, V a, V b) {
    return select(V::zero() < a + b, g, V::zero());
  }
  template <class V>
  static constexpr V grad_rhs(V g, V a, V b) {
    return grad_lhs(g, a, b);
  }
};

struct SrcTarget {
  static constexpr Target kind = Target::kSrc;
  static constexpr std::string_view name = "u";
};
struct DstTarget {
  static constexpr Target kind = Target::kDst;
  static constexpr std::string_view name = "v";
};
struct EdgeTarget {
  static constexpr Target kind = Target::kEdge;
  static constexpr std::string_view name = "e";
};

}  // namespace kernels

using BinaryOps = TypeList<kernels::Add, kernels::Sub, kernels::Mul, kernels::Div, kernels::Dot,
                           kernels::CopyLhs, kernels::CopyRhs, kernels::AddRelu>;
using Targets = TypeList<kernels::SrcTarget, kernels::DstTarget, kernels::EdgeTarget>;

/// Whether the op reads its lhs.
constexpr bool uses_lhs(BinaryOp op) {
  bool uses = false;
  detail::visit(BinaryOps{}, op, [&]<class Op>() { uses = Op::uses_lhs; });
  return uses;
}

/// Whether the op reads its rhs.
constexpr bool uses_rhs(BinaryOp op) {
  bool uses = false;
  detail::visit(BinaryOps{}, op, [&]<class Op>() { uses = Op::uses_rhs; });
  return uses;
}

/// The derivative with respect to the lhs (`of_lhs`) or the rhs.
constexpr Derivative derivative(BinaryOp op, bool of_lhs) {
  Derivative result;
  detail::visit(BinaryOps{}, op,
                [&]<class Op>() { result = of_lhs ? Op::lhs_derivative : Op::rhs_derivative; });
  return result;
}

}  // namespace mezzo
