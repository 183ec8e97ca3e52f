// What save() collects before it writes. mixed_precision_optimizer_test.cpp tests that runs
// continue bit for bit.

#include <torch/optim/sgd.h>

#include "mezzo/amp/optim/mixed_precision_optimizer.h"

#include "amp/archives.h"
#include "amp/scaler_support.h"
#include "support/special_numbers.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

using amp::enable_mixed_precision;
using amp::LossScalePolicy;
using amp::MixedPrecisionOptimizer;
using amp::MixedPrecisionOptions;
using amp::Precision;

const MixedPrecisionOptions kWithoutScaler{.precision = Precision::kFloat32};

/// A loss with gradient `slope` for every element.
at::Tensor slope_of(const at::Tensor& weight, double slope) {
  return weight.to(at::kFloat).sum() * slope;
}

TEST(MixedPrecisionArchive, has_the_numbers_that_were_written_into_parameters_from_outside) {
  const at::Tensor weight = leaf({1.0, 1.0}, at::kBFloat16), copy = leaf({0.0, 0.0}, at::kBFloat16);
  torch::optim::SGD inside = descent({weight}), other = descent({copy});
  MixedPrecisionOptimizer optimizer = enable_mixed_precision(inside, kWithoutScaler);
  optimizer.minimize([&] { return slope_of(weight, -0x1p-12); });
  weight.detach().select(0, 1).fill_(4.0);
  MixedPrecisionOptimizer resumed = enable_mixed_precision(other, kWithoutScaler);
  transfer(optimizer, resumed);
  EXPECT_TRUE(exact(copy, numbers({1.0, 4.0})));
  const at::Tensor master = resumed.master_weights().masters().at(0);
  EXPECT_TRUE(exact(master, numbers({1 + 0x1p-12, 4.0})));
}

TEST(MixedPrecisionArchive, has_the_masters_of_a_group_that_was_added_since) {
  const at::Tensor first = leaf({1.0}, at::kBFloat16), second = leaf({1.0}, at::kBFloat16),
                   first_copy = leaf({0.0}, at::kBFloat16),
                   second_copy = leaf({0.0}, at::kBFloat16);
  torch::optim::SGD inside = descent({first}), other = descent({first_copy});
  MixedPrecisionOptimizer optimizer = enable_mixed_precision(inside, kWithoutScaler);
  optimizer.minimize([&] { return slope_of(first, 0.25); });
  inside.add_param_group(torch::optim::OptimizerParamGroup({second}));
  other.add_param_group(torch::optim::OptimizerParamGroup({second_copy}));
  MixedPrecisionOptimizer resumed = enable_mixed_precision(other, kWithoutScaler);
  transfer(optimizer, resumed);
  EXPECT_EQ(resumed.master_weights().size(), 2U);
  EXPECT_TRUE(exact(first_copy, numbers({0.75})));
  EXPECT_TRUE(exact(second_copy, numbers({1.0})));
}

TEST(MixedPrecisionArchive, has_the_gradient_of_a_backward_without_a_step) {
  const at::Tensor weight = leaf({1.0}, at::kBFloat16), copy = leaf({0.0}, at::kBFloat16);
  torch::optim::SGD inside = descent({weight}), other = descent({copy});
  MixedPrecisionOptimizer optimizer = enable_mixed_precision(inside, kWithoutScaler),
                          resumed = enable_mixed_precision(other, kWithoutScaler);
  optimizer.backward(slope_of(weight, 0.25));
  transfer(optimizer, resumed);
  for (MixedPrecisionOptimizer* each : {&optimizer, &resumed}) each->step();
  EXPECT_TRUE(exact(weight, numbers({0.75})));
  EXPECT_TRUE(exact(copy, numbers({0.75})));
}

TEST(MixedPrecisionArchive, is_not_read_where_the_gradients_at_hand_end_the_run) {
  const at::Tensor weight = leaf({1.0}), copy = leaf({2.0});
  torch::optim::SGD inside = descent({weight}), other = descent({copy});
  const MixedPrecisionOptions options{
      .precision = Precision::kFloat32,
      .policy = LossScalePolicy::dynamic(
          {.initial_scale = 1.0, .floor = 1.0, .at_floor = amp::FloorAction::kThrow})};
  MixedPrecisionOptimizer optimizer = enable_mixed_precision(inside, options),
                          resumed = enable_mixed_precision(other, options);
  optimizer.minimize([&] { return weight.sum(); });
  resumed.backward(copy.sum() * kInf);
  resumed.unscale_();
  EXPECT_THROW(transfer(optimizer, resumed), NumericError);
  EXPECT_EQ(resumed.steps(), 0);
  transfer(optimizer, resumed);
  EXPECT_EQ(resumed.steps(), 1);
}

}  // namespace
}  // namespace mezzo::test
