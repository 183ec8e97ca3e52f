#include "mezzo/amp/autocast/custom_function.h"

#include <array>
#include <cstdlib>
#include <map>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "mezzo/amp/autocast/autocast.h"
#include "mezzo/amp/precision.h"

#include "support/devices.h"
#include "support/errors.h"

namespace mezzo::test {
namespace {

using amp::Autocast;
using amp::AutocastState;
using amp::kDisabled;
using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

/// Autocast state and dtypes in the last forward and backward.
struct Seen {
  AutocastState state;
  std::vector<at::ScalarType> dtypes;
};
Seen seen_forward, seen_backward;

amp::DeviceAutocast cpu_state(const Seen& seen) {
  return seen.state.get(test_device().type());
}

/// x * w, with the caller's options.
struct Product : Function<Product> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& w,
                        const amp::CustomForwardOptions& options) {
    return amp::custom_forward(
        context, options,
        [&](const Tensor& input, const Tensor& weight) {
          context->save_for_backward({input, weight});
          seen_forward = {AutocastState(), {input.scalar_type(), weight.scalar_type()}};
          return at::mm(input, weight);
        },
        x, w);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    return amp::custom_backward(context, [&] {
      const variable_list saved = context->get_saved_variables();
      const Tensor grad_x = at::mm(grads[0], saved[1].t());
      seen_backward = {AutocastState(), {grads[0].scalar_type(), grad_x.scalar_type()}};
      return variable_list{grad_x, at::mm(saved[0].t(), grads[0]), Tensor()};
    });
  }
};

const amp::CustomForwardOptions kPlain{.device = test_device().type(), .cast_inputs = std::nullopt};
const amp::CustomForwardOptions kInFloat32{.device = test_device().type(),
                                           .cast_inputs = at::kFloat};

struct Operands {
  Tensor x = at::rand({4, 3}, on_device()).requires_grad_();
  Tensor w = at::rand({3, 5}, on_device()).requires_grad_();
};

using Dtypes = std::vector<at::ScalarType>;

TEST(CustomFunction, with_cast_inputs_runs_forward_and_backward_in_that_dtype) {
  const Operands operands, same{operands.x.detach().clone().requires_grad_(),
                                operands.w.detach().clone().requires_grad_()};
  Tensor y;
  {
    const Autocast autocast(test_device().type(), at::kBFloat16);
    y = Product::apply(operands.x, operands.w, kInFloat32);
    EXPECT_FALSE(cpu_state(seen_forward).enabled);
    EXPECT_TRUE(AutocastState().get(test_device().type()).enabled)
        << "the region goes on after the call";
    y.sum().backward();  // inside the region, which casts ordinary code
  }
  EXPECT_FALSE(cpu_state(seen_backward).enabled);
  EXPECT_EQ(seen_backward.dtypes, (Dtypes{at::kFloat, at::kFloat}));
  const Tensor expected = at::mm(same.x, same.w);
  expected.sum().backward();
  EXPECT_TRUE(at::equal(y, expected));
  EXPECT_TRUE(at::equal(operands.x.grad(), same.x.grad()));
  EXPECT_TRUE(at::equal(operands.w.grad(), same.w.grad()));
}

TEST(CustomFunction, with_cast_inputs_16_bit_operands_get_16_bit_gradients) {
  const Operands operands;
  const Tensor x = operands.x.detach().to(at::kBFloat16).requires_grad_();
  {
    const Autocast autocast(test_device().type(), at::kBFloat16);
    const Tensor y = Product::apply(x, operands.w, kInFloat32);
    EXPECT_EQ(y.scalar_type(), at::kFloat);
    EXPECT_EQ(seen_forward.dtypes, (Dtypes{at::kFloat, at::kFloat}));
    y.sum().backward();
  }
  EXPECT_EQ(seen_backward.dtypes, (Dtypes{at::kFloat, at::kFloat}));
  EXPECT_EQ(x.grad().scalar_type(), at::kBFloat16);
  EXPECT_EQ(operands.w.grad().scalar_type(), at::kFloat);
  const Tensor expected = at::mm(at::ones({4, 5}, on_device()), operands.w.detach().t());
  EXPECT_TRUE(at::equal(x.grad(), expected.to(at::kBFloat16)));
}

TEST(CustomFunction, cast_inputs_may_be_the_16_bit_dtype_or_float64) {
  const Operands operands;
  const Autocast autocast(test_device().type(), at::kBFloat16);
  for (const at::ScalarType dtype : {at::kHalf, at::kDouble}) {
    const Tensor y = Product::apply(
        operands.x, operands.w,
        amp::CustomForwardOptions{.device = test_device().type(), .cast_inputs = dtype});
    EXPECT_EQ(y.scalar_type(), dtype);
    y.sum().backward();
    EXPECT_EQ(seen_backward.dtypes, (Dtypes{dtype, dtype}));
  }
  EXPECT_EQ(operands.x.grad().scalar_type(), at::kFloat);
}

TEST(CustomFunction, without_cast_inputs_the_backward_outside_runs_in_the_stored_dtype) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const Operands operands;
    Tensor y;
    {
      const Autocast autocast(test_device().type(), dtype);
      y = Product::apply(operands.x, operands.w, kPlain);
    }
    EXPECT_EQ(y.scalar_type(), dtype);
    EXPECT_EQ(seen_forward.dtypes, (Dtypes{at::kFloat, at::kFloat})) << "arguments as they came";
    y.sum().backward();
    EXPECT_EQ(cpu_state(seen_backward), (amp::DeviceAutocast{.enabled = true, .dtype = dtype}));
    EXPECT_EQ(seen_backward.dtypes, (Dtypes{dtype, dtype}));
    EXPECT_EQ(operands.x.grad().scalar_type(), at::kFloat);
    EXPECT_FALSE(AutocastState().get(test_device().type()).enabled)
        << "the backward's region has ended";
  }
}

TEST(CustomFunction, the_backward_follows_the_forward_on_another_thread_and_in_another_region) {
  const Operands operands;
  Tensor y;
  {
    const Autocast autocast(test_device().type(), at::kBFloat16);
    y = Product::apply(operands.x, operands.w, kPlain).sum();
  }
  std::thread([&] {
    const Autocast autocast(test_device().type(), at::kHalf);
    y.backward();
    EXPECT_EQ(AutocastState().get(test_device().type()).dtype, at::kHalf);
  }).join();
  EXPECT_EQ(seen_backward.dtypes, (Dtypes{at::kBFloat16, at::kBFloat16}));
}

TEST(CustomFunction, the_backward_has_the_cpu_policy_of_the_forward) {
  MEZZO_CPU_ONLY("the CPU's policy");
  setenv("MEZZO_CPU_POLICY", "float32", /*overwrite=*/1);
  // 1.5 (1 + 2^-8) rounds to 1.5078125; with a bfloat16 weight, which is 1, it is 1.5.
  const Tensor x = at::ones({1, 1}).requires_grad_(), w = at::full({1, 1}, 1.00390625);
  for (const amp::CpuPolicy policy : {amp::CpuPolicy::kMeasure, amp::CpuPolicy::kOff}) {
    x.mutable_grad().reset();
    Tensor y;
    {
      const amp::PrecisionScope scope(amp::Precision::kBFloat16, at::kCPU, {.cpu_policy = policy});
      y = Product::apply(x, w, kPlain);
    }
    y.backward(at::full({1, 1}, 1.5, at::kBFloat16));
    EXPECT_EQ(seen_backward.state.cpu_policy(), policy);
    EXPECT_EQ(x.grad().item<float>(), policy == amp::CpuPolicy::kOff ? 1.5F : 1.5078125F);
    EXPECT_EQ(AutocastState().cpu_policy(), amp::CpuPolicy::kOff)
        << "the backward's region has ended";
  }
  unsetenv("MEZZO_CPU_POLICY");
}

TEST(CustomFunction, outside_a_region_changes_nothing) {
  for (const amp::CustomForwardOptions& options :
       {kPlain, kInFloat32,
        amp::CustomForwardOptions{.device = test_device().type(), .cast_inputs = at::kHalf}}) {
    const Operands operands;
    const Tensor y = Product::apply(operands.x, operands.w, options);
    EXPECT_TRUE(at::equal(y, at::mm(operands.x, operands.w)));
    const Autocast autocast(test_device().type(), at::kBFloat16);
    y.sum().backward();
    EXPECT_FALSE(cpu_state(seen_backward).enabled) << "as the forward, though a region is open";
    EXPECT_EQ(seen_backward.dtypes, (Dtypes{at::kFloat, at::kFloat}));
  }
  const Autocast outer(test_device().type(), at::kBFloat16);
  const Autocast off(test_device().type(), kDisabled);
  const Operands operands;
  const Tensor half = operands.x.detach().to(at::kHalf);
  EXPECT_EQ(Product::apply(half, operands.w.detach().to(at::kHalf), kInFloat32).scalar_type(),
            at::kHalf);
}

TEST(CustomFunction, another_device_types_region_does_not_concern_it) {
  const Operands operands;
  const Autocast autocast(test_device().type(), at::kBFloat16);
  const amp::CustomForwardOptions on_xpu{.device = at::kXPU, .cast_inputs = at::kDouble};
  EXPECT_EQ(Product::apply(operands.x, operands.w, on_xpu).scalar_type(), at::kBFloat16);
  EXPECT_EQ(seen_forward.dtypes, (Dtypes{at::kFloat, at::kFloat}));
}

/// Calls Product inside another function, so two states exist at once.
struct TwoProducts : Function<TwoProducts> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& w) {
    return amp::custom_forward(
        context, kPlain,
        [&](const Tensor& input, const Tensor& weight) {
          context->save_for_backward({input, weight});
          return at::mm(Product::apply(input, weight, kInFloat32).t(), input);
        },
        x, w);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    return amp::custom_backward(context, [&] {
      const at::AutoGradMode with_gradients(true);
      const variable_list saved = context->get_saved_variables();
      const Tensor x = saved[0].detach().requires_grad_(), w = saved[1].detach().requires_grad_();
      const Tensor inner = Product::apply(x, w, kInFloat32);
      EXPECT_EQ(inner.scalar_type(), at::kFloat);
      const Tensor y = at::mm(inner.t(), x);
      EXPECT_EQ(y.scalar_type(), at::kBFloat16);
      y.backward(grads[0]);
      return variable_list{x.grad(), w.grad()};
    });
  }
};

TEST(CustomFunction, nests) {
  const Operands operands;
  Tensor y;
  {
    const Autocast autocast(test_device().type(), at::kBFloat16);
    y = TwoProducts::apply(operands.x, operands.w);
  }
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  y.sum().backward();
  EXPECT_FALSE(cpu_state(seen_backward).enabled) << "the inner function's own state";
  EXPECT_EQ(operands.w.grad().scalar_type(), at::kFloat);
  EXPECT_FALSE(AutocastState().get(test_device().type()).enabled);
}

/// Runs `function` on `args` like a forward with cast_inputs = float32 in a float16 region.
template <class Call, class... Args>
auto forwarded(Call call, Args&&... args) {
  const Autocast autocast(test_device().type(), at::kHalf);
  AutogradContext context;
  return amp::custom_forward(&context, kInFloat32, call, std::forward<Args>(args)...);
}

TEST(CustomFunction, casts_eligible_tensors_only) {
  const Tensor half = at::ones({2}, on_device(at::kHalf));
  const auto dtype_of = [](const Tensor& t) { return t.scalar_type(); };
  EXPECT_EQ(forwarded(dtype_of, half), at::kFloat);
  EXPECT_EQ(forwarded(dtype_of, half.to(at::kBFloat16)), at::kFloat);
  EXPECT_EQ(forwarded(dtype_of, half.to(at::kDouble)), at::kDouble);
  EXPECT_EQ(forwarded(dtype_of, half.to(at::kLong)), at::kLong);
  EXPECT_EQ(forwarded(dtype_of, half.to(at::kBool)), at::kBool);
  EXPECT_EQ(forwarded(dtype_of, half.to(at::kComplexFloat)), at::kComplexFloat);
  EXPECT_EQ(forwarded(dtype_of, at::ones({2}, at::device(at::kMeta).dtype(at::kHalf))), at::kHalf);
  EXPECT_FALSE(forwarded([](const Tensor& t) { return t.defined(); }, Tensor()));
  const Tensor single = at::ones({2}, on_device());
  EXPECT_TRUE(forwarded([&](const Tensor& t) { return t.is_same(single); }, single));
}

TEST(CustomFunction, casts_tensors_in_optionals_tuples_and_containers) {
  const Tensor half = at::ones({2}, on_device(at::kHalf));
  const auto is_float = [](const Tensor& t) { return t.scalar_type() == at::kFloat; };
  EXPECT_TRUE(forwarded([&](const std::optional<Tensor>& t) { return is_float(*t); },
                        std::optional<Tensor>(half)));
  EXPECT_FALSE(forwarded([](const std::optional<Tensor>& t) { return t.has_value(); },
                         std::optional<Tensor>()));
  EXPECT_TRUE(forwarded([&](const variable_list& list) { return is_float(list.at(1)); },
                        variable_list{half, half}));
  EXPECT_TRUE(forwarded(
      [&](const std::vector<std::optional<Tensor>>& list) {
        return is_float(*list.at(1)) && !list.at(0);
      },
      std::vector<std::optional<Tensor>>{std::nullopt, half}));
  EXPECT_TRUE(forwarded([&](const std::array<Tensor, 2>& list) { return is_float(list[1]); },
                        std::array<Tensor, 2>{half, half}));
  EXPECT_TRUE(forwarded([&](const std::tuple<int, Tensor>& t) { return is_float(std::get<1>(t)); },
                        std::tuple<int, Tensor>{1, half}));
  EXPECT_TRUE(forwarded(
      [&](const std::map<std::string, variable_list>& named) {
        return is_float(named.at("weights").at(0));
      },
      std::map<std::string, variable_list>{{"weights", {half}}}));
  const variable_list list{half, half};
  EXPECT_TRUE(forwarded([&](const variable_list& cast) { return is_float(cast.at(1)); },
                        at::TensorList(list)));
  EXPECT_EQ(list[0].scalar_type(), at::kHalf) << "the caller's own container";
}

TEST(CustomFunction, hands_other_arguments_through_by_reference) {
  std::string text = "text";
  std::vector<int> numbers{1, 2};
  EXPECT_TRUE(forwarded(
      [&](std::string& t, const std::vector<int>& n, int i) {
        t += "!";
        return &t == &text && &n == &numbers && i == 3;
      },
      text, numbers, 3));
  EXPECT_EQ(text, "text!");
}

struct Forgetful : Function<Forgetful> {
  static Tensor forward(AutogradContext* /*context*/, const Tensor& x) { return x * 2; }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    return amp::custom_backward(context, [&] { return variable_list{grads[0] * 2}; });
  }
};

TEST(CustomFunction, a_backward_whose_forward_saved_nothing_is_an_error) {
  const Tensor y = Forgetful::apply(at::ones({2}, on_device()).requires_grad_()).sum();
  EXPECT_THROWS(LogicError, "saved by the forward, got none", y.backward());
}

TEST(CustomFunction, unusable_options_are_errors) {
  AutogradContext context;
  const auto run = [&](AutogradContext* pointer, const amp::CustomForwardOptions& options) {
    return amp::custom_forward(pointer, options, [] { return 0; });
  };
  EXPECT_THROWS(InvalidArgument, "got a null pointer", run(nullptr, kPlain));
  EXPECT_THROWS(InvalidArgument, "got meta",
                run(&context, {.device = at::kMeta, .cast_inputs = at::kFloat}));
  EXPECT_THROWS(InvalidArgument, "floating dtype for cast_inputs, got Long",
                run(&context, {.device = test_device().type(), .cast_inputs = at::kLong}));
}

TEST(CustomFunction, an_exception_in_the_forward_restores_the_region) {
  const Autocast autocast(test_device().type(), at::kBFloat16);
  AutogradContext context;
  EXPECT_THROW(
      amp::custom_forward(&context, kInFloat32, []() -> int { throw LogicError("inside"); }),
      LogicError);
  EXPECT_TRUE(AutocastState().get(test_device().type()).enabled);
}

}  // namespace
}  // namespace mezzo::test
