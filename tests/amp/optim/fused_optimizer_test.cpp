#include "mezzo/amp/optim/fused_optimizer.h"

#include <functional>
#include <memory>
#include <sstream>

#include <torch/optim/schedulers/step_lr.h>
#include <torch/serialize.h>

#include "mezzo/amp/autocast/autocast.h"
#include "mezzo/amp/scaler/grad_scaler.h"

#include "amp/scaler_support.h"
#include "support/special_numbers.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

using amp::FusedAdam;
using amp::FusedAdamOptions;
using amp::FusedAdamW;
using amp::FusedAdamWOptions;
using amp::FusedOptimizer;
using amp::FusedSGD;
using amp::FusedSGDOptions;
using torch::optim::OptimizerParamGroup;
using Optimizer = torch::optim::Optimizer;
using Parameters = std::vector<at::Tensor>;
using Make = std::function<std::unique_ptr<Optimizer>(Parameters)>;

constexpr int kSteps = 20;
constexpr double kRate = 0.01;

/// A fused optimizer and libtorch's, with the same options.
struct Pair {
  std::string name;
  Make fused, torch;
  bool adam = true;
  double momentum = 0;
};

template <class Fused, class Torch, class Options>
Pair pair(const std::string& name, const Options& options) {
  Pair result{.name = name, .fused = {}, .torch = {}};
  result.fused = [options](Parameters p) { return std::make_unique<Fused>(std::move(p), options); };
  result.torch = [options](Parameters p) { return std::make_unique<Torch>(std::move(p), options); };
  return result;
}

template <class Fused, class Torch, class Options>
std::vector<Pair> adam_pairs(const std::string& name) {
  const auto make = [&](const std::string& suffix, const Options& options) {
    return pair<Fused, Torch, Options>(name + suffix, options);
  };
  return {make("", Options(kRate).weight_decay(0)),
          make(", betas and eps", Options(kRate).betas({0.8, 0.95}).eps(1e-3).weight_decay(0)),
          make(", weight decay", Options(kRate).weight_decay(0.1)),
          make(", amsgrad", Options(kRate).amsgrad(true).weight_decay(0.02))};
}

std::vector<Pair> pairs() {
  using torch::optim::SGDOptions;
  std::vector<Pair> all =
      adam_pairs<FusedAdam, torch::optim::Adam, torch::optim::AdamOptions>("Adam");
  for (Pair& p : adam_pairs<FusedAdamW, torch::optim::AdamW, torch::optim::AdamWOptions>("AdamW")) {
    all.push_back(std::move(p));
  }
  const auto add = [&all](const std::string& name, const SGDOptions& options) {
    Pair result = pair<FusedSGD, torch::optim::SGD>(name, options);
    result.adam = false;
    result.momentum = options.momentum();
    all.push_back(std::move(result));
  };
  add("SGD", SGDOptions(kRate));
  add("SGD, weight decay", SGDOptions(kRate).weight_decay(0.1));
  add("SGD, momentum", SGDOptions(kRate).momentum(0.9));
  add("SGD, dampening", SGDOptions(kRate).momentum(0.9).dampening(0.5).weight_decay(0.1));
  add("SGD, nesterov", SGDOptions(kRate).momentum(0.8).nesterov(true));
  return all;
}

/// Leaves of odd sizes, including a non-contiguous matrix. Multiples of 1/64, so that all dtypes
/// start with equal values.
Parameters parameters(at::ScalarType dtype) {
  const auto values = [](at::IntArrayRef sizes) {
    return at::randint(-128, 129, sizes, on_device(at::kDouble)).div_(64);
  };
  at::manual_seed(7);
  Parameters result = {values({37}),
                       values({5, 9}),
                       values({}),
                       values({0, 3}),
                       values({3, 4, 2, 5}).contiguous(at::MemoryFormat::ChannelsLast),
                       values({6, 11}).t()};
  for (at::Tensor& p : result) p = p.to(dtype).requires_grad_();
  return result;
}

/// Sets the gradients of step `step`. Gradient 1 has another layout than its parameter.
void set_gradients(const Parameters& of, int step, double factor = 1) {
  at::manual_seed(100 + static_cast<std::uint64_t>(step));
  for (const at::Tensor& p : of) {
    const at::Tensor values =
        at::randint(-64, 65, p.sizes(), on_device(at::kDouble)).div_(64).mul_(factor);
    at::Tensor gradient = at::empty_like(p).copy_(values);
    if (p.dim() == 2 && p.size(0) == 5) gradient = gradient.t().contiguous().t();
    at::Tensor(p).mutable_grad() = gradient.detach();
  }
}

void train(Optimizer& optimizer, const Parameters& of, int first, int last, double factor = 1) {
  for (int step = first; step < last; ++step) {
    set_gradients(of, step, factor);
    optimizer.step();
  }
}

/// Bound on the rounding errors of a dozen operations per step. Terms: the parameter, and updates
/// of at most rate / sqrt(1 - 0.999) / 4 for Adam, rate / (1 - momentum) otherwise (gradients are
/// below 1, and weights below 2 times a decay of 0.1).
SumBound bound_of(const at::Tensor& start, const Pair& pair, at::ScalarType dtype) {
  const double update = pair.adam ? 8 * kRate : 2 * kRate / (1 - pair.momentum);
  return sum_bound(start.detach().to(at::kDouble).abs() + kSteps * update, 12 * kSteps, dtype);
}

TEST(FusedOptimizer, moves_as_libtorchs_optimizer_of_that_name) {
  for (const Pair& pair : pairs()) {
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
      SCOPED_TRACE(pair.name + " " + c10::toString(dtype));
      const Parameters start = parameters(dtype), moved = parameters(dtype);
      const Parameters expected = parameters(at::kDouble);
      const auto fused = pair.fused(moved);
      const auto reference = pair.torch(expected);
      train(*fused, moved, 0, kSteps);
      train(*reference, expected, 0, kSteps);
      for (std::size_t i = 0; i < moved.size(); ++i) {
        EXPECT_TRUE(near(moved[i], expected[i].detach(), bound_of(start[i], pair, dtype)));
        EXPECT_EQ(moved[i].strides(), start[i].strides());
        EXPECT_TRUE(moved[i].numel() == 0 || !at::equal(moved[i], start[i]));
      }
    }
  }
}

/// One of each optimizer, with options that use all state that a skipped step must not change.
std::vector<std::pair<std::string, Make>> climbing(bool maximize) {
  const auto adam = [=](Parameters p) -> std::unique_ptr<Optimizer> {
    return std::make_unique<FusedAdam>(std::move(p),
                                       FusedAdamOptions(kRate).maximize(maximize).amsgrad(true));
  };
  const auto adamw = [=](Parameters p) -> std::unique_ptr<Optimizer> {
    return std::make_unique<FusedAdamW>(
        std::move(p), FusedAdamWOptions(kRate).maximize(maximize).weight_decay(0.1));
  };
  const auto sgd = [=](Parameters p) -> std::unique_ptr<Optimizer> {
    return std::make_unique<FusedSGD>(
        std::move(p), FusedSGDOptions(kRate).maximize(maximize).momentum(0.9).dampening(0.25));
  };
  return {{"FusedAdam", adam}, {"FusedAdamW", adamw}, {"FusedSGD", sgd}};
}

const std::vector<std::pair<std::string, Make>> kMakers = climbing(false);

TEST(FusedOptimizer, maximizes_by_negated_gradients) {
  for (std::size_t i = 0; i < kMakers.size(); ++i) {
    SCOPED_TRACE(kMakers[i].first);
    const Parameters up = parameters(at::kFloat), down = parameters(at::kFloat);
    train(*climbing(true)[i].second(up), up, 0, kSteps);
    train(*kMakers[i].second(down), down, 0, kSteps, -1);
    for (std::size_t k = 0; k < up.size(); ++k) EXPECT_TRUE(exact(up[k], down[k]));
  }
}

void fused_step(Optimizer& optimizer, double grad_scale, double found_inf) {
  dynamic_cast<amp::FusedStep&>(optimizer).fused_step(
      at::scalar_tensor(grad_scale, on_device(at::kFloat)),
      at::scalar_tensor(found_inf, on_device(at::kFloat)));
}

TEST(FusedOptimizer, divides_scaled_gradients_in_place) {
  for (const auto& [name, make] : kMakers) {
    SCOPED_TRACE(name);
    const Parameters scaled = parameters(at::kFloat), plain = parameters(at::kFloat);
    const auto with_scale = make(scaled), without = make(plain);
    for (int step = 0; step < kSteps; ++step) {
      set_gradients(scaled, step, 1024);
      fused_step(*with_scale, 1024, 0);
      set_gradients(plain, step);
      without->step();
    }
    for (std::size_t i = 0; i < plain.size(); ++i) {
      EXPECT_TRUE(exact(scaled[i], plain[i]));
      EXPECT_TRUE(exact(scaled[i].grad(), plain[i].grad()));
    }
  }
}

TEST(FusedOptimizer, a_skipped_step_might_as_well_not_have_been_called) {
  for (const auto& [name, make] : kMakers) {
    for (const int skipped_step : {0, 1, 7}) {
      SCOPED_TRACE(name + ", skips before step " + std::to_string(skipped_step));
      const Parameters skipping = parameters(at::kFloat), plain = parameters(at::kFloat);
      const auto with_skips = make(skipping), without = make(plain);
      for (int step = 0; step < kSteps; ++step) {
        if (step == skipped_step) {
          set_gradients(skipping, step, kInf);
          fused_step(*with_skips, 4, 1);
          EXPECT_FALSE(at::isfinite(skipping[0].grad()).all().item<bool>());
          fused_step(*with_skips, 4, 2);  // like a sum over two devices
          fused_step(*with_skips, 4, std::nan(""));
        }
        set_gradients(skipping, step, 4);
        fused_step(*with_skips, 4, 0);
        set_gradients(plain, step);
        without->step();
      }
      for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(exact(skipping[i], plain[i]));
    }
  }
}

TEST(FusedOptimizer, a_skipped_step_leaves_moments_and_step_counts) {
  const Parameters of = parameters(at::kFloat);
  FusedAdam optimizer(of, FusedAdamOptions(kRate).amsgrad(true));
  train(optimizer, of, 0, 3);
  auto& state =
      static_cast<amp::FusedAdamState&>(*optimizer.state().at(of[0].unsafeGetTensorImpl()));
  const Parameters before = {state.step.clone(), state.exp_avg.clone(), state.exp_avg_sq.clone(),
                             state.max_exp_avg_sq.clone(), of[0].detach().clone()};
  set_gradients(of, 3, kInf);
  fused_step(optimizer, 2, 1);
  EXPECT_TRUE(exact(before[0], at::scalar_tensor(3.0)));
  const Parameters after = {state.step, state.exp_avg, state.exp_avg_sq, state.max_exp_avg_sq,
                            of[0]};
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(same_bits(after[i], before[i]));
}

/// Parameter 1 has no gradient while parameter 0 makes the first step after a skip.
TEST(FusedOptimizer, the_first_gradient_enters_the_momentum_whole_whenever_it_comes) {
  const Parameters of = {leaf({1.0}), leaf({1.0})};
  FusedSGD optimizer(of, FusedSGDOptions(1.0).momentum(0.5).dampening(0.5));
  for (const at::Tensor& p : of) set_gradient(p, {kInf});
  fused_step(optimizer, 1, 1);
  set_gradient(of[0], {0.25});
  at::Tensor(of[1]).mutable_grad() = at::Tensor();
  fused_step(optimizer, 1, 0);
  EXPECT_TRUE(exact(of[0], at::tensor({0.75})));
  EXPECT_TRUE(exact(of[1], at::tensor({1.0})));
  for (const at::Tensor& p : of) set_gradient(p, {0.25});
  fused_step(optimizer, 1, 0);
  EXPECT_TRUE(exact(of[0], at::tensor({0.5})));  // the sum is 0.25 / 2 + 0.25 / 2
  EXPECT_TRUE(exact(of[1], at::tensor({0.75})));
}

TEST(FusedOptimizer, passes_over_parameters_without_a_gradient) {
  for (const auto& [name, make] : kMakers) {
    SCOPED_TRACE(name);
    const Parameters of = {leaf({1.0, 2.0}), leaf({3.0})};
    const auto optimizer = make(of);
    optimizer->step();
    EXPECT_TRUE(optimizer->state().empty());
    set_gradient(of[0], {1.0, 1.0});
    optimizer->step();
    EXPECT_EQ(optimizer->state().size(), 1U);
    EXPECT_TRUE(exact(of[1], at::tensor({3.0})));
  }
}

TEST(FusedOptimizer, groups_have_their_own_options_and_dtypes) {
  const Parameters float32 = parameters(at::kFloat), float64 = parameters(at::kDouble);
  const Parameters float32_alone = parameters(at::kFloat), float64_alone = parameters(at::kDouble);
  const auto slow = torch::optim::AdamOptions(kRate / 8).weight_decay(0.1);
  Parameters first = {float32[0], float64[0]};
  FusedAdam both({OptimizerParamGroup(first),
                  OptimizerParamGroup({float32[1], float64[1]},
                                      std::make_unique<torch::optim::AdamOptions>(slow))},
                 kRate);
  both.add_param_group(OptimizerParamGroup(
      {float32[2]}, std::make_unique<FusedAdamOptions>(FusedAdamOptions(1.0).maximize(true))));
  FusedAdam fast_alone({float32_alone[0], float64_alone[0]}, kRate);
  FusedAdam slow_alone({float32_alone[1], float64_alone[1]}, slow);
  FusedAdam up_alone({float32_alone[2]}, FusedAdamOptions(1.0).maximize(true));
  for (int step = 0; step < kSteps; ++step) {
    for (const Parameters& p : {float32, float64, float32_alone, float64_alone})
      set_gradients(p, step);
    for (Optimizer* o : std::vector<Optimizer*>{&both, &fast_alone, &slow_alone, &up_alone}) {
      o->step();
    }
  }
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(same_bits(float32[i], float32_alone[i]));
    EXPECT_TRUE(same_bits(float64[i], float64_alone[i]));
  }
}

/// The changes of a parameter in steps with gradient 1 and a scheduler that halves the rate.
std::vector<double> moves(Optimizer& optimizer, const at::Tensor& parameter) {
  torch::optim::StepLR scheduler(optimizer, 1, 0.5);
  std::vector<double> moved;
  for (int step = 0; step < 4; ++step) {
    const double before = parameter.item<double>();
    set_gradient(parameter, {1.0});
    optimizer.step();
    moved.push_back(before - parameter.item<double>());
    scheduler.step();
  }
  return moved;
}

TEST(FusedOptimizer, takes_learning_rates_from_schedulers) {
  const at::Tensor ours = leaf({0.0}), theirs = leaf({0.0});
  FusedSGD fused({ours}, 1.0);
  torch::optim::SGD reference({theirs}, 1.0);
  const std::vector<double> moved = moves(fused, ours);
  EXPECT_EQ(moved, moves(reference, theirs));
  EXPECT_EQ(moved.back(), 0.25);
}

TEST(FusedOptimizer, takes_options_that_change_between_steps) {
  const at::Tensor parameter = leaf({0.0});
  FusedSGD optimizer({parameter}, 1.0);
  set_gradient(parameter, {1.0});
  static_cast<torch::optim::SGDOptions&>(optimizer.param_groups()[0].options()).lr(0.5);
  optimizer.step();
  EXPECT_TRUE(exact(parameter, at::tensor({-0.5})));
  static_cast<FusedSGDOptions&>(optimizer.param_groups()[0].options()).maximize(true);
  optimizer.step();
  EXPECT_TRUE(exact(parameter, at::tensor({0.0})));
}

std::string saved(const Optimizer& optimizer) {
  torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  std::ostringstream out;
  archive.save_to(out);
  return out.str();
}

void load(Optimizer& optimizer, const std::string& bytes) {
  std::istringstream in(bytes);
  torch::serialize::InputArchive archive;
  archive.load_from(in);
  optimizer.load(archive);
}

void copy(const Parameters& from, const Parameters& to) {
  for (std::size_t i = 0; i < from.size(); ++i) to[i].data().copy_(from[i]);
}

TEST(FusedOptimizer, continues_bit_for_bit_from_an_archive_with_its_options) {
  for (std::size_t i = 0; i < kMakers.size(); ++i) {
    SCOPED_TRACE(kMakers[i].first);
    const Parameters of = parameters(at::kFloat), continued = parameters(at::kFloat);
    const auto optimizer = climbing(true)[i].second(of);
    for (int step = 0; step < 5; ++step) {
      set_gradients(of, step, 2);
      fused_step(*optimizer, 2, step == 0 ? 1 : 0);
    }
    const auto other = kMakers[i].second(continued);
    train(*other, continued, 0, 2);
    copy(of, continued);
    load(*other, saved(*optimizer));
    train(*optimizer, of, 5, kSteps);
    train(*other, continued, 5, kSteps);
    for (std::size_t k = 0; k < of.size(); ++k) EXPECT_TRUE(same_bits(continued[k], of[k]));
  }
}

/// A checkpoint of a run that skipped all its steps.
TEST(FusedOptimizer, continues_from_an_archive_without_a_step) {
  for (const auto& [name, make] : kMakers) {
    SCOPED_TRACE(name);
    const Parameters of = parameters(at::kFloat), continued = parameters(at::kFloat);
    const auto optimizer = make(of), other = make(continued);
    set_gradients(of, 0, kInf);
    fused_step(*optimizer, 2, 1);
    load(*other, saved(*optimizer));
    train(*optimizer, of, 1, 4);
    train(*other, continued, 1, 4);
    for (std::size_t k = 0; k < of.size(); ++k) EXPECT_TRUE(same_bits(continued[k], of[k]));
  }
}

TEST(FusedOptimizer, exchanges_archives_with_libtorch) {
  for (const Pair& pair : pairs()) {
    SCOPED_TRACE(pair.name);
    const Parameters ours = parameters(at::kDouble), theirs = parameters(at::kDouble);
    const auto fused = pair.fused(ours);
    const auto reference = pair.torch(theirs);
    train(*fused, ours, 0, 5);
    train(*reference, theirs, 0, 5);
    const std::string from_ours = saved(*fused), from_theirs = saved(*reference);
    load(*fused, from_theirs);
    load(*reference, from_ours);
    train(*fused, ours, 5, kSteps);
    train(*reference, theirs, 5, kSteps);
    const Parameters start = parameters(at::kDouble);
    for (std::size_t i = 0; i < ours.size(); ++i) {
      EXPECT_TRUE(near(ours[i], theirs[i].detach(), bound_of(start[i], pair, at::kDouble)));
    }
  }
}

TEST(FusedOptimizer, an_archive_that_does_not_fit_changes_nothing) {
  for (const auto& [name, make] : kMakers) {
    SCOPED_TRACE(name);
    const Parameters of = {leaf({1.0, 2.0})}, two = {leaf({1.0}), leaf({1.0})},
                     other = {leaf({1.0, 2.0, 3.0})};
    const auto optimizer = make(of), more = make(two), wider = make(other);
    for (const Parameters& p : {of, two, other}) set_gradients(p, 0);
    for (Optimizer* o : {optimizer.get(), more.get(), wider.get()}) o->step();
    const std::string before = saved(*optimizer);
    for (Optimizer* o : {more.get(), wider.get()}) {
      EXPECT_THROW(load(*optimizer, saved(*o)), IoError);
      EXPECT_EQ(optimizer->state().size(), 1U);
    }
    EXPECT_THROW(
        {
          torch::serialize::OutputArchive empty;
          std::stringstream bytes;
          empty.save_to(bytes);
          load(*optimizer, bytes.str());
        },
        IoError);
    const Parameters moved = {of[0].detach().clone().requires_grad_()};
    const auto restored = make(moved);
    load(*restored, before);
    train(*optimizer, of, 1, 3);
    train(*restored, moved, 1, 3);
    EXPECT_TRUE(same_bits(of[0], moved[0]));
  }
}

TEST(FusedOptimizer, the_number_of_threads_changes_no_bit) {
  const int threads = at::get_num_threads();
  for (const auto& [name, make] : kMakers) {
    SCOPED_TRACE(name);
    Parameters results;
    for (const int count : {1, 2, 3, 5}) {
      at::set_num_threads(count);
      at::manual_seed(1);
      const at::Tensor p = at::randn({100003}, on_device()).requires_grad_();
      train(*make({p}), {p}, 0, 3);
      results.push_back(p);
    }
    for (const at::Tensor& result : results) EXPECT_TRUE(same_bits(result, results[0]));
  }
  at::set_num_threads(threads);
}

TEST(FusedOptimizer, a_closure_computes_the_gradients_and_the_loss) {
  const at::Tensor parameter = leaf({3.0});
  FusedSGD optimizer({parameter}, 0.25);
  const at::Tensor loss = optimizer.step([&] {
    at::Tensor value = (parameter * parameter).sum();
    value.backward();
    return value;
  });
  EXPECT_TRUE(exact(loss, at::scalar_tensor(9.0)));
  EXPECT_TRUE(exact(parameter, at::tensor({1.5})));
}

TEST(FusedOptimizer, an_open_autocast_region_sees_the_new_weights) {
  const at::Tensor weight = at::eye(2, on_device()).requires_grad_();
  FusedSGD optimizer({weight}, 1.0);
  weight.mutable_grad() = at::eye(2, on_device());
  const amp::Autocast region(test_device().type(), at::kBFloat16);
  EXPECT_TRUE(exact(at::mm(at::ones({1, 2}, on_device()), weight), at::ones({1, 2})));
  optimizer.step();
  EXPECT_TRUE(exact(at::mm(at::ones({1, 2}, on_device()), weight), at::zeros({1, 2})));
}

TEST(FusedOptimizer, the_scaler_leaves_the_decision_to_the_device) {
  for (const auto& [name, make] : kMakers) {
    SCOPED_TRACE(name);
    const Parameters of = parameters(at::kFloat), plain = parameters(at::kFloat);
    const auto optimizer = make(of), reference = make(plain);
    amp::GradScaler scaler = started({.initial_scale = 8.0});
    double scale = 8;
    for (int step = 0; step < 6; ++step) {
      const bool overflow = step == 0 || step == 3;
      set_gradients(of, step, overflow ? kInf : scale);
      if (step == 4) scaler.unscale_(*optimizer);  // the step must not unscale again
      EXPECT_EQ(scaler.step(*optimizer), amp::StepOutcome::kDeferred);
      scaler.update();
      scale = scaler.get_scale();
      if (!overflow) train(*reference, plain, step, step + 1);
    }
    EXPECT_EQ(scaler.get_scale(), 2.0);
    EXPECT_EQ(scaler.skipped_steps(), 2);
    for (std::size_t i = 0; i < of.size(); ++i) EXPECT_TRUE(exact(of[i], plain[i]));
  }
}

TEST(FusedOptimizer, refuses_parameters_and_gradients_it_cannot_step_before_any_moves) {
  const auto refuses = [](const std::string& text, const at::Tensor& second,
                          const at::Tensor& gradient) {
    for (const auto& [name, make] : kMakers) {
      const at::Tensor first = leaf({1.0});
      set_gradient(first, {1.0});
      at::Tensor(second).mutable_grad() = gradient;
      const auto optimizer = make({first, second});
      EXPECT_THROWS(InvalidArgument, text, optimizer->step()) << name;
      EXPECT_TRUE(exact(first, at::tensor({1.0}))) << name;
    }
  };
  const at::Tensor matrix = at::ones({2, 2}, on_device());
  refuses("sparse", at::ones({2, 2}, on_device()).requires_grad_(), matrix.to_sparse());
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    refuses("enable_mixed_precision", at::ones({2, 2}, on_device(dtype)).requires_grad_(),
            matrix.to(dtype));
  }
  refuses("ComplexFloat", at::ones({2, 2}, on_device(at::kComplexFloat)).requires_grad_(),
          matrix.to(at::kComplexFloat));
  refuses("without holes",
          at::ones({2, 4}, on_device()).slice(1, 0, 4, 2).detach().requires_grad_(), matrix);
  refuses("expanded", at::ones({2, 2}, on_device()).requires_grad_(),
          at::ones({1, 2}, on_device()).expand({2, 2}));
}

TEST(FusedOptimizer, divides_gradients_with_holes_in_place) {
  for (const auto& [name, make] : kMakers) {
    at::Tensor parameter = at::ones({2, 2}, on_device()).requires_grad_();
    const at::Tensor memory = at::full({2, 4}, 8.0, on_device());
    parameter.mutable_grad() = memory.slice(1, 0, 4, 2);
    fused_step(*make({parameter}), 4, 0);
    EXPECT_TRUE(exact(memory, numbers({2.0, 8.0, 2.0, 8.0}).expand({2, 4}))) << name;
  }
}

TEST(FusedOptimizer, refuses_a_parameter_listed_twice_and_unusable_factors) {
  const at::Tensor parameter = leaf({1.0});
  set_gradient(parameter, {1.0});
  for (const auto& [name, make] : kMakers) {
    const auto twice = make({parameter, parameter});
    EXPECT_THROWS(InvalidArgument, "twice", twice->step()) << name;
    auto once = make({parameter});
    auto& fused = dynamic_cast<amp::FusedStep&>(*once);
    for (const at::Tensor& bad :
         {at::ones({1}, on_device()), at::scalar_tensor(1.0, on_device(at::kDouble))}) {
      EXPECT_THROW(fused.fused_step(bad, {}), InvalidArgument) << name;
      EXPECT_THROW(fused.fused_step({}, bad), InvalidArgument) << name;
    }
    EXPECT_THROW(make({parameter * 2}), InvalidArgument) << name;
    EXPECT_THROW(make({at::Tensor()}), InvalidArgument) << name;
  }
  EXPECT_TRUE(exact(parameter, at::tensor({1.0})));
}

TEST(FusedOptimizer, refuses_options_out_of_range) {
  const Parameters of = {leaf({1.0})};
  const auto adam = [&of](const FusedAdamOptions& options) { FusedAdam optimizer(of, options); };
  const auto sgd = [&of](const FusedSGDOptions& options) { FusedSGD optimizer(of, options); };
  for (const double bad : {-1.0, std::nan(""), kInf}) {
    EXPECT_THROW(adam(bad), InvalidArgument);
    EXPECT_THROW(adam(FusedAdamOptions().eps(bad)), InvalidArgument);
    EXPECT_THROW(adam(FusedAdamOptions().weight_decay(bad)), InvalidArgument);
    EXPECT_THROW(adam(FusedAdamOptions().betas({bad, 0.5})), InvalidArgument);
    EXPECT_THROW(adam(FusedAdamOptions().betas({0.5, bad})), InvalidArgument);
    EXPECT_THROW(sgd(bad), InvalidArgument);
    EXPECT_THROW(sgd(FusedSGDOptions(1.0).momentum(bad)), InvalidArgument);
    EXPECT_THROW(sgd(FusedSGDOptions(1.0).weight_decay(bad)), InvalidArgument);
  }
  EXPECT_THROW(adam(FusedAdamOptions().betas({0.9, 1.0})), InvalidArgument);
  EXPECT_THROW(sgd(FusedSGDOptions(1.0).nesterov(true)), InvalidArgument);
  EXPECT_THROW(sgd(FusedSGDOptions(1.0).nesterov(true).momentum(0.9).dampening(0.1)),
               InvalidArgument);
  FusedSGD optimizer(of, 1.0);
  optimizer.param_groups()[0].options().set_lr(-1.0);
  EXPECT_THROW(optimizer.step(), InvalidArgument);
  std::vector<OptimizerParamGroup> foreign = {
      OptimizerParamGroup(of, std::make_unique<torch::optim::AdamOptions>())};
  EXPECT_THROW(FusedSGD(foreign, 1.0), InvalidArgument);
}

}  // namespace
}  // namespace mezzo::test
