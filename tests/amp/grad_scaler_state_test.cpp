#include <cmath>
#include <memory>
#include <sstream>
#include <utility>

#include <ATen/ATen.h>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

#include "mezzo/amp/scaler/grad_scaler.h"

#include "amp/scaler_support.h"
#include "support/errors.h"
#include "support/special_numbers.h"

/// Tests of the call order, scale updates and checkpoints.
namespace mezzo::test {
namespace {

using amp::GradScaler;
using amp::ScalerState;

/// A scaler with one optimizer of one weight, driven by letters: s scale, u unscale_, t step, U
/// update, N update(128), 0 drop the gradient.
struct Machine {
  explicit Machine(const amp::DynamicLossScaleOptions& options = {}, bool fused = false,
                   bool enabled = true)
      : scaler({.policy = amp::LossScalePolicy::dynamic(options), .enabled = enabled}) {
    if (fused) {
      optimizer = std::make_unique<FusedDescent>(std::vector<at::Tensor>{weight});
    } else {
      optimizer = std::make_unique<torch::optim::SGD>(descent({weight}));
    }
    set_gradient(weight, {1.0});
  }

  void call(char letter) {
    switch (letter) {
      case 's':
        scaler.scale(at::zeros({}, on_device()));
        break;
      case 'u':
        scaler.unscale_(*optimizer);
        break;
      case 't':
        scaler.step(*optimizer);
        break;
      case 'U':
        scaler.update();
        break;
      case 'N':
        scaler.update(128.0);
        break;
      case '0':
        weight.mutable_grad().reset();
        break;
      default:
        FAIL() << "no such call: " << letter;
    }
  }

  /// One iteration: c clean, i with inf.
  void iterate(char letter) {
    scaler.scale(at::zeros({}, on_device()));
    set_gradient(weight, {letter == 'i' ? kInf : 1.0});
    scaler.step(*optimizer);
    scaler.update();
  }

  GradScaler scaler;
  at::Tensor weight = leaf({1.0});
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};

// PyTorch's messages, and what to do.
const std::string kTwice =
    "GradScaler: unscale_() has already been called on this optimizer since the last update(). "
    "Call it once an iteration; step() does not need it.";
const std::string kAfter =
    "GradScaler: unscale_() is being called after step(). Call it before step(), or update() "
    "first, which ends the iteration.";
const std::string kStepped =
    "GradScaler: step() has already been called since the last update(). Call update() once an "
    "iteration, after the step() of every optimizer.";
const std::string kNoneOfAll =
    "GradScaler: No inf checks were recorded prior to update. Call step() or unscale_() of an "
    "optimizer whose parameters have gradients first.";
const std::string kNoneOfOne =
    "GradScaler: No inf checks were recorded for this optimizer. None of its parameters has a "
    "gradient: call scale(loss).backward() first, or leave out its step().";

struct Order {
  std::string calls;  // all except the last must succeed
  std::string error;  // error of the last call; empty: it succeeds
};

const std::vector<Order> kOrders = {
    {"u", "Attempted unscale_ but _scale is None."},
    {"t", "Attempted step but _scale is None."},
    {"U", "Attempted update but _scale is None."},
    {"N", "Attempted update but _scale is None."},
    {"u", "did not use scaler.scale(loss or outputs) earlier in the iteration."},
    {"stU", ""},
    {"sutU", ""},
    {"suU", ""},
    {"stUsutUstU", ""},
    {"stUt", ""},
    {"suu", kTwice},
    {"suUu", ""},
    {"suNu", ""},
    {"suUuu", kTwice},
    {"stu", kAfter},
    {"sutu", kAfter},
    {"stt", kStepped},
    {"sutt", kStepped},
    {"stNt", ""},
    {"stUtt", kStepped},
    {"sU", kNoneOfAll},
    {"ssU", kNoneOfAll},
    {"stUU", kNoneOfAll},
    {"stUsU", kNoneOfAll},
    {"sNU", kNoneOfAll},
    {"sN", ""},
    {"s0t", kNoneOfOne},
    {"s0ut", kNoneOfOne},
    {"s0uU", kNoneOfAll},
};

TEST(GradScalerOrder, follows_the_table) {
  for (const bool fused : {false, true}) {
    for (const Order& row : kOrders) {
      Machine machine({}, fused);
      for (std::size_t i = 0; i + 1 < row.calls.size(); ++i) {
        ASSERT_NO_THROW(machine.call(row.calls[i])) << row.calls << ", call " << i;
      }
      const auto last = [&] { machine.call(row.calls.back()); };
      if (row.error.empty()) {
        EXPECT_NO_THROW(last()) << row.calls;
      } else {
        EXPECT_TRUE(throws<LogicError>(last, {row.error})) << row.calls << ", fused " << fused;
      }
    }
  }
}

TEST(GradScaler, of_a_precision_is_enabled_for_float16_alone) {
  for (const amp::Precision precision : amp::kPrecisions) {
    EXPECT_EQ(GradScaler(precision, at::kCPU).is_enabled(), precision == amp::Precision::kFloat16);
  }
}

TEST(GradScalerOrder, is_free_for_a_disabled_scaler) {
  for (const Order& row : kOrders) {
    Machine machine({}, /*fused=*/false, /*enabled=*/false);
    for (const char letter : row.calls) EXPECT_NO_THROW(machine.call(letter)) << row.calls;
  }
}

TEST(GradScalerOrder, an_error_stays_the_same_when_the_call_is_repeated) {
  Machine machine;
  for (const char letter : {'s', '0'}) machine.call(letter);
  for (int attempt = 0; attempt < 2; ++attempt) {
    EXPECT_THROWS(LogicError, kNoneOfOne, machine.call('t'));
  }
}

TEST(GradScalerScale, follows_the_table) {
  struct Row {
    amp::DynamicLossScaleOptions options;
    std::string iterations;
    std::vector<double> scales;
    std::vector<std::int64_t> trackers;
  };
  const std::vector<Row> rows = {
      {{.initial_scale = 4, .backoff_factor = 0.25, .growth_interval = 2},
       "cci",
       {4, 8, 2},
       {1, 0, 0}},
      {{.initial_scale = 8, .growth_interval = 3},
       "cciccc",
       {8, 8, 4, 4, 4, 8},
       {1, 2, 0, 1, 2, 0}},
      {{.initial_scale = 0x1.8p127, .growth_interval = 1}, "c", {0x1.8p127}, {0}},
      {{.initial_scale = 1}, "iii", {0.5, 0.25, 0.125}, {0, 0, 0}},
      {{.initial_scale = 1, .growth_factor = 4, .growth_interval = 1},
       "ccic",
       {4, 16, 8, 32},
       {0, 0, 0, 0}},
  };
  for (const Row& row : rows) {
    Machine machine(row.options);
    for (std::size_t i = 0; i < row.iterations.size(); ++i) {
      machine.iterate(row.iterations[i]);
      const ScalerState state = machine.scaler.state_dict();
      EXPECT_EQ(state.scale, row.scales[i]) << row.iterations << ", iteration " << i;
      EXPECT_EQ(state.scale, machine.scaler.get_scale());
      EXPECT_EQ(state.growth_tracker, row.trackers[i]) << row.iterations << ", iteration " << i;
    }
  }
}

TEST(GradScalerScale, an_inf_that_only_unscale_saw_moves_it_too) {
  Machine machine({.initial_scale = 4});
  set_gradient(machine.weight, {kInf});
  for (const char letter : {'s', 'u', 'U'}) machine.call(letter);
  EXPECT_EQ(machine.scaler.get_scale(), 2.0);
}

TEST(GradScalerScale, an_interval_set_below_the_tracker_grows_at_the_next_clean_update) {
  Machine machine({.initial_scale = 4, .growth_interval = 10});
  for (int i = 0; i < 5; ++i) machine.iterate('c');
  EXPECT_EQ(machine.scaler.state_dict().growth_tracker, 5);
  machine.scaler.set_growth_interval(3);
  EXPECT_EQ(machine.scaler.get_scale(), 4.0);
  machine.iterate('c');
  EXPECT_EQ(machine.scaler.get_scale(), 8.0);
  EXPECT_EQ(machine.scaler.state_dict().growth_tracker, 0);
  for (int i = 0; i < 3; ++i) machine.iterate('c');
  EXPECT_EQ(machine.scaler.get_scale(), 16.0);
}

TEST(GradScalerScale, setters_take_effect_at_the_next_update) {
  Machine machine({.initial_scale = 4, .growth_interval = 1});
  machine.scaler.set_growth_factor(8.0);
  machine.scaler.set_backoff_factor(0.25);
  EXPECT_EQ(machine.scaler.get_growth_factor(), 8.0);
  EXPECT_EQ(machine.scaler.get_backoff_factor(), 0.25);
  machine.iterate('c');
  EXPECT_EQ(machine.scaler.get_scale(), 32.0);
  machine.iterate('i');
  EXPECT_EQ(machine.scaler.get_scale(), 8.0);
}

TEST(GradScalerScale, setters_refuse_unusable_numbers) {
  GradScaler scaler;
  for (const double bad : {1.0, 0.5, -2.0, kInf, std::nan("")}) {
    EXPECT_THROW(scaler.set_growth_factor(bad), InvalidArgument) << bad;
  }
  for (const double bad : {1.0, 0.0, -0.5, 2.0, std::nan("")}) {
    EXPECT_THROW(scaler.set_backoff_factor(bad), InvalidArgument) << bad;
  }
  for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 31}) {
    EXPECT_THROW(scaler.set_growth_interval(bad), InvalidArgument) << bad;
  }
  EXPECT_EQ(scaler.state_dict(), GradScaler().state_dict());
}

TEST(GradScalerScale, a_given_scale_leaves_the_tracker_alone) {
  Machine machine({.initial_scale = 4, .growth_interval = 10});
  for (int i = 0; i < 3; ++i) machine.iterate('c');
  machine.scaler.update(128.0);
  EXPECT_EQ(machine.scaler.get_scale(), 128.0);
  EXPECT_EQ(machine.scaler.state_dict().growth_tracker, 3);
  for (const double bad : {0.0, -1.0, kInf, 1e39, std::nan("")}) {
    EXPECT_THROW(machine.scaler.update(bad), InvalidArgument) << bad;
  }
  EXPECT_EQ(machine.scaler.get_scale(), 128.0);
}

TEST(GradScalerScale, a_given_tensor_is_copied) {
  Machine machine;
  machine.call('s');
  for (const at::Tensor& tensor :
       {at::full({}, 64.0, on_device()), at::full({1, 1}, 64.0, on_device()),
        at::full({1}, 64.0, on_device(at::kDouble))}) {
    machine.scaler.update(tensor);
    tensor.fill_(1.0);
    EXPECT_EQ(machine.scaler.get_scale(), 64.0);
  }
  const std::vector<at::Tensor> bad = {at::full({}, 64.0, on_device()).requires_grad_(),
                                       at::ones({2}, on_device()), at::ones({0}, on_device()),
                                       at::ones({}, on_device(at::kLong)), at::Tensor()};
  for (const at::Tensor& tensor : bad) {
    EXPECT_THROWS(InvalidArgument, "new_scale should be a float or a 1-element",
                  machine.scaler.update(tensor));
  }
}

/// The states after each iteration of a run with growth and backoff.
std::vector<ScalerState> trajectory(Machine& machine) {
  std::vector<ScalerState> states;
  for (const char letter : std::string("cccicccc")) {
    machine.iterate(letter);
    states.push_back(machine.scaler.state_dict());
  }
  return states;
}

GradScaler& carried_over(GradScaler& from, GradScaler& to) {
  std::stringstream file;
  torch::serialize::OutputArchive out;
  from.save(out);
  out.save_to(file);
  torch::serialize::InputArchive in;
  in.load_from(file);
  to.load(in);
  return to;
}

TEST(GradScalerState, continues_bit_for_bit_before_and_after_the_first_scale) {
  const amp::DynamicLossScaleOptions options = {
      .initial_scale = 1.1, .growth_factor = 1.7, .backoff_factor = 0.3, .growth_interval = 3};
  for (const bool started_before : {false, true}) {
    for (const bool through_a_file : {false, true}) {
      Machine original(options), restored;
      for (const char letter : {'c', 'c', 'c', 'c', 'c'}) original.iterate(letter);
      if (started_before) restored.iterate('i');
      if (through_a_file) {
        carried_over(original.scaler, restored.scaler);
      } else {
        restored.scaler.load_state_dict(original.scaler.state_dict());
      }
      EXPECT_EQ(restored.scaler.state_dict(), original.scaler.state_dict());
      EXPECT_EQ(restored.scaler.state_dict().growth_tracker, 2);
      EXPECT_EQ(trajectory(restored), trajectory(original));
    }
  }
}

TEST(GradScalerState, of_a_constant_policy_round_trips) {
  GradScaler constant({.policy = amp::LossScalePolicy::constant(256.0)});
  GradScaler restored;
  EXPECT_EQ(carried_over(constant, restored).state_dict(), constant.state_dict());
  EXPECT_EQ(restored.get_growth_factor(), 1.0);
}

/// A rule with state.
class Remembering : public amp::LossScaleRule {
 public:
  explicit Remembering(std::vector<double> state) : state_(std::move(state)) {}
  std::string_view name() const override { return "remembering"; }
  double initial_scale() const override { return 4.0; }
  double next(double scale, bool /*overflowed*/) override { return scale; }
  std::vector<double> state() const override { return state_; }
  void load_state(const std::vector<double>& state) override { state_ = state; }

 private:
  std::vector<double> state_;
};

TEST(GradScalerState, of_a_rule_round_trips) {
  GradScaler rule({.policy = amp::LossScalePolicy::custom(Remembering({0.1, -3.0}))});
  GradScaler restored({.policy = amp::LossScalePolicy::custom(Remembering({}))});
  EXPECT_EQ(carried_over(rule, restored).state_dict().rule, (std::vector<double>{0.1, -3.0}));
}

TEST(GradScalerState, a_tracker_past_the_interval_grows_at_the_next_clean_update) {
  Machine machine;
  ScalerState state = machine.scaler.state_dict();
  state.growth_interval = 3;
  state.growth_tracker = 5;
  machine.scaler.load_state_dict(state);
  machine.iterate('c');
  EXPECT_EQ(machine.scaler.get_scale(), 131072.0);
}

TEST(GradScalerState, disabled_is_empty_and_loads_nothing) {
  GradScaler disabled({.enabled = false});
  EXPECT_TRUE(disabled.state_dict().empty());
  EXPECT_FALSE(GradScaler().state_dict().empty());
  GradScaler enabled({.policy = amp::LossScalePolicy::constant(8.0)});
  disabled.load_state_dict(enabled.state_dict());
  EXPECT_TRUE(carried_over(enabled, disabled).state_dict().empty());
  EXPECT_EQ(disabled.get_scale(), 1.0);
}

TEST(GradScalerState, an_empty_state_is_refused_by_an_enabled_scaler) {
  GradScaler disabled({.enabled = false}), enabled;
  const char* text = "The source state dict is empty";
  EXPECT_THROWS(InvalidArgument, text, enabled.load_state_dict({}));
  EXPECT_THROWS(InvalidArgument, text, carried_over(disabled, enabled));
}

TEST(GradScalerState, numbers_out_of_range_are_refused_and_change_nothing) {
  const ScalerState good = {4.0, 2.0, 0.5, 10, 3};
  std::vector<ScalerState> bad(14, good);
  bad[0].scale = 0.0;
  bad[1].scale = kInf;
  bad[2].scale = std::nan("");
  bad[3].growth_factor = 0.5;
  bad[4].backoff_factor = 0.0;
  bad[5].backoff_factor = 1.5;
  bad[6].growth_interval = 0;
  bad[7].growth_tracker = -1;
  bad[8].growth_tracker = std::int64_t{1} << 31;
  bad[9].hysteresis_spent = -1;
  bad[10].updates_since_rescale = -1;
  bad[11].overflows_since_rescale = 1;  // out of 0 updates
  bad[12].skipped_steps = -1;
  bad[13].rule = {1.0};
  GradScaler scaler;
  for (std::size_t i = 0; i < bad.size(); ++i) {
    EXPECT_THROW(scaler.load_state_dict(bad[i]), InvalidArgument) << "row " << i;
  }
  EXPECT_EQ(scaler.state_dict(), GradScaler().state_dict());
  scaler.load_state_dict(good);
  EXPECT_EQ(scaler.state_dict(), good);
}

TEST(GradScalerState, an_archive_with_missing_or_wrong_fields_is_an_io_error) {
  const auto load_from = [](torch::serialize::OutputArchive& out) {
    std::stringstream file;
    out.save_to(file);
    torch::serialize::InputArchive in;
    in.load_from(file);
    GradScaler().load(in);
  };
  torch::serialize::OutputArchive missing;
  missing.write("scale", c10::IValue(4.0));
  EXPECT_THROWS(IoError, "a field 'growth_factor'", load_from(missing));
  torch::serialize::OutputArchive wrong;
  wrong.write("scale", c10::IValue(std::int64_t{4}));
  EXPECT_THROWS(IoError, "'scale' to be a float", load_from(wrong));
}

TEST(GradScalerState, fields_beyond_those_of_python_default_to_zero) {
  torch::serialize::OutputArchive out;
  for (const char* name : {"scale", "growth_factor", "backoff_factor"}) {
    out.write(name, c10::IValue(name[0] == 'b' ? 0.5 : 2.0));
  }
  for (const char* name : {"growth_interval", "_growth_tracker"}) {
    out.write(name, c10::IValue(std::int64_t{name[0] == '_' ? 3 : 10}));
  }
  std::stringstream file;
  out.save_to(file);
  torch::serialize::InputArchive in;
  in.load_from(file);
  GradScaler scaler;
  scaler.load(in);
  EXPECT_EQ(scaler.state_dict(), (ScalerState{2.0, 2.0, 0.5, 10, 3}));
}

TEST(GradScalerState, comes_back_from_json_bit_for_bit) {
  const ScalerState state = {.scale = 0x1.234567p-11,
                             .growth_factor = 1.7,
                             .backoff_factor = 0.1,
                             .growth_interval = 2147483647,
                             .growth_tracker = 5,
                             .hysteresis_spent = 1,
                             .updates_since_rescale = 7,
                             .overflows_since_rescale = 2,
                             .skipped_steps = 9,
                             .rule = {0.1, -3.0}};
  EXPECT_EQ(amp::scaler_state_from_json(amp::to_json(state)), state);
  EXPECT_EQ(amp::to_json(ScalerState{}), "{}");
  EXPECT_TRUE(amp::scaler_state_from_json("{}").empty());
}

TEST(GradScalerState, is_read_from_the_json_of_python) {
  const ScalerState state = amp::scaler_state_from_json(
      R"({"scale": 65536.0, "growth_factor": 2, "backoff_factor": 0.5, "growth_interval": 2000,
          "_growth_tracker": 17, "new_field": null})");
  EXPECT_EQ(state, (ScalerState{65536.0, 2.0, 0.5, 2000, 17}));
}

TEST(GradScalerState, damaged_json_is_an_io_error) {
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"", "a JSON object"},
      {"[]", "a JSON object"},
      {R"({"scale": 1.0)", "a JSON object"},
      {R"({"scale": 1.0})", "a field 'growth_factor'"},
      {R"({"scale": "1"})", "'scale' to be a number"},
      {R"({"scale": 1.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2.5})",
       "'growth_interval' to be an integer"},
      {R"({"scale": 1.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2,
           "_growth_tracker": 0, "rule": ["a"]})",
       "'rule' to be numbers"},
  };
  for (const auto& [text, error] : rows) {
    EXPECT_THROWS(IoError, error, amp::scaler_state_from_json(text)) << text;
  }
}

}  // namespace
}  // namespace mezzo::test
