#include <cstdint>
#include <limits>
#include <utility>

#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include "mezzo/amp/watch/watch.h"

#include "support/devices.h"
#include "support/errors.h"
#include "support/special_numbers.h"

namespace mezzo::test {
namespace {

using amp::count_numbers;
using amp::ExponentHistogram;
using amp::gradient_report;
using amp::GradientReport;
using amp::NumberCounts;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

at::Tensor with_gradient(const std::vector<double>& values, at::ScalarType dtype = at::kFloat) {
  const at::Tensor gradient = on_device(at::tensor(values, at::kDouble)).to(dtype);
  at::Tensor parameter = at::zeros_like(gradient).requires_grad_();
  parameter.mutable_grad() = gradient;
  return parameter;
}

TEST(NumberCounts, classify_the_edges_of_every_dtype) {
  struct Limits {
    at::ScalarType dtype;
    double largest, smallest_normal, smallest;
  };
  for (const Limits& limits : {Limits{at::kHalf, 65504.0, 0x1p-14, 0x1p-24},
                               Limits{at::kBFloat16, 0x1.FEp127, 0x1p-126, 0x1p-133},
                               Limits{at::kFloat, 0x1.FFFFFEp127, 0x1p-126, 0x1p-149},
                               Limits{at::kDouble, 0x1.FFFFFFFFFFFFFp1023, 0x1p-1022, 0x1p-1074}}) {
    const double top = limits.largest / 16;
    const at::Tensor numbers =
        on_device(at::tensor({0.0, -0.0, limits.smallest, -limits.smallest_normal / 2,
                              limits.smallest_normal, 1.0, top / 2, top, -limits.largest, kInf,
                              -kInf, kNan},
                             at::kDouble))
            .to(limits.dtype);
    const NumberCounts counts = count_numbers(numbers);
    const NumberCounts expected{.elements = 12,
                                .zeros = 2,
                                .subnormal = 2,
                                .near_top = 2,
                                .inf = 2,
                                .nan = 1,
                                .largest = limits.largest,
                                .smallest_nonzero = limits.smallest};
    EXPECT_EQ(counts, expected) << c10::toString(limits.dtype);
  }
}

TEST(NumberCounts, of_many_numbers_add_up) {
  const std::int64_t size = 200003;  // several chunks and threads, and a remainder
  const at::Tensor numbers = at::ones({size}, on_device(at::kHalf));
  numbers.slice(0, 0, 50000).zero_();
  numbers.slice(0, 100000, 170000).fill_(kInf);
  const NumberCounts counts = count_numbers(numbers);
  EXPECT_EQ(counts.elements, size);
  EXPECT_EQ(counts.zeros, 50000);
  EXPECT_EQ(counts.inf, 70000);
  EXPECT_EQ(counts.largest, 1.0);
  EXPECT_EQ(counts.smallest_nonzero, 1.0);
}

TEST(NumberCounts, read_views_expansions_and_stored_values) {
  const at::Tensor matrix = on_device(at::tensor({1.0F, 0.0F, 0.0F, 4.0F})).view({2, 2});
  EXPECT_EQ(count_numbers(matrix.t().select(0, 1)).largest, 4.0);
  EXPECT_EQ(count_numbers(matrix.select(0, 0).expand({3, 2})).elements, 6);
  EXPECT_EQ(count_numbers(matrix.to_sparse()).elements, 2);
  EXPECT_EQ(count_numbers(matrix.to_sparse_csr()).zeros, 0);
  EXPECT_EQ(count_numbers(matrix.to(at::kLong)), NumberCounts());
  EXPECT_EQ(count_numbers(at::Tensor()), NumberCounts());
  EXPECT_EQ(count_numbers(at::empty({0}, on_device())), NumberCounts());
  EXPECT_EQ(count_numbers(at::zeros({2}, on_device())).smallest_nonzero, 0.0);
}

TEST(GradientReport, describes_each_parameter_and_all_together) {
  const at::Tensor first = with_gradient({0.0, -3.0, 0.5, 0.75});
  const at::Tensor second = with_gradient({kInf, kNan, 0x1p-30}, at::kBFloat16);
  const GradientReport report =
      gradient_report({{"a", first}, {"b", at::ones({1}, on_device())}, {"c", second}});
  EXPECT_EQ(report.without_gradient, std::vector<std::string>{"b"});
  ASSERT_EQ(report.rows.size(), 2);
  EXPECT_EQ(report.rows[0].name, "a");
  EXPECT_EQ(report.rows[0].numbers.zeros, 1);
  EXPECT_EQ(report.rows[0].numbers.largest, 3.0);
  EXPECT_EQ(report.rows[0].numbers.smallest_nonzero, 0.5);
  EXPECT_EQ(report.rows[0].exponents, (ExponentHistogram{.lowest = -1, .counts = {2, 0, 1}}));
  EXPECT_EQ(report.rows[1].numbers.inf, 1);
  EXPECT_EQ(report.rows[1].numbers.nan, 1);
  EXPECT_EQ(report.rows[1].exponents.total(), 1);
  EXPECT_EQ(report.all.parameters, 2);
  EXPECT_EQ(report.all.numbers.elements, 7);
  EXPECT_EQ(report.all.numbers.smallest_nonzero, 0x1p-30);
  EXPECT_EQ(report.all.exponents.lowest, -30);
  EXPECT_EQ(report.all.exponents.total(), 4);
  EXPECT_EQ(report.all.exponents.at_least(-1), 3);
}

TEST(GradientReport, a_module_that_is_registered_twice_counts_once) {
  torch::nn::Module model;
  torch::nn::Linear shared(torch::nn::LinearOptions(2, 1).bias(false));
  model.register_module("a", shared);
  model.register_module("b", shared);
  shared->weight.mutable_grad() = at::ones({1, 2});
  const GradientReport report = gradient_report(model);
  ASSERT_EQ(report.rows.size(), 1);
  EXPECT_EQ(report.rows[0].name, "a.weight");
  EXPECT_EQ(report.all.numbers.elements, 2);
}

TEST(GradientReport, scales_small_gradients_until_they_are_exact) {
  const auto half = gradient_report({{"a", with_gradient({0x1p-20, 0x1p-26, 0.0})}}).all.half;
  ASSERT_TRUE(half);
  EXPECT_EQ(half->loss_scale, 0x1p12);
  EXPECT_EQ(half->largest_loss_scale, 0x1p34);  // 2^34 x 2 x 2^-20 = 2^15, and 2^16 > 65504
  EXPECT_EQ(half->representable, 1.0);
  EXPECT_EQ(half->exact, 1.0);
  EXPECT_EQ(half->representable_unscaled, 0.5);
  EXPECT_TRUE(half->enough);
}

TEST(GradientReport, needs_no_scale_for_gradients_of_moderate_size) {
  const auto half = gradient_report({{"a", with_gradient({1.0, 0.01, -2.0})}}).all.half;
  ASSERT_TRUE(half);
  EXPECT_EQ(half->loss_scale, 1.0);
  EXPECT_EQ(half->representable_unscaled, 1.0);
}

TEST(GradientReport, lets_the_largest_gradient_bound_the_scale) {
  const at::Tensor parameter = with_gradient({0x1p10, 0x1p-40});
  const auto half = gradient_report({{"a", parameter}}).all.half;
  ASSERT_TRUE(half);
  EXPECT_EQ(half->loss_scale, 0x1p4);
  EXPECT_EQ(half->loss_scale, half->largest_loss_scale);
  EXPECT_EQ(half->representable, 0.5);
  EXPECT_FALSE(half->enough);
  EXPECT_TRUE(gradient_report({{"a", parameter}}, {.keep = 0.5}).all.half->enough);
  const auto huge = gradient_report({{"a", with_gradient({0x1p20})}}).all.half;
  EXPECT_EQ(huge->loss_scale, 0x1p-6);
}

TEST(GradientReport, passes_over_the_share_that_may_be_lost) {
  std::vector<double> values(999, 0x1p-10);
  values.push_back(0x1p-100);
  const auto half = gradient_report({{"a", with_gradient(values)}}).all.half;
  ASSERT_TRUE(half);
  EXPECT_EQ(half->loss_scale, 1.0);
  EXPECT_EQ(half->representable, 0.999);
  EXPECT_TRUE(half->enough);
}

TEST(GradientReport, undoes_the_loss_scale_of_the_gradients_at_hand) {
  const auto plain = gradient_report({{"a", with_gradient({0x1p-20, 0x1p-26})}}).all;
  const auto scaled =
      gradient_report({{"a", with_gradient({0x1p-4, 0x1p-10})}}, {.scale = 0x1p16}).all;
  EXPECT_EQ(scaled.numbers.largest, plain.numbers.largest);
  EXPECT_EQ(scaled.exponents, plain.exponents);
  EXPECT_EQ(scaled.half->loss_scale, plain.half->loss_scale);
}

TEST(GradientReport, has_no_loss_scale_without_a_finite_gradient) {
  EXPECT_FALSE(gradient_report({}).all.half);
  EXPECT_FALSE(gradient_report({{"a", with_gradient({0.0, kInf})}}).all.half);
}

TEST(GradientReport, reads_the_stored_values_of_sparse_gradients) {
  at::Tensor parameter = at::zeros({3}, on_device()).requires_grad_();
  parameter.mutable_grad() = on_device(at::tensor({0.0F, 2.0F, 0.0F})).to_sparse();
  const GradientReport report = gradient_report({{"a", parameter}});
  EXPECT_EQ(report.all.numbers.elements, 1);
  EXPECT_EQ(report.all.numbers.largest, 2.0);
}

TEST(GradientReport, refuses_unusable_options_and_tensors) {
  const at::Tensor good = with_gradient({1.0});
  const auto report_with = [&](const amp::GradientReportOptions& options) {
    return [&good, options] { gradient_report({{"a", good}}, options); };
  };
  for (const double scale : {0.0, -1.0, kInf, kNan}) {
    EXPECT_TRUE(throws<InvalidArgument>(report_with({.scale = scale}), {"scale"}));
  }
  for (const double keep : {0.0, 1.5, kNan}) {
    EXPECT_TRUE(throws<InvalidArgument>(report_with({.keep = keep}), {"keep"}));
  }
  for (const double headroom : {0.5, kInf, kNan}) {
    EXPECT_TRUE(throws<InvalidArgument>(report_with({.headroom = headroom}), {"headroom"}));
  }
  EXPECT_THROWS(InvalidArgument, "for a", gradient_report({{"a", {}}}));
  EXPECT_THROWS(InvalidArgument, "gradient of a",
                gradient_report({{"a", with_gradient({1.0}, at::kComplexFloat)}}));
}

}  // namespace
}  // namespace mezzo::test
