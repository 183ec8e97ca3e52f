#pragma once

#include <algorithm>
#include <optional>

#include <ATen/ExpandUtils.h>
#include <torch/csrc/autograd/autograd.h>

#include "mezzo/graph/topology.h"
#include "mezzo/kernels/binary_op.h"
#include "mezzo/kernels/reduce_op.h"

#include "support/tensors.h"
#include "support/tolerance.h"

/// References for operations: definitions in float64, in plain, slow loops on the CPU. They accept
/// tensors on any device and return tensors on the test device.
namespace mezzo::test {

/// A result in float64 and, per element, the sum of its absolute terms.
struct Reference {
  at::Tensor value;
  at::Tensor abs_sum;
  double terms = 1;         ///< an upper bound of the number of terms of any element
  at::Tensor winners = {};  ///< int64, max and min: the chosen edge, -1 without in-edges
};

/// Moves a definition's CPU result to the test device.
inline Reference on_device(const Reference& reference) {
  const auto moved = [](const at::Tensor& t) { return t.defined() ? on_device(t) : t; };
  return {moved(reference.value), moved(reference.abs_sum), reference.terms,
          moved(reference.winners)};
}

/// Within the bound of the definition's sums, stored as `storage`.
inline testing::AssertionResult near(const at::Tensor& got, const Reference& reference,
                                     at::ScalarType storage) {
  return near(got, reference.value, sum_bound(reference.abs_sum, reference.terms, storage));
}

using Operand64 = std::optional<at::Tensor>;

/// The shape of a message without its first dimension: operands' trailing dimensions broadcast.
inline std::vector<std::int64_t> trailing_shape(BinaryOp op, const Operand64& lhs,
                                                const Operand64& rhs) {
  if (op == BinaryOp::kCopyLhs) return lhs->sizes().slice(1).vec();
  if (op == BinaryOp::kCopyRhs) return rhs->sizes().slice(1).vec();
  return at::infer_size(lhs->sizes().slice(1), rhs->sizes().slice(1));
}

/// The ids of the rows that the edges read from an operand of `target`: int64 [E], on the graph's
/// device.
inline at::Tensor row_ids(const Topology& topology, Target target) {
  switch (target) {
    case Target::kSrc:
      return topology.src().to(at::kLong);
    case Target::kDst:
      return topology.dst().to(at::kLong);
    case Target::kEdge:
      return at::arange(topology.num_edges(),
                        at::TensorOptions(at::kLong).device(topology.device()));
  }
  return {};
}

/// The operand's row of each edge, with the trailing shape of the message. Differentiable if the
/// operand is.
inline at::Tensor edge_rows(const Topology& topology, const at::Tensor& operand, Target target,
                            const std::vector<std::int64_t>& trailing) {
  const std::int64_t num_edges = topology.num_edges();
  std::vector<std::int64_t> aligned = {num_edges}, full = {num_edges};
  aligned.resize(1 + trailing.size() - static_cast<std::size_t>(operand.dim() - 1), 1);
  const at::IntArrayRef own = operand.sizes().slice(1);
  aligned.insert(aligned.end(), own.begin(), own.end());
  full.insert(full.end(), trailing.begin(), trailing.end());
  return operand.index_select(0, row_ids(topology, target).to(operand.device()))
      .reshape(aligned)
      .expand(full);
}

namespace internal {

struct Term {
  double value, size;
};

inline Term term(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return {a + b, std::abs(a) + std::abs(b)};
    case BinaryOp::kSub:
      return {a - b, std::abs(a) + std::abs(b)};
    case BinaryOp::kMul:
    case BinaryOp::kDot:
      return {a * b, std::abs(a * b)};
    case BinaryOp::kDiv:
      return {a / b, std::abs(a / b)};
    case BinaryOp::kCopyLhs:
      return {a, std::abs(a)};
    case BinaryOp::kCopyRhs:
      return {b, std::abs(b)};
  }
  return {};
}

inline at::Tensor in_double(const Topology& topology, const Operand64& operand, Target target,
                            const std::vector<std::int64_t>& trailing, bool used) {
  if (!used) return at::zeros({topology.num_edges()}, at::kDouble);
  return edge_rows(topology, operand->detach().to(at::kCPU, at::kDouble), target, trailing)
      .contiguous();
}

inline std::int64_t product(at::IntArrayRef sizes) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return count;
}

}  // namespace internal

/// The message of every edge: [E, trailing], for dot the last dimension summed to 1.
inline Reference message(const Topology& topology, BinaryOp op, const Operand64& lhs,
                         const Operand64& rhs, Target lhs_target = Target::kSrc,
                         Target rhs_target = Target::kEdge) {
  const auto trailing = trailing_shape(op, lhs, rhs);
  const bool dot = op == BinaryOp::kDot;
  const bool uses_lhs = op != BinaryOp::kCopyRhs, uses_rhs = op != BinaryOp::kCopyLhs;
  const at::Tensor a = internal::in_double(topology, lhs, lhs_target, trailing, uses_lhs);
  const at::Tensor b = internal::in_double(topology, rhs, rhs_target, trailing, uses_rhs);
  const std::int64_t run = dot ? trailing.back() : 1;
  std::vector<std::int64_t> sizes = {topology.num_edges()};
  sizes.insert(sizes.end(), trailing.begin(), trailing.end());
  if (dot) sizes.back() = 1;

  Reference out{at::zeros(sizes, at::kDouble), at::zeros(sizes, at::kDouble)};
  out.terms = static_cast<double>(run) + 2;
  for (std::int64_t i = 0; i < out.value.numel(); ++i) {
    for (std::int64_t k = 0; k < run; ++k) {
      const auto one = internal::term(op, uses_lhs ? a.data_ptr<double>()[i * run + k] : 0.0,
                                      uses_rhs ? b.data_ptr<double>()[i * run + k] : 0.0);
      out.value.data_ptr<double>()[i] += one.value;
      out.abs_sum.data_ptr<double>()[i] += one.size;
    }
  }
  return on_device(out);
}

/// Whether `candidate` replaces `best` as the extreme: NaN wins, then the earlier one.
inline bool wins(ReduceOp reduce, double candidate, double best) {
  if (std::isnan(best)) return false;
  if (std::isnan(candidate)) return true;
  return reduce == ReduceOp::kMax ? candidate > best : candidate < best;
}

/// Whether a reduction of whole numbers rounds before the store: the mean divides, and a product of
/// many leaves the whole numbers that float32 holds.
inline bool rounds_between(ReduceOp reduce) {
  return reduce == ReduceOp::kMean || reduce == ReduceOp::kProd;
}

/// float32's smallest normal number: a product below it is rounded like this number.
inline constexpr double kSmallestNormal = 0x1p-126;

/// One value per destination of the messages [E, ...]. No messages: 0. Edges in ascending id.
inline Reference reduce(const Topology& topology, ReduceOp op, const Reference& messages) {
  std::vector<std::int64_t> sizes = messages.value.sizes().vec();
  sizes[0] = topology.num_dst();
  const std::int64_t width = internal::product(at::IntArrayRef(sizes).slice(1));
  const double none = op == ReduceOp::kProd ? 1 : 0;
  Reference out{at::full(sizes, none, at::kDouble), at::full(sizes, none, at::kDouble)};
  out.winners = at::full(sizes, -1, at::kLong);
  const at::Tensor dst = row_ids(topology, Target::kDst).cpu();
  const at::Tensor degrees = topology.in_degrees().cpu();
  const double max_degree =
      degrees.numel() > 0 ? static_cast<double>(degrees.max().item<std::int64_t>()) : 0;
  out.terms = messages.terms * max_degree + 2;
  const at::Tensor terms = messages.value.cpu(), term_sizes = messages.abs_sum.cpu();
  auto* value = out.value.data_ptr<double>();
  auto* size = out.abs_sum.data_ptr<double>();
  auto* winner = out.winners.data_ptr<std::int64_t>();
  for (std::int64_t e = 0; e < topology.num_edges(); ++e) {
    const std::int64_t row = dst.data_ptr<std::int64_t>()[e];
    const auto degree = static_cast<double>(degrees.data_ptr<std::int64_t>()[row]);
    for (std::int64_t f = 0; f < width; ++f) {
      const std::int64_t i = row * width + f;
      const double m = terms.data_ptr<double>()[e * width + f];
      const double m_size = term_sizes.data_ptr<double>()[e * width + f];
      if (op == ReduceOp::kSum || op == ReduceOp::kMean) {
        value[i] += m;
        size[i] += m_size / (op == ReduceOp::kMean ? degree : 1.0);
      } else if (op == ReduceOp::kProd) {
        value[i] *= m;
        size[i] = size[i] * m_size + kSmallestNormal;
      } else {
        if (winner[i] < 0 || wins(op, m, value[i])) {
          value[i] = m;
          winner[i] = e;
        }
        size[i] = std::max(size[i], m_size);
      }
    }
  }
  for (std::int64_t i = 0; i < out.value.numel(); ++i) {
    const std::int64_t degree = degrees.data_ptr<std::int64_t>()[i / width];
    if (op == ReduceOp::kMean && degree > 0) value[i] /= static_cast<double>(degree);
    if (degree == 0) value[i] = size[i] = 0;
  }
  return on_device(out);
}

/// Message and reduction.
inline Reference gspmm_reference(const Topology& topology, BinaryOp op, ReduceOp reduce_op,
                                 const Operand64& lhs, const Operand64& rhs,
                                 Target lhs_target = Target::kSrc,
                                 Target rhs_target = Target::kEdge) {
  return reduce(topology, reduce_op, message(topology, op, lhs, rhs, lhs_target, rhs_target));
}

/// Softmax over the edges of each node at the `side` ends. abs_sum is the value itself.
inline Reference softmax_reference(const Topology& topology, const at::Tensor& logits,
                                   Target side = Target::kDst) {
  const at::Tensor x = logits.detach().to(at::kCPU, at::kDouble).contiguous();
  const at::Tensor node = row_ids(topology, side).cpu();
  const std::int64_t width = internal::product(x.sizes().slice(1));
  Reference out{at::zeros_like(x), {}};
  for (std::int64_t f = 0; f < width; ++f) {
    const auto rows = static_cast<std::size_t>(num_rows(topology, side));
    std::vector<double> largest(rows, -std::numeric_limits<double>::infinity()), sum(rows, 0.0);
    const auto row = [&](std::int64_t e) {
      return static_cast<std::size_t>(node.data_ptr<std::int64_t>()[e]);
    };
    const auto at = [&](std::int64_t e) { return e * width + f; };
    for (std::int64_t e = 0; e < topology.num_edges(); ++e) {
      largest[row(e)] = std::max(largest[row(e)], x.data_ptr<double>()[at(e)]);
    }
    for (std::int64_t e = 0; e < topology.num_edges(); ++e) {
      const double exponential = std::exp(x.data_ptr<double>()[at(e)] - largest[row(e)]);
      out.value.data_ptr<double>()[at(e)] = exponential;
      sum[row(e)] += exponential;
    }
    for (std::int64_t e = 0; e < topology.num_edges(); ++e) {
      out.value.data_ptr<double>()[at(e)] /= sum[row(e)];
    }
  }
  out.abs_sum = out.value;
  out.terms = static_cast<double>(topology.num_edges());
  return on_device(out);
}

/// The message as an indexed formula of float64 tensors, for autograd.
inline at::Tensor message_formula(const Topology& topology, BinaryOp op, const Operand64& lhs,
                                  const Operand64& rhs, Target lhs_target, Target rhs_target) {
  const auto trailing = trailing_shape(op, lhs, rhs);
  const auto a = [&] { return edge_rows(topology, *lhs, lhs_target, trailing); };
  const auto b = [&] { return edge_rows(topology, *rhs, rhs_target, trailing); };
  switch (op) {
    case BinaryOp::kAdd:
      return a() + b();
    case BinaryOp::kSub:
      return a() - b();
    case BinaryOp::kMul:
      return a() * b();
    case BinaryOp::kDiv:
      return a() / b();
    case BinaryOp::kDot:
      return (a() * b()).sum(-1, true);
    case BinaryOp::kCopyLhs:
      return a();
    case BinaryOp::kCopyRhs:
      return b();
  }
  return {};
}

/// The messages of each destination, on the CPU, side by side, filled up with ones: [num_dst, max
/// degree, ...].
inline at::Tensor filled_mailboxes(const Topology& topology, const at::Tensor& messages) {
  const at::Tensor degrees = topology.in_degrees().cpu();
  const at::Tensor dst = row_ids(topology, Target::kDst).cpu();
  const std::int64_t depth = degrees.max().item<std::int64_t>();
  at::Tensor edge_ids = at::full({topology.num_dst() * depth}, topology.num_edges(), at::kLong);
  std::vector<std::int64_t> used(static_cast<std::size_t>(topology.num_dst()), 0);
  for (std::int64_t e = 0; e < topology.num_edges(); ++e) {
    const std::int64_t row = dst.data_ptr<std::int64_t>()[e];
    edge_ids.data_ptr<std::int64_t>()[row * depth + used[static_cast<std::size_t>(row)]++] = e;
  }
  std::vector<std::int64_t> one_row = messages.sizes().vec();
  one_row[0] = 1;
  std::vector<std::int64_t> sizes = messages.sizes().vec();
  sizes[0] = depth;
  sizes.insert(sizes.begin(), topology.num_dst());
  return at::cat({messages, at::ones(one_row, at::kDouble)}).index_select(0, edge_ids).view(sizes);
}

/// The reduction of messages on the CPU as a formula; max and min select the messages of `winners`.
inline at::Tensor reduce_formula(const Topology& topology, ReduceOp op, const at::Tensor& messages,
                                 const at::Tensor& winners) {
  std::vector<std::int64_t> sizes = messages.sizes().vec();
  sizes[0] = topology.num_dst();
  std::vector<std::int64_t> column(sizes.size(), 1);
  column[0] = sizes[0];
  const bool adds = op == ReduceOp::kSum || op == ReduceOp::kMean;
  if (!adds && topology.num_edges() == 0) return at::zeros(sizes, at::kDouble) + messages.sum();
  if (op == ReduceOp::kMax || op == ReduceOp::kMin) {
    return at::where(winners >= 0, messages.gather(0, winners.clamp_min(0)), 0.0);
  }
  if (op == ReduceOp::kProd) {
    const at::Tensor received = (topology.in_degrees().cpu() > 0).to(at::kDouble).reshape(column);
    return filled_mailboxes(topology, messages).prod(1) * received;
  }
  const at::Tensor dst = row_ids(topology, Target::kDst).cpu();
  const at::Tensor sum = at::zeros(sizes, at::kDouble).index_add(0, dst, messages);
  if (op == ReduceOp::kSum) return sum;
  return sum / topology.in_degrees().cpu().clamp_min(1).to(at::kDouble).reshape(column);
}

/// The gradients of both operands (undefined for one that the op does not use).
struct GradientReference {
  Reference lhs, rhs;
};

namespace internal {

/// The gradients of formula(lhs, rhs) for the output's gradient `grad`.
template <class Formula>
std::pair<at::Tensor, at::Tensor> formula_gradients(const Operand64& lhs, const Operand64& rhs,
                                                    const at::Tensor& grad, Formula formula) {
  std::vector<at::Tensor> inputs;
  Operand64 a, b;
  if (lhs) inputs.push_back(*(a = leaf(lhs->to(at::kCPU, at::kDouble))));
  if (rhs) inputs.push_back(*(b = leaf(rhs->to(at::kCPU, at::kDouble))));
  const auto grads = torch::autograd::grad({formula(a, b)}, inputs, {grad}, std::nullopt, false,
                                           /*allow_unused=*/true);
  return {lhs ? grads.front() : at::Tensor(), rhs ? grads.back() : at::Tensor()};
}

inline Operand64 absolute(const Operand64& operand) {
  return operand ? Operand64(operand->detach().to(at::kCPU, at::kDouble).abs()) : std::nullopt;
}

/// Values from the formula, magnitudes from the formula of absolute values (no cancellation).
template <class Formula>
GradientReference gradients(BinaryOp op, double edges_of_a_node, const Operand64& lhs,
                            const Operand64& rhs, const at::Tensor& grad, Formula formula) {
  const at::Tensor g = grad.detach().to(at::kCPU, at::kDouble);
  const BinaryOp positive = op == BinaryOp::kSub ? BinaryOp::kAdd : op;
  const auto value = formula_gradients(
      lhs, rhs, g, [&](const auto& a, const auto& b) { return formula(op, a, b); });
  const auto size =
      formula_gradients(absolute(lhs), absolute(rhs), g.abs(),
                        [&](const auto& a, const auto& b) { return formula(positive, a, b); });
  const auto terms = [&](const Operand64& operand) {
    const auto full = static_cast<double>(product(trailing_shape(op, lhs, rhs)));
    const auto own = static_cast<double>(product(operand->sizes().slice(1)));
    return edges_of_a_node * std::max(1.0, full / std::max(1.0, own)) + 6;
  };
  GradientReference out;
  if (value.first.defined()) {
    out.lhs = on_device(Reference{value.first, size.first.abs(), terms(lhs), {}});
  }
  if (value.second.defined()) {
    out.rhs = on_device(Reference{value.second, size.second.abs(), terms(rhs), {}});
  }
  return out;
}

inline double max_degree(const Topology& topology) {
  if (topology.num_edges() == 0) return 0;
  return static_cast<double>(std::max(topology.in_degrees().max().item<std::int64_t>(),
                                      topology.out_degrees().max().item<std::int64_t>()));
}

}  // namespace internal

/// The gradients of gspmm, by autograd of the indexed formula; the winners of max and min as in
/// `reduce`.
inline GradientReference gspmm_gradients(const Topology& topology, BinaryOp op, ReduceOp reduce_op,
                                         const Operand64& lhs, const Operand64& rhs,
                                         const at::Tensor& grad, Target lhs_target = Target::kSrc,
                                         Target rhs_target = Target::kEdge) {
  const Reference forward =
      gspmm_reference(topology, op, reduce_op, lhs, rhs, lhs_target, rhs_target);
  const at::Tensor winners = forward.winners.cpu();
  GradientReference all = internal::gradients(
      op, internal::max_degree(topology), lhs, rhs, grad,
      [&](BinaryOp which, const Operand64& a, const Operand64& b) {
        return reduce_formula(topology, reduce_op,
                              message_formula(topology, which, a, b, lhs_target, rhs_target),
                              winners);
      });
  if (reduce_op == ReduceOp::kProd) {  // each term is itself a product of the other messages
    all.lhs.terms += forward.terms;
    all.rhs.terms += forward.terms;
  }
  return all;
}

/// The gradients of gsddmm, by autograd of the indexed formula.
inline GradientReference gsddmm_gradients(const Topology& topology, BinaryOp op,
                                          const Operand64& lhs, const Operand64& rhs,
                                          const at::Tensor& grad, Target lhs_target,
                                          Target rhs_target) {
  return internal::gradients(op, internal::max_degree(topology), lhs, rhs, grad,
                             [&](BinaryOp which, const Operand64& a, const Operand64& b) {
                               return message_formula(topology, which, a, b, lhs_target,
                                                      rhs_target);
                             });
}

}  // namespace mezzo::test
