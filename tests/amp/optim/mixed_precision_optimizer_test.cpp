#include "mezzo/amp/optim/mixed_precision_optimizer.h"

#include <memory>
#include <new>
#include <sstream>
#include <type_traits>

#include <ATen/core/grad_mode.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

#include "mezzo/amp/optim/fused_optimizer.h"

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
using amp::ParameterRounding;
using amp::Precision;
using amp::StepOutcome;

/// Two dense layers on fixed data.
struct Model {
  explicit Model(at::ScalarType dtype = at::kFloat)
      : first(leaf(uniform({16, 8}, dtype, 1))), second(leaf(uniform({1, 16}, dtype, 2))) {}

  std::vector<at::Tensor> parameters() const { return {first, second}; }

  at::Tensor loss(std::int64_t batch = 0) const {
    const auto seed = static_cast<std::uint64_t>(10 + batch);
    const at::Tensor x = uniform({32, 8}, first.scalar_type(), seed);
    const at::Tensor y = at::linear(at::relu(at::linear(x, first)), second);
    return at::mse_loss(y.to(at::kFloat), x.to(at::kFloat).sum(1, true));
  }

  at::Tensor first, second;
};

torch::optim::Adam adam(const Model& model) {
  return torch::optim::Adam(model.parameters(), torch::optim::AdamOptions(0.01));
}

testing::AssertionResult same_parameters(const Model& a, const Model& b) {
  const testing::AssertionResult first = same_bits(a.first, b.first);
  return first ? same_bits(a.second, b.second) : first;
}

TEST(MixedPrecisionOptimizer, minimize_equals_the_loop_by_hand_bit_for_bit) {
  const LossScalePolicy policy =
      LossScalePolicy::dynamic({.initial_scale = 0x1p40, .growth_interval = 4});
  const Model hand, wrapped;
  torch::optim::Adam hand_adam = adam(hand), wrapped_adam = adam(wrapped);
  amp::GradScaler scaler({.policy = policy});
  MixedPrecisionOptimizer optimizer = enable_mixed_precision(
      wrapped_adam, {.precision = Precision::kFloat16, .max_gradient_norm = 0.5, .policy = policy});
  std::int64_t skipped = 0;
  for (int i = 0; i < 60; ++i) {
    hand_adam.zero_grad();
    at::Tensor loss;
    {
      const amp::PrecisionScope scope(Precision::kFloat16, test_device());
      loss = hand.loss();
    }
    scaler.scale(loss).backward();
    scaler.unscale_(hand_adam);
    torch::nn::utils::clip_grad_norm_(hand.parameters(), 0.5);
    skipped += scaler.step(hand_adam) == StepOutcome::kSkipped;
    scaler.update();
    ASSERT_TRUE(same_bits(optimizer.minimize([&] { return wrapped.loss(); }), loss)) << i;
    ASSERT_TRUE(same_parameters(hand, wrapped)) << i;
  }
  EXPECT_GT(skipped, 0);
  EXPECT_LT(skipped, 60);
  EXPECT_EQ(optimizer.skipped_steps(), skipped);
  EXPECT_EQ(optimizer.steps(), 60);
  EXPECT_EQ(optimizer.scaler().state_dict(), scaler.state_dict());
}

TEST(MixedPrecisionOptimizer, the_pieces_equal_minimize) {
  const Model whole, parts;
  torch::optim::Adam whole_adam = adam(whole), parts_adam = adam(parts);
  const MixedPrecisionOptions options{.precision = Precision::kFloat16,
                                      .max_gradient_norm = 1.0,
                                      .policy = LossScalePolicy::constant(256.0)};
  MixedPrecisionOptimizer first = enable_mixed_precision(whole_adam, options);
  MixedPrecisionOptimizer second = enable_mixed_precision(parts_adam, options);
  for (int i = 0; i < 5; ++i) {
    first.minimize([&] { return whole.loss(); });
    second.zero_grad();
    at::Tensor loss;
    {
      const amp::PrecisionScope scope = second.scope();
      loss = parts.loss();
    }
    second.backward(loss);
    if (i % 2 == 0) second.unscale_();
    EXPECT_EQ(second.step(), StepOutcome::kApplied);
  }
  EXPECT_TRUE(same_parameters(whole, parts));
}

TEST(MixedPrecisionOptimizer, returns_the_loss_as_the_closure_gave_it) {
  const at::Tensor weight = leaf({3.0});
  torch::optim::SGD sgd = descent({weight});
  MixedPrecisionOptimizer optimizer =
      enable_mixed_precision(sgd, {.accumulate = 2, .policy = LossScalePolicy::constant(8.0)});
  const at::Tensor loss = optimizer.minimize([&] { return weight * 2.0; });
  EXPECT_FALSE(loss.requires_grad());
  EXPECT_TRUE(exact(loss, numbers({6.0})));
}

TEST(MixedPrecisionOptimizer, micro_batches_equal_the_whole_batch) {
  const at::Tensor x = integers({8, 4}, at::kFloat, 5);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor whole = leaf(at::ones({4}, on_device(dtype))),
                     parts = leaf(at::ones({4}, on_device(dtype)));
    torch::optim::SGD whole_sgd = descent({whole}), parts_sgd = descent({parts});
    const auto loss_of = [](const at::Tensor& weight, const at::Tensor& rows) {
      return (rows * weight.to(at::kFloat)).sum(1).mean();
    };
    MixedPrecisionOptions options{.precision = Precision::kFloat32,
                                  .policy = LossScalePolicy::constant(8.0)};
    MixedPrecisionOptimizer one = enable_mixed_precision(whole_sgd, options);
    options.accumulate = 4;
    MixedPrecisionOptimizer four = enable_mixed_precision(parts_sgd, options);
    one.minimize([&] { return loss_of(whole, x); });
    for (std::int64_t i = 0; i < 4; ++i) {
      EXPECT_EQ(four.steps(), 0);
      four.minimize([&] { return loss_of(parts, x.narrow(0, 2 * i, 2)); });
    }
    EXPECT_EQ(four.steps(), 1);
    EXPECT_TRUE(same_bits(whole, parts));
    EXPECT_FALSE(exact(parts, at::ones({4})));
  }
}

TEST(MixedPrecisionOptimizer, a_cycle_of_accumulation_starts_from_zero) {
  const at::Tensor weight = leaf({0.0});
  torch::optim::SGD sgd = descent({weight});
  MixedPrecisionOptimizer optimizer = enable_mixed_precision(sgd, {.accumulate = 2});
  for (int i = 0; i < 6; ++i) optimizer.minimize([&] { return weight.sum(); });
  EXPECT_EQ(optimizer.steps(), 3);
  EXPECT_TRUE(exact(weight, numbers({-3.0})));
}

TEST(MixedPrecisionOptimizer, clips_true_gradients) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor weight = leaf({0.0, 0.0}, dtype);
    torch::optim::SGD sgd = descent({weight});
    MixedPrecisionOptimizer optimizer = enable_mixed_precision(
        sgd, {.max_gradient_norm = 5.0, .policy = LossScalePolicy::constant(1024.0)});
    const at::Tensor slopes = numbers({30.0, -40.0}, at::kFloat);
    optimizer.minimize([&] { return (weight.to(at::kFloat) * slopes).sum(); });
    const at::Tensor clipped = slopes * (5.0F / (50.0F + 1e-6F));
    EXPECT_TRUE(exact_rounded(weight, -clipped));
    optimizer.minimize([&] { return (weight.to(at::kFloat) * slopes / 50.0).sum(); });
    EXPECT_LT(weight.detach()[0].item<double>(), -3.0) << "short gradients are left alone";
  }
}

TEST(MixedPrecisionOptimizer, a_skipped_step_moves_nothing) {
  for (const ParameterRounding rounding :
       {ParameterRounding::kMasterWeights, ParameterRounding::kStochastic}) {
    const Model model(at::kBFloat16);
    torch::optim::Adam optimizer_inside = adam(model);
    MixedPrecisionOptimizer optimizer = enable_mixed_precision(
        optimizer_inside, {.policy = LossScalePolicy::dynamic(), .rounding = rounding});
    optimizer.minimize([&] { return model.loss(); });
    const at::Tensor first = model.first.detach().clone(), second = model.second.detach().clone();
    std::vector<at::Tensor> masters;
    for (const at::Tensor& master : optimizer.master_weights().masters()) {
      masters.push_back(master.detach().clone());
    }
    optimizer.minimize([&] { return model.loss() * kInf; });
    EXPECT_EQ(optimizer.skipped_steps(), 1);
    EXPECT_EQ(optimizer.steps(), 2);
    EXPECT_EQ(optimizer.scaler().get_scale(), 32768.0);
    EXPECT_TRUE(same_bits(model.first, first) && same_bits(model.second, second));
    for (std::size_t i = 0; i < masters.size(); ++i) {
      EXPECT_TRUE(same_bits(optimizer.master_weights().masters()[i], masters[i]));
    }
  }
}

TEST(MixedPrecisionOptimizer, float16_parameters_train_with_a_scaler) {
  const Model model(at::kHalf);
  torch::optim::Adam inside = adam(model);
  MixedPrecisionOptimizer optimizer =
      enable_mixed_precision(inside, {.precision = Precision::kFloat32});
  EXPECT_TRUE(optimizer.scaler().is_enabled());
  const double before = model.loss().item<double>();
  for (int i = 0; i < 100; ++i) optimizer.minimize([&] { return model.loss(); });
  EXPECT_LT(model.loss().item<double>(), before / 2);
  EXPECT_EQ(model.first.scalar_type(), at::kHalf);
}

TEST(MixedPrecisionOptimizer, float16_parameters_that_are_added_need_a_scaler) {
  for (const bool scaled : {false, true}) {
    const at::Tensor first = leaf({1.0}), half = leaf({1.0}, at::kHalf);
    torch::optim::SGD inside = descent({first});
    MixedPrecisionOptions options{.precision = Precision::kBFloat16};
    if (scaled) options.policy = LossScalePolicy::constant(8.0);
    MixedPrecisionOptimizer optimizer = enable_mixed_precision(inside, options);
    inside.add_param_group(torch::optim::OptimizerParamGroup({half}));
    const auto minimize = [&] { optimizer.minimize([&] { return half.to(at::kFloat).sum(); }); };
    if (scaled) {
      minimize();
    } else {
      EXPECT_TRUE(throws<InvalidArgument>(minimize, {"float16"}));
    }
    EXPECT_TRUE(exact(half, numbers({scaled ? 0.0 : 1.0})));
  }
}

TEST(MixedPrecisionOptimizer, the_loss_is_scaled_for_float16_or_under_a_policy) {
  const auto is_scaled = [](const MixedPrecisionOptions& options) {
    const Model model;
    torch::optim::Adam inside = adam(model);
    return enable_mixed_precision(inside, options).scaler().is_enabled();
  };
  EXPECT_TRUE(is_scaled({.precision = Precision::kFloat16}));
  EXPECT_FALSE(is_scaled({.precision = Precision::kBFloat16}));
  EXPECT_FALSE(is_scaled({.precision = Precision::kFloat32}));
  EXPECT_TRUE(
      is_scaled({.precision = Precision::kFloat32, .policy = LossScalePolicy::constant(2.0)}));
}

TEST(MixedPrecisionOptimizer, a_resumed_run_equals_an_unbroken_one_bit_for_bit) {
  const LossScalePolicy policy =
      LossScalePolicy::dynamic({.initial_scale = 0x1p40, .growth_interval = 3});
  const std::vector<std::pair<at::ScalarType, MixedPrecisionOptions>> cases = {
      {at::kFloat, {.precision = Precision::kFloat16, .policy = policy}},
      {at::kHalf,
       {.precision = Precision::kFloat32,
        .accumulate = 4,
        .policy = LossScalePolicy::dynamic({.initial_scale = 0x1p18, .growth_interval = 3})}},
      {at::kBFloat16, {.accumulate = 4}},
      {at::kBFloat16, {.rounding = ParameterRounding::kStochastic, .seed = 5}},
  };
  for (const auto& [dtype, options] : cases) {
    const Model model(dtype), copy(dtype);
    torch::optim::Adam inside = adam(model), other = adam(copy);
    other.param_groups()[0].options().set_lr(0.5);  // restored by load()
    MixedPrecisionOptimizer optimizer = enable_mixed_precision(inside, options);
    MixedPrecisionOptions other_options = options;
    other_options.seed = 0;  // restored by load()
    MixedPrecisionOptimizer resumed = enable_mixed_precision(other, other_options);
    for (int i = 0; i < 30; ++i) optimizer.minimize([&] { return model.loss(i); });
    // 30 is not a multiple of 4: two micro-batches are accumulated.
    resumed.minimize([&] { return copy.loss(); });
    {
      const at::NoGradGuard no_grad;
      copy.first.copy_(model.first);
      copy.second.copy_(model.second);
    }
    transfer(optimizer, resumed);
    EXPECT_EQ(resumed.steps(), optimizer.steps());
    EXPECT_EQ(resumed.skipped_steps(), optimizer.skipped_steps());
    for (int i = 30; i < 60; ++i) {
      const at::Tensor expected = optimizer.minimize([&] { return model.loss(i); });
      ASSERT_TRUE(same_bits(resumed.minimize([&] { return copy.loss(i); }), expected)) << i;
    }
    EXPECT_TRUE(same_parameters(model, copy));
    EXPECT_EQ(resumed.steps(), optimizer.steps());
    EXPECT_EQ(resumed.scaler().state_dict(), optimizer.scaler().state_dict());
  }
}

TEST(MixedPrecisionOptimizer, groups_keep_their_options_and_resume_within_an_accumulation) {
  using Tensors = std::vector<at::Tensor>;
  const auto parameters = [] {
    return Tensors{leaf({1.0}, at::kBFloat16), leaf({1.0}), leaf({1.0}, at::kBFloat16),
                   leaf({1.0})};
  };
  const auto optimizer_of = [](const Tensors& of) {
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(Tensors{of[0], of[1]});
    groups.emplace_back(Tensors{of[2], of[3]}, std::make_unique<torch::optim::SGDOptions>(
                                                   torch::optim::SGDOptions(0.125).momentum(0.5)));
    return torch::optim::SGD(groups, torch::optim::SGDOptions(0.5));
  };
  const auto loss_of = [](const Tensors& of) {
    at::Tensor loss = at::zeros({}, on_device());
    for (const at::Tensor& each : of) loss = loss + each.to(at::kFloat).sum();
    return loss;
  };
  const Tensors first = parameters(), second = parameters();
  torch::optim::SGD inside = optimizer_of(first), other = optimizer_of(second);
  const MixedPrecisionOptions options{
      .precision = Precision::kFloat32, .accumulate = 2, .policy = LossScalePolicy::constant(8.0)};
  MixedPrecisionOptimizer optimizer = enable_mixed_precision(inside, options),
                          resumed = enable_mixed_precision(other, options);
  for (int i = 0; i < 3; ++i) optimizer.minimize([&] { return loss_of(first); });
  EXPECT_EQ(optimizer.steps(), 1);
  {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < first.size(); ++i) second[i].copy_(first[i]);
  }
  transfer(optimizer, resumed);
  optimizer.minimize([&] { return loss_of(first); });
  resumed.minimize([&] { return loss_of(second); });
  for (const Tensors& of : {first, second}) {
    for (const std::size_t i : {0U, 1U}) EXPECT_TRUE(exact(of[i], numbers({0.0}))) << i;
    // 1 - 0.125 - 0.125 (1 + 0.5)
    for (const std::size_t i : {2U, 3U}) EXPECT_TRUE(exact(of[i], numbers({0.6875}))) << i;
  }
  EXPECT_EQ(resumed.steps(), 2);
}

/// Saved and loaded in the middle of a run of fused steps.
template <class Optimizer, class Options>
void expect_fused_resumes(const Options& step_options, const MixedPrecisionOptions& options) {
  const Model model(at::kBFloat16), copy(at::kBFloat16);
  Optimizer inside(model.parameters(), step_options), other(copy.parameters(), step_options);
  MixedPrecisionOptimizer optimizer = enable_mixed_precision(inside, options);
  MixedPrecisionOptimizer resumed = enable_mixed_precision(other, options);
  for (int i = 0; i < 10; ++i) optimizer.minimize([&] { return model.loss(i); });
  {
    const at::NoGradGuard no_grad;
    copy.first.copy_(model.first);
    copy.second.copy_(model.second);
  }
  transfer(optimizer, resumed);
  for (int i = 10; i < 20; ++i) {
    optimizer.minimize([&] { return model.loss(i); });
    resumed.minimize([&] { return copy.loss(i); });
  }
  EXPECT_TRUE(same_parameters(model, copy));
}

TEST(MixedPrecisionOptimizer, fused_optimizers_of_16_bit_parameters_resume_bit_for_bit) {
  for (const ParameterRounding rounding :
       {ParameterRounding::kMasterWeights, ParameterRounding::kStochastic}) {
    const MixedPrecisionOptions options{.rounding = rounding, .seed = 3};
    expect_fused_resumes<amp::FusedAdam>(amp::FusedAdamOptions(0.01), options);
    expect_fused_resumes<amp::FusedSGD>(amp::FusedSGDOptions(0.01).momentum(0.9), options);
  }
}

TEST(MixedPrecisionOptimizer, a_refused_state_of_a_fused_optimizer_leaves_its_moments) {
  const Model model, untouched;
  const at::Tensor single = leaf({1.0});
  amp::FusedAdam inside(model.parameters(), amp::FusedAdamOptions(0.01)),
      expected(untouched.parameters(), amp::FusedAdamOptions(0.01)),
      foreign({single}, amp::FusedAdamOptions(0.01));
  MixedPrecisionOptimizer optimizer = enable_mixed_precision(inside),
                          same = enable_mixed_precision(expected),
                          other = enable_mixed_precision(foreign);
  optimizer.minimize([&] { return model.loss(0); });
  same.minimize([&] { return untouched.loss(0); });
  other.minimize([&] { return single.square().sum(); });
  EXPECT_THROW(transfer(other, optimizer), InvalidArgument);
  optimizer.minimize([&] { return model.loss(1); });
  same.minimize([&] { return untouched.loss(1); });
  EXPECT_TRUE(same_parameters(model, untouched));
}

/// SGD whose first step throws out-of-memory.
class FailingOnce : public torch::optim::SGD {
 public:
  using torch::optim::SGD::SGD;
  at::Tensor step(LossClosure closure = nullptr) override {
    if (!std::exchange(failed_, true)) throw std::bad_alloc();
    return torch::optim::SGD::step(std::move(closure));
  }

 private:
  bool failed_ = false;
};

TEST(MixedPrecisionOptimizer, a_step_that_threw_is_followed_by_a_new_beginning) {
  for (const bool by_zero_grad : {true, false}) {
    const Model model, clean;
    FailingOnce inside(model.parameters(), torch::optim::SGDOptions(0.01));
    torch::optim::SGD expected(clean.parameters(), torch::optim::SGDOptions(0.01));
    const MixedPrecisionOptions options{.precision = Precision::kFloat16,
                                        .policy = LossScalePolicy::constant(1024.0)};
    MixedPrecisionOptimizer optimizer = enable_mixed_precision(inside, options);
    MixedPrecisionOptimizer same = enable_mixed_precision(expected, options);
    EXPECT_THROW(optimizer.minimize([&] { return model.loss(); }), std::bad_alloc);
    if (by_zero_grad) optimizer.zero_grad();
    optimizer.minimize([&] { return model.loss(); });
    same.minimize([&] { return clean.loss(); });
    EXPECT_TRUE(same_parameters(model, clean));
  }
}

TEST(MixedPrecisionOptimizer, zero_grad_has_dropped_everything_when_it_throws_at_the_floor) {
  const at::Tensor weight = leaf({1.0});
  torch::optim::SGD sgd = descent({weight});
  MixedPrecisionOptimizer optimizer = enable_mixed_precision(
      sgd, {.precision = Precision::kFloat32,
            .policy = LossScalePolicy::dynamic(
                {.initial_scale = 1.0, .floor = 1.0, .at_floor = amp::FloorAction::kThrow})});
  optimizer.backward(weight.sum() * kInf);
  optimizer.unscale_();
  EXPECT_THROW(optimizer.zero_grad(), NumericError);
  EXPECT_FALSE(weight.grad().defined());
  optimizer.minimize([&] { return weight.sum(); });
  EXPECT_TRUE(exact(weight, numbers({0.0})));
}

TEST(MixedPrecisionOptimizer, refuses_a_state_of_something_else) {
  const Model model, copy, bfloat16(at::kBFloat16);
  const at::Tensor single = leaf({1.0});
  torch::optim::Adam inside = adam(model), other = adam(copy), bfloat16_adam = adam(bfloat16);
  torch::optim::SGD sgd = descent({single});
  MixedPrecisionOptimizer optimizer = enable_mixed_precision(inside);
  const auto refused = [&](torch::optim::Optimizer& target, const MixedPrecisionOptions& options,
                           const char* text) {
    MixedPrecisionOptimizer wrapped = enable_mixed_precision(target, options);
    EXPECT_THROWS(InvalidArgument, text, transfer(optimizer, wrapped));
  };
  refused(other, {.precision = Precision::kFloat16}, "loss scaling");
  refused(bfloat16_adam, {}, "other parameters");
  refused(bfloat16_adam, {.rounding = ParameterRounding::kStochastic}, ".rounding");
  refused(sgd, {}, "other groups");
  torch::serialize::OutputArchive written;
  inside.save(written);  // the wrapped optimizer's state, without the wrapper's fields
  std::stringstream stream;
  written.save_to(stream);
  torch::serialize::InputArchive read;
  read.load_from(stream);
  EXPECT_THROWS(IoError, "no field", optimizer.load(read));
}

/// Records the calls of the scaler.
class FusedDescent : public torch::optim::SGD, public amp::FusedStep {
 public:
  using SGD::SGD;
  void fused_step(const at::Tensor& grad_scale, const at::Tensor& found_inf) override {
    scaled = grad_scale.defined();
    if (found_inf.item<float>() == 0.0F) step();
  }
  bool scaled = false;
};

TEST(MixedPrecisionOptimizer, a_fused_optimizer_decides_by_itself) {
  const at::Tensor weight = leaf({1.0}, at::kBFloat16);
  FusedDescent inside(std::vector<at::Tensor>{weight}, torch::optim::SGDOptions(1.0));
  MixedPrecisionOptimizer optimizer = enable_mixed_precision(
      inside, {.max_gradient_norm = 100.0, .policy = LossScalePolicy::constant(4.0)});
  for (const double factor : {1.0, kInf}) {
    optimizer.zero_grad();
    optimizer.backward(weight.to(at::kFloat).sum() * factor);
    EXPECT_EQ(optimizer.step(), StepOutcome::kDeferred);
    EXPECT_FALSE(inside.scaled) << "clipping has unscaled";
    EXPECT_TRUE(exact(weight, numbers({0.0})));
  }
  EXPECT_EQ(optimizer.skipped_steps(), 1);
}

TEST(MixedPrecisionOptimizer, an_optimizer_is_wrapped_once_at_a_time) {
  static_assert(!std::is_copy_constructible_v<MixedPrecisionOptimizer>);
  const Model model(at::kBFloat16);
  torch::optim::Adam inside = adam(model);
  {
    MixedPrecisionOptimizer optimizer = enable_mixed_precision(inside);
    const MixedPrecisionOptimizer moved = std::move(optimizer);
    EXPECT_THROWS(LogicError, "wrapped already", enable_mixed_precision(inside));
  }
  EXPECT_TRUE(inside.param_groups()[0].params()[0].is_same(model.first));
  enable_mixed_precision(inside).minimize([&] { return model.loss(); });
}

TEST(MixedPrecisionOptimizer, refuses_a_closure_without_a_usable_loss) {
  const Model model;
  torch::optim::Adam inside = adam(model);
  MixedPrecisionOptimizer optimizer = enable_mixed_precision(inside);
  const auto refused = [&](const char* text, auto closure) {
    EXPECT_THROWS(InvalidArgument, text, optimizer.minimize(closure));
  };
  refused("expected a closure", nullptr);
  refused("undefined", [] { return at::Tensor(); });
  refused("floating loss", [] { return at::scalar_tensor(1, on_device(at::kLong)); });
  refused("one element", [&] { return model.first * 2; });
  refused("got no graph", [&] { return model.loss().detach(); });
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(throws<LogicError>([&] { optimizer.minimize([] { return leaf({1.0}).sum(); }); },
                                   {"no parameter"}));
  }
  EXPECT_EQ(optimizer.steps(), 0);
}

TEST(MixedPrecisionOptimizer, an_exception_from_the_closure_leaves_it_usable) {
  const Model model, expected;
  torch::optim::Adam inside = adam(model), reference = adam(expected);
  MixedPrecisionOptimizer optimizer =
      enable_mixed_precision(inside, {.precision = Precision::kFloat32});
  EXPECT_THROW(optimizer.minimize([]() -> at::Tensor { throw std::runtime_error("data"); }),
               std::runtime_error);
  optimizer.minimize([&] { return model.loss(); });
  expected.loss().backward();
  reference.step();
  EXPECT_TRUE(same_parameters(model, expected));
}

TEST(MixedPrecisionOptimizer, calls_in_another_order_are_errors) {
  const Model model;
  torch::optim::Adam inside = adam(model);
  MixedPrecisionOptimizer optimizer =
      enable_mixed_precision(inside, {.precision = Precision::kFloat16,
                                      .accumulate = 2,
                                      .policy = LossScalePolicy::constant(256.0)});
  const auto refused = [](const char* text, auto call) {
    EXPECT_TRUE(throws<LogicError>(call, {text}));
  };
  refused("no backward() since", [&] { optimizer.step(); });
  refused("no backward() since", [&] { optimizer.unscale_(); });
  optimizer.backward(model.loss());
  optimizer.backward(model.loss());
  refused("every micro-batch", [&] { optimizer.backward(model.loss()); });
  optimizer.unscale_();
  refused("unscaled already", [&] { optimizer.unscale_(); });
  refused("unscaled already", [&] { optimizer.backward(model.loss()); });
  refused("call step() first", [&] {
    torch::serialize::OutputArchive archive;
    optimizer.save(archive);
  });
  optimizer.step();
  refused("no backward() since", [&] { optimizer.step(); });
  optimizer.backward(model.loss());
  optimizer.unscale_();
  optimizer.zero_grad();  // cancels the step
  optimizer.minimize([&] { return model.loss(); });
  EXPECT_EQ(optimizer.step(), StepOutcome::kApplied) << "with one of two micro-batches";
}

TEST(MixedPrecisionOptimizer, refuses_options_and_optimizers_that_it_cannot_serve) {
  const Model model, half(at::kHalf);
  torch::optim::Adam inside = adam(model), half_adam = adam(half);
  const auto refused = [](torch::optim::Optimizer& optimizer, const MixedPrecisionOptions& options,
                          const char* text) {
    EXPECT_THROWS(InvalidArgument, text, enable_mixed_precision(optimizer, options));
  };
  for (const double norm : {0.0, -1.0, kInf, std::nan("")}) {
    refused(inside, {.max_gradient_norm = norm}, "max_gradient_norm");
  }
  refused(inside, {.accumulate = 0}, "accumulate");
  refused(inside, {.policy = LossScalePolicy::constant(-1.0)}, "LossScalePolicy");
  refused(inside, {.rounding = ParameterRounding::kStochastic}, "got none");
  refused(half_adam, {.rounding = ParameterRounding::kStochastic}, "float16");
  refused(inside, {.device = at::Device(at::kCUDA, 0)}, "on cpu");
  torch::optim::LBFGS lbfgs(model.parameters());
  refused(lbfgs, {}, "LBFGS");
  torch::optim::SGD empty = descent({}),
                    complex = descent({at::zeros({2}, on_device(at::kComplexFloat))});
  refused(empty, {}, "no parameters");
  refused(complex, {}, "ComplexFloat");
  torch::optim::SGD mixed = descent({model.first, at::zeros({2}, at::kMeta)});
  refused(mixed, {}, "on meta");
  enable_mixed_precision(inside);  // a failed call does not leave the optimizer wrapped
}

}  // namespace
}  // namespace mezzo::test
