#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "mezzo/kernels/binary_op.h"

#include "tests/definitions/array.h"

namespace mezzo::definition {

/// max(x, 0) of a number or a tensor; NaN stays.
template <class Number>
Number relu(const Number& x) {
  if constexpr (std::is_arithmetic_v<Number>) {
    return x < 0 ? 0 : x;
  } else {
    return x.relu();
  }
}

/// A message of two numbers or of tensors of equal sizes; of dot: its terms.
template <class Number>
Number combined(BinaryOp op, const Number& a, const Number& b) {
  switch (op) {
    case BinaryOp::kAdd:
      return a + b;
    case BinaryOp::kSub:
      return a - b;
    case BinaryOp::kMul:
    case BinaryOp::kDot:
      return a * b;
    case BinaryOp::kDiv:
      return a / b;
    case BinaryOp::kCopyLhs:
      return a;
    case BinaryOp::kCopyRhs:
      return b;
    case BinaryOp::kAddRelu:
      return relu(a + b);
  }
  return {};
}

/// The derivative of combined() by a (`of_lhs`) or b.
inline double derivative(BinaryOp op, bool of_lhs, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return 1;
    case BinaryOp::kSub:
      return of_lhs ? 1 : -1;
    case BinaryOp::kMul:
    case BinaryOp::kDot:
      return of_lhs ? b : a;
    case BinaryOp::kDiv:
      return of_lhs ? 1 / b : -a / (b * b);
    case BinaryOp::kCopyLhs:
    case BinaryOp::kCopyRhs:
      return 1;
    case BinaryOp::kAddRelu:
      return a + b > 0 ? 1 : 0;
  }
  return 0;
}

/// The messages of the edges: arguments of gsddmm, and of gspmm except the reducer.
struct Message {
  const Edges& edges;
  BinaryOp op;
  const Array &lhs, &rhs;  ///< absent if the op does not use it
  Target lhs_target = Target::kSrc, rhs_target = Target::kEdge;
  /// A message's dimensions before a dot sums the last one. Default: the operands' trailing
  /// dimensions, broadcast from the last.
  Sizes dimensions = broadcast();
  bool has_lhs = uses_lhs(op), has_rhs = uses_rhs(op);
  std::vector<std::int64_t> lhs_places = places(lhs, has_lhs), rhs_places = places(rhs, has_rhs);
  std::int64_t lhs_length = lhs.row_length(), rhs_length = rhs.row_length();

  bool is_dot() const { return op == BinaryOp::kDot; }
  std::int64_t length() const { return product(dimensions); }  ///< numbers before a dot sums them
  std::int64_t run() const { return is_dot() ? dimensions.back() : 1; }
  std::int64_t width() const { return is_dot() ? product(sizes(1)) : length(); }
  /// Of a result with `rows`.
  Sizes sizes(std::int64_t rows) const {
    Sizes all = dimensions;
    if (is_dot()) all.back() = 1;
    all.insert(all.begin(), rows);
    return all;
  }
  /// The element of an operand that number i of edge e's message reads.
  std::int64_t lhs_at(std::int64_t e, std::int64_t i) const {
    return edges.row(lhs_target, e) * lhs_length + lhs_places[static_cast<std::size_t>(i)];
  }
  std::int64_t rhs_at(std::int64_t e, std::int64_t i) const {
    return edges.row(rhs_target, e) * rhs_length + rhs_places[static_cast<std::size_t>(i)];
  }
  double a(std::int64_t e, std::int64_t i) const { return has_lhs ? lhs[lhs_at(e, i)] : 0; }
  double b(std::int64_t e, std::int64_t i) const { return has_rhs ? rhs[rhs_at(e, i)] : 0; }
  /// Element i of the message of edge e.
  Term operator()(std::int64_t e, std::int64_t i) const {
    // A difference may cancel.
    const BinaryOp sizes_op = op == BinaryOp::kSub ? BinaryOp::kAdd : op;
    const std::int64_t terms = run();
    Term sum{0, 0};
    for (std::int64_t k = i * terms; k < (i + 1) * terms; ++k) {
      const double left = a(e, k), right = b(e, k);
      sum.value += combined(op, left, right);
      sum.size += std::abs(combined(sizes_op, std::abs(left), std::abs(right)));
    }
    return sum;
  }

 private:
  Sizes broadcast() const {
    Sizes all;
    for (const Array* operand : {uses_lhs(op) ? &lhs : nullptr, uses_rhs(op) ? &rhs : nullptr}) {
      if (operand == nullptr) continue;
      const Sizes& own = operand->sizes;
      if (own.size() - 1 > all.size()) all.insert(all.begin(), own.size() - 1 - all.size(), 1);
      for (std::size_t d = 1; d < own.size(); ++d) {
        std::int64_t& size = all[all.size() - own.size() + d];
        if (own[d] != 1) size = own[d];
      }
    }
    return all;
  }
  /// For each number of a message its place in a row of the operand.
  std::vector<std::int64_t> places(const Array& operand, bool is_used) const {
    std::vector<std::int64_t> all;
    if (!is_used) return all;
    const std::size_t skipped = dimensions.size() + 1 - operand.sizes.size();
    for (std::int64_t i = 0; i < length(); ++i) {
      std::int64_t place = 0, stride = 1, rest = i;
      for (std::size_t d = dimensions.size(); d-- > skipped;) {
        const std::int64_t size = operand.sizes[d - skipped + 1];
        if (size != 1) place += rest % dimensions[d] * stride;
        rest /= dimensions[d];
        stride *= size;
      }
      all.push_back(place);
    }
    return all;
  }
};

/// [E, ...]: the message of every edge.
inline Sums gsddmm(const Message& message) {
  Sums out(message.sizes(message.edges.count()));
  const std::int64_t width = message.width();
  for (std::int64_t e = 0; e < message.edges.count(); ++e) {
    for (std::int64_t i = 0; i < width; ++i) {
      const Term term = message(e, i);
      out.add(message.edges.row(Target::kEdge, e) * width + i, term.value, term.size);
    }
  }
  out.terms = static_cast<double>(message.run()) + 2;
  return out;
}

/// The gradient of an operand, summed to rows of `into`, normally the operand's target. grad(e, i):
/// the gradient of element i of the message of edge e.
template <class Grad>
Sums operand_gradient(const Message& message, bool of_lhs, Target into, Grad grad) {
  const Array& operand = of_lhs ? message.lhs : message.rhs;
  const std::int64_t own = operand.row_length(), length = message.length(), run = message.run();
  Sums out(with_rows(operand.sizes, message.edges.rows(into)));
  const auto& places = of_lhs ? message.lhs_places : message.rhs_places;
  for (std::int64_t e = 0; e < message.edges.count(); ++e) {
    const std::int64_t row = message.edges.row(into, e) * own;
    for (std::int64_t k = 0; k < length; ++k) {
      const Term above = grad(e, k / run);
      const double part = derivative(message.op, of_lhs, message.a(e, k), message.b(e, k));
      out.add(row + places[static_cast<std::size_t>(k)], above.value * part,
              above.size * std::abs(part));
    }
  }
  const double copies = static_cast<double>(length) / std::max(1.0, static_cast<double>(own));
  out.terms = message.edges.max_degree() * std::max(1.0, copies) + 6;
  return out;
}

/// The gradients of both operands; absent for one that the op does not use.
struct Gradients {
  Sums lhs, rhs;
};

template <class Grad>
Gradients operand_gradients(const Message& message, Grad grad) {
  Gradients all;
  if (uses_lhs(message.op)) all.lhs = operand_gradient(message, true, message.lhs_target, grad);
  if (uses_rhs(message.op)) all.rhs = operand_gradient(message, false, message.rhs_target, grad);
  return all;
}

/// grad: of the messages, [E, ...].
inline Gradients gsddmm_gradients(const Message& message, const Array& grad) {
  return operand_gradients(message, [&](std::int64_t e, std::int64_t i) {
    const double one = grad[message.edges.row(Target::kEdge, e) * message.width() + i];
    return Term{one, std::abs(one)};
  });
}

}  // namespace mezzo::definition
