#pragma once

#include <cstdint>
#include <vector>

#include "mezzo/core/random.h"

namespace mezzo::test {

/// A sequence of random numbers for test cases. The same seed yields the same numbers on every
/// machine.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : seed_(seed) {}
  /// In [0, bound).
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(
        random_below(static_cast<std::uint64_t>(bound), seed_, 31, next_++));
  }
  bool coin() { return below(2) == 0; }
  bool one_in(std::int64_t count) { return below(count) == 0; }
  template <class T>
  T one_of(const std::vector<T>& values) {
    return values[static_cast<std::size_t>(below(static_cast<std::int64_t>(values.size())))];
  }
  std::vector<double> numbers(std::int64_t count, const std::vector<double>& from) {
    std::vector<double> drawn(static_cast<std::size_t>(count));
    for (double& value : drawn) value = one_of(from);
    return drawn;
  }
  /// A seed for another generator.
  std::uint64_t seed() { return random_bits(seed_, 32, next_++); }

 private:
  std::uint64_t seed_, next_ = 0;
};

}  // namespace mezzo::test
