

#include "mezzo/amp/optim/mixed_precision_optimizer.h"

#include "support/tolerance.h"

namespace mezzo::test {
namespace {

using amp::round_stochastically;
using amp::round_stochastically_by_operations;
using amp::RoundingKey;

at::Tensor rounded(const at::Tensor& values, const RoundingKey& key) {
  const at::Tensor result = at::empty(values.sizes(), on_device(at::kBFloat16));
  round_stochastically(values, result, key);
  return result;
}

/// Whether `successes` is within five standard deviations of its mean in `count` draws of
/// `probability`.
testing::AssertionResult binomial(std::int64_t successes, std::int64_t count, double probability) {
  const auto n = static_cast<double>(count);
  const double allowed = 5 * std::sqrt(n * probability * (1 - probability));
  const double distance = std::abs(static_cast<double>(successes) - n * probability);
  if (distance <= allowed) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << successes << " of " << count << ", expected the share " << probability;
}

TEST(StochasticRounding, keeps_what_bfloat16_represents) {
  const at::Tensor all =
      at::arange(0x10000, on_device(at::kInt)).to(at::kShort).view(at::kBFloat16);
  for (std::uint64_t step = 0; step < 8; ++step) {
    EXPECT_TRUE(exact(rounded(all.to(at::kFloat), {.step = step}), all));
  }
}

TEST(StochasticRounding, keeps_signs_infinities_and_nan) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const at::Tensor values =
      on_device(at::tensor({0.0F, -0.0F, kInfinity, -kInfinity, std::nanf(""), -std::nanf("1")}));
  // Two NaNs: one has its payload only in the discarded bits, the other could overflow with random
  // bits.
  const at::Tensor bits = on_device(at::tensor({0x7F800001, 0x7FFFFFFF}, at::kInt));
  for (std::uint64_t step = 0; step < 64; ++step) {
    const at::Tensor result = rounded(values, {.step = step});
    EXPECT_TRUE(exact(result, values));
    EXPECT_TRUE(at::equal(at::signbit(result.to(at::kFloat)), at::signbit(values)));
    EXPECT_TRUE(rounded(bits.view(at::kFloat), {.step = step}).isnan().all().item<bool>());
  }
}

TEST(StochasticRounding, goes_to_the_neighbours_in_the_share_of_the_distances) {
  constexpr std::int64_t kDraws = 100'000;
  for (const double sign : {1.0, -1.0}) {
    for (const double share : {0x1p-16, 0x1p-8, 0.25, 0.5, 0.75, 1 - 0x1p-16}) {
      for (const double lower : {1.0, 0x1.fep0, 0x1p-126, 0x1.04p100}) {
        const double gap = std::ldexp(0x1p-7, std::ilogb(lower));
        const at::Tensor values =
            at::full({kDraws}, sign * (lower + share * gap), on_device(at::kFloat));
        const at::Tensor result = rounded(values, {.seed = 3}).to(at::kDouble);
        const at::Tensor up = result.eq(sign * (lower + gap));
        EXPECT_TRUE(result.eq(sign * lower).logical_or(up).all().item<bool>());
        EXPECT_TRUE(binomial(up.sum().item<std::int64_t>(), kDraws, share)) << sign * lower;
      }
    }
  }
}

TEST(StochasticRounding, draws_are_independent_between_steps_parameters_and_seeds) {
  constexpr std::int64_t kDraws = 100'000;
  const at::Tensor halfway = at::full({kDraws}, 1 + 0x1p-8, on_device(at::kFloat));
  const at::Tensor first = rounded(halfway, {.seed = 1, .step = 1, .parameter = 1});
  EXPECT_TRUE(same_bits(first, rounded(halfway, {.seed = 1, .step = 1, .parameter = 1})));
  for (const RoundingKey& other : {RoundingKey{.seed = 2, .step = 1, .parameter = 1},
                                   RoundingKey{.seed = 1, .step = 2, .parameter = 1},
                                   RoundingKey{.seed = 1, .step = 1, .parameter = 2}}) {
    const std::int64_t equal = first.eq(rounded(halfway, other)).sum().item<std::int64_t>();
    EXPECT_TRUE(binomial(equal, kDraws, 0.5));
  }
  const std::int64_t equal = first.slice(0, 1).eq(first.slice(0, 0, -1)).sum().item<std::int64_t>();
  EXPECT_TRUE(binomial(equal, kDraws - 1, 0.5)) << "neighbouring elements";
}

TEST(StochasticRounding, bits_do_not_depend_on_threads_or_strides) {
  const at::Tensor values = uniform({301, 103}, at::kFloat, 4);
  const RoundingKey key{.seed = 0x123456789ABCDEF, .step = (1ULL << 40) - 1, .parameter = 77};
  at::Tensor one_thread;
  {
    const ThreadCount threads(1);
    one_thread = rounded(values, key);
  }
  const ThreadCount threads(4);
  EXPECT_TRUE(same_bits(rounded(values, key), one_thread));
  const at::Tensor transposed = at::empty({103, 301}, on_device(at::kBFloat16)).t();
  round_stochastically(values.t().contiguous().t(), transposed, key);
  EXPECT_TRUE(same_bits(transposed, one_thread));
}

TEST(StochasticRounding, other_devices_compute_the_same_bits) {
  const at::Tensor numbers = uniform({5, 1003}, at::kFloat, 5);
  const at::Tensor all =
      at::cat({numbers.reshape({-1}), numbers.reshape({-1}).mul(0x1p-130),
               on_device(at::tensor({INFINITY, -INFINITY, NAN, 3.4e38F, -3.4e38F}))});
  for (const RoundingKey& key :
       {RoundingKey{}, RoundingKey{.seed = ~0ULL, .step = (1ULL << 40) - 1, .parameter = 9}}) {
    const at::Tensor result = at::empty(all.sizes(), on_device(at::kBFloat16));
    round_stochastically_by_operations(all, result, key);
    EXPECT_TRUE(exact(result, rounded(all, key)));
  }
}

TEST(StochasticRounding, takes_empty_tensors_and_numbers_without_dimensions) {
  EXPECT_EQ(rounded(at::empty({0, 3}, on_device()), {}).numel(), 0);
  EXPECT_TRUE(exact(rounded(at::scalar_tensor(2.5, on_device()), {}), at::scalar_tensor(2.5)));
  const at::Tensor result = at::empty({0}, on_device(at::kBFloat16));
  round_stochastically_by_operations(at::empty({0}, on_device()), result, {});
}

TEST(StochasticRounding, is_seen_by_the_version_counter) {
  const at::Tensor result = at::zeros({4}, on_device(at::kBFloat16));
  const auto before = result._version();
  round_stochastically(at::ones({4}, on_device()), result, {});
  EXPECT_GT(result._version(), before);
}

TEST(StochasticRounding, refuses_other_dtypes_shapes_and_keys) {
  const at::Tensor values = at::ones({3}, on_device());
  const at::Tensor result = at::zeros({3}, on_device(at::kBFloat16));
  const auto refused = [&](const at::Tensor& from, const at::Tensor& to, const RoundingKey& key,
                           const char* part) {
    EXPECT_ERROR(part, round_stochastically(from, to, key));
  };
  refused(values, at::zeros({3}, on_device(at::kHalf)), {}, "Half");
  refused(values.to(at::kDouble), result, {}, "Double");
  refused(values, at::zeros({4}, on_device(at::kBFloat16)), {}, "shape");
  refused(at::Tensor(), result, {}, "undefined");
  refused(values, result, {.step = 1ULL << 40}, "step<2^40");
  refused(values, result, {.parameter = 1ULL << 24}, "parameter<2^24");
}

}  // namespace
}  // namespace mezzo::test
