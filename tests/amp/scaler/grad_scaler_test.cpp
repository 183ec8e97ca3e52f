#include "mezzo/amp/scaler/grad_scaler.h"

#include <tuple>

#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>
#include <torch/optim/lbfgs.h>

#include "mezzo/amp/autocast/autocast.h"

#include "amp/scaler_support.h"
#include "support/special_numbers.h"
#include "support/tolerance.h"
#include "support/warnings.h"

/// Effects of single calls of the scaler on tensors. For call order and scale updates see
/// grad_scaler_state_test.cpp.
namespace mezzo::test {
namespace {

using amp::GradScaler;
using amp::StepOutcome;

const std::vector<double> kNonFinite = {kInf, -kInf, std::nan("")};

TEST(GradScaler, starts_with_the_defaults_of_pytorch) {
  const GradScaler scaler;
  EXPECT_TRUE(scaler.is_enabled());
  EXPECT_EQ(scaler.get_scale(), 65536.0);
  EXPECT_EQ(scaler.get_growth_factor(), 2.0);
  EXPECT_EQ(scaler.get_backoff_factor(), 0.5);
  EXPECT_EQ(scaler.get_growth_interval(), 2000);
  EXPECT_EQ(scaler.state_dict().growth_tracker, 0);
}

TEST(GradScaler, scales_the_loss_and_with_it_the_gradient) {
  GradScaler scaler({.policy = amp::LossScalePolicy::dynamic({.initial_scale = 4.0})});
  const at::Tensor weight = leaf({3.0});
  const at::Tensor scaled = scaler.scale((weight * weight).sum() - 7.0);
  EXPECT_EQ(scaled.scalar_type(), at::kFloat);
  EXPECT_TRUE(exact(scaled, at::scalar_tensor(8.0)));
  scaled.backward();
  EXPECT_TRUE(exact(weight.grad(), numbers({24.0})));
}

TEST(GradScaler, a_float16_loss_becomes_float32_if_it_has_no_dimensions) {
  GradScaler scaler;
  const at::Tensor scalar = scaler.scale(at::scalar_tensor(3.0, on_device(at::kHalf)));
  EXPECT_EQ(scalar.scalar_type(), at::kFloat);
  EXPECT_TRUE(exact(scalar, at::scalar_tensor(196608.0)));
  const at::Tensor vector = scaler.scale(at::full({1}, 3.0, on_device(at::kHalf)));
  EXPECT_EQ(vector.scalar_type(), at::kHalf);
  EXPECT_TRUE(exact(vector, numbers({kInf})));
}

TEST(GradScaler, scales_lists_and_lists_of_lists) {
  GradScaler scaler = started({.initial_scale = 2.0});
  const at::Tensor four = at::scalar_tensor(4.0, on_device()),
                   eight = at::scalar_tensor(8.0, on_device());
  const std::vector<at::Tensor> list = scaler.scale({four, four});
  ASSERT_EQ(list.size(), 2U);
  EXPECT_TRUE(exact(list[0], eight) && exact(list[1], eight));
  const std::vector<std::vector<at::Tensor>> nested = {{four}, {}, {four, four}};
  const auto scaled = scaler.scale(nested);
  ASSERT_EQ(scaled.size(), 3U);
  ASSERT_EQ(scaled[1].size(), 0U);
  ASSERT_EQ(scaled[2].size(), 2U);
  EXPECT_TRUE(exact(scaled[0][0], eight) && exact(scaled[2][1], eight));
}

TEST(GradScaler, scales_tuples_of_tensors_and_lists) {
  GradScaler scaler = started({.initial_scale = 2.0});
  const at::Tensor four = at::scalar_tensor(4.0, on_device()),
                   eight = at::scalar_tensor(8.0, on_device());
  const std::tuple<at::Tensor, std::vector<at::Tensor>> outputs = {four, {four, four}};
  const auto [single, list] = scaler.scale(outputs);
  ASSERT_EQ(list.size(), 2U);
  EXPECT_TRUE(exact(single, eight) && exact(list[0], eight) && exact(list[1], eight));
}

TEST(GradScaler, refuses_to_scale_what_has_no_gradient) {
  GradScaler scaler;
  EXPECT_THROWS(InvalidArgument, "undefined", scaler.scale(at::Tensor()));
  EXPECT_THROWS(InvalidArgument, "got Long", scaler.scale(at::zeros({}, on_device(at::kLong))));
}

TEST(GradScaler, a_scale_made_in_inference_mode_can_be_updated_outside) {
  GradScaler scaler;
  {
    const c10::InferenceMode inference;
    scaler.scale(at::zeros({}, on_device()));
  }
  scaler.update(128.0);
  EXPECT_EQ(scaler.get_scale(), 128.0);
}

TEST(GradScaler, unscales_in_the_same_storage) {
  GradScaler scaler = started({.initial_scale = 4.0});
  const at::Tensor weight = leaf({0.0, 0.0});
  torch::optim::SGD optimizer = descent({weight});
  set_gradient(weight, {8.0, 16.0});
  const at::Tensor before = weight.grad();
  scaler.unscale_(optimizer);
  EXPECT_TRUE(exact(weight.grad(), numbers({2.0, 4.0})));
  EXPECT_TRUE(before.is_same(weight.grad()));
  EXPECT_TRUE(exact(before, numbers({2.0, 4.0})));
}

TEST(GradScaler, a_step_unscales_exactly_once) {
  for (const bool unscale_first : {false, true}) {
    GradScaler scaler = started({.initial_scale = 4.0});
    const at::Tensor weight = leaf({1.0});
    torch::optim::SGD optimizer = descent({weight});
    set_gradient(weight, {8.0});
    if (unscale_first) scaler.unscale_(optimizer);
    EXPECT_EQ(scaler.step(optimizer), StepOutcome::kApplied);
    EXPECT_TRUE(exact(weight, numbers({-1.0}))) << unscale_first;
  }
}

TEST(GradScaler, a_parameter_listed_twice_is_unscaled_once) {
  GradScaler scaler = started({.initial_scale = 4.0});
  const at::Tensor weight = leaf({0.0});
  torch::optim::SGD optimizer = descent({weight, weight});
  set_gradient(weight, {8.0});
  scaler.unscale_(optimizer);
  EXPECT_TRUE(exact(weight.grad(), numbers({2.0})));
}

TEST(GradScaler, one_gradient_that_is_not_finite_skips_the_whole_step) {
  for (const double bad : kNonFinite) {
    GradScaler scaler = started({.initial_scale = 4.0});
    const std::vector<at::Tensor> weights = {leaf({1.0}), leaf({1.0, 2.0}), leaf({3.0})};
    torch::optim::Adam optimizer(weights, torch::optim::AdamOptions(1.0));
    set_gradient(weights[0], {4.0});
    set_gradient(weights[1], {4.0, bad});
    set_gradient(weights[2], {4.0});
    EXPECT_EQ(scaler.step(optimizer), StepOutcome::kSkipped) << bad;
    EXPECT_TRUE(exact(weights[0], numbers({1.0})));
    EXPECT_TRUE(exact(weights[1], numbers({1.0, 2.0})));
    EXPECT_TRUE(exact(weights[2], numbers({3.0})));
    EXPECT_TRUE(optimizer.state().empty());
    scaler.update();
    EXPECT_EQ(scaler.get_scale(), 2.0);
    EXPECT_EQ(scaler.state_dict().growth_tracker, 0);
  }
}

TEST(GradScaler, of_two_optimizers_only_the_one_with_inf_is_skipped) {
  GradScaler scaler = started({.initial_scale = 4.0});
  const at::Tensor a = leaf({1.0}), b = leaf({1.0});
  torch::optim::SGD first = descent({a}), second = descent({b});
  set_gradient(a, {kInf});
  set_gradient(b, {8.0});
  EXPECT_EQ(scaler.step(first), StepOutcome::kSkipped);
  EXPECT_EQ(scaler.step(second), StepOutcome::kApplied);
  scaler.update();
  EXPECT_TRUE(exact(a, numbers({1.0})));
  EXPECT_TRUE(exact(b, numbers({-1.0})));
  EXPECT_EQ(scaler.get_scale(), 2.0) << "halved once";
}

TEST(GradScaler, refuses_float16_gradients_before_it_changes_any) {
  GradScaler scaler = started({.initial_scale = 4.0});
  const at::Tensor full = leaf({1.0}), half = leaf({1.0}, at::kHalf);
  torch::optim::SGD optimizer = descent({full, half});
  set_gradient(full, {8.0});
  set_gradient(half, {8.0});
  for (int attempt = 0; attempt < 2; ++attempt) {
    EXPECT_THROWS(InvalidArgument, "Attempting to unscale FP16 gradients.", scaler.step(optimizer));
  }
  EXPECT_TRUE(exact(full.grad(), numbers({8.0})));
  EXPECT_TRUE(exact(full, numbers({1.0})));
  EXPECT_TRUE(exact(half, numbers({1.0})));
}

TEST(GradScaler, refuses_complex_gradients) {
  GradScaler scaler = started({});
  const at::Tensor weight = leaf({1.0}, at::kComplexFloat);
  torch::optim::SGD optimizer = descent({weight});
  set_gradient(weight, {1.0});
  EXPECT_THROWS(InvalidArgument, "got ComplexFloat", scaler.step(optimizer));
}

TEST(GradScaler, unscales_bfloat16_with_one_rounding) {
  GradScaler scaler = started({.initial_scale = 1000.0});
  const at::Tensor weight = leaf({0.0, 0.0, 0.0}, at::kBFloat16);
  torch::optim::SGD optimizer = descent({weight});
  set_gradient(weight, {1000.0, 3.0, -12345.0});
  const at::Tensor expected =
      (weight.grad().to(at::kFloat) * static_cast<float>(1.0 / 1000.0)).to(at::kBFloat16);
  scaler.unscale_(optimizer);
  EXPECT_EQ(weight.grad().scalar_type(), at::kBFloat16);
  EXPECT_TRUE(exact(weight.grad(), expected));
  EXPECT_EQ(scaler.step(optimizer), StepOutcome::kApplied);
  scaler.update();
  for (const double bad : kNonFinite) {
    set_gradient(weight, {1.0, bad, 1.0});
    EXPECT_EQ(scaler.step(optimizer), StepOutcome::kSkipped) << bad;
    scaler.update();
  }
}

TEST(GradScaler, handles_gradients_of_every_shape_and_mixed_dtypes) {
  for (int bad_one = -1; bad_one < 4; ++bad_one) {
    GradScaler scaler = started({.initial_scale = 4.0});
    const at::Tensor strided = at::zeros({2, 3}, on_device()).requires_grad_();
    const at::Tensor transposed = at::zeros({2, 3}, on_device()).requires_grad_();
    const at::Tensor float64 = at::zeros({2}, on_device(at::kDouble)).requires_grad_();
    const at::Tensor bfloat16 = at::zeros({2}, on_device(at::kBFloat16)).requires_grad_();
    const at::Tensor empty = at::zeros({0, 3}, on_device()).requires_grad_();
    strided.mutable_grad() = at::full({2, 6}, 8.0, on_device()).slice(1, 0, 6, 2);
    transposed.mutable_grad() = at::full({3, 2}, 8.0, on_device()).t();
    float64.mutable_grad() = at::full({2}, 8.0, on_device(at::kDouble));
    bfloat16.mutable_grad() = at::full({2}, 8.0, on_device(at::kBFloat16));
    empty.mutable_grad() = at::zeros({0, 3}, on_device());
    const std::vector<at::Tensor> filled = {strided, transposed, float64, bfloat16};
    torch::optim::SGD optimizer = descent({strided, empty, transposed, float64, bfloat16});
    if (bad_one >= 0) {
      filled[static_cast<std::size_t>(bad_one)].grad().select(0, 1).fill_(kInf);
    }
    scaler.unscale_(optimizer);
    for (const at::Tensor& parameter : filled) {
      EXPECT_TRUE(exact(parameter.grad().select(0, 0), at::full_like(parameter, 2.0).select(0, 0)));
    }
    EXPECT_EQ(scaler.step(optimizer), bad_one < 0 ? StepOutcome::kApplied : StepOutcome::kSkipped)
        << bad_one;
  }
}

TEST(GradScaler, unscales_the_values_of_a_sparse_gradient) {
  const at::Tensor index = on_device(at::tensor({0, 2, 2}, at::kLong)).view({1, 3});
  for (const double last : {64.0, kInf}) {
    GradScaler scaler = started({.initial_scale = 4.0});
    const at::Tensor weight = leaf({0.0, 0.0, 0.0});
    weight.mutable_grad() =
        at::sparse_coo_tensor(index, numbers({16.0, 32.0, last}).to(at::kFloat), {3});
    torch::optim::SGD optimizer = descent({weight});
    scaler.unscale_(optimizer);
    EXPECT_TRUE(exact(weight.grad()._values(), numbers({4.0, 8.0, last / 4.0})));
    EXPECT_TRUE(exact(weight.grad()._indices(), index));
    const bool finite = std::isfinite(last);
    EXPECT_EQ(scaler.step(optimizer), finite ? StepOutcome::kApplied : StepOutcome::kSkipped);
    EXPECT_TRUE(exact(weight, finite ? numbers({-4.0, 0.0, -24.0}) : numbers({0.0, 0.0, 0.0})));
  }
}

TEST(GradScaler, passes_over_parameters_without_a_gradient) {
  GradScaler scaler = started({.initial_scale = 4.0});
  const at::Tensor used = leaf({1.0}), unused = leaf({1.0});
  torch::optim::SGD optimizer = descent({unused, used});
  set_gradient(used, {4.0});
  EXPECT_EQ(scaler.step(optimizer), StepOutcome::kApplied);
  EXPECT_TRUE(exact(used, numbers({0.0})));
  EXPECT_FALSE(unused.grad().defined());
}

TEST(GradScaler, refuses_closures_before_they_run) {
  GradScaler scaler = started({});
  const at::Tensor weight = leaf({1.0});
  torch::optim::SGD optimizer = descent({weight});
  torch::optim::LBFGS lbfgs({weight}, torch::optim::LBFGSOptions(1.0));
  set_gradient(weight, {1.0});
  bool ran = false;
  const auto closure = [&] {
    ran = true;
    return at::zeros({}, on_device());
  };
  const char* text = "Closure use is not currently supported if GradScaler is enabled.";
  EXPECT_THROWS(InvalidArgument, text, scaler.step(optimizer, closure));
  EXPECT_THROWS(InvalidArgument, text, scaler.step(lbfgs, closure));
  EXPECT_THROWS(InvalidArgument, "LBFGS", scaler.step(lbfgs));
  EXPECT_FALSE(ran);
  EXPECT_TRUE(exact(weight.grad(), numbers({1.0})));
}

TEST(GradScaler, disabled_is_the_plain_optimizer) {
  GradScaler scaler({.enabled = false});
  EXPECT_FALSE(scaler.is_enabled());
  EXPECT_EQ(scaler.get_scale(), 1.0);
  const at::Tensor weight = leaf({1.0});
  torch::optim::SGD optimizer = descent({weight});
  EXPECT_TRUE(scaler.scale(weight).is_same(weight));
  set_gradient(weight, {kInf});
  scaler.unscale_(optimizer);
  scaler.unscale_(optimizer);
  set_gradient(weight, {8.0});
  bool ran = false;
  const auto closure = [&] {
    ran = true;
    return at::zeros({}, on_device());
  };
  EXPECT_EQ(scaler.step(optimizer, closure), StepOutcome::kApplied);
  EXPECT_TRUE(ran);
  EXPECT_EQ(scaler.step(optimizer), StepOutcome::kApplied);
  EXPECT_TRUE(exact(weight, numbers({-15.0})));
  scaler.update();
  scaler.update(8.0);
  scaler.update(at::ones({2}, on_device()));
  EXPECT_EQ(scaler.get_scale(), 1.0);
}

TEST(GradScaler, for_a_missing_cuda_warns_and_is_disabled) {
  if (at::globalContext().hasCUDA()) GTEST_SKIP() << "this machine has CUDA";
  Warnings warnings;
  EXPECT_FALSE(GradScaler({.device = at::kCUDA}).is_enabled());
  ASSERT_EQ(warnings.texts.size(), 1U);
  EXPECT_NE(warnings.texts[0].find("not available"), std::string::npos);
}

TEST(GradScaler, two_micro_batches_give_the_sum_of_their_gradients) {
  GradScaler scaler = started({.initial_scale = 1024.0});
  const at::Tensor plain = leaf({1.0, -2.0}), scaled = leaf({1.0, -2.0});
  torch::optim::SGD plain_optimizer = descent({plain}), optimizer = descent({scaled});
  for (const double x : {0.3, 0.7}) {
    (plain * plain * x).sum().backward();
    scaler.scale((scaled * scaled * x).sum()).backward();
  }
  plain_optimizer.step();
  EXPECT_EQ(scaler.step(optimizer), StepOutcome::kApplied);
  EXPECT_TRUE(exact(scaled, plain));
}

TEST(GradScaler, an_update_between_micro_batches_gives_the_wrong_mix) {
  GradScaler scaler = started({.initial_scale = 4.0});
  const at::Tensor weight = leaf({0.0});
  torch::optim::SGD optimizer = descent({weight});
  scaler.scale(weight.sum()).backward();
  EXPECT_THROWS(LogicError, "prior to update", scaler.update());
  scaler.update(8.0);
  scaler.scale(weight.sum()).backward();
  scaler.unscale_(optimizer);
  EXPECT_TRUE(exact(weight.grad(), numbers({1.5}))) << "the first half was scaled by 4";
}

TEST(GradScaler, two_losses_of_one_parameter_need_one_scaler) {
  GradScaler scaler = started({.initial_scale = 4.0}), other = started({.initial_scale = 16.0});
  const at::Tensor shared = leaf({0.0}), torn = leaf({0.0});
  torch::optim::SGD optimizer = descent({shared}), torn_optimizer = descent({torn});
  for (const double slope : {1.0, 2.0}) {
    scaler.scale((shared * slope).sum()).backward();
    (slope == 1.0 ? scaler : other).scale((torn * slope).sum()).backward();
  }
  scaler.unscale_(optimizer);
  scaler.unscale_(torn_optimizer);
  EXPECT_TRUE(exact(shared.grad(), numbers({3.0})));
  EXPECT_TRUE(exact(torn.grad(), numbers({9.0}))) << "1 + 2 * 16 / 4";
}

TEST(GradScaler, clipping_after_unscale_acts_on_true_norms) {
  GradScaler scaler = started({.initial_scale = 4.0});
  const at::Tensor weight = leaf({0.0, 0.0});
  torch::optim::SGD optimizer = descent({weight});
  set_gradient(weight, {12.0, 16.0});
  scaler.unscale_(optimizer);
  EXPECT_EQ(torch::nn::utils::clip_grad_norm_({weight}, 1.0), 5.0);
  const at::Tensor clipped = weight.grad().clone();
  EXPECT_EQ(scaler.step(optimizer), StepOutcome::kApplied);
  EXPECT_TRUE(exact(weight, -clipped));
  scaler.update();
  set_gradient(weight, {kInf, 1.0});
  scaler.unscale_(optimizer);
  torch::nn::utils::clip_grad_norm_({weight}, 1.0);
  EXPECT_EQ(scaler.step(optimizer), StepOutcome::kSkipped);
}

TEST(GradScaler, carries_a_gradient_penalty) {
  GradScaler scaler = started({.initial_scale = 1024.0});
  const at::Tensor plain = leaf({1.5, -2.0}), scaled = leaf({1.5, -2.0});
  const auto loss_of = [](const at::Tensor& w) { return (w * w * w).sum(); };

  const at::Tensor loss = loss_of(plain);
  const at::Tensor gradient = torch::autograd::grad({loss}, {plain}, {}, {}, true)[0];
  (loss + gradient.square().sum()).backward();

  const at::Tensor scaled_loss = loss_of(scaled);
  const at::Tensor scaled_gradient =
      torch::autograd::grad({scaler.scale(scaled_loss)}, {scaled}, {}, {}, true)[0];
  const at::Tensor penalty = (scaled_gradient * (1.0 / scaler.get_scale())).square().sum();
  scaler.scale(scaled_loss + penalty).backward();
  torch::optim::SGD optimizer = descent({scaled});
  scaler.unscale_(optimizer);
  EXPECT_TRUE(exact(scaled.grad(), plain.grad()));
}

TEST(GradScaler, a_step_inside_a_region_ends_the_casts_of_the_old_weights) {
  GradScaler scaler = started({.initial_scale = 4.0});
  const at::Tensor weight = at::ones({2, 2}, on_device()).requires_grad_();
  torch::optim::SGD optimizer = descent({weight});
  const amp::Autocast autocast(test_device().type(), at::kBFloat16);
  EXPECT_TRUE(exact(at::mm(at::eye(2, on_device()), weight), at::ones({2, 2})));
  weight.mutable_grad() = at::full({2, 2}, 8.0, on_device());
  scaler.step(optimizer);
  EXPECT_TRUE(exact(at::mm(at::eye(2, on_device()), weight), at::full({2, 2}, -1.0)));
}

}  // namespace
}  // namespace mezzo::test
