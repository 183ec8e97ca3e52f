#include "mezzo/amp/loss_scale_policy.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "mezzo/core/error.h"

#include "amp/errors.h"
#include "amp/scaler_support.h"

namespace mezzo::test {
namespace {

using amp::GradScaler;
using amp::LossScalePolicy;

constexpr double kInf = std::numeric_limits<double>::infinity();

/// The scale that from_max_gradient finds for these gradients.
double found_scale(const std::vector<double>& gradient, double headroom,
                   at::ScalarType dtype = at::kFloat) {
  const at::Tensor parameter = leaf(gradient, dtype);
  set_gradient(parameter, gradient);
  return LossScalePolicy::from_max_gradient({parameter}, {.headroom = headroom})
      .options()
      .initial_scale;
}

/// The scale after a step with a gradient of `value` and an update.
double scale_after(GradScaler& scaler, double value) {
  const at::Tensor parameter = leaf({1.0});
  torch::optim::SGD optimizer = descent({parameter});
  scaler.scale(at::zeros({}));
  set_gradient(parameter, {value});
  scaler.step(optimizer);
  scaler.update();
  return scaler.get_scale();
}

TEST(LossScalePolicy, has_a_name_and_is_a_value) {
  const at::Tensor parameter = leaf({1.0});
  set_gradient(parameter, {1.0});
  std::vector<std::string> names;
  for (const LossScalePolicy& policy :
       {LossScalePolicy::constant(8.0), LossScalePolicy::from_max_gradient({parameter}),
        LossScalePolicy::dynamic({.initial_scale = 4.0})}) {
    LossScalePolicy copy = LossScalePolicy::dynamic();
    copy = policy;
    EXPECT_EQ(copy.options().initial_scale, policy.options().initial_scale);
    names.emplace_back(copy.name());
  }
  EXPECT_EQ(names, (std::vector<std::string>{"constant", "from_max_gradient", "dynamic"}));
}

TEST(LossScalePolicy, dynamic_defaults_are_those_of_pytorch) {
  const amp::DynamicLossScaleOptions options = LossScalePolicy::dynamic().options();
  EXPECT_EQ(options.initial_scale, 65536.0);
  EXPECT_EQ(options.growth_factor, 2.0);
  EXPECT_EQ(options.backoff_factor, 0.5);
  EXPECT_EQ(options.growth_interval, 2000);
}

TEST(LossScalePolicy, constant_never_moves_and_still_skips) {
  GradScaler scaler({.policy = LossScalePolicy::constant(1000.0)});
  EXPECT_EQ(scale_after(scaler, kInf), 1000.0);
  EXPECT_EQ(scale_after(scaler, 1.0), 1000.0);
  const at::Tensor parameter = leaf({1.0});
  torch::optim::SGD optimizer = descent({parameter});
  set_gradient(parameter, {kInf});
  EXPECT_EQ(scaler.step(optimizer), amp::StepOutcome::kSkipped);
}

TEST(LossScalePolicy, from_max_gradient_is_the_largest_power_of_two_that_fits) {
  struct Row {
    std::vector<double> gradient;
    double headroom, scale;
  };
  const std::vector<Row> rows = {
      {{1.0}, 1.0, 32768.0},      {{1.0, -2.0, 0.5}, 1.0, 16384.0},
      {{65504.0}, 1.0, 1.0},      {{1023.5}, 16.0, 4.0},  // 4 * 16 * 1023.5 == 65504 exactly
      {{1024.0}, 16.0, 2.0},      {{1e6}, 1.0, 0x1p-4},
      {{0x1p-149}, 1.0, 0x1p126},  // float32's smallest number: kept where the inverse is normal
  };
  for (const Row& row : rows) {
    EXPECT_EQ(found_scale(row.gradient, row.headroom), row.scale)
        << row.gradient[0] << ", " << row.headroom;
  }
}

TEST(LossScalePolicy, from_max_gradient_takes_every_floating_dtype) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    EXPECT_EQ(found_scale({0.25, -4.0}, 2.0, dtype), 4096.0) << dtype;
  }
  EXPECT_EQ(found_scale({1e-300}, 1.0, at::kDouble), 0x1p126);
  EXPECT_EQ(found_scale({1e300}, 1.0, at::kDouble), 0x1p-126);
}

TEST(LossScalePolicy, from_max_gradient_adds_the_duplicates_of_a_sparse_gradient) {
  const at::Tensor parameter = leaf({0.0, 0.0, 0.0});
  const at::Tensor index = at::tensor({1, 1, 2}, at::kLong).view({1, 3});
  parameter.mutable_grad() =
      at::sparse_coo_tensor(index, at::tensor({2.0, 2.0, 3.0}, at::kFloat), {3});
  const auto policy = LossScalePolicy::from_max_gradient({parameter}, {.headroom = 1.0});
  EXPECT_EQ(policy.options().initial_scale, 8192.0);
}

TEST(LossScalePolicy, from_max_gradient_looks_at_all_parameters_with_a_gradient) {
  const at::Tensor small = leaf({0.0}), large = leaf({0.0, 0.0}), none = leaf({0.0});
  const at::Tensor empty = leaf({});
  set_gradient(small, {1.0});
  set_gradient(large, {2.0, -8.0});
  set_gradient(empty, {});
  const auto policy =
      LossScalePolicy::from_max_gradient({none, small, empty, large, {}}, {.headroom = 1.0});
  EXPECT_EQ(policy.options().initial_scale, 4096.0);
}

TEST(LossScalePolicy, from_max_gradient_refuses_what_it_cannot_use) {
  for (const double headroom : {0.5, 0.0, -1.0, kInf, std::nan("")}) {
    EXPECT_TRUE(throws_with<InvalidArgument>("headroom", [&] { found_scale({1.0}, headroom); }));
  }
  EXPECT_TRUE(throws_with<InvalidArgument>(
      "expected gradients", [] { LossScalePolicy::from_max_gradient({leaf({1.0})}); }));
  EXPECT_TRUE(throws_with<InvalidArgument>("is zero", [] { found_scale({0.0, -0.0}, 1.0); }));
  for (const double bad : {kInf, -kInf, std::nan("")}) {
    EXPECT_TRUE(throws_with<NumericError>("inf or nan", [&] { found_scale({1.0, bad}, 1.0); }));
  }
}

TEST(LossScalePolicy, numbers_out_of_range_are_refused_by_an_enabled_scaler_only) {
  const std::vector<LossScalePolicy> policies = {
      LossScalePolicy::dynamic({.growth_factor = 1.0}),
      LossScalePolicy::dynamic({.growth_factor = kInf}),
      LossScalePolicy::dynamic({.backoff_factor = 1.0}),
      LossScalePolicy::dynamic({.backoff_factor = 0.0}),
      LossScalePolicy::dynamic({.growth_interval = 0}),
      LossScalePolicy::dynamic({.growth_interval = std::int64_t{1} << 31}),
      LossScalePolicy::dynamic({.initial_scale = 0.0}),
      LossScalePolicy::dynamic({.initial_scale = 1e39}),
      LossScalePolicy::dynamic({.initial_scale = std::nan("")}),
      LossScalePolicy::dynamic({.initial_scale = 4.0, .floor = 8.0}),
      LossScalePolicy::dynamic({.initial_scale = 4.0, .ceiling = 2.0}),
      LossScalePolicy::dynamic({.floor = std::nan("")}),
      LossScalePolicy::constant(-1.0),
      LossScalePolicy::constant(kInf),
  };
  for (std::size_t i = 0; i < policies.size(); ++i) {
    EXPECT_THROW(GradScaler({.policy = policies[i]}), InvalidArgument) << "row " << i;
    EXPECT_NO_THROW(GradScaler({.policy = policies[i], .enabled = false})) << "row " << i;
  }
}

TEST(LossScalePolicy, the_scale_stays_between_floor_and_ceiling) {
  GradScaler scaler({.policy = LossScalePolicy::dynamic({.initial_scale = 4.0,
                                                         .growth_factor = 8.0,
                                                         .backoff_factor = 0.25,
                                                         .growth_interval = 1,
                                                         .floor = 2.0,
                                                         .ceiling = 16.0})});
  EXPECT_EQ(scale_after(scaler, 1.0), 16.0);
  EXPECT_EQ(scale_after(scaler, 1.0), 16.0);
  EXPECT_EQ(scale_after(scaler, kInf), 4.0);
  EXPECT_EQ(scale_after(scaler, kInf), 2.0);
  EXPECT_EQ(scale_after(scaler, kInf), 2.0);
  scaler.update(1024.0);
  EXPECT_EQ(scaler.get_scale(), 16.0);
}

}  // namespace
}  // namespace mezzo::test
