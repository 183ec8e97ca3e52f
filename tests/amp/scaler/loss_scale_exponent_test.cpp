#include "mezzo/amp/scaler/loss_scale_exponent.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace mezzo::test {
namespace {

using amp::kHighestScaleExponent;
using amp::loss_scale_exponent;

int exponent_for(double largest, double headroom = 1.0) {
  return loss_scale_exponent(largest, headroom, -kHighestScaleExponent, kHighestScaleExponent);
}

TEST(LossScaleExponent, brings_powers_of_two_to_the_last_one_that_float16_has) {
  for (int power = -111; power <= 141; ++power) {
    EXPECT_EQ(exponent_for(std::ldexp(1.0, power)), 15 - power) << power;
    EXPECT_EQ(exponent_for(std::ldexp(1.0, power - 4), /*headroom=*/16.0), 15 - power) << power;
  }
}

TEST(LossScaleExponent, lets_the_largest_float16_be_reached_and_not_passed) {
  for (const int power : {-100, -1, 0, 1, 100}) {
    const double bound = std::ldexp(65504.0, power);
    EXPECT_EQ(exponent_for(bound), -power) << power;
    EXPECT_EQ(exponent_for(std::nextafter(bound, 0.0)), -power) << power;
    EXPECT_EQ(exponent_for(std::nextafter(2 * bound, 0.0)), -power - 1) << power;
    EXPECT_EQ(exponent_for(std::nextafter(bound, 2 * bound)), -power - 1) << power;
  }
}

TEST(LossScaleExponent, compares_the_exact_product_not_the_rounded_one) {
  const double above = 65504.0 / 3.0;  // rounded up: exactly 3 * above > 65504
  ASSERT_EQ(above * 3.0, 65504.0);
  ASSERT_GT(std::fma(above, 3.0, -65504.0), 0.0);
  EXPECT_EQ(exponent_for(above, /*headroom=*/3.0), -1);
  EXPECT_EQ(exponent_for(std::nextafter(above, 0.0), /*headroom=*/3.0), 0);
}

TEST(LossScaleExponent, stays_within_its_bounds) {
  using Limits = std::numeric_limits<double>;
  EXPECT_EQ(loss_scale_exponent(0.0, 16.0, -24, 126), 126);
  EXPECT_EQ(loss_scale_exponent(Limits::denorm_min(), 16.0, -24, 126), 126);
  EXPECT_EQ(loss_scale_exponent(0x1p-149, 16.0, -24, 126), 126);
  EXPECT_EQ(loss_scale_exponent(Limits::max(), 16.0, -24, 126), -24);
  EXPECT_EQ(loss_scale_exponent(Limits::infinity(), 16.0, -24, 126), -24);
  EXPECT_EQ(loss_scale_exponent(1.0, 16.0, 3, 126), 11);
  EXPECT_EQ(loss_scale_exponent(1.0, 16.0, -24, 3), 3);
  EXPECT_EQ(loss_scale_exponent(65504.0, 16.0, 3, 126), 3);
}

TEST(LossScaleExponent, reaches_a_subnormal_number_where_the_bounds_allow) {
  EXPECT_EQ(loss_scale_exponent(0x1p-1074, 1.0, -2000, 2000), 1089);
  EXPECT_EQ(loss_scale_exponent(0x1.8p-1060, 1.0, -2000, 2000), 1075);
}

}  // namespace
}  // namespace mezzo::test
