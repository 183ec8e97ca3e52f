#pragma once

#include <cstdint>
#include <string_view>

#include "mezzo/core/type_list.h"

namespace mezzo {

/// The operation that makes a message of its two operands.
enum class BinaryOp : std::uint8_t { kAdd, kSub, kMul, kDiv, kDot, kCopyLhs, kCopyRhs };

/// The side a message operand is read from.
enum class Target : std::uint8_t { kSrc, kDst, kEdge };

// Each op is one `apply` and its two partial derivatives, all in the accumulator type. `V` is a
// vector of lanes with + - * /. Only the derivatives of a product read operands: the other one, and
// that of the divisor both.

struct Add {
  static constexpr BinaryOp kind = BinaryOp::kAdd;
  static constexpr std::string_view name = "add";
  static constexpr bool uses_lhs = true, uses_rhs = true;
  static constexpr bool is_product = false;
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
  static constexpr bool is_product = false;
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
  static constexpr bool is_product = true;
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
  static constexpr bool is_product = true;
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

/// A product whose last dimension is summed: the shape (the layout's `out_step`) makes it a dot.
struct Dot : Mul {
  static constexpr BinaryOp kind = BinaryOp::kDot;
  static constexpr std::string_view name = "dot";
};

struct CopyLhs {
  static constexpr BinaryOp kind = BinaryOp::kCopyLhs;
  static constexpr std::string_view name = "copy_lhs";
  static constexpr bool uses_lhs = true, uses_rhs = false;
  static constexpr bool is_product = false;
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
  static constexpr bool is_product = false;
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

using BinaryOps = TypeList<Add, Sub, Mul, Div, Dot, CopyLhs, CopyRhs>;

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
using Targets = TypeList<SrcTarget, DstTarget, EdgeTarget>;

}  // namespace mezzo
