#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include "mezzo/amp/autocast/autocast.h"

#include "support/devices.h"
#include "support/errors.h"

namespace mezzo::test {
namespace {

const CpuOnlySuite kAutocastStateOnCpu("AutocastState", "the CPU's state beside CUDA's");

using amp::Autocast;
using amp::AutocastState;
using amp::kDisabled;
using at::Tensor;

at::ScalarType cpu_product_dtype() {
  const Tensor x = at::ones({2, 2});
  return at::mm(x, x).scalar_type();
}

Tensor cpu_cast_of(const Tensor& weight) {
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(at::kCPU), weight, at::kCPU);
}

/// Calls `function` on a new thread and returns the exception it threw.
template <class Function>
std::exception_ptr on_new_thread(Function function) {
  std::exception_ptr error;
  std::thread([&] {
    try {
      function();
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  return error;
}

TEST(AutocastState, holds_every_device_type_and_the_cache_flag_of_the_thread) {
  const AutocastState outside;
  EXPECT_FALSE(outside.get(at::kCPU).enabled);
  EXPECT_TRUE(outside.cache());
  const Autocast cpu(at::kCPU, at::kHalf, {.cache = false});
  at::autocast::set_autocast_enabled(at::kXPU, true);
  const AutocastState inside;
  at::autocast::set_autocast_enabled(at::kXPU, false);
  EXPECT_EQ(inside.get(at::kCPU), (amp::DeviceAutocast{.enabled = true, .dtype = at::kHalf}));
  EXPECT_TRUE(inside.get(at::kXPU).enabled);
  EXPECT_FALSE(inside.get(at::kCUDA).enabled);
  EXPECT_FALSE(inside.cache());
  EXPECT_NE(inside, outside);
}

TEST(AutocastState, takes_a_region_to_a_new_thread_and_leaves_it_as_it_was) {
  const Autocast autocast(at::kCPU, at::kHalf, {.cache = false});
  const AutocastState state;
  std::vector<at::ScalarType> dtypes;
  EXPECT_EQ(on_new_thread([&] {
              const AutocastState before;
              dtypes.push_back(cpu_product_dtype());
              dtypes.push_back(state.run([&] {
                EXPECT_EQ(AutocastState(), state);
                return cpu_product_dtype();
              }));
              dtypes.push_back(cpu_product_dtype());
              EXPECT_EQ(AutocastState(), before);
            }),
            nullptr);
  EXPECT_EQ(dtypes, (std::vector{at::kFloat, at::kHalf, at::kFloat}));
  EXPECT_EQ(cpu_product_dtype(), at::kHalf) << "the thread that it came from";
}

TEST(AutocastState, outlives_the_region_that_it_was_taken_from) {
  std::optional<AutocastState> state;
  {
    const Autocast autocast(at::kCPU, at::kBFloat16);
    state.emplace();
  }
  EXPECT_EQ(state->run(cpu_product_dtype), at::kBFloat16);
  EXPECT_EQ(cpu_product_dtype(), at::kFloat);
}

TEST(AutocastState, wraps_a_function_with_its_arguments_and_result) {
  std::optional<Autocast> region;
  region.emplace(at::kCPU, at::kBFloat16);
  auto product = AutocastState().wrap(
      [calls = 0](const Tensor& x, int& count) mutable { return count = ++calls, at::mm(x, x); });
  region.reset();
  int count = 0;
  EXPECT_EQ(on_new_thread([&] {
              for (int call = 0; call < 2; ++call) {
                EXPECT_EQ(product(at::ones({2, 2}), count).scalar_type(), at::kBFloat16);
              }
            }),
            nullptr);
  EXPECT_EQ(count, 2);
}

TEST(AutocastState, hands_references_and_move_only_values_through) {
  const AutocastState state;
  Tensor target = at::zeros({1});
  EXPECT_EQ(&state.run([&]() -> Tensor& { return target; }), &target);
  const auto moved = state.run([](std::unique_ptr<int> p) { return p; }, std::make_unique<int>(3));
  EXPECT_EQ(*moved, 3);
}

TEST(AutocastState, an_exception_restores_the_thread_and_arrives) {
  const Autocast autocast(at::kCPU, at::kHalf);
  const AutocastState state;
  const std::exception_ptr error = on_new_thread([&] {
    const AutocastState before;
    EXPECT_THROW(state.run([] {
      const Autocast inner(at::kCPU, at::kBFloat16);
      throw std::runtime_error("in the region");
    }),
                 std::runtime_error);
    EXPECT_EQ(AutocastState(), before);
    state.run([] { throw std::runtime_error("out of the thread"); });
  });
  EXPECT_THROW(std::rethrow_exception(error), std::runtime_error);
}

TEST(AutocastState, of_a_disabled_region_disables) {
  std::optional<AutocastState> off;
  {
    const Autocast disabled(at::kCPU, kDisabled);
    off.emplace();
  }
  const Autocast autocast(at::kCPU, at::kBFloat16);
  EXPECT_EQ(off->run(cpu_product_dtype), at::kFloat);
  EXPECT_EQ(cpu_product_dtype(), at::kBFloat16);
}

TEST(AutocastState, regions_inside_a_call_do_not_end_its_casts_but_its_end_does) {
  const Tensor weight = at::ones({2, 2}).requires_grad_();
  std::optional<AutocastState> state;
  {
    const Autocast autocast(at::kCPU, at::kBFloat16);
    state.emplace();
  }
  const Tensor first = state->run([&] {
    const Tensor cast = cpu_cast_of(weight);
    { const Autocast inner(at::kCPU, at::kBFloat16); }
    EXPECT_TRUE(cpu_cast_of(weight).is_same(cast));
    return cast;
  });
  EXPECT_FALSE(state->run([&] { return cpu_cast_of(weight); }).is_same(first));
}

TEST(AutocastState, a_call_inside_a_region_of_its_dtype_shares_the_casts) {
  const Tensor weight = at::ones({2, 2}).requires_grad_();
  const Autocast autocast(at::kCPU, at::kBFloat16);
  const AutocastState state;
  const Tensor cast = cpu_cast_of(weight);
  EXPECT_TRUE(state.run([&] { return cpu_cast_of(weight); }).is_same(cast));
  EXPECT_TRUE(cpu_cast_of(weight).is_same(cast));
}

TEST(AutocastState, a_call_inside_a_region_of_another_dtype_makes_its_own_casts) {
  const Tensor weight = at::ones({2, 2}).requires_grad_();
  std::optional<AutocastState> half;
  {
    const Autocast autocast(at::kCPU, at::kHalf);
    half.emplace();
  }
  const Autocast autocast(at::kCPU, at::kBFloat16);
  EXPECT_EQ(cpu_cast_of(weight).scalar_type(), at::kBFloat16);
  EXPECT_EQ(half->run([&] { return cpu_cast_of(weight).scalar_type(); }), at::kHalf);
  EXPECT_EQ(cpu_cast_of(weight).scalar_type(), at::kBFloat16);
}

TEST(AutocastState, workers_of_one_region_agree_with_its_thread) {
  const Tensor x = at::rand({16, 16}), weight = at::rand({16, 16}).requires_grad_();
  const Autocast autocast(at::kCPU, at::kBFloat16);
  const AutocastState state;
  const Tensor expected = at::mm(x, weight);
  std::vector<Tensor> results(4);
  std::vector<std::thread> workers;
  for (Tensor& result : results) {
    workers.emplace_back(state.wrap([&] {
      for (int round = 0; round < 20; ++round) result = at::mm(x, weight);
    }));
  }
  for (std::thread& worker : workers) worker.join();
  for (const Tensor& result : results) {
    EXPECT_TRUE(at::equal(result, expected));
    EXPECT_TRUE(result.requires_grad());
  }
}

TEST(AutocastState, a_device_type_without_autocast_is_an_error) {
  AutocastState state;
  EXPECT_THROWS(InvalidArgument, "got meta", state.get(at::kMeta));
  EXPECT_THROWS(InvalidArgument, "got meta", state.set(at::kMeta, {}));
}

}  // namespace
}  // namespace mezzo::test
