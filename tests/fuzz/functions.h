#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "mezzo/graph/frame.h"
#include "mezzo/graph/functions.h"

#include "fuzz/checks.h"
#include "support/combined.h"

/// Functions on frames for the fuzzer: built-in functions of a random message, equivalent
/// user-defined functions, and the error bounds of the latter.
namespace mezzo::test {

inline BuiltinMessage builtin_message(const RandomMessage& m) {
  return {.op = m.op,
          .lhs_target = m.lhs_target,
          .rhs_target = m.rhs_target,
          .lhs = uses_lhs(m.op) ? "lhs" : "",
          .rhs = uses_rhs(m.op) ? "rhs" : "",
          .out = "m"};
}

/// Rows with ones in front of the trailing dimensions, so that libtorch's broadcasting aligns them
/// as the library does.
inline at::Tensor aligned(const at::Tensor& rows, std::int64_t rank) {
  auto sizes = rows.sizes().vec();
  sizes.insert(sizes.begin() + 1, static_cast<std::size_t>(rank - rows.dim()), 1);
  return rows.reshape(sizes);
}

/// The user-defined form of a message; both operands have the result's dtype.
inline MessageFunction custom_message(const RandomMessage& m) {
  return [&m](const EdgeBatch& edges) -> Columns {
    const auto rows = [&](Target target, const std::string& column) {
      return target == Target::kSrc   ? edges.src(column)
             : target == Target::kDst ? edges.dst(column)
                                      : edges.data(column);
    };
    const at::Tensor a = uses_lhs(m.op) ? rows(m.lhs_target, "lhs") : at::Tensor();
    const at::Tensor b = uses_rhs(m.op) ? rows(m.rhs_target, "rhs") : at::Tensor();
    const std::int64_t rank = std::max(a.defined() ? a.dim() : 1, b.defined() ? b.dim() : 1);
    return {{"m", combined(m.op, a.defined() ? aligned(a, rank) : a,
                           b.defined() ? aligned(b, rank) : b)}};
  };
}

/// Whether stored intermediates have the precision of the accumulator.
inline bool is_wide(const RandomMessage& m) {
  return m.dtype == at::kFloat || m.dtype == at::kDouble;
}

/// Whether the operands' dtypes differ, so that libtorch promotes them.
inline bool is_mixed(const RandomMessage& m) {
  return uses_lhs(m.op) && uses_rhs(m.op) && m.lhs->scalar_type() != m.rhs->scalar_type();
}

/// Frames of both sides and of the edges, with the operands as the columns "lhs" and "rhs".
struct Frames {
  explicit Frames(const RandomMessage& m)
      : src("node", m.graph.num_src(), test_device()),
        dst("node", m.graph.num_dst(), test_device()),
        edge("edge", m.graph.num_edges(), test_device()) {
    const auto put = [&](Target target, const char* name, const std::optional<at::Tensor>& one) {
      if (!one) return std::optional<at::Tensor>();
      const at::Tensor column = one->detach().set_requires_grad(one->requires_grad());
      of(target)[name] = column;
      return std::optional<at::Tensor>(column);
    };
    lhs = put(m.lhs_target, "lhs", m.lhs);
    rhs = put(m.rhs_target, "rhs", m.rhs);
  }
  Frame& of(Target target) {
    return target == Target::kSrc ? src : target == Target::kDst ? dst : edge;
  }

  Frame src, dst, edge;
  std::optional<at::Tensor> lhs, rhs;  ///< the columns, leaves
};

/// A message and the reduction of those that run along the edges of `graph`.
struct Reduction {
  const RandomMessage& m;
  const Topology& graph;
  ReduceOp op;
  Values values;
  Operand64 lhs, rhs;  ///< rows of `graph`, if the message uses them

  std::string text() const { return std::string(name_of(ReduceOps{}, op)) + " of " + m.text(); }
  bool selects() const { return op == ReduceOp::kMax || op == ReduceOp::kMin; }
  Reference messages() const { return message(graph, m.op, lhs, rhs, m.lhs_target, m.rhs_target); }
  Reference out() const {
    return gspmm_reference(graph, m.op, op, lhs, rhs, m.lhs_target, m.rhs_target);
  }
  GradientReference gradients(const at::Tensor& grad) const {
    return gspmm_gradients(graph, m.op, op, lhs, rhs, grad, m.lhs_target, m.rhs_target);
  }
};

/// Avoids long products, which leave the range in which float32 agrees with the definition.
inline ReduceOp random_reduce(Draw& draw, const Topology& graph) {
  constexpr double kMostFactors = 8;
  std::vector<ReduceOp> reducers;
  mezzo::detail::for_each(ReduceOps{}, [&]<class Reduce>() { reducers.push_back(Reduce::kind); });
  const ReduceOp reduce = draw.one_of(reducers);
  const bool long_product = reduce == ReduceOp::kProd && internal::max_degree(graph) > kMostFactors;
  return long_product ? ReduceOp::kSum : reduce;
}

/// The edge that max and min choose is defined only if messages are exact.
inline Values random_values(Draw& draw, ReduceOp reduce) {
  const bool selects = reduce == ReduceOp::kMax || reduce == ReduceOp::kMin;
  return selects || draw.coin() ? Values::kWhole : Values::kAny;
}

/// Which of the two functions are user-defined.
struct Forms {
  bool message = false, reduce = false;

  bool any() const { return message || reduce; }
  std::string text() const {
    return message && reduce ? "user-defined functions, "
           : message         ? "a user-defined message, "
           : reduce          ? "a user-defined reduction, "
                             : "built-in functions, ";
  }
  MessageFunction message_of(const Reduction& r) const {
    return message ? custom_message(r.m) : MessageFunction(builtin_message(r.m));
  }
  ReduceFunction reduce_of(const Reduction& r) const {
    return reduce ? custom_reduce(r.op) : ReduceFunction(BuiltinReduce{r.op, "m", "out"});
  }
};

/// Whether libtorch's 16-bit product of the messages does not overflow, nor four times any partial
/// product in backward. Whole numbers do not underflow.
inline bool product_fits(const Reduction& r) {
  if (r.values != Values::kWhole) return false;
  const at::Tensor sizes = r.messages().value.abs();
  if (sizes.numel() == 0) return true;
  const double largest = std::max(1.0, sizes.max().item<double>());
  return 4 * std::pow(largest, internal::max_degree(r.graph)) < info(r.m.dtype).largest;
}

/// A random one of the four forms for which user-defined functions are called and match the
/// built-in ones.
inline Forms random_forms(Draw& draw, const Reduction& r) {
  if (r.graph.num_edges() == 0) return {};
  Forms forms;
  forms.message = draw.coin() && !is_mixed(r.m);
  forms.reduce = draw.coin() && (r.op != ReduceOp::kProd || is_wide(r.m) || product_fits(r));
  return forms;
}

/// The relative error of the intermediates of user-defined functions, a half of an epsilon each: at
/// most two roundings of a message and one of the result; or, in backward, one of a mean's
/// division, three of a quotient's gradient, one of a sum over what broadcasts and one of a sum
/// over the edges of a node. A product multiplies those of its factors.
inline double stored_epsilon(const Reduction& r, Forms forms) {
  if (!forms.any()) return 0;
  const double factors = r.op == ReduceOp::kProd ? internal::max_degree(r.graph) : 1;
  return (factors + 4) * info(r.m.dtype).epsilon;
}

/// Whether the dtype represents the whole-number messages exactly: those of a dot, sums of terms up
/// to 16, may have more digits.
inline bool messages_fit(const RandomMessage& m) {
  return m.op != BinaryOp::kDot ||
         16.0 * static_cast<double>(m.lhs->size(-1)) <= 2 / info(m.dtype).epsilon;
}

/// Whether each 16-bit intermediate of these gradients is rounded by at most half an epsilon: whole
/// numbers do not underflow; nothing overflows if four times the sum of all terms does not, for a
/// quotient's gradient by the dividend is a quarter of the message's, or more.
inline bool gradients_fit(const GradientReference& gradients, const RandomMessage& m,
                          Values values) {
  const auto fits = [&](const Reference& one) {
    return !one.abs_sum.defined() || one.abs_sum.numel() == 0 ||
           4 * one.abs_sum.max().item<double>() < info(m.dtype).largest;
  };
  return values == Values::kWhole && fits(gradients.lhs) && fits(gradients.rhs);
}

/// Whether user-defined functions must match these gradients: always in float32 and float64; in 16
/// bits if they fit, rounded and exact messages have the same extreme, and a mean divides by few.
inline bool gradients_hold(const Reduction& r, const GradientReference& gradients) {
  constexpr double kFew = 256;
  if (is_wide(r.m)) return true;
  if (r.selects() && !messages_fit(r.m)) return false;
  if (r.op == ReduceOp::kMean && internal::max_degree(r.graph) > kFew) return false;
  return gradients_fit(gradients, r.m, r.values);
}

/// These rows as a mask, or as ids in ascending or descending order.
inline at::Tensor row_names(Draw& draw, const at::Tensor& mask) {
  if (draw.coin()) return mask;
  const at::Tensor ascending = mask.nonzero().squeeze(1);
  return draw.coin() ? ascending : ascending.flip(0);
}

/// A random selection of none, some or all of `count` rows: bool [count].
inline at::Tensor random_mask(Draw& draw, std::int64_t count) {
  const double share = draw.one_of<double>({0, 0.2, 0.7, 1});
  return uniform({count}, at::kDouble, draw.seed(), 0, 1).lt(share);
}

/// The expected contents of a written column.
struct Expected {
  Reference out;
  std::optional<at::Tensor> grad;  ///< of the column, if gradients are compared
  GradientReference gradients;
};

/// Requires that the column `out` and the operands' gradients are as expected.
inline void require_column(const RandomMessage& m, const Frames& frames, const at::Tensor& out,
                           const Expected& expected, const std::string& what,
                           double operand_epsilon) {
  if (out.scalar_type() != m.dtype) throw Failure(what + ": result of another dtype");
  require_near(out, expected.out, what, operand_epsilon);
  if (!expected.grad) return;
  // The functions do not read an operand that the op does not use.
  const auto is_due = [](const std::optional<at::Tensor>& column, bool used) {
    return used && column && column->requires_grad();
  };
  const bool due = is_due(frames.lhs, uses_lhs(m.op)) || is_due(frames.rhs, uses_rhs(m.op));
  if (out.requires_grad() != due) throw Failure(what + ": no gradient, or one not due");
  if (!due) return;
  out.backward(*expected.grad);
  require_gradient(frames.lhs, uses_lhs(m.op), expected.gradients.lhs,
                   "gradient to the lhs, " + what, operand_epsilon);
  require_gradient(frames.rhs, uses_rhs(m.op), expected.gradients.rhs,
                   "gradient to the rhs, " + what, operand_epsilon);
}

}  // namespace mezzo::test
