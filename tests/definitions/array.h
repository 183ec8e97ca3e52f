#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "mezzo/kernels/binary_op.h"

/// What every operator means: one header for each, in float64 and plain, slow loops, for the tests,
/// the fuzzer and the benchmarks. Without libtorch and GoogleTest, because the kernels' tests do
/// without the former and the benchmarks without the latter; tensors.h converts tensors.
namespace mezzo::definition {

using Sizes = std::vector<std::int64_t>;

inline std::int64_t product(const Sizes& sizes, std::size_t first = 0) {
  std::int64_t count = 1;
  for (std::size_t d = first; d < sizes.size(); ++d) count *= sizes[d];
  return count;
}

/// Numbers in row-major order. One without sizes is absent.
struct Array {
  Sizes sizes = {};
  std::vector<double> values = {};

  bool is_present() const { return !sizes.empty(); }
  std::int64_t row_length() const { return product(sizes, 1); }
  double& operator[](std::int64_t i) { return values[static_cast<std::size_t>(i)]; }
  double operator[](std::int64_t i) const { return values[static_cast<std::size_t>(i)]; }
};

inline Array filled(Sizes sizes, double value) {
  const auto count = static_cast<std::size_t>(product(sizes));
  return {std::move(sizes), std::vector<double>(count, value)};
}

/// A number and the sum of the absolute values of its terms, to which rounding errors are relative.
struct Term {
  double value, size;
};

/// Results of sums.
struct Sums {
  Array value = {}, size = {};
  double terms = 1;  ///< an upper bound of the number of terms of any element

  Sums() = default;
  explicit Sums(const Sizes& sizes, double start = 0)
      : value(filled(sizes, start)), size(filled(sizes, start)) {}
  void add(std::int64_t i, double term, double term_size) {
    value[i] += term;
    size[i] += term_size;
  }
  void add(std::int64_t i, double term) { add(i, term, std::abs(term)); }
  Term operator[](std::int64_t i) const { return {value[i], size[i]}; }
};

/// The result of an operator and, in the order of its operands, their gradients.
struct Result {
  Sums out;
  std::vector<Sums> gradients;
};

/// The edges of a graph in the order in which the definitions visit them. Operands and results of
/// edges are rows of `id`, nodes those of `src` and `dst`.
struct Edges {
  std::int64_t num_src = 0, num_dst = 0;
  std::vector<std::int64_t> src = {}, dst = {}, id = {};

  std::int64_t count() const { return static_cast<std::int64_t>(id.size()); }
  std::int64_t rows(Target target) const {
    return target == Target::kSrc ? num_src : target == Target::kDst ? num_dst : count();
  }
  /// The row of an operand of `target` that edge e reads.
  std::int64_t row(Target target, std::int64_t e) const {
    const auto& of = target == Target::kSrc ? src : target == Target::kDst ? dst : id;
    return of[static_cast<std::size_t>(e)];
  }
  std::vector<std::int64_t> degrees(Target side) const {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(rows(side)), 0);
    for (std::int64_t e = 0; e < count(); ++e) ++counts[static_cast<std::size_t>(row(side, e))];
    return counts;
  }
  double max_degree(Target side) const {
    std::int64_t most = 0;
    for (const std::int64_t degree : degrees(side)) most = std::max(most, degree);
    return static_cast<double>(most);
  }
  /// Of either side.
  double max_degree() const { return std::max(max_degree(Target::kSrc), max_degree(Target::kDst)); }
};

/// `sizes` with another number of rows.
inline Sizes with_rows(Sizes sizes, std::int64_t rows) {
  sizes[0] = rows;
  return sizes;
}

/// Each row times its factor.
inline Array scaled_rows(Array rows, const Array& factor) {
  if (!factor.is_present()) return rows;
  const std::int64_t width = rows.row_length();
  for (std::int64_t i = 0; i < product(rows.sizes); ++i) rows[i] *= factor[i / width];
  return rows;
}

/// The factors count as exact.
inline Sums scaled_rows(Sums rows, const Array& factor) {
  Array size = factor;
  for (double& one : size.values) one = std::abs(one);
  rows.value = scaled_rows(std::move(rows.value), factor);
  rows.size = scaled_rows(std::move(rows.size), size);
  return rows;
}

}  // namespace mezzo::definition
