#include "mezzo/core/fnv.h"

#include <cstdint>
#include <string_view>

#include <gtest/gtest.h>

namespace mezzo {
namespace {

constexpr std::uint64_t fnv_of(std::string_view text) {
  std::uint64_t hash = kFnvBasis;
  for (const char letter : text) hash = fnv_step(hash, static_cast<unsigned char>(letter));
  return hash;
}

// Test vectors of the authors.
TEST(Fnv, known_answers) {
  EXPECT_EQ(fnv_of(""), 0xCBF29CE484222325U);
  EXPECT_EQ(fnv_of("a"), 0xAF63DC4C8601EC8CU);
  EXPECT_EQ(fnv_of("foobar"), 0x85944171F73967E8U);
}

}  // namespace
}  // namespace mezzo
