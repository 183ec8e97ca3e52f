#include "mezzo/amp/autocast/autocast.h"

#include <optional>
#include <thread>
#include <type_traits>

#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>

#include "amp/autocast_support.h"
#include "support/tolerance.h"
#include "support/warnings.h"

namespace mezzo::test {
namespace {

using amp::Autocast;
using amp::kDisabled;

static_assert(!std::is_copy_constructible_v<Autocast> && !std::is_move_constructible_v<Autocast>);
static_assert(!std::is_copy_assignable_v<Autocast> && !std::is_move_assignable_v<Autocast>);
static_assert(std::is_nothrow_destructible_v<Autocast>);

struct State {
  bool enabled = at::autocast::is_autocast_enabled(test_device().type());
  at::ScalarType dtype = at::autocast::get_autocast_dtype(test_device().type());
  bool cache = at::autocast::is_autocast_cache_enabled();
  int nesting = at::autocast::increment_nesting() - 1;

  State() { at::autocast::decrement_nesting(); }
  bool operator==(const State&) const = default;
};

/// A weight, and its product with the identity, which shows the cached cast of the weight.
struct Weight {
  at::Tensor values = at::ones({2, 2}, on_device()).requires_grad_();
  at::Tensor seen() const { return at::mm(at::eye(2, on_device()), values); }
  void set(double value) {
    const at::NoGradGuard no_grad;
    values.fill_(value);
  }
  bool is_seen_as(double value) const { return exact(seen(), at::full({2, 2}, value)); }
};

TEST(Autocast, casts_products_down_and_returns_to_float32) {
  const State before;
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    {
      const Autocast autocast(test_device().type(), dtype);
      EXPECT_EQ(product_dtype(), dtype);
      EXPECT_EQ(State().nesting, 1);
    }
    EXPECT_EQ(product_dtype(), at::kFloat);
    EXPECT_EQ(State(), before);
  }
}

TEST(Autocast, leaves_doubles_integers_and_in_place_calls_alone) {
  const Autocast autocast(test_device().type(), at::kBFloat16);
  const at::Tensor x = at::ones({2, 2}, on_device());
  EXPECT_EQ(at::mm(x.to(at::kDouble), x.to(at::kDouble)).scalar_type(), at::kDouble);
  if (on_cpu()) {  // CUDA has no integer matrix product
    EXPECT_EQ(at::mm(x.to(at::kLong), x.to(at::kLong)).scalar_type(), at::kLong);
  }
  EXPECT_EQ(at::ones({2, 2}, on_device()).addmm_(x, x).scalar_type(), at::kFloat);
}

TEST(Autocast, without_a_dtype_takes_that_of_the_device_or_of_the_enclosing_region) {
  const Autocast outer(test_device().type());
  EXPECT_EQ(product_dtype(), on_cpu() ? at::kBFloat16 : at::kHalf);
  const Autocast half(test_device().type(), at::kHalf);
  const Autocast inner(test_device().type());
  EXPECT_EQ(product_dtype(), at::kHalf);
}

TEST(Autocast, regions_nest_and_restore_dtype_flag_and_cache) {
  const State before;
  {
    const Autocast outer(test_device().type(), at::kBFloat16, {.cache = false});
    {
      const Autocast off(test_device().type(), kDisabled, {.cache = true});
      EXPECT_EQ(product_dtype(), at::kFloat);
      EXPECT_TRUE(State().cache);
      {
        const Autocast inner(test_device().type(), at::kHalf);
        EXPECT_EQ(product_dtype(), at::kHalf);
        EXPECT_EQ(State().nesting, 3);
      }
      EXPECT_EQ(product_dtype(), at::kFloat);
    }
    EXPECT_EQ(product_dtype(), at::kBFloat16);
    EXPECT_FALSE(State().cache);
  }
  EXPECT_EQ(State(), before);
}

TEST(Autocast, a_disabled_region_casts_nothing_back_up) {
  const at::Tensor x = at::ones({2, 2}, on_device());
  const Autocast outer(test_device().type(), at::kBFloat16);
  const at::Tensor y = at::mm(x, x);
  const Autocast off(test_device().type(), kDisabled);
  EXPECT_THROW(at::mm(y, x), c10::Error);
  EXPECT_EQ(at::mm(y.to(at::kFloat), x).scalar_type(), at::kFloat);
}

TEST(Autocast, an_exception_restores_every_level) {
  const State before;
  try {
    const Autocast outer(test_device().type(), at::kHalf, {.cache = false});
    const Autocast off(test_device().type(), kDisabled);
    const Autocast inner(test_device().type(), at::kBFloat16);
    throw std::runtime_error("in the region");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(State(), before);
}

TEST(Autocast, an_unsupported_dtype_is_an_error_that_names_the_supported_ones) {
  const State before;
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kInt, at::kFloat8_e5m2}) {
    EXPECT_THROWS(InvalidArgument,
                  on_cpu() ? "BFloat16 or Half for cpu" : "BFloat16 or Half for cuda",
                  Autocast(test_device().type(), dtype));
  }
  EXPECT_EQ(State(), before);
}

TEST(Autocast, a_device_without_autocast_is_an_error) {
  const State before;
  EXPECT_THROWS(InvalidArgument, "got meta", Autocast(at::kMeta, at::kHalf));
  EXPECT_THROWS(InvalidArgument, "got meta", Autocast(at::kMeta, kDisabled));
  EXPECT_THROWS(InvalidArgument, "got meta", Autocast region(at::kMeta));
  EXPECT_EQ(State(), before);
}

TEST(Autocast, for_a_missing_cuda_warns_and_is_disabled) {
  if (at::globalContext().hasCUDA()) GTEST_SKIP() << "this machine has CUDA";
  Warnings warnings;
  const Autocast autocast(at::kCUDA, at::kHalf);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCUDA));
  ASSERT_EQ(warnings.texts.size(), 1U);
  EXPECT_NE(warnings.texts[0].find("not available"), std::string::npos);
}

TEST(Autocast, casts_a_weight_once_until_the_outermost_region_ends) {
  Weight weight;
  {
    const Autocast outer(test_device().type(), at::kBFloat16);
    EXPECT_TRUE(weight.is_seen_as(1));
    weight.set(2);
    { const Autocast inner(test_device().type(), at::kBFloat16); }
    EXPECT_TRUE(weight.is_seen_as(1)) << "the end of an inner region must keep the cache";
  }
  const Autocast next(test_device().type(), at::kBFloat16);
  EXPECT_TRUE(weight.is_seen_as(2));
}

TEST(Autocast, without_the_cache_sees_every_change_of_a_weight) {
  Weight weight;
  const Autocast autocast(test_device().type(), at::kBFloat16, {.cache = false});
  EXPECT_TRUE(weight.is_seen_as(1));
  weight.set(2);
  EXPECT_TRUE(weight.is_seen_as(2));
}

TEST(Autocast, a_disabled_outermost_region_holds_the_cache_and_clears_it) {
  Weight weight;
  {
    const Autocast off(test_device().type(), kDisabled);
    {
      const Autocast inner(test_device().type(), at::kBFloat16);
      EXPECT_TRUE(weight.is_seen_as(1));
    }
    weight.set(2);
    const Autocast again(test_device().type(), at::kBFloat16);
    EXPECT_TRUE(weight.is_seen_as(1));
  }
  const Autocast next(test_device().type(), at::kBFloat16);
  EXPECT_TRUE(weight.is_seen_as(2));
}

TEST(Autocast, regions_of_different_dtypes_do_not_share_casts) {
  const Weight weight;
  const Autocast outer(test_device().type(), at::kHalf);
  EXPECT_EQ(weight.seen().scalar_type(), at::kHalf);
  {
    const Autocast inner(test_device().type(), at::kBFloat16);
    EXPECT_EQ(weight.seen().scalar_type(), at::kBFloat16);
    {
      const Autocast off(test_device().type(), kDisabled);
      const Autocast innermost(test_device().type(), at::kHalf);
      EXPECT_EQ(weight.seen().scalar_type(), at::kHalf);
    }
    EXPECT_EQ(weight.seen().scalar_type(), at::kBFloat16);
  }
  EXPECT_EQ(weight.seen().scalar_type(), at::kHalf);
}

TEST(Autocast, a_cast_cached_without_gradients_does_not_lose_the_graph_later) {
  const Weight weight;
  const Autocast autocast(test_device().type(), at::kBFloat16);
  {
    const at::NoGradGuard no_grad;
    EXPECT_FALSE(weight.seen().requires_grad());
  }
  EXPECT_TRUE(weight.seen().requires_grad());
}

TEST(Autocast, the_backward_outside_gives_float32_gradients_at_the_leaves) {
  const Weight weight;
  at::Tensor hidden;
  {
    const Autocast autocast(test_device().type(), at::kBFloat16);
    hidden = weight.seen();
    hidden.retain_grad();
  }
  (hidden * 3).sum().backward();
  EXPECT_EQ(hidden.grad().scalar_type(), at::kBFloat16);
  EXPECT_EQ(weight.values.grad().scalar_type(), at::kFloat);
  EXPECT_TRUE(exact(weight.values.grad(), at::full({2, 2}, 3.0)));
}

TEST(Autocast, concerns_one_thread_unless_its_state_is_handed_on) {
  const Autocast autocast(test_device().type(), at::kHalf);
  at::ScalarType plain = at::kDouble, handed_on = at::kDouble, own = at::kDouble;
  const at::ThreadLocalState state;
  std::thread([&] {
    plain = product_dtype();
    {
      const Autocast inner(test_device().type(), at::kBFloat16, {.cache = false});
      own = product_dtype();
    }
    const at::ThreadLocalStateGuard guard(state);
    handed_on = product_dtype();
  }).join();
  EXPECT_EQ(plain, at::kFloat);
  EXPECT_EQ(own, at::kBFloat16);
  EXPECT_EQ(handed_on, at::kHalf);
  EXPECT_EQ(product_dtype(), at::kHalf);
}

TEST(Autocast, ended_on_another_thread_warns_and_leaves_that_thread_as_it_was) {
  const State before;
  std::optional<Autocast> region;
  std::thread([&] { region.emplace(test_device().type(), at::kHalf); }).join();
  Warnings warnings;
  {
    const Autocast own(test_device().type(), at::kBFloat16);
    region.reset();
    EXPECT_EQ(product_dtype(), at::kBFloat16);
  }
  ASSERT_EQ(warnings.texts.size(), 1U);
  EXPECT_NE(warnings.texts[0].find("another thread"), std::string::npos);
  EXPECT_EQ(State(), before);
}

}  // namespace
}  // namespace mezzo::test
