#include "mezzo/amp/captured_step.h"

#include <stdexcept>

#include <ATen/ATen.h>

#include "mezzo/amp/autocast/autocast.h"
#include "mezzo/amp/optim/mixed_precision_optimizer.h"
#include "mezzo/ops/dropout.h"
#include "mezzo/ops/ops.h"
#include "mezzo/runtime/cuda_services.h"

#include "support/errors.h"

namespace mezzo::test {
namespace {

using amp::CapturedStep;

/// Calls of a graph.
struct Calls {
  int warm_ups = 0, captures = 0, replays = 0, ends = 0;
};

/// Runs the work at capture and counts replays.
class CountingGraph : public DeviceGraph {
 public:
  explicit CountingGraph(Calls& calls) : calls_(calls) {}
  ~CountingGraph() override { ++calls_.ends; }
  void warm_up(const std::function<void()>& work) override {
    ++calls_.warm_ups;
    work();
  }
  void capture(const std::function<void()>& work) override {
    ++calls_.captures;
    work();
  }
  void replay() override { ++calls_.replays; }

 private:
  Calls& calls_;
};

CapturedStep counted(std::function<at::Tensor()> step, Calls& calls, std::int64_t warm_up = 2) {
  return CapturedStep(std::move(step), {.warm_up = warm_up},
                      std::make_unique<CountingGraph>(calls));
}

TEST(CapturedStep, warms_up_then_captures_once_and_replays_from_then_on) {
  Calls calls;
  int steps = 0;
  CapturedStep step = counted([&] { return at::full({}, ++steps); }, calls);
  EXPECT_EQ(calls.warm_ups, 0) << "before the first replay";
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(step.replay().item<int>(), i + 1);
    EXPECT_FALSE(step.is_captured());
    EXPECT_EQ(calls.replays, 0);
  }
  for (int i = 1; i <= 5; ++i) {
    EXPECT_EQ(step.replay().item<int>(), 3) << "the result of the captured call";
    EXPECT_TRUE(step.is_captured());
    EXPECT_EQ(calls.replays, i);
  }
  EXPECT_EQ(calls.warm_ups, 2);
  EXPECT_EQ(calls.captures, 1);
  EXPECT_EQ(steps, 3);
}

TEST(CapturedStep, can_be_moved_and_ends_its_graph) {
  Calls calls;
  {
    CapturedStep step = counted([] { return at::Tensor(); }, calls, 1);
    step.replay();
    CapturedStep moved = std::move(step);
    EXPECT_FALSE(moved.replay().defined());
    EXPECT_EQ(calls.replays, 1);
    EXPECT_EQ(calls.ends, 0);
  }
  EXPECT_EQ(calls.ends, 1);
}

TEST(CapturedStep, ends_its_graph_before_what_the_graph_replays) {
  for (const bool is_replaced : {false, true}) {
    SCOPED_TRACE(is_replaced);
    Calls calls, others;
    int graphs_ended = -1;  // when the state of the step was freed
    std::shared_ptr<int> number(new int(0), [&](const int* p) {
      graphs_ended = calls.ends;
      delete p;
    });
    {
      CapturedStep step =
          counted([number = std::move(number)] { return at::full({}, *number); }, calls, 1);
      step.replay();
      step.replay();
      if (is_replaced) {
        step = counted([] { return at::Tensor(); }, others, 1);
        EXPECT_EQ(graphs_ended, 1);
        EXPECT_FALSE(step.is_captured());
      }
    }
    EXPECT_EQ(graphs_ended, 1);
  }
}

TEST(CapturedStep, a_failed_capture_leaves_no_cast_in_an_outer_region) {
  const at::Tensor weight = at::ones({2, 2}, at::requires_grad());
  const auto multiply_weight = [&](double factor) {
    const at::NoGradGuard no_grad;
    weight.mul_(factor);
  };
  Calls calls;
  int steps = 0;
  CapturedStep step = counted(
      [&] {
        const bool fails = ++steps == 2;
        // A capture computes nothing, so a cast that it cached would hold other values.
        if (fails) multiply_weight(2);
        at::matmul(weight, weight);
        if (fails) multiply_weight(0.5);
        TORCH_CHECK(!fails, "cannot be captured");
        return at::Tensor();
      },
      calls, 1);
  const amp::Autocast region(at::kCPU, at::kBFloat16);
  step.replay();
  EXPECT_THROWS(InvalidArgument, "cannot be captured", step.replay());
  EXPECT_EQ(at::matmul(weight, weight).sum().item<double>(), 8);
}

TEST(CapturedStep, an_error_while_warming_up_passes_and_counts_no_step) {
  Calls calls;
  bool fails = true;
  CapturedStep step = counted(
      [&] {
        if (fails) throw std::runtime_error("out of data");
        return at::Tensor();
      },
      calls, 1);
  EXPECT_THROWS(std::runtime_error, "out of data", step.replay());
  fails = false;
  step.replay();
  EXPECT_EQ(calls.captures, 0);
  step.replay();
  EXPECT_TRUE(step.is_captured());
}

TEST(CapturedStep, what_cannot_be_captured_is_named_and_ends_it) {
  Calls calls;
  int steps = 0;
  CapturedStep step = counted(
      [&] {
        TORCH_CHECK(++steps < 3, "operation not permitted when stream is capturing");
        return at::Tensor();
      },
      calls);
  step.replay();
  step.replay();
  EXPECT_THROWS(InvalidArgument, "not permitted when stream is capturing", step.replay());
  EXPECT_THROWS(LogicError, "could not be captured", step.replay());
  EXPECT_FALSE(step.is_captured());
  EXPECT_EQ(calls.replays, 0);
}

TEST(CapturedStep, refuses_a_step_that_draws_on_the_host) {
  const at::Tensor x = at::ones({64});
  for (const bool drops : {false, true}) {
    Calls calls;
    CapturedStep step = counted(
        [&] { return mezzo::feature_dropout(x, drops ? 0.5 : 0.0, /*training=*/true); }, calls, 1);
    step.replay();
    if (!drops) {
      EXPECT_NO_THROW(step.replay());
      continue;
    }
    EXPECT_THROWS(InvalidArgument, "random numbers on the host", step.replay());
    EXPECT_EQ(calls.replays, 0);
  }
}

TEST(CapturedStep, has_dropout_draw_on_the_device_from_its_first_step_on) {
  Calls calls;
  std::vector<bool> on_device;
  CapturedStep step = counted(
      [&] {
        on_device.push_back(mezzo::detail::draw_dropout_seed(at::kCPU).offset.has_value());
        return at::Tensor();
      },
      calls, 1);
  EXPECT_NO_THROW(step.replay());
  EXPECT_THROW(step.replay(), InvalidArgument) << "the CPU's generator is the host's";
  EXPECT_EQ(on_device, (std::vector<bool>{true, true}));
  EXPECT_FALSE(mezzo::detail::draw_dropout_seed(at::kCPU).offset) << "outside of a step";
}

TEST(CapturedStep, refuses_stochastic_rounding_only_while_it_captures) {
  const at::Tensor values = at::ones({8}), rounded = at::empty({8}, at::kBFloat16);
  Calls calls;
  CapturedStep step = counted(
      [&] {
        amp::round_stochastically(values, rounded, {});
        return at::Tensor();
      },
      calls, 1);
  EXPECT_NO_THROW(step.replay());
  EXPECT_THROWS(InvalidArgument, "captured step", step.replay());
  EXPECT_NO_THROW(amp::round_stochastically(values, rounded, {}));
}

TEST(CapturedStep, refuses_a_result_that_holds_the_graph_of_its_gradients) {
  Calls calls;
  const at::Tensor weight = at::ones({2}).requires_grad_();
  CapturedStep step = counted([&] { return weight.sum(); }, calls, 1);
  EXPECT_THROWS(InvalidArgument, "detached", step.replay());
}

TEST(CapturedStep, refuses_options_without_sense) {
  Calls calls;
  const auto nothing = [] { return at::Tensor(); };
  EXPECT_THROWS(InvalidArgument, "warm_up", counted(nothing, calls, 0));
  EXPECT_THROWS(InvalidArgument, "function", counted(nullptr, calls));
  EXPECT_THROWS(InvalidArgument, "graph", CapturedStep(nothing, {}, nullptr));
  EXPECT_THROWS(InvalidArgument, "expected a CUDA device, got cpu",
                CapturedStep(nothing, {.device = at::kCPU}));
}

TEST(CapturedStep, without_the_cuda_library_the_error_names_it) {
  if (cuda_services() != nullptr) GTEST_SKIP() << "the CUDA library is loaded";
  EXPECT_TRUE(throws<InvalidArgument>([] { CapturedStep([] { return at::Tensor(); }); },
                                      {"mezzo's CUDA library, which is not loaded"}));
}

}  // namespace
}  // namespace mezzo::test
