#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include "mezzo/message_passing/ops.h"

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
    const double kept = at::ne(out, 0).sum().item<double>() / static_cast<double>(count);
    const double five_sigma =
        5 * std::sqrt(probability * (1 - probability) / static_cast<double>(count));
    EXPECT_LT(std::abs(kept - (1 - probability)), five_sigma) << probability;
    // What stays is divided by the share that stays, to the generator's 16 bits.
    const double value = out.max().item<double>();
    EXPECT_LT(std::abs(value * (1 - probability) - 1), value * 0x1p-16) << probability;
    EXPECT_EQ(at::logical_and(at::ne(out, 0), at::ne(out, value)).sum().item<std::int64_t>(), 0);
  }
}

TEST(Dropout, neighbouring_elements_are_independent) {
  const auto kept =
      at::ne(seeded_dropout(at::ones({1 << 20}, on_device()), 0.5), 0).to(at::kDouble) - 0.5;
  for (const std::int64_t lag : {1, 2, 3, 4, 7, 8, 16}) {
    const std::int64_t n = kept.size(0) - lag;
    const double correlation =
        4 * (kept.narrow(0, 0, n) * kept.narrow(0, lag, n)).mean().item<double>();
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

TEST(Dropout, called_by_name_refuses_what_is_no_probability) {
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("mezzo::dropout", "")
                      .typed<at::Tensor(const at::Tensor&, double, std::int64_t)>();
  for (const double probability : {-0.5, 1.5, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_TRUE(mentions(error_of([&] { op.call(at::ones({4}, on_device()), probability, 7); }),
                         "probability"));
  }
}

TEST(Dropout, casts_dense_rows_under_autocast) {
  at::autocast::set_autocast_enabled(test_device().type(), true);
  at::autocast::set_autocast_dtype(test_device().type(), at::kBFloat16);
  const auto out = seeded_dropout(at::ones({4, 4}, on_device()), 0.5);
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(test_device().type(), false);
  EXPECT_EQ(out.scalar_type(), at::kBFloat16);
}

}  // namespace
}  // namespace mezzo::test
