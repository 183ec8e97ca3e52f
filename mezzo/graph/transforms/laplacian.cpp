#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "mezzo/core/error.h"
#include "mezzo/core/random.h"
#include "mezzo/graph/transforms/transforms.h"

namespace mezzo {
namespace {

using Numbers = std::vector<double>;

constexpr std::int64_t kLaplacianGrain = 1 << 10;  // rows per task
constexpr std::size_t kFirstCheck = 32;            // steps
/// A residual below this is rounding error: the Krylov space is exhausted.
constexpr double kNoRest = 1e-12;

double dot(const Numbers& a, const Numbers& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void divide(Numbers& numbers, double by) {
  for (double& number : numbers) number /= by;
}

/// The normalised Laplacian of a symmetric topology on the CPU.
class NormalizedLaplacian {
 public:
  explicit NormalizedLaplacian(const Topology& topology)
      : indptr_(topology.csc().indptr),
        sources_(topology.csc().indices.to(at::kLong)),
        factors_(static_cast<std::size_t>(topology.num_dst())) {
    const auto* begin = indptr_.const_data_ptr<std::int64_t>();
    for (std::size_t i = 0; i < factors_.size(); ++i) {
      const std::int64_t degree = std::max<std::int64_t>(begin[i + 1] - begin[i], 1);
      factors_[i] = 1 / std::sqrt(static_cast<double>(degree));
    }
  }

  std::size_t size() const { return factors_.size(); }

  /// Writes the matrix times x to `out`.
  void multiply(const Numbers& x, Numbers& out) const {
    const auto* begin = indptr_.const_data_ptr<std::int64_t>();
    const auto* source = sources_.const_data_ptr<std::int64_t>();
    const auto num_rows = static_cast<std::int64_t>(size());
    at::parallel_for(0, num_rows, kLaplacianGrain, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t row = first; row < last; ++row) {
        double sum = 0;
        for (std::int64_t entry = begin[row]; entry < begin[row + 1]; ++entry) {
          const auto from = static_cast<std::size_t>(source[entry]);
          sum += factors_[from] * x[from];
        }
        const auto here = static_cast<std::size_t>(row);
        out[here] = x[here] - factors_[here] * sum;
      }
    });
  }

 private:
  at::Tensor indptr_, sources_;
  Numbers factors_;  ///< D^(-1/2)
};

/// A symmetric tridiagonal matrix: the diagonal and the off-diagonal.
struct Tridiagonal {
  Numbers diagonal, beside;

  /// Whether all eigenvalues are below x: all pivots of the matrix minus x I are negative.
  bool lies_below(double x) const {
    double pivot = diagonal[0] - x;
    for (std::size_t i = 1; i < diagonal.size() && pivot < 0; ++i) {
      pivot = diagonal[i] - x - beside[i - 1] * beside[i - 1] / pivot;
    }
    return pivot < 0;
  }

  /// The largest eigenvalue, by bisection, if the spectrum lies within a Laplacian's.
  double largest() const {
    double low = 0, high = 4;
    for (int bit = 0; bit < 60; ++bit) {
      const double middle = (low + high) / 2;
      (lies_below(middle) ? high : low) = middle;
    }
    return low;
  }
};

/// A random unit vector, almost surely not orthogonal to any eigenvector.
Numbers random_direction(std::size_t size) {
  Numbers direction(size);
  for (std::size_t i = 0; i < size; ++i) {
    const double draw = 2 * random_uniform(/*seed=*/0, /*stream=*/0, i) - 1;
    direction[i] = draw < 0 ? draw - 0.5 : draw + 0.5;
  }
  divide(direction, std::sqrt(dot(direction, direction)));
  return direction;
}

/// Lanczos recurrence without reorthogonalisation. Rounding may duplicate eigenvalues of
/// `projected`, which does not change the largest (Paige, 1980). It never decreases and is at most
/// 2, so the loop ends.
double largest_eigenvalue(const NormalizedLaplacian& laplacian) {
  const std::size_t size = laplacian.size();
  Numbers previous(size), current = random_direction(size), next(size);
  Tridiagonal projected;
  double last_estimate = 0, beside = 0;
  for (std::size_t check = kFirstCheck;;) {
    laplacian.multiply(current, next);
    const double along = dot(next, current);
    for (std::size_t i = 0; i < size; ++i) next[i] -= along * current[i] + beside * previous[i];
    projected.diagonal.push_back(along);
    beside = std::sqrt(dot(next, next));
    const bool is_whole = beside <= kNoRest;
    if (is_whole || projected.diagonal.size() == check) {
      const double estimate = projected.largest();
      if (is_whole || estimate - last_estimate <= kLambdaMaxTolerance * estimate) return estimate;
      last_estimate = estimate;
      check *= 2;
    }
    projected.beside.push_back(beside);
    std::swap(previous, current);
    std::swap(current, next);
    divide(current, beside);
  }
}

/// Throws InvalidArgument that names two nodes with unequal numbers of edges in the two directions.
/// topology: on the CPU.
void check_both_ways(const Topology& topology) {
  const at::Tensor in_rows = topology.csc().indptr, out_rows = topology.csr().indptr;
  const at::Tensor sources = topology.csc().indices.to(at::kLong);
  const at::Tensor destinations = topology.csr().indices.to(at::kLong);
  const auto neighbours = [](const at::Tensor& rows, const at::Tensor& nodes, std::int64_t row) {
    const auto* begin = rows.const_data_ptr<std::int64_t>() + row;
    const auto* node = nodes.const_data_ptr<std::int64_t>();
    std::vector<std::int64_t> sorted(node + begin[0], node + begin[1]);
    std::sort(sorted.begin(), sorted.end());
    return sorted;
  };
  for (std::int64_t node = 0; node < topology.num_dst(); ++node) {
    const auto from = neighbours(in_rows, sources, node);
    const auto to = neighbours(out_rows, destinations, node);
    const auto [in, out] = std::mismatch(from.begin(), from.end(), to.begin(), to.end());
    if (in == from.end() && out == to.end()) continue;
    const bool is_in = out == to.end() || (in != from.end() && *in < *out);
    const std::int64_t other = is_in ? *in : *out;
    detail::raise<InvalidArgument>(
        "laplacian_lambda_max: expected every edge with its reverse, got {} from node {} to {} and "
        "{} back",
        std::count(from.begin(), from.end(), other), other, node,
        std::count(to.begin(), to.end(), other));
  }
}

}  // namespace

at::Tensor laplacian_lambda_max(const Graph& graph) {
  Graph bare(graph.topology().to(at::kCPU));
  bare.set_batch(graph.batch_num_nodes(), graph.batch_num_edges());
  check_both_ways(bare.topology());
  const std::vector<Graph> parts = unbatch(bare);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    MEZZO_CHECK(parts[i].num_nodes() > 0,
                "laplacian_lambda_max: expected parts with nodes, got none in part {}", i);
  }
  Numbers largest;
  for (const Graph& part : parts) {
    // Rounding may exceed the upper bound 2.
    largest.push_back(std::min(2.0, largest_eigenvalue(NormalizedLaplacian(part.topology()))));
  }
  return at::tensor(largest, at::kDouble);
}

}  // namespace mezzo
