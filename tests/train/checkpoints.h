#pragma once

#include <cstddef>
#include <fstream>
#include <iterator>

#include "mezzo/train/files/checkpoint.h"

#include "support/tolerance.h"

namespace mezzo::test {

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Expects the same weights bit for bit, after the last step and of the best epoch.
inline void expect_same_weights(const Checkpoint& a, const Checkpoint& b) {
  EXPECT_EQ(a.epoch, b.epoch);
  EXPECT_EQ(a.best_epoch, b.best_epoch);
  ASSERT_EQ(a.names, b.names);
  for (std::size_t i = 0; i < a.weights.size(); ++i) {
    EXPECT_TRUE(same_bits(a.weights[i], b.weights[i])) << a.names[i];
    EXPECT_TRUE(same_bits(a.best_weights[i], b.best_weights[i])) << a.names[i];
  }
}

}  // namespace mezzo::test
