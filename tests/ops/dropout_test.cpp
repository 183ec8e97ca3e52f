#include "mezzo/ops/dropout.h"

#include <cmath>
#include <limits>
#include <optional>

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "mezzo/ops/ops.h"
#include "mezzo/ops/schema.h"

#include "support/tensors.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

at::Tensor seeded_dropout(const at::Tensor& x, double probability) {
  at::manual_seed(7);
  return mezzo::feature_dropout(x, probability, /*training=*/true);
}

TEST(Dropout, drops_at_the_given_rate_and_keeps_the_mean) {
  const std::int64_t count = 1 << 20;
  for (const double probability : {0.1, 0.5, 0.9}) {
    const auto out = seeded_dropout(at::ones({count}, on_device()), probability);
    const double share = at::ne(out, 0).sum().item<double>() / static_cast<double>(count);
    const double five_sigma =
        5 * std::sqrt(probability * (1 - probability) / static_cast<double>(count));
    EXPECT_LT(std::abs(share - (1 - probability)), five_sigma) << probability;
    // Retained elements are divided by 1 - p, rounded to the generator's 16 bits.
    const double value = out.max().item<double>();
    EXPECT_LT(std::abs(value * (1 - probability) - 1), value * 0x1p-16) << probability;
    EXPECT_EQ(at::logical_and(at::ne(out, 0), at::ne(out, value)).sum().item<std::int64_t>(), 0);
  }
}

TEST(Dropout, neighbouring_elements_are_independent) {
  const auto signs =
      at::ne(seeded_dropout(at::ones({1 << 20}, on_device()), 0.5), 0).to(at::kDouble) - 0.5;
  for (const std::int64_t lag : {1, 2, 3, 4, 7, 8, 16}) {
    const std::int64_t n = signs.size(0) - lag;
    const double correlation =
        4 * (signs.narrow(0, 0, n) * signs.narrow(0, lag, n)).mean().item<double>();
    EXPECT_LT(std::abs(correlation), 5 / std::sqrt(static_cast<double>(n))) << "lag " << lag;
  }
}

TEST(Dropout, gradient_falls_on_what_was_kept_in_every_dtype) {
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const auto x = at::ones({37, 5}, on_device(dtype.scalar)).requires_grad_();
    const auto out = seeded_dropout(x, 0.5);
    EXPECT_EQ(out.scalar_type(), dtype.scalar);
    out.backward(at::full({37, 5}, 3, on_device(dtype.scalar)));
    EXPECT_TRUE(exact(x.grad(), 3 * out.detach().to(at::kDouble)));
  }
}

TEST(Dropout, same_bits_for_one_and_two_threads_and_for_equal_seeds) {
  const auto x = at::rand({5000, 33}, on_device());
  const ThreadCount two(2);
  const auto on_two = seeded_dropout(x, 0.3);
  at::Tensor on_one;
  {
    const ThreadCount one(1);
    on_one = seeded_dropout(x, 0.3);
  }
  EXPECT_TRUE(same_bits(on_one, on_two));
  const auto next = mezzo::feature_dropout(x, 0.3, true);
  EXPECT_FALSE(same_bits(on_two, next)) << "a second call must draw anew";
}

TEST(Dropout, drops_inf_and_nan_and_keeps_those_that_stay) {
  const auto out =
      seeded_dropout(at::full({1000}, std::numeric_limits<float>::infinity(), on_device()), 0.5);
  EXPECT_FALSE(at::isnan(out).any().item<bool>());
  EXPECT_TRUE(at::isinf(out).any().item<bool>());
  EXPECT_TRUE(at::eq(out, 0).any().item<bool>());
}

/// The operator by its name.
at::Tensor dropped(const at::Tensor& x, double probability, std::int64_t seed,
                   const std::optional<at::Tensor>& seed_offset) {
  static const auto op = mezzo::detail::handle<at::Tensor(
      const at::Tensor&, double, std::int64_t, const std::optional<at::Tensor>&)>("mezzo::dropout");
  return op.call(x, probability, seed, seed_offset);
}

at::Tensor offset_of(std::int64_t number) {
  return at::full({1}, number, on_device(at::kLong));
}

TEST(Dropout, called_by_name_refuses_what_is_no_probability) {
  for (const double probability : {-0.5, 1.5, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_ERROR("probability", dropped(at::ones({4}, on_device()), probability, 7, std::nullopt));
  }
}

TEST(Dropout, adds_the_offset_to_the_seed) {
  constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
  const auto x = at::rand({300, 7}, on_device());
  const at::Tensor expected = dropped(x, 0.5, 12, std::nullopt);
  EXPECT_TRUE(same_bits(dropped(x, 0.5, 12, offset_of(0)), expected));
  EXPECT_TRUE(same_bits(dropped(x, 0.5, 5, offset_of(7)), expected));
  EXPECT_TRUE(same_bits(dropped(x, 0.5, 17, offset_of(-5)), expected));
  EXPECT_FALSE(same_bits(dropped(x, 0.5, 12, offset_of(1)), expected));
  const at::Tensor wrapped =
      dropped(x, 0.5, std::numeric_limits<std::int64_t>::min(), std::nullopt);
  EXPECT_TRUE(same_bits(dropped(x, 0.5, kLargest, offset_of(1)), wrapped));
}

TEST(Dropout, gradients_of_both_orders_read_the_offset_again) {
  const auto x = at::ones({37, 5}, on_device(at::kDouble)).requires_grad_();
  const auto grad = at::full({37, 5}, 3, on_device(at::kDouble)).requires_grad_();
  const auto out = dropped(x, 0.5, 5, offset_of(7));
  EXPECT_TRUE(same_bits(out, dropped(x, 0.5, 12, std::nullopt)));
  const auto first =
      torch::autograd::grad({out}, {x}, {grad}, std::nullopt, /*create_graph=*/true)[0];
  EXPECT_TRUE(exact(first, 3 * out.detach()));
  EXPECT_TRUE(exact(torch::autograd::grad({first.sum()}, {grad})[0], out));
}

TEST(Dropout, refuses_an_offset_that_is_no_number_of_its_device) {
  const auto x = at::ones({4}, on_device());
  for (const at::Tensor& wrong :
       {at::zeros({2}, on_device(at::kLong)), at::zeros({0}, on_device(at::kLong)),
        at::zeros({1}, on_device())}) {
    EXPECT_ERROR("seed_offset", dropped(x, 0.5, 7, wrong));
  }
}

TEST(DeviceDraws, take_the_numbers_of_the_generator_of_the_device) {
  const at::Device device = test_device();
  {
    const mezzo::detail::DeviceDraws draws;
    at::manual_seed(7);
    const mezzo::detail::DropoutSeed first = mezzo::detail::draw_dropout_seed(device),
                                     second = mezzo::detail::draw_dropout_seed(device);
    EXPECT_EQ(first.number, 0);
    ASSERT_TRUE(first.offset && second.offset);
    EXPECT_EQ(first.offset->device(), device);
    EXPECT_NE(first.offset->item<std::int64_t>(), second.offset->item<std::int64_t>());
    at::manual_seed(7);
    EXPECT_EQ(at::empty({1}, on_device(at::kLong)).random_().item<std::int64_t>(),
              first.offset->item<std::int64_t>());
    { const mezzo::detail::DeviceDraws inner; }
    EXPECT_TRUE(mezzo::detail::draw_dropout_seed(device).offset) << "they nest";
  }
  EXPECT_FALSE(mezzo::detail::draw_dropout_seed(device).offset);
}

TEST(DeviceDraws, drop_other_elements_each_time_and_the_same_in_the_gradient) {
  at::manual_seed(7);
  const mezzo::detail::DeviceDraws draws;
  const auto x = at::ones({1 << 16}, on_device()).requires_grad_();
  const auto first = mezzo::feature_dropout(x, 0.5, true);
  const auto second = mezzo::feature_dropout(x, 0.5, true);
  EXPECT_FALSE(same_bits(first, second));
  EXPECT_TRUE(exact(torch::autograd::grad({first.sum()}, {x})[0], first.detach()));
  EXPECT_TRUE(exact(torch::autograd::grad({second.sum()}, {x})[0], second.detach()));
  EXPECT_NEAR(first.detach().mean().item<double>(), 1, 5.0 / 256);
}

TEST(Dropout, casts_dense_rows_under_autocast) {
  at::autocast::set_autocast_enabled(test_device().type(), true);
  at::autocast::set_autocast_dtype(test_device().type(), at::kBFloat16);
  const auto out = seeded_dropout(at::ones({4, 4}, on_device()), 0.5);
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(test_device().type(), false);
  EXPECT_EQ(out.scalar_type(), at::kBFloat16);
}

/// Stores of 8 MiB bypass the CPU's caches; those of each half do not.
TEST(Dropout, of_a_large_tensor_is_that_of_its_beginning) {
  constexpr std::int64_t kCount = (1 << 22) + 5, kBeginning = 1 << 19;
  const int before = at::get_num_threads();
  for (const DTypeInfo& dtype : dtypes()) {
    const auto x = at::arange(kCount, on_device(at::kFloat)).remainder(64).to(dtype.scalar);
    const auto beginning = seeded_dropout(x.slice(0, 0, kBeginning), 0.5);
    at::Tensor last;
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(fmt::format("{}, {} threads", dtype.name, threads));
      at::set_num_threads(threads);
      const auto whole = seeded_dropout(x, 0.5);
      EXPECT_TRUE(at::equal(whole.slice(0, 0, kBeginning), beginning));
      EXPECT_TRUE(!last.defined() || at::equal(whole, last));
      last = whole;
    }
  }
  at::set_num_threads(before);
}

}  // namespace
}  // namespace mezzo::test
