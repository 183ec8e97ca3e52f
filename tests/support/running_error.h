#pragma once

#include "mezzo/core/dtype.h"

#include "support/nn_reference.h"
#include "support/tensors.h"
#include "support/tolerance.h"

/// Running error analysis (Wilkinson): float64 numbers with error bounds for a computation that
/// stores the result of every step. A definition that is a template over its number type returns
/// values for at::Tensor, and values with bounds for Rounded. The bounds depend on the actual
/// numbers, so they are about ten times tighter than worst-case bounds.
///
/// Steps that an implementation fuses or keeps in the accumulator round less.
namespace mezzo::test {

/// Numbers of a computation that stores its results in `storage`.
struct Rounded {
  at::Tensor value;  ///< float64: the exact value
  at::Tensor error;  ///< float64, the same shape: the error bound of a stored number
  at::ScalarType storage;

  std::int64_t size(std::int64_t dim) const { return value.size(dim); }
  Rounded t() const { return {value.t(), error.t(), storage}; }
  Rounded narrow(std::int64_t dim, std::int64_t start, std::int64_t length) const {
    return {value.narrow(dim, start, length), error.narrow(dim, start, length), storage};
  }
  Rounded index_select(std::int64_t dim, const at::Tensor& index) const {
    return {value.index_select(dim, index), error.index_select(dim, index), storage};
  }
  Rounded reshape(at::IntArrayRef sizes) const {
    return {value.reshape(sizes), error.reshape(sizes), storage};
  }
};

/// The numbers of x, without error, for a computation in the dtype of x.
inline Rounded exactly(const at::Tensor& x) {
  const at::Tensor value = take(x, Numbers::kGiven);
  return {value, at::zeros_like(value), x.scalar_type()};
}

/// A value with error `error` before the store. The definition rounds as well, to float64.
inline Rounded rounded(const at::Tensor& value, const at::Tensor& error, at::ScalarType storage) {
  const DTypeInfo& dtype = info(storage);
  const double unit = (dtype.epsilon + Float64::epsilon) / 2;
  return {value, error + unit * (value.abs() + error) + dtype.smallest, storage};
}

/// The numbers of x, for steps that store their results in another type.
inline Rounded held(const Rounded& x, at::ScalarType storage) {
  return {x.value, x.error, storage};
}

/// The numbers of x after a store in this type.
inline Rounded stored(const Rounded& x, at::ScalarType storage) {
  return rounded(x.value, x.error, storage);
}

inline Rounded operator+(const Rounded& a, const Rounded& b) {
  return rounded(a.value + b.value, a.error + b.error, a.storage);
}

inline Rounded operator-(const Rounded& a, const Rounded& b) {
  return rounded(a.value - b.value, a.error + b.error, a.storage);
}

inline Rounded operator*(const Rounded& a, const Rounded& b) {
  return rounded(a.value * b.value, a.value.abs() * b.error + (b.value.abs() + b.error) * a.error,
                 a.storage);
}

/// A factor that rounds nothing: 0, or a power of two with either sign.
inline Rounded operator*(double factor, const Rounded& a) {
  return {factor * a.value, std::abs(factor) * a.error, a.storage};
}

/// The accumulator may round the divisor, or multiply by its rounded inverse.
inline Rounded operator/(const Rounded& a, double divisor) {
  const at::Tensor value = a.value / divisor;
  const at::Tensor dividing = 2 * info(a.storage).accum_epsilon * value.abs();
  return rounded(value, a.error / std::abs(divisor) + dividing, a.storage);
}

/// matrix x, of a matrix that is exact. The accumulator rounds once a term; an entry of value k may
/// represent k terms.
inline Rounded matmul(const at::Tensor& matrix, const Rounded& x) {
  const at::Tensor sizes = matrix.abs();
  const at::Tensor terms = sizes.sum(1, true) + matrix.size(1);
  const at::Tensor total = at::matmul(sizes, x.value.abs() + x.error);
  const at::Tensor summing = info(x.storage).accum_epsilon * terms * total;
  return rounded(at::matmul(matrix, x.value), at::matmul(sizes, x.error) + summing, x.storage);
}

/// a b, of two matrices with errors. The accumulator rounds each product and each sum.
inline Rounded matmul(const Rounded& a, const Rounded& b) {
  const at::Tensor left = a.value.abs() + a.error, right = b.value.abs() + b.error;
  const double steps = 2 * static_cast<double>(a.size(1)) * info(a.storage).accum_epsilon;
  const at::Tensor error = at::matmul(a.value.abs(), b.error) + at::matmul(a.error, right);
  return rounded(at::matmul(a.value, b.value), error + steps * at::matmul(left, right), a.storage);
}

/// The sums of the rows: [N, 1].
inline at::Tensor row_sums(const at::Tensor& x) {
  return x.sum(1, true);
}
inline Rounded row_sums(const Rounded& x) {
  const at::Tensor total = (x.value.abs() + x.error).sum(1, true);
  const double steps = static_cast<double>(x.size(1)) * info(x.storage).accum_epsilon;
  return rounded(x.value.sum(1, true), x.error.sum(1, true) + steps * total, x.storage);
}

/// x W^T + bias with the numbers of parameters. A dense product may be stored before its bias.
inline at::Tensor applied(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return dense_linear(x, weight, bias, Numbers::kGiven);
}
inline Rounded applied(const Rounded& x, const at::Tensor& weight, const at::Tensor& bias) {
  const Rounded product = matmul(take(weight, Numbers::kGiven), x.t()).t();
  return bias.defined() ? product + exactly(bias) : product;
}

/// The sum of the terms, each addition stored, in any order.
inline Rounded sum_in_any_order(const std::vector<Rounded>& terms) {
  at::Tensor value = terms.front().value, error = terms.front().error;
  at::Tensor sizes = value.abs() + error;
  for (std::size_t i = 1; i < terms.size(); ++i) {
    value = value + terms[i].value;
    error = error + terms[i].error;
    sizes = sizes + terms[i].value.abs() + terms[i].error;
  }
  const at::ScalarType storage = terms.front().storage;
  const double roundings = static_cast<double>(terms.size() - 1) * info(storage).epsilon / 2;
  // (1 + u)^n - 1 < 2 n u for the few terms here.
  return rounded(value, error + 2 * roundings * sizes, storage);
}

/// The tensors side by side. at::cat is the same for at::Tensor.
inline Rounded cat(const std::vector<Rounded>& parts, std::int64_t dim) {
  std::vector<at::Tensor> values, errors;
  for (const Rounded& part : parts) {
    values.push_back(part.value);
    errors.push_back(part.error);
  }
  return {at::cat(values, dim), at::cat(errors, dim), parts.front().storage};
}

/// Zeros [rows, width] of the same type.
inline at::Tensor zero_rows(const at::Tensor& like, std::int64_t rows, std::int64_t width) {
  return at::zeros({rows, width}, like.options());
}
inline Rounded zero_rows(const Rounded& like, std::int64_t rows, std::int64_t width) {
  const at::Tensor zeros = zero_rows(like.value, rows, width);
  return {zeros, zeros, like.storage};
}

/// Rounds nothing, and does not increase an error.
inline Rounded relu(const Rounded& x) {
  return {x.value.clamp_min(0), x.error, x.storage};
}

/// The gradient of relu(x): that of the result where x is positive. Rounds nothing, but x may have
/// either sign within its error.
inline Rounded relu_gradient(const Rounded& x, const Rounded& grad) {
  const at::Tensor passes = x.value.gt(0).to(at::kDouble);
  const at::Tensor error =
      at::where(x.value.abs() <= x.error, grad.value.abs() + grad.error, passes * grad.error);
  return {passes * grad.value, error, grad.storage};
}

/// 1 / sqrt(x + eps), for x of at least 0. The accumulator rounds the sum, the root and the
/// quotient.
inline Rounded inverse_root(const Rounded& x, double eps) {
  const at::Tensor value = (x.value + eps).rsqrt();
  const at::Tensor most = ((x.value - x.error).clamp_min(0) + eps).rsqrt();
  const at::Tensor least = (x.value + x.error + eps).rsqrt();
  const at::Tensor computing = 3 * info(x.storage).accum_epsilon * most;
  return rounded(value, at::maximum(most - value, value - least) + computing, x.storage);
}

/// Roundings of the accumulator in exp, tanh and 1 / (1 + exp(-x)), relative to 1 or to the result.
inline constexpr double kFunctionSteps = 8;

/// A non-decreasing function with values in [-1, 1]. Its error is largest at the ends of the
/// interval of x.
template <class Function>
Rounded increasing(const Rounded& x, Function function) {
  const at::Tensor value = function(x.value);
  const at::Tensor above = function(x.value + x.error) - value;
  const at::Tensor below = value - function(x.value - x.error);
  const double computing = kFunctionSteps * info(x.storage).accum_epsilon;
  return rounded(value, at::maximum(above, below) + computing, x.storage);
}

/// exp(scores) over their sums; total(x) returns, for each score, the sum of x over its group.
template <class Total>
at::Tensor softmax_by(const at::Tensor& scores, Total total) {
  const at::Tensor power = scores.exp();
  return power / total(power);
}

/// A share is largest where its score is as high as it may be and the others are as low. The
/// accumulator rounds the distance from the highest score, the exponential, and the sum.
template <class Total>
Rounded softmax_by(const Rounded& scores, Total total) {
  const at::Tensor share = softmax_by(scores.value, total);
  const at::Tensor most = (scores.value + scores.error).exp();
  const at::Tensor least = (scores.value - scores.error).exp();
  const at::Tensor above = most / (most + total(least) - least) - share;
  const at::Tensor below = share - least / (least + total(most) - most);
  const double range =
      share.numel() > 0 ? (scores.value.max() - scores.value.min()).item<double>() : 0;
  const at::Tensor steps = total(at::ones_like(share)) + (range + kFunctionSteps);
  const at::Tensor computing = info(scores.storage).accum_epsilon * steps * share;
  return rounded(share, at::maximum(above, below) + computing, scores.storage);
}

/// Whether a result is within the error bounds.
inline testing::AssertionResult near(const at::Tensor& got, const Rounded& expected) {
  const at::Tensor errors = expected.error.to(at::kCPU).contiguous();
  const double* error = errors.data_ptr<double>();
  return internal::compare(got, expected.value, [&](std::int64_t i) { return error[i]; });
}

}  // namespace mezzo::test
