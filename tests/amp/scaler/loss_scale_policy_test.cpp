#include "mezzo/amp/scaler/loss_scale_policy.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/ATen.h>

#include "amp/scaler_support.h"
#include "support/errors.h"
#include "support/special_numbers.h"
#include "support/warnings.h"

namespace mezzo::test {
namespace {

using amp::GradScaler;
using amp::LossScalePolicy;

/// The scale from from_max_gradient for these gradients.
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
      {{0x1p-149}, 1.0, 0x1p126},  // float32's smallest number: clamped so that the inverse is
                                   // normal
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
  const at::Tensor empty = leaf(std::vector<double>{});
  set_gradient(small, {1.0});
  set_gradient(large, {2.0, -8.0});
  set_gradient(empty, {});
  const auto policy =
      LossScalePolicy::from_max_gradient({none, small, empty, large, {}}, {.headroom = 1.0});
  EXPECT_EQ(policy.options().initial_scale, 4096.0);
}

TEST(LossScalePolicy, from_max_gradient_refuses_what_it_cannot_use) {
  for (const double headroom : {0.5, 0.0, -1.0, kInf, std::nan("")}) {
    EXPECT_THROWS(InvalidArgument, "headroom", found_scale({1.0}, headroom));
  }
  EXPECT_THROWS(InvalidArgument, "expected gradients",
                LossScalePolicy::from_max_gradient({leaf({1.0})}));
  EXPECT_THROWS(InvalidArgument, "only zeros", found_scale({0.0, -0.0}, 1.0));
  for (const double bad : {kInf, -kInf, std::nan("")}) {
    EXPECT_THROWS(NumericError, "inf or nan", found_scale({1.0, bad}, 1.0));
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
      LossScalePolicy::dynamic({.hysteresis = 0}),
      LossScalePolicy::dynamic({.hysteresis = std::int64_t{1} << 31}),
      LossScalePolicy::dynamic({.tolerance = -0.1}),
      LossScalePolicy::dynamic({.tolerance = 1.1}),
      LossScalePolicy::dynamic({.tolerance = std::nan("")}),
      LossScalePolicy::dynamic({.at_floor = amp::FloorAction::kThrow}),
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

TEST(LossScalePolicy, a_loaded_scale_is_brought_between_floor_and_ceiling) {
  const auto policy =
      LossScalePolicy::dynamic({.initial_scale = 4.0, .floor = 2.0, .ceiling = 16.0});
  amp::ScalerState state = GradScaler({.policy = policy}).state_dict();
  for (const bool started_before : {false, true}) {
    for (const auto& [saved, loaded] :
         {std::pair(1024.0, 16.0), std::pair(0.5, 2.0), std::pair(8.0, 8.0)}) {
      GradScaler scaler({.policy = policy});
      if (started_before) scaler.scale(at::zeros({}));
      state.scale = saved;
      scaler.load_state_dict(state);
      EXPECT_EQ(scaler.get_scale(), loaded) << started_before;
      EXPECT_EQ(scaler.scale(at::ones({})).item<double>(), loaded) << started_before;
    }
  }
}

/// The scales after iterations: c clean, i with inf.
std::vector<double> scales_after(GradScaler& scaler, const std::string& iterations) {
  std::vector<double> scales;
  for (const char letter : iterations) {
    scales.push_back(scale_after(scaler, letter == 'i' ? kInf : 1.0));
  }
  return scales;
}

using amp::FloorAction;
using amp::HysteresisRefill;

TEST(LossScalePolicy, dynamic_follows_the_table) {
  struct Row {
    std::string name;
    amp::DynamicLossScaleOptions options;
    std::string iterations;
    std::vector<double> scales;
  };
  const std::vector<Row> rows = {
      {"the second overflow lowers, and each further one until the growth",
       {.initial_scale = 16, .growth_interval = 2, .hysteresis = 2},
       "iciiccici",
       {16, 16, 8, 4, 4, 8, 8, 8, 4}},
      {"the refill at clean updates makes only overflows in a row count",
       {.initial_scale = 16,
        .growth_interval = 9,
        .hysteresis = 2,
        .hysteresis_refill = HysteresisRefill::kOnCleanUpdate},
       "iciciiicii",
       {16, 16, 16, 16, 16, 8, 4, 4, 4, 2}},
      {"hysteresis of three",
       {.initial_scale = 16, .growth_interval = 9, .hysteresis = 3},
       "iiiici",
       {16, 16, 8, 4, 4, 2}},
      {"an overflow let pass still starts the clean updates anew, also with an interval of one",
       {.initial_scale = 16, .growth_interval = 1, .hysteresis = 2},
       "iici",
       {16, 8, 16, 16}},
      {"and with a longer one",
       {.initial_scale = 16, .growth_interval = 2, .hysteresis = 2},
       "cicc",
       {16, 16, 16, 32}},
      {"overflows below the share are tolerated, however many",
       {.initial_scale = 16, .growth_interval = 9, .tolerance = 0.5},
       "ccciici",
       {16, 16, 16, 16, 16, 16, 16}},
      {"the share begins anew where the scale moves",
       {.initial_scale = 16, .growth_interval = 9, .tolerance = 0.5},
       "icici",
       {8, 8, 4, 4, 2}},
      {"growth begins it anew too",
       {.initial_scale = 16, .growth_interval = 2, .tolerance = 0.5},
       "cci",
       {16, 32, 16}},
      {"a share that is met exactly counts",
       {.initial_scale = 16, .growth_interval = 99, .tolerance = 0.1},
       "ccccccccci",
       {16, 16, 16, 16, 16, 16, 16, 16, 16, 8}},
      {"a share just below it does not",
       {.initial_scale = 16, .growth_interval = 99, .tolerance = 0.1},
       "cccccccccci",
       {16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16}},
      {"a tolerated overflow spends no hysteresis",
       {.initial_scale = 16, .growth_interval = 9, .hysteresis = 2, .tolerance = 0.5},
       "cciii",
       {16, 16, 16, 16, 8}},
      {"hysteresis, growth and the floor together",
       {.initial_scale = 4, .growth_interval = 2, .hysteresis = 2, .floor = 2, .ceiling = 8},
       "cccciiii",
       {4, 8, 8, 8, 8, 4, 2, 2}},
  };
  for (const Row& row : rows) {
    GradScaler scaler({.policy = LossScalePolicy::dynamic(row.options)});
    EXPECT_EQ(scales_after(scaler, row.iterations), row.scales) << row.name;
  }
}

TEST(LossScalePolicy, what_it_counted_is_carried_over) {
  const auto policy = LossScalePolicy::dynamic(
      {.initial_scale = 64, .growth_interval = 4, .hysteresis = 2, .tolerance = 0.25});
  const std::string iterations = "iccicicccciiiccccciicii";
  for (std::size_t cut = 0; cut < iterations.size(); ++cut) {
    GradScaler original({.policy = policy}), restored({.policy = policy});
    scales_after(original, iterations.substr(0, cut));
    if (cut % 2 == 1) scale_after(restored, kInf);
    restored.load_state_dict(original.state_dict());
    EXPECT_EQ(scales_after(restored, iterations.substr(cut)),
              scales_after(original, iterations.substr(cut)))
        << cut;
    EXPECT_EQ(restored.state_dict(), original.state_dict()) << cut;
  }
}

TEST(LossScalePolicy, at_the_floor_it_throws_and_the_run_may_go_on) {
  GradScaler scaler({.policy = LossScalePolicy::dynamic({.initial_scale = 4.0,
                                                         .growth_interval = 1,
                                                         .floor = 1.5,
                                                         .at_floor = FloorAction::kThrow})});
  EXPECT_EQ(scales_after(scaler, "ii"), (std::vector<double>{2.0, 1.5}));
  EXPECT_THROWS(NumericError, "is at its floor, 1.5", scale_after(scaler, kInf));
  EXPECT_EQ(scaler.get_scale(), 1.5);
  EXPECT_EQ(scales_after(scaler, "ci"), (std::vector<double>{3.0, 1.5}));
}

TEST(LossScalePolicy, at_the_floor_it_warns_once) {
  GradScaler scaler({.policy = LossScalePolicy::dynamic(
                         {.initial_scale = 2.0, .floor = 1.0, .at_floor = FloorAction::kWarn})});
  Warnings warnings;
  EXPECT_EQ(scales_after(scaler, "ci"), (std::vector<double>{2.0, 1.0}));
  EXPECT_TRUE(warnings.texts.empty());
  EXPECT_EQ(scales_after(scaler, "iii"), (std::vector<double>{1.0, 1.0, 1.0}));
  ASSERT_EQ(warnings.texts.size(), 1U);
  EXPECT_NE(warnings.texts[0].find("train in bfloat16"), std::string::npos);
}

TEST(LossScalePolicy, hysteresis_at_the_floor_delays_the_error) {
  GradScaler scaler({.policy = LossScalePolicy::dynamic({.initial_scale = 1.0,
                                                         .hysteresis = 2,
                                                         .floor = 1.0,
                                                         .at_floor = FloorAction::kThrow})});
  EXPECT_EQ(scale_after(scaler, kInf), 1.0);
  EXPECT_THROW(scale_after(scaler, kInf), NumericError);
}

/// Grows by one at each clean update; otherwise falls to an eighth of its maximum.
class Staircase : public amp::LossScaleRule {
 public:
  explicit Staircase(double start) : start_(start), largest_(start) {}
  std::string_view name() const override { return "staircase"; }
  double initial_scale() const override { return start_; }
  double next(double scale, bool overflowed) override {
    largest_ = std::max(largest_, scale);
    return overflowed ? largest_ / 8 : scale + 1;
  }
  std::vector<double> state() const override { return {largest_}; }
  void load_state(const std::vector<double>& state) override { largest_ = state.at(0); }

 private:
  double start_, largest_;
};

/// Always returns the same scale.
class Fixed : public amp::LossScaleRule {
 public:
  explicit Fixed(double answer) : answer_(answer) {}
  std::string_view name() const override { return "fixed"; }
  double initial_scale() const override { return 4.0; }
  double next(double /*scale*/, bool /*overflowed*/) override { return answer_; }

 private:
  double answer_;
};

TEST(LossScalePolicy, a_rule_of_the_users_own_moves_the_scale) {
  const auto policy = LossScalePolicy::custom(Staircase(14.0));
  EXPECT_EQ(policy.name(), "staircase");
  EXPECT_TRUE(policy.is_dynamic());
  GradScaler scaler({.policy = policy}), other({.policy = policy});
  EXPECT_EQ(scales_after(scaler, "ccicii"), (std::vector<double>{15, 16, 2, 3, 2, 2}));
  EXPECT_EQ(scales_after(other, "i"), (std::vector<double>{1.75})) << "a copy of its own";
}

TEST(LossScalePolicy, a_rule_is_saved_and_restored_with_its_state) {
  const auto policy = LossScalePolicy::custom(Staircase(14.0));
  GradScaler original({.policy = policy}), restored({.policy = policy});
  scales_after(original, "ccci");
  EXPECT_EQ(original.state_dict().rule, (std::vector<double>{17.0}));
  restored.load_state_dict(original.state_dict());
  EXPECT_EQ(scales_after(restored, "ci"), scales_after(original, "ci"));
  amp::ScalerState without_rule = original.state_dict();
  without_rule.rule.clear();
  restored.load_state_dict(without_rule);
  EXPECT_EQ(restored.state_dict(), original.state_dict());
}

TEST(LossScalePolicy, a_rule_that_goes_astray_is_an_error) {
  for (const double bad : {0.0, -1.0, kInf, 1e39, std::nan("")}) {
    GradScaler scaler({.policy = LossScalePolicy::custom(Fixed(bad))});
    EXPECT_THROWS(InvalidArgument, "the rule 'fixed' to return", scale_after(scaler, 1.0));
    EXPECT_EQ(scaler.get_scale(), 4.0);
  }
  EXPECT_THROW(GradScaler({.policy = LossScalePolicy::custom(Staircase(-1.0))}), InvalidArgument);
  GradScaler scaler({.policy = LossScalePolicy::custom(Fixed(8.0))});
  amp::ScalerState state = scaler.state_dict();
  state.rule = {1.0};
  EXPECT_THROWS(InvalidArgument, "expected no state", scaler.load_state_dict(state));
  EXPECT_THROWS(InvalidArgument, "that of a custom policy", GradScaler().load_state_dict(state));
}

}  // namespace
}  // namespace mezzo::test
