#pragma once

#include <string>
#include <utility>

#include "mezzo/graph/functions.h"

/// The built-in message and reduce functions, named as in DGL. Messages read columns of sources
/// (u), destinations (v) and edges (e). A built-in pair runs as one fused kernel. Each function
/// names the columns that it reads and the column `out` that it writes; update_all and the like
/// read and check them. Shapes, dtypes and errors are the same as in gspmm and gsddmm (ops.h);
/// errors name the function.
namespace mezzo::fn {

/// The message is the source's column `u`.
inline BuiltinMessage copy_u(std::string u, std::string out) {
  return {BinaryOp::kCopyLhs, Target::kSrc, Target::kEdge, std::move(u), "", std::move(out)};
}

/// The message is the edge's column `e`.
inline BuiltinMessage copy_e(std::string e, std::string out) {
  return {BinaryOp::kCopyRhs, Target::kSrc, Target::kEdge, "", std::move(e), std::move(out)};
}

/// lhs + rhs, elementwise with broadcasting.
inline BuiltinMessage u_add_v(std::string u, std::string v, std::string out) {
  return {BinaryOp::kAdd, Target::kSrc, Target::kDst, std::move(u), std::move(v), std::move(out)};
}
inline BuiltinMessage u_add_e(std::string u, std::string e, std::string out) {
  return {BinaryOp::kAdd, Target::kSrc, Target::kEdge, std::move(u), std::move(e), std::move(out)};
}
inline BuiltinMessage v_add_u(std::string v, std::string u, std::string out) {
  return {BinaryOp::kAdd, Target::kDst, Target::kSrc, std::move(v), std::move(u), std::move(out)};
}
inline BuiltinMessage v_add_e(std::string v, std::string e, std::string out) {
  return {BinaryOp::kAdd, Target::kDst, Target::kEdge, std::move(v), std::move(e), std::move(out)};
}
inline BuiltinMessage e_add_u(std::string e, std::string u, std::string out) {
  return {BinaryOp::kAdd, Target::kEdge, Target::kSrc, std::move(e), std::move(u), std::move(out)};
}
inline BuiltinMessage e_add_v(std::string e, std::string v, std::string out) {
  return {BinaryOp::kAdd, Target::kEdge, Target::kDst, std::move(e), std::move(v), std::move(out)};
}

/// lhs - rhs, elementwise with broadcasting.
inline BuiltinMessage u_sub_v(std::string u, std::string v, std::string out) {
  return {BinaryOp::kSub, Target::kSrc, Target::kDst, std::move(u), std::move(v), std::move(out)};
}
inline BuiltinMessage u_sub_e(std::string u, std::string e, std::string out) {
  return {BinaryOp::kSub, Target::kSrc, Target::kEdge, std::move(u), std::move(e), std::move(out)};
}
inline BuiltinMessage v_sub_u(std::string v, std::string u, std::string out) {
  return {BinaryOp::kSub, Target::kDst, Target::kSrc, std::move(v), std::move(u), std::move(out)};
}
inline BuiltinMessage v_sub_e(std::string v, std::string e, std::string out) {
  return {BinaryOp::kSub, Target::kDst, Target::kEdge, std::move(v), std::move(e), std::move(out)};
}
inline BuiltinMessage e_sub_u(std::string e, std::string u, std::string out) {
  return {BinaryOp::kSub, Target::kEdge, Target::kSrc, std::move(e), std::move(u), std::move(out)};
}
inline BuiltinMessage e_sub_v(std::string e, std::string v, std::string out) {
  return {BinaryOp::kSub, Target::kEdge, Target::kDst, std::move(e), std::move(v), std::move(out)};
}

/// lhs * rhs, elementwise with broadcasting.
inline BuiltinMessage u_mul_v(std::string u, std::string v, std::string out) {
  return {BinaryOp::kMul, Target::kSrc, Target::kDst, std::move(u), std::move(v), std::move(out)};
}
inline BuiltinMessage u_mul_e(std::string u, std::string e, std::string out) {
  return {BinaryOp::kMul, Target::kSrc, Target::kEdge, std::move(u), std::move(e), std::move(out)};
}
inline BuiltinMessage v_mul_u(std::string v, std::string u, std::string out) {
  return {BinaryOp::kMul, Target::kDst, Target::kSrc, std::move(v), std::move(u), std::move(out)};
}
inline BuiltinMessage v_mul_e(std::string v, std::string e, std::string out) {
  return {BinaryOp::kMul, Target::kDst, Target::kEdge, std::move(v), std::move(e), std::move(out)};
}
inline BuiltinMessage e_mul_u(std::string e, std::string u, std::string out) {
  return {BinaryOp::kMul, Target::kEdge, Target::kSrc, std::move(e), std::move(u), std::move(out)};
}
inline BuiltinMessage e_mul_v(std::string e, std::string v, std::string out) {
  return {BinaryOp::kMul, Target::kEdge, Target::kDst, std::move(e), std::move(v), std::move(out)};
}

/// lhs / rhs, elementwise with broadcasting.
inline BuiltinMessage u_div_v(std::string u, std::string v, std::string out) {
  return {BinaryOp::kDiv, Target::kSrc, Target::kDst, std::move(u), std::move(v), std::move(out)};
}
inline BuiltinMessage u_div_e(std::string u, std::string e, std::string out) {
  return {BinaryOp::kDiv, Target::kSrc, Target::kEdge, std::move(u), std::move(e), std::move(out)};
}
inline BuiltinMessage v_div_u(std::string v, std::string u, std::string out) {
  return {BinaryOp::kDiv, Target::kDst, Target::kSrc, std::move(v), std::move(u), std::move(out)};
}
inline BuiltinMessage v_div_e(std::string v, std::string e, std::string out) {
  return {BinaryOp::kDiv, Target::kDst, Target::kEdge, std::move(v), std::move(e), std::move(out)};
}
inline BuiltinMessage e_div_u(std::string e, std::string u, std::string out) {
  return {BinaryOp::kDiv, Target::kEdge, Target::kSrc, std::move(e), std::move(u), std::move(out)};
}
inline BuiltinMessage e_div_v(std::string e, std::string v, std::string out) {
  return {BinaryOp::kDiv, Target::kEdge, Target::kDst, std::move(e), std::move(v), std::move(out)};
}

/// lhs dot rhs, summed over the last dimension, which becomes 1.
inline BuiltinMessage u_dot_v(std::string u, std::string v, std::string out) {
  return {BinaryOp::kDot, Target::kSrc, Target::kDst, std::move(u), std::move(v), std::move(out)};
}
inline BuiltinMessage u_dot_e(std::string u, std::string e, std::string out) {
  return {BinaryOp::kDot, Target::kSrc, Target::kEdge, std::move(u), std::move(e), std::move(out)};
}
inline BuiltinMessage v_dot_u(std::string v, std::string u, std::string out) {
  return {BinaryOp::kDot, Target::kDst, Target::kSrc, std::move(v), std::move(u), std::move(out)};
}
inline BuiltinMessage v_dot_e(std::string v, std::string e, std::string out) {
  return {BinaryOp::kDot, Target::kDst, Target::kEdge, std::move(v), std::move(e), std::move(out)};
}
inline BuiltinMessage e_dot_u(std::string e, std::string u, std::string out) {
  return {BinaryOp::kDot, Target::kEdge, Target::kSrc, std::move(e), std::move(u), std::move(out)};
}
inline BuiltinMessage e_dot_v(std::string e, std::string v, std::string out) {
  return {BinaryOp::kDot, Target::kEdge, Target::kDst, std::move(e), std::move(v), std::move(out)};
}

/// The sum of the messages.
inline BuiltinReduce sum(std::string message, std::string out) {
  return {ReduceOp::kSum, std::move(message), std::move(out)};
}
/// The mean of the messages.
inline BuiltinReduce mean(std::string message, std::string out) {
  return {ReduceOp::kMean, std::move(message), std::move(out)};
}
/// The largest message, elementwise.
inline BuiltinReduce max(std::string message, std::string out) {
  return {ReduceOp::kMax, std::move(message), std::move(out)};
}
/// The smallest message, elementwise.
inline BuiltinReduce min(std::string message, std::string out) {
  return {ReduceOp::kMin, std::move(message), std::move(out)};
}
/// The product of the messages, elementwise; 0 for a node without messages.
inline BuiltinReduce prod(std::string message, std::string out) {
  return {ReduceOp::kProd, std::move(message), std::move(out)};
}

}  // namespace mezzo::fn
