#pragma once

#include "mezzo/ops/op.h"

namespace mezzo::detail {

/// The gradient of one operand of the messages, with its shape (rows first) and dtype.
struct MessageGradient : Message, MessageGrad {
  TopologyArgument topology;
  bool of_lhs = true;
  c10::SymIntArrayRef shape, other_shape;  ///< symbolic only in a traced graph
  at::ScalarType dtype = at::kFloat;

  static constexpr auto name = "_message_grad";
  static constexpr bool is_repeatable = true;
  static constexpr auto fields() {
    using A = MessageGradient;
    return std::tuple(Field{"topology", &A::topology}, Field{"op", &A::op}, Field{"lhs", &A::lhs},
                      Field{"rhs", &A::rhs}, Field{"lhs_target", &A::lhs_target},
                      Field{"rhs_target", &A::rhs_target}, Field{"grad", &A::grad},
                      Field{"grad_target", &A::grad_target}, Field{"arg", &A::arg},
                      Field{"product", &A::product}, Field{"grad_scale", &A::grad_scale},
                      Field{"other_scale", &A::other_scale}, Field{"of_lhs", &A::of_lhs},
                      Field{"shape", &A::shape}, Field{"other_shape", &A::other_shape},
                      Field{"dtype", &A::dtype});
  }
  using Result = at::Tensor;

  template <class Device>
  Result run() const;
  Result meta() const { return meta_tensor(shape, dtype); }

  Target own_target() const { return of_lhs ? lhs_target : rhs_target; }
  Target other_target() const { return of_lhs ? rhs_target : lhs_target; }
};

}  // namespace mezzo::detail
