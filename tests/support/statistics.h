#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

/// Statistics of random draws and their bounds. A correct sampler fails for about one seed in 10^6;
/// tests use fixed seeds.
namespace mezzo::test {

/// Sum of (observed - expected)^2 / expected. expected: counts, positive.
inline double chi_square(const std::vector<std::int64_t>& observed,
                         const std::vector<double>& expected) {
  double sum = 0;
  for (std::size_t i = 0; i < observed.size(); ++i) {
    const double difference = static_cast<double>(observed[i]) - expected.at(i);
    sum += difference * difference / expected[i];
  }
  return sum;
}

/// Mean and six standard deviations of a chi-square variable.
inline double chi_square_bound(double degrees_of_freedom) {
  return degrees_of_freedom + 6 * std::sqrt(2 * degrees_of_freedom);
}

/// Five standard deviations of the number of successes in n trials of probability p.
inline double binomial_bound(double n, double p) {
  return 5 * std::sqrt(n * p * (1 - p));
}

}  // namespace mezzo::test
