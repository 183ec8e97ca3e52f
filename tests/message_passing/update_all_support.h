#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "mezzo/graph/functions.h"
#include "mezzo/graph/graph.h"
#include "mezzo/message_passing/fn.h"

#include "support/combined.h"
#include "support/graphs.h"
#include "support/tensors.h"

/// Every built-in function of mezzo::fn and a user-defined equivalent.
namespace mezzo::test {

/// Four nodes with "x" = 1, 2, 3, 4 and edges with "w" = 10, 20, 30, 40.
inline Graph four_node_features(at::ScalarType dtype = at::kFloat) {
  Graph g{four_nodes()};
  g.ndata()["x"] = numbers({1, 2, 3, 4}, dtype);
  g.edata()["w"] = numbers({10, 20, 30, 40}, dtype);
  return g;
}

/// The built-in pair copy_u("x", "m"), sum("m", "out") as user-defined functions.
inline Columns copy_x(const EdgeBatch& edges) {
  return {{"m", edges.src("x")}};
}
inline Columns sum_m(const NodeBatch& nodes) {
  return {{"out", nodes.mailbox("m").sum(1)}};
}

/// A built-in message by its name, with the columns of all three frames called "x" (sources), "y"
/// (destinations) and "w" (edges).
struct NamedMessage {
  std::string name;
  MessageFunction builtin;
  MessageFunction custom;
};

inline at::Tensor column_of(const EdgeBatch& edges, Target target) {
  switch (target) {
    case Target::kSrc:
      return edges.src("x");
    case Target::kDst:
      return edges.dst("y");
    case Target::kEdge:
      return edges.data("w");
  }
  return {};
}

inline std::string column_name(Target target) {
  return target == Target::kSrc ? "x" : target == Target::kDst ? "y" : "w";
}

using MakeMessage = std::function<BuiltinMessage(std::string, std::string, std::string)>;

inline NamedMessage binary_message(const std::string& name, const MakeMessage& make, BinaryOp op,
                                   Target lhs, Target rhs) {
  return {name, make(column_name(lhs), column_name(rhs), "m"), [=](const EdgeBatch& edges) {
            return one_column("m", combined(op, column_of(edges, lhs), column_of(edges, rhs)));
          }};
}

/// All 32 built-in messages, written to "m".
inline std::vector<NamedMessage> all_messages() {
  constexpr Target u = Target::kSrc, v = Target::kDst, e = Target::kEdge;
  std::vector<NamedMessage> all = {
      {"copy_u", fn::copy_u("x", "m"),
       [](const EdgeBatch& edges) { return one_column("m", edges.src("x")); }},
      {"copy_e", fn::copy_e("w", "m"),
       [](const EdgeBatch& edges) { return one_column("m", edges.data("w")); }},
  };
  const auto add = [&](const char* name, MakeMessage make, BinaryOp op, Target lhs, Target rhs) {
    all.push_back(binary_message(name, make, op, lhs, rhs));
  };
  add("u_add_v", fn::u_add_v, BinaryOp::kAdd, u, v);
  add("u_sub_v", fn::u_sub_v, BinaryOp::kSub, u, v);
  add("u_mul_v", fn::u_mul_v, BinaryOp::kMul, u, v);
  add("u_div_v", fn::u_div_v, BinaryOp::kDiv, u, v);
  add("u_dot_v", fn::u_dot_v, BinaryOp::kDot, u, v);
  add("u_add_e", fn::u_add_e, BinaryOp::kAdd, u, e);
  add("u_sub_e", fn::u_sub_e, BinaryOp::kSub, u, e);
  add("u_mul_e", fn::u_mul_e, BinaryOp::kMul, u, e);
  add("u_div_e", fn::u_div_e, BinaryOp::kDiv, u, e);
  add("u_dot_e", fn::u_dot_e, BinaryOp::kDot, u, e);
  add("v_add_u", fn::v_add_u, BinaryOp::kAdd, v, u);
  add("v_sub_u", fn::v_sub_u, BinaryOp::kSub, v, u);
  add("v_mul_u", fn::v_mul_u, BinaryOp::kMul, v, u);
  add("v_div_u", fn::v_div_u, BinaryOp::kDiv, v, u);
  add("v_dot_u", fn::v_dot_u, BinaryOp::kDot, v, u);
  add("v_add_e", fn::v_add_e, BinaryOp::kAdd, v, e);
  add("v_sub_e", fn::v_sub_e, BinaryOp::kSub, v, e);
  add("v_mul_e", fn::v_mul_e, BinaryOp::kMul, v, e);
  add("v_div_e", fn::v_div_e, BinaryOp::kDiv, v, e);
  add("v_dot_e", fn::v_dot_e, BinaryOp::kDot, v, e);
  add("e_add_u", fn::e_add_u, BinaryOp::kAdd, e, u);
  add("e_sub_u", fn::e_sub_u, BinaryOp::kSub, e, u);
  add("e_mul_u", fn::e_mul_u, BinaryOp::kMul, e, u);
  add("e_div_u", fn::e_div_u, BinaryOp::kDiv, e, u);
  add("e_dot_u", fn::e_dot_u, BinaryOp::kDot, e, u);
  add("e_add_v", fn::e_add_v, BinaryOp::kAdd, e, v);
  add("e_sub_v", fn::e_sub_v, BinaryOp::kSub, e, v);
  add("e_mul_v", fn::e_mul_v, BinaryOp::kMul, e, v);
  add("e_div_v", fn::e_div_v, BinaryOp::kDiv, e, v);
  add("e_dot_v", fn::e_dot_v, BinaryOp::kDot, e, v);
  return all;
}

struct NamedReduce {
  std::string name;
  ReduceFunction builtin;
  ReduceFunction custom;
};

/// All built-in reducers of "m" into "out" but the product.
inline std::vector<NamedReduce> all_reducers() {
  return {{"sum", fn::sum("m", "out"), custom_reduce(ReduceOp::kSum)},
          {"mean", fn::mean("m", "out"), custom_reduce(ReduceOp::kMean)},
          {"max", fn::max("m", "out"), custom_reduce(ReduceOp::kMax)},
          {"min", fn::min("m", "out"), custom_reduce(ReduceOp::kMin)}};
}

/// The product of "m" into "out". Its numbers grow fast; it is exact for small in-degrees.
inline NamedReduce product_reducer() {
  return {"prod", fn::prod("m", "out"), [](const NodeBatch& nodes) -> Columns {
            const at::Tensor& mailbox = nodes.mailbox("m");
            at::Tensor product = mailbox.select(1, 0);
            for (std::int64_t i = 1; i < mailbox.size(1); ++i) {
              product = product * mailbox.select(1, i);
            }
            return {{"out", product}};
          }};
}

}  // namespace mezzo::test
