// Where a MixedPrecisionOptimizer stores gradients, for loops that clip or all-reduce them.
#include <optional>

#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/sgd.h>

#include "mezzo/amp/optim/mixed_precision_optimizer.h"

#include "amp/scaler_support.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

using amp::enable_mixed_precision;
using amp::LossScalePolicy;
using amp::MixedPrecisionOptimizer;
using amp::ParameterRounding;
using amp::Precision;

constexpr ParameterRounding kRoundings[] = {ParameterRounding::kMasterWeights,
                                            ParameterRounding::kStochastic};

/// A loss with gradient `slope` for every element.
at::Tensor sloping(const at::Tensor& weight, double slope) {
  return weight.to(at::kFloat).sum() * slope;
}

TEST(MasterParameters, come_after_the_models_own_where_nothing_is_accumulated) {
  for (const ParameterRounding rounding : kRoundings) {
    const at::Tensor weight = leaf({0.0, 0.0}, at::kBFloat16);
    torch::optim::SGD sgd = descent({weight});
    MixedPrecisionOptimizer optimizer =
        enable_mixed_precision(sgd, {.precision = Precision::kFloat32, .rounding = rounding});
    optimizer.backward(sloping(weight, 2.0));
    ASSERT_TRUE(weight.grad().defined());
    weight.mutable_grad().mul_(0.25);  // like a mean over processes
    EXPECT_EQ(optimizer.step(), amp::StepOutcome::kApplied);
    EXPECT_FALSE(weight.grad().defined());
    EXPECT_TRUE(exact(weight, at::full({2}, -0.5)));
  }
}

TEST(MasterParameters, have_the_sum_over_micro_batches_in_float32) {
  for (const ParameterRounding rounding : kRoundings) {
    const at::Tensor bfloat16 = leaf({0.0}, at::kBFloat16), float64 = leaf({0.0}, at::kDouble);
    torch::optim::SGD sgd = descent({bfloat16, float64});
    MixedPrecisionOptimizer optimizer = enable_mixed_precision(
        sgd, {.precision = Precision::kFloat32, .accumulate = 2, .rounding = rounding});
    optimizer.backward(sloping(bfloat16, 2.0));
    EXPECT_FALSE(bfloat16.grad().defined());
    optimizer.backward(sloping(bfloat16, 0x1p-11) + sloping(float64, 1.0));
    const std::vector<at::Tensor> masters = optimizer.master_parameters();
    ASSERT_EQ(masters.size(), 2U);
    EXPECT_EQ(masters[0].scalar_type(), at::kFloat);
    EXPECT_EQ(masters[0].sizes(), bfloat16.sizes());
    EXPECT_TRUE(exact(masters[0].grad(), numbers({1 + 0x1p-12})));
    EXPECT_TRUE(masters[1].is_same(float64));
    EXPECT_TRUE(exact(masters[1].grad(), numbers({0.5})));
  }
}

TEST(MasterParameters, clipped_by_hand_equal_the_option) {
  for (const ParameterRounding rounding : kRoundings) {
    const auto step = [rounding](std::optional<double> norm) {
      const at::Tensor bfloat16 = leaf({0.0}, at::kBFloat16), float32 = leaf({0.0});
      torch::optim::SGD sgd = descent({bfloat16, float32});
      MixedPrecisionOptimizer optimizer =
          enable_mixed_precision(sgd, {.precision = Precision::kFloat32,
                                       .max_gradient_norm = norm,
                                       .policy = LossScalePolicy::constant(1024.0),
                                       .rounding = rounding});
      optimizer.backward(sloping(bfloat16, 30.0) + sloping(float32, -40.0));
      if (!norm) {
        optimizer.unscale_();
        const std::vector<at::Tensor> masters = optimizer.master_parameters();
        EXPECT_EQ(torch::nn::utils::clip_grad_norm_(masters, 5.0), 50.0);
      }
      optimizer.step();
      return std::vector<at::Tensor>{bfloat16, float32};
    };
    const std::vector<at::Tensor> by_hand = step(std::nullopt), by_option = step(5.0);
    EXPECT_TRUE(same_bits(by_hand[0], by_option[0]));
    EXPECT_TRUE(same_bits(by_hand[1], by_option[1]));
  }
}

TEST(MasterParameters, have_a_parameter_that_is_listed_twice_once_and_clip_it_once) {
  const at::Tensor weight = leaf({0.0});
  torch::optim::SGD sgd = descent({weight, weight});
  MixedPrecisionOptimizer optimizer =
      enable_mixed_precision(sgd, {.precision = Precision::kFloat32, .max_gradient_norm = 1.0});
  optimizer.backward(sloping(weight, 64.0));
  EXPECT_EQ(optimizer.master_parameters().size(), 1U);
  optimizer.step();
  EXPECT_TRUE(exact(weight.grad(), numbers({1.0})));  // 64 + 1e-6 is 64 in float32
}

}  // namespace
}  // namespace mezzo::test
