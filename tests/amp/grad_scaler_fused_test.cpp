#include <atomic>
#include <barrier>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

#include <ATen/record_function.h>

#include "mezzo/amp/autocast/autocast.h"
#include "mezzo/amp/optim/fused_optimizer.h"
#include "mezzo/amp/scaler/grad_scaler.h"

#include "amp/scaler_support.h"
#include "support/special_numbers.h"
#include "support/tolerance.h"

/// Fused optimizers, several processes, several devices.
namespace mezzo::test {
namespace {

using amp::GradScaler;
using amp::StepOutcome;

TEST(GradScalerFused, hands_the_scale_and_the_outcome_over) {
  GradScaler scaler = started({.initial_scale = 4.0});
  const at::Tensor weight = leaf({1.0});
  FusedDescent optimizer({weight});
  set_gradient(weight, {8.0});
  EXPECT_EQ(scaler.step(optimizer), StepOutcome::kDeferred);
  EXPECT_TRUE(exact(optimizer.given_scale, at::scalar_tensor(4.0)));
  EXPECT_TRUE(exact(optimizer.given_found_inf, at::scalar_tensor(0.0)));
  EXPECT_EQ(optimizer.given_scale.scalar_type(), at::kFloat);
  EXPECT_EQ(optimizer.given_found_inf.scalar_type(), at::kFloat);
  EXPECT_TRUE(exact(weight.grad(), numbers({8.0}))) << "still scaled";
  EXPECT_TRUE(exact(weight, numbers({-1.0})));
}

TEST(GradScalerFused, after_unscale_there_is_no_second_one) {
  GradScaler scaler = started({.initial_scale = 4.0});
  const at::Tensor weight = leaf({1.0});
  FusedDescent optimizer({weight});
  set_gradient(weight, {8.0});
  scaler.unscale_(optimizer);
  EXPECT_TRUE(exact(weight.grad(), numbers({2.0})));
  EXPECT_EQ(scaler.step(optimizer), StepOutcome::kDeferred);
  EXPECT_FALSE(optimizer.given_scale.defined());
  EXPECT_TRUE(exact(weight, numbers({-1.0})));
}

TEST(GradScalerFused, one_gradient_that_is_not_finite_moves_nothing_but_the_scale) {
  for (const bool unscale_first : {false, true}) {
    for (const double bad : {kInf, -kInf, std::nan("")}) {
      GradScaler scaler = started({.initial_scale = 4.0});
      const at::Tensor clean = leaf({1.0}), broken = leaf({1.0, 2.0});
      FusedDescent optimizer({clean, broken});
      set_gradient(clean, {4.0});
      set_gradient(broken, {4.0, bad});
      if (unscale_first) scaler.unscale_(optimizer);
      EXPECT_EQ(scaler.step(optimizer), StepOutcome::kDeferred);
      EXPECT_TRUE(exact(optimizer.given_found_inf, at::scalar_tensor(1.0)));
      EXPECT_EQ(optimizer.num_steps.item<std::int64_t>(), 0);
      EXPECT_TRUE(exact(clean, numbers({1.0})));
      EXPECT_TRUE(exact(broken, numbers({1.0, 2.0})));
      scaler.update();
      EXPECT_EQ(scaler.get_scale(), 2.0);
      EXPECT_EQ(scaler.skipped_steps(), 1);
    }
  }
}

TEST(GradScalerFused, the_flag_is_one_however_many_gradients_are_not_finite) {
  GradScaler scaler = started({.initial_scale = 4.0});
  const std::vector<at::Tensor> weights = {leaf({1.0}), leaf({1.0}, at::kDouble),
                                           leaf({1.0}, at::kBFloat16), leaf({1.0}, at::kHalf)};
  for (const at::Tensor& weight : weights) set_gradient(weight, {kInf});
  FusedDescent optimizer(weights);
  scaler.step(optimizer);
  EXPECT_TRUE(exact(optimizer.given_found_inf, at::scalar_tensor(1.0)));
}

TEST(GradScalerFused, takes_float16_gradients) {
  GradScaler scaler = started({.initial_scale = 4.0});
  const at::Tensor weight = leaf({1.0}, at::kHalf);
  FusedDescent optimizer({weight});
  set_gradient(weight, {8.0});
  EXPECT_EQ(scaler.step(optimizer), StepOutcome::kDeferred);
  EXPECT_TRUE(exact(weight, numbers({-1.0})));
}

TEST(GradScalerFused, sparse_float16_entries_count_by_their_sum) {
  const at::Tensor index = on_device(at::tensor({1, 1}, at::kLong)).view({1, 2});
  for (const double value : {20000.0, 60000.0}) {
    GradScaler scaler = started({.initial_scale = 4.0});
    const at::Tensor weight = leaf({0.0, 0.0}, at::kHalf);
    FusedDescent optimizer({weight});
    weight.mutable_grad() =
        at::sparse_coo_tensor(index, numbers({value, value}).to(at::kHalf), {2});
    scaler.step(optimizer);
    EXPECT_EQ(optimizer.given_found_inf.item<float>() != 0.0F, value * 2 > 65504.0) << value;
  }
}

/// Counts reads of tensor values on the host (item()), on this thread and its workers: each would
/// synchronise with an accelerator. Ignores reads inside Adam's CPU kernel, which reads the step
/// count.
class NumberReads {
 public:
  NumberReads() {
    count_ = kernels_ = 0;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(begin, end).scopes({at::RecordScope::FUNCTION}));
  }
  ~NumberReads() { at::removeCallback(handle_); }
  NumberReads(const NumberReads&) = delete;
  NumberReads& operator=(const NumberReads&) = delete;

  static int count() { return count_; }

 private:
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
    const std::string_view name = function.name();
    if (name == "aten::_fused_adam_") ++kernels_;
    if (name == "aten::_local_scalar_dense" && kernels_ == 0) ++count_;
    return nullptr;
  }
  static void end(const at::RecordFunction& function, at::ObserverContext* /*context*/) {
    if (std::string_view(function.name()) == "aten::_fused_adam_") --kernels_;
  }

  static inline std::atomic<int> count_{0}, kernels_{0};
  at::CallbackHandle handle_;
};

TEST(GradScalerFused, an_iteration_waits_for_the_device_never_and_with_other_optimizers_once) {
  for (const bool unscale_first : {false, true}) {
    const std::vector<at::Tensor> weights = {leaf({1.0}), leaf({1.0, 2.0}, at::kDouble)};
    torch::optim::SGD plain = descent(weights);
    amp::FusedAdam fused(weights);
    for (torch::optim::Optimizer* const optimizer :
         std::initializer_list<torch::optim::Optimizer*>{&plain, &fused}) {
      GradScaler scaler = started({.initial_scale = 4.0});
      const auto iterate = [&] {
        optimizer->zero_grad();
        scaler.scale(weights[0].sum() + weights[1].sum()).backward();
        if (unscale_first) scaler.unscale_(*optimizer);
        const StepOutcome outcome = scaler.step(*optimizer);
        scaler.update();
        return outcome;
      };
      iterate();  // creates the optimizer's state
      const NumberReads reads;
      const StepOutcome outcome = iterate();
      EXPECT_EQ(outcome, optimizer == &fused ? StepOutcome::kDeferred : StepOutcome::kApplied);
      EXPECT_EQ(reads.count(), optimizer == &fused ? 0 : 1) << unscale_first;
      scaler.get_scale();
      EXPECT_EQ(reads.count(), optimizer == &fused ? 1 : 2) << "the count sees what waits";
    }
  }
}

TEST(GradScalerFused, steps_under_autocast_end_the_casts_of_the_old_weights) {
  GradScaler scaler = started({.initial_scale = 4.0});
  const at::Tensor weight = at::ones({2, 2}, on_device()).requires_grad_();
  FusedDescent optimizer({weight});
  const amp::Autocast autocast(test_device().type(), at::kBFloat16);
  EXPECT_TRUE(exact(at::mm(at::eye(2, on_device()), weight), at::ones({2, 2})));
  weight.mutable_grad() = at::full({2, 2}, 8.0, on_device());
  scaler.step(optimizer);
  EXPECT_TRUE(exact(at::mm(at::eye(2, on_device()), weight), at::full({2, 2}, -1.0)));
}

TEST(GradScaler, counts_the_skipped_steps_of_both_kinds_and_carries_them_over) {
  GradScaler scaler = started({.initial_scale = 4.0});
  const at::Tensor a = leaf({1.0}), b = leaf({1.0});
  torch::optim::SGD plain = descent({a});
  FusedDescent fused({b});
  EXPECT_EQ(scaler.skipped_steps(), 0);
  for (const double value : {kInf, 1.0, kInf}) {
    set_gradient(a, {value});
    set_gradient(b, {kInf});
    scaler.step(plain);
    scaler.step(fused);
    scaler.update();
  }
  EXPECT_EQ(scaler.skipped_steps(), 5);
  GradScaler restored = started({});
  restored.load_state_dict(scaler.state_dict());
  EXPECT_EQ(restored.skipped_steps(), 5);
  EXPECT_EQ(GradScaler({.enabled = false}).skipped_steps(), 0);
}

/// Simulates two processes by two threads that reduce their flags.
class Meeting {
 public:
  void reduce(at::Tensor& found_inf) {
    {
      const std::lock_guard lock(mutex_);
      found_ = std::max(found_, found_inf.item<float>());
    }
    barrier_.arrive_and_wait();
    found_inf.fill_(found_);
  }

 private:
  std::mutex mutex_;
  std::barrier<> barrier_{2};
  float found_ = 0.0F;
};

struct RankResult {
  StepOutcome outcome = StepOutcome::kDeferred;
  double scale = 0;
};

/// One iteration on two ranks with these gradients; nan: no gradient.
std::vector<RankResult> on_two_ranks(const std::vector<double>& gradients, bool reduce) {
  std::vector<RankResult> results(2);
  Meeting meeting;
  const auto rank = [&](std::size_t i) {
    amp::GradScalerOptions options{.policy = amp::LossScalePolicy::dynamic({.initial_scale = 4.0})};
    if (reduce)
      options.reduce_found_inf = [&](at::Tensor& found_inf) { meeting.reduce(found_inf); };
    GradScaler scaler(options);
    const at::Tensor weight = leaf({1.0});
    torch::optim::SGD optimizer = descent({weight});
    scaler.scale(at::zeros({}, on_device()));
    if (!std::isnan(gradients[i])) set_gradient(weight, {gradients[i]});
    results[i].outcome = scaler.step(optimizer);
    scaler.update();
    results[i].scale = scaler.get_scale();
  };
  std::jthread second(rank, 1);
  rank(0);
  second.join();
  return results;
}

TEST(GradScalerRanks, one_overflow_skips_all_through_the_reduce_hook) {
  for (const double second : {1.0, kInf, std::nan("")}) {
    for (const RankResult& result : on_two_ranks({kInf, second}, /*reduce=*/true)) {
      EXPECT_EQ(result.outcome, StepOutcome::kSkipped);
      EXPECT_EQ(result.scale, 2.0);
    }
  }
}

TEST(GradScalerRanks, clean_ones_step_also_where_one_has_no_gradient) {
  for (const double second : {1.0, std::nan("")}) {
    for (const RankResult& result : on_two_ranks({1.0, second}, /*reduce=*/true)) {
      EXPECT_EQ(result.outcome, StepOutcome::kApplied);
      EXPECT_EQ(result.scale, 4.0);
    }
  }
}

TEST(GradScalerRanks, drift_apart_without_the_hook) {
  const std::vector<RankResult> results = on_two_ranks({kInf, 1.0}, /*reduce=*/false);
  EXPECT_EQ(results[0].outcome, StepOutcome::kSkipped);
  EXPECT_EQ(results[1].outcome, StepOutcome::kApplied);
  EXPECT_NE(results[0].scale, results[1].scale);
}

TEST(GradScalerRanks, a_sum_is_as_good_as_a_maximum) {
  amp::GradScalerOptions options{.policy = amp::LossScalePolicy::dynamic({.initial_scale = 4.0})};
  options.reduce_found_inf = [](at::Tensor& found_inf) { found_inf.add_(1.0); };
  GradScaler scaler(options);
  scaler.scale(at::zeros({}, on_device()));
  const at::Tensor weight = leaf({1.0});
  FusedDescent optimizer({weight});
  set_gradient(weight, {kInf});
  scaler.step(optimizer);
  EXPECT_TRUE(exact(optimizer.given_found_inf, at::scalar_tensor(1.0)));
}

TEST(GradScalerRanks, a_hook_that_throws_does_not_let_gradients_be_divided_twice) {
  amp::GradScalerOptions options{.policy = amp::LossScalePolicy::dynamic({.initial_scale = 4.0})};
  options.reduce_found_inf = [](at::Tensor& /*found_inf*/) { throw std::runtime_error("no peer"); };
  GradScaler scaler(options);
  scaler.scale(at::zeros({}, on_device()));
  const at::Tensor weight = leaf({1.0});
  torch::optim::SGD optimizer = descent({weight});
  set_gradient(weight, {8.0});
  EXPECT_THROW(scaler.unscale_(optimizer), std::runtime_error);
  EXPECT_THROW(scaler.unscale_(optimizer), LogicError);
  EXPECT_TRUE(exact(weight.grad(), numbers({2.0})));
}

TEST(GradScalerDevices, one_optimizer_may_span_them) {
  if (!at::globalContext().hasCUDA()) GTEST_SKIP() << "this machine has no CUDA";
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const double bad : {8.0, kInf}) {
      GradScaler scaler = started({.initial_scale = 4.0});
      const at::Tensor near_one = leaf({1.0}, dtype);
      const at::Tensor far_one = leaf({1.0}, dtype).detach().to(at::kCUDA).requires_grad_();
      torch::optim::SGD optimizer = descent({near_one, far_one});
      set_gradient(near_one, {bad});
      far_one.mutable_grad() = at::full({1}, bad, far_one.options());
      const bool finite = std::isfinite(bad);
      EXPECT_EQ(scaler.step(optimizer), finite ? StepOutcome::kApplied : StepOutcome::kSkipped);
      for (const at::Tensor& weight : {near_one, far_one}) {
        EXPECT_TRUE(exact(weight.detach().cpu(), numbers({finite ? -1.0 : 1.0})));
      }
      scaler.update();
      EXPECT_EQ(scaler.get_scale(), finite ? 4.0 : 2.0);
    }
  }
}

}  // namespace
}  // namespace mezzo::test
