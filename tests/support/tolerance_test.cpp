#include "support/tolerance.h"

namespace mezzo::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// near() for one number: a sum of one term, stored in float16.
bool is_near(double got, double reference) {
  const at::Tensor expected = at::full({1}, reference, at::kDouble);
  return near(at::full({1}, got, at::kDouble), expected, sum_bound(expected.abs(), 1, at::kHalf));
}

TEST(Tolerance, numbers_within_range_differ_by_a_rounding) {
  EXPECT_TRUE(is_near(1, 1));
  EXPECT_TRUE(is_near(1 + 0x1p-11, 1));
  EXPECT_FALSE(is_near(1 + 0x1p-9, 1));
  EXPECT_FALSE(is_near(kInf, 1));
  EXPECT_FALSE(is_near(kNan, 1));
}

TEST(Tolerance, what_passes_the_largest_number_is_an_infinity_of_its_sign) {
  EXPECT_TRUE(is_near(kInf, 1e6));
  EXPECT_TRUE(is_near(-kInf, -1e6));
  EXPECT_FALSE(is_near(-kInf, 1e6));
  EXPECT_FALSE(is_near(0, 1e6));
  EXPECT_FALSE(is_near(65504, 1e6));
  EXPECT_FALSE(is_near(kNan, 1e6));
}

TEST(Tolerance, at_the_largest_number_either_is_right) {
  EXPECT_TRUE(is_near(65504, 65515));
  EXPECT_TRUE(is_near(kInf, 65515));
  EXPECT_FALSE(is_near(65504, 65600));
  EXPECT_FALSE(is_near(kInf, 65000));
}

TEST(Tolerance, special_references_are_met_exactly) {
  EXPECT_TRUE(is_near(kInf, kInf));
  EXPECT_FALSE(is_near(65504, kInf));
  EXPECT_TRUE(is_near(kNan, kNan));
  EXPECT_FALSE(is_near(0, kNan));
}

}  // namespace
}  // namespace mezzo::test
