#pragma once

#include "support/tensors.h"

/// Comparisons, on the CPU, and error bounds of sums, softmaxes and differences. running_error.h
/// derives bounds for several stored steps; no other test file defines a tolerance.
namespace mezzo::test {

/// The bound of |got - reference|, derived from the arithmetic: `terms` rounding steps of the
/// accumulator on terms of total size `abs_sum`, then one rounding to the storage type. An
/// `operand_epsilon` is the relative error of a rounded, stored intermediate.
struct SumBound {
  at::Tensor abs_sum;  ///< float64, the reference's shape: the sum of the terms' absolute values
  double terms = 1;
  at::ScalarType storage = at::kFloat;
  double operand_epsilon = 0;
};

inline SumBound sum_bound(const at::Tensor& abs_sum, double terms, at::ScalarType storage,
                          double operand_epsilon = 0) {
  return {
      .abs_sum = abs_sum, .terms = terms, .storage = storage, .operand_epsilon = operand_epsilon};
}

/// The bound of a softmax over `terms` edges with logits that span `range`: the rounding of the
/// shifted logit becomes a relative error of the exponential, which adds an error of a few units.
inline SumBound softmax_bound(const at::Tensor& value, double terms, double range,
                              at::ScalarType storage) {
  return {.abs_sum = value, .terms = terms + range + 8, .storage = storage};
}

/// The bound of the gradient of a softmax that keeps its rounded output for the backward. abs_sum:
/// the magnitude of p (|g| + sum of p |g|).
inline SumBound softmax_gradient_bound(const at::Tensor& abs_sum, double terms, double range,
                                       at::ScalarType storage) {
  return {.abs_sum = abs_sum,
          .terms = terms + range + 16,
          .storage = storage,
          .operand_epsilon = 2 * info(storage).epsilon};
}

namespace internal {

inline std::string place(const at::Tensor& tensor, std::int64_t flat) {
  std::vector<std::int64_t> index(static_cast<std::size_t>(tensor.dim()));
  for (std::int64_t d = tensor.dim() - 1; d >= 0; --d) {
    index[static_cast<std::size_t>(d)] = flat % tensor.size(d);
    flat /= tensor.size(d);
  }
  return fmt::format("[{}]", fmt::join(index, ", "));
}

inline constexpr auto kNeverRight = [](std::int64_t, double) { return false; };

/// Compares element by element; allowed(i) is the largest distance for element i, and right(i, x)
/// says whether x is correct at any distance.
template <class Allowed, class Right = decltype(kNeverRight)>
testing::AssertionResult compare(const at::Tensor& got, const at::Tensor& expected, Allowed allowed,
                                 Right right = kNeverRight) {
  if (!got.defined()) return testing::AssertionFailure() << "got an undefined tensor";
  if (got.sizes() != expected.sizes()) {
    return testing::AssertionFailure()
           << "got the shape " << got.sizes() << ", expected " << expected.sizes();
  }
  const at::Tensor a = got.detach().to(at::kCPU, at::kDouble).contiguous();
  const at::Tensor b = expected.detach().to(at::kCPU, at::kDouble).contiguous();
  const double* x = a.data_ptr<double>();
  const double* y = b.data_ptr<double>();
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
    const double limit = allowed(i);
    if (std::abs(x[i] - y[i]) <= limit && std::isfinite(y[i])) continue;  // false for NaN
    if (right(i, x[i])) continue;
    return testing::AssertionFailure()
           << fmt::format("at {}: got {}, expected {}, allowed difference {} (dtype {})",
                          place(a, i), x[i], y[i], limit, c10::toString(got.scalar_type()));
  }
  return testing::AssertionSuccess();
}

}  // namespace internal

/// Equal numbers: shapes agree and every element is ==, or NaN in both. `expected` may have
/// another dtype; zeros of either sign are equal.
inline testing::AssertionResult exact(const at::Tensor& got, const at::Tensor& expected) {
  return internal::compare(got, expected, [](std::int64_t) { return 0.0; });
}

/// `expected`, of float64, after the one rounding to got's dtype.
inline testing::AssertionResult exact_rounded(const at::Tensor& got, const at::Tensor& expected) {
  return exact(got, expected.cpu().to(got.scalar_type()));
}

/// Equal shapes, dtypes and bits.
inline testing::AssertionResult same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) {
    return testing::AssertionFailure() << "dtypes or shapes differ: " << a.toString() << a.sizes()
                                       << ", " << b.toString() << b.sizes();
  }
  const at::ScalarType word = a.element_size() == 2   ? at::kShort
                              : a.element_size() == 4 ? at::kInt
                                                      : at::kLong;
  const at::Tensor x = a.detach().cpu().contiguous().view(word);
  const at::Tensor y = b.detach().cpu().contiguous().view(word);
  if (at::equal(x, y)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << at::ne(x, y).sum().item<std::int64_t>() << " of "
                                     << x.numel() << " elements differ in their bits";
}

/// Within the bound of the arithmetic. An infinity is correct if the reference is infinite or a
/// number within the bound rounds to it; NaN only if the reference is NaN.
inline testing::AssertionResult near(const at::Tensor& got, const at::Tensor& reference,
                                     const SumBound& bound) {
  const DTypeInfo& dtype = info(bound.storage);
  if (bound.abs_sum.sizes() != reference.sizes()) {
    return testing::AssertionFailure() << "the bound has another shape than the reference";
  }
  const at::Tensor sums = bound.abs_sum.detach().to(at::kCPU, at::kDouble).contiguous();
  const at::Tensor values = reference.detach().to(at::kCPU, at::kDouble).contiguous();
  const double* sum = sums.data_ptr<double>();
  const double* value = values.data_ptr<double>();
  const double relative = bound.terms * dtype.accum_epsilon + bound.operand_epsilon;
  const auto allowed = [&](std::int64_t i) {
    const double before = relative * sum[i];
    return before + dtype.epsilon / 2 * (std::abs(value[i]) + before) + dtype.smallest;
  };
  const auto rounds_to = [&](std::int64_t i, double x) {
    const double to_its_side = std::copysign(1.0, x) * value[i];
    return std::isinf(x) && to_its_side + relative * sum[i] >= dtype.largest;
  };
  return internal::compare(got, reference, allowed, rounds_to);
}

/// Compares numbers after at most `steps` accumulator roundings on terms of one sign.
inline testing::AssertionResult near_number(double got, double expected, double steps,
                                            at::ScalarType dtype = at::kDouble) {
  const double allowed = steps * info(dtype).accum_epsilon * std::abs(expected);
  if (std::abs(got - expected) <= allowed) return testing::AssertionSuccess();
  return testing::AssertionFailure() << got << " is not within " << allowed << " of " << expected;
}

/// Central differences in float64 with the step cbrt(epsilon): truncation and rounding are both of
/// the order epsilon^(2/3), times third derivatives of at most 1e3 in the tests.
inline constexpr double kDifferenceStep = 0x1p-17;
inline constexpr double kDifferenceError = 1e3 * kDifferenceStep * kDifferenceStep;

inline testing::AssertionResult near_difference(const at::Tensor& gradient,
                                                const at::Tensor& differences) {
  const at::Tensor values = differences.to(at::kCPU, at::kDouble).contiguous();
  const double* value = values.data_ptr<double>();
  return internal::compare(gradient, differences, [&](std::int64_t i) {
    return kDifferenceError * (1 + std::abs(value[i]));
  });
}

}  // namespace mezzo::test
