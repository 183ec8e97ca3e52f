#include "mezzo/sampling/seed_order.h"

#include <algorithm>
#include <map>
#include <set>

#include "support/graphs.h"
#include "support/statistics.h"
#include "support/tensors.h"

namespace mezzo::test {
namespace {

using detail::SeedOptions;
using detail::SeedOrder;

const CpuOnlySuite kSeedOrderOnCpu("SeedOrder", "sampling on the CPU");

std::vector<Ids> batches_of(const SeedOrder& order, std::int64_t epoch) {
  const auto seeds = order.epoch(epoch);
  std::vector<Ids> batches;
  for (std::int64_t i = 0; i < seeds->num_batches(); ++i)
    batches.push_back(values(seeds->batch(i)));
  return batches;
}

SeedOrder order_of(const at::Tensor& seeds, std::int64_t num_nodes, const SeedOptions& options) {
  return {"test", seeds, num_nodes, options};
}

/// The number of draws of each seed in `epochs` epochs with batches of one seed.
std::map<std::int64_t, double> counts(const SeedOrder& order, std::int64_t epochs) {
  std::map<std::int64_t, double> draws;
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    for (const Ids& batch : batches_of(order, epoch)) draws[batch.at(0)] += 1;
  }
  return draws;
}

}  // namespace

TEST(SeedOrder, seeds_come_in_their_order_without_shuffle) {
  const SeedOrder order = order_of(ids({7, 2, 9, 0, 4}), 10, {.batch_size = 2});
  const std::vector<Ids> expected = {{7, 2}, {9, 0}, {4}};
  EXPECT_EQ(batches_of(order, 0), expected);
  EXPECT_EQ(batches_of(order, 1), expected);
  EXPECT_EQ(order.num_seeds(), 5);
}

TEST(SeedOrder, drop_last_leaves_out_a_batch_that_is_not_full) {
  const at::Tensor five = at::arange(5), four = at::arange(4);
  EXPECT_EQ(batches_of(order_of(five, 5, {.batch_size = 2, .drop_last = true}), 0),
            (std::vector<Ids>{{0, 1}, {2, 3}}));
  EXPECT_EQ(batches_of(order_of(four, 5, {.batch_size = 2, .drop_last = true}), 0).size(), 2U);
  EXPECT_EQ(batches_of(order_of(four, 5, {.batch_size = 9, .drop_last = true}), 0).size(), 0U);
  EXPECT_EQ(batches_of(order_of(four, 5, {.batch_size = 9}), 0).size(), 1U);
}

TEST(SeedOrder, a_mask_and_narrow_ids_name_seeds) {
  const at::Tensor mask = at::tensor({0, 1, 1, 0, 1}, at::kInt).to(at::kBool);
  EXPECT_EQ(batches_of(order_of(mask, 5, {}), 0), (std::vector<Ids>{{1, 2, 4}}));
  EXPECT_EQ(batches_of(order_of(ids({4, 1}).to(at::kInt), 5, {}), 0), (std::vector<Ids>{{4, 1}}));
  EXPECT_EQ(order_of(mask, 5, {}).epoch(0)->batch(0).scalar_type(), at::kLong);
}

TEST(SeedOrder, no_seeds_give_no_batches) {
  for (const bool shuffle : {false, true}) {
    EXPECT_EQ(order_of(ids({}), 5, {.shuffle = shuffle}).epoch(0)->num_batches(), 0);
  }
  EXPECT_EQ(order_of(ids({}), 0, {}).epoch(0)->num_batches(), 0);
  EXPECT_EQ(order_of(ids({}), 5, {.weights = at::empty({0})}).epoch(0)->num_batches(), 0);
  EXPECT_EQ(order_of(ids({}), 5, {.classes = at::arange(5)}).epoch(0)->num_batches(), 0);
}

TEST(SeedOrder, within_a_batch_the_first_of_equal_seeds_stays) {
  const SeedOrder order = order_of(ids({5, 3, 5, 1, 3, 3, 5, 5}), 6, {.batch_size = 5});
  EXPECT_EQ(batches_of(order, 0), (std::vector<Ids>{{5, 3, 1}, {3, 5}}));
}

TEST(SeedOrder, seeds_that_repeat_anywhere_are_found) {
  // ascending with a repeat, and distant repeats
  for (const Ids& seeds : {Ids{1, 4, 4, 6, 7}, Ids{5, 2, 8, 3, 5}, Ids{9, 1, 1, 9, 0}}) {
    const SeedOrder order = order_of(ids(seeds), 10, {.batch_size = 5, .shuffle = true});
    const at::Tensor batch = order.epoch(0)->batch(0), times = order.epoch(0)->counts(0);
    const Ids got = values(batch);
    EXPECT_EQ(std::set<std::int64_t>(got.begin(), got.end()),
              std::set<std::int64_t>(seeds.begin(), seeds.end()));
    ASSERT_TRUE(times.defined());
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(times[static_cast<std::int64_t>(i)].item<float>(),
                static_cast<float>(std::count(seeds.begin(), seeds.end(), got[i])));
    }
  }
}

TEST(SeedOrder, distinct_seeds_come_as_tensors_of_their_own) {
  for (const bool shuffle : {false, true}) {
    const SeedOrder order = order_of(ids({6, 2, 9, 4}), 10, {.batch_size = 2, .shuffle = shuffle});
    const auto epoch = order.epoch(3);
    const Ids first = values(epoch->batch(0)), second = values(epoch->batch(1));
    epoch->batch(0).fill_(7);
    epoch->batch(1).fill_(7);
    EXPECT_EQ(values(epoch->batch(0)), first);
    EXPECT_EQ(values(epoch->batch(1)), second);
    EXPECT_EQ(batches_of(order, 3), (std::vector<Ids>{first, second}));
    EXPECT_FALSE(epoch->counts(1).defined());
  }
}

TEST(SeedOrder, counts_say_how_often_a_seed_is_in_its_batch) {
  const auto seeds = order_of(ids({5, 3, 5, 1, 3, 3, 5, 5, 2}), 6, {.batch_size = 5}).epoch(0);
  EXPECT_EQ(values(seeds->counts(0)), (Ids{2, 2, 1}));
  EXPECT_EQ(values(seeds->counts(1)), (Ids{1, 2, 1}));
  EXPECT_EQ(seeds->counts(0).scalar_type(), at::kFloat);
  EXPECT_FALSE(order_of(ids({5, 3, 1}), 6, {.batch_size = 5}).epoch(0)->counts(0).defined());
}

TEST(SeedOrder, counts_balance_a_class_far_smaller_than_the_batch) {
  constexpr std::int64_t kRare = 10, kSeeds = 10010, kBatch = 1024;
  const SeedOrder order =
      order_of(at::arange(kSeeds), kSeeds,
               {.batch_size = kBatch, .classes = at::arange(kSeeds).lt(kRare).to(at::kLong)});
  const auto seeds = order.epoch(0);
  double rare = 0;
  for (std::int64_t index = 0; index < seeds->num_batches(); ++index) {
    const at::Tensor batch = seeds->batch(index), count = seeds->counts(index);
    ASSERT_EQ(batch.sizes(), count.sizes());
    EXPECT_EQ(count.sum().item<std::int64_t>(), std::min(kBatch, kSeeds - index * kBatch));
    EXPECT_LE(batch.lt(kRare).sum().item<std::int64_t>(), kRare);
    rare += (count * batch.lt(kRare)).sum().item<double>();
  }
  EXPECT_NEAR(rare, kSeeds * 0.5, binomial_bound(kSeeds, 0.5));
}

TEST(SeedOrder, shuffled_epochs_differ_and_depend_on_seed_and_epoch_alone) {
  const SeedOptions options = {.batch_size = 7, .shuffle = true, .seed = 3};
  const SeedOrder order = order_of(at::arange(100), 100, options);
  const std::vector<Ids> first = batches_of(order, 0), second = batches_of(order, 1);
  EXPECT_NE(first, second);
  EXPECT_EQ(batches_of(order, 0), first) << "whatever was asked for in between";
  EXPECT_EQ(batches_of(order_of(at::arange(100), 100, options), 1), second);
  SeedOptions other = options;
  other.seed = 4;
  EXPECT_NE(batches_of(order_of(at::arange(100), 100, other), 0), first);
  std::set<std::int64_t> all;
  for (const Ids& batch : second) all.insert(batch.begin(), batch.end());
  EXPECT_EQ(all.size(), 100U) << "each seed once";
}

TEST(SeedOrder, a_shuffle_puts_each_seed_at_each_position_equally_often) {
  constexpr std::int64_t kSeeds = 5, kEpochs = 4000;
  const SeedOrder order = order_of(at::arange(kSeeds), kSeeds, {.batch_size = 1, .shuffle = true});
  std::map<std::pair<std::size_t, std::int64_t>, double> seen;
  for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const std::vector<Ids> batches = batches_of(order, epoch);
    for (std::size_t i = 0; i < batches.size(); ++i) seen[{i, batches[i].at(0)}] += 1;
  }
  EXPECT_EQ(seen.size(), 25U);
  for (const auto& [place, count] : seen) {
    EXPECT_LT(std::abs(count - kEpochs / 5.0), binomial_bound(kEpochs, 0.2))
        << place.second << " at " << place.first;
  }
}

TEST(SeedOrder, weighted_seeds_come_in_proportion_and_never_with_weight_0) {
  constexpr std::int64_t kEpochs = 4000, kDraws = 5 * kEpochs;
  const at::Tensor weights = at::tensor({0.0, 1.0, 2.0, 0.0, 5.0}, at::kDouble);
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kHalf}) {
    const SeedOrder order = order_of(ids({10, 11, 12, 13, 14}), 20,
                                     {.batch_size = 1, .seed = 1, .weights = weights.to(dtype)});
    std::map<std::int64_t, double> draws = counts(order, kEpochs);
    EXPECT_EQ(draws.count(10) + draws.count(13), 0U);
    EXPECT_LT(std::abs(draws[11] - kDraws / 8.0), binomial_bound(kDraws, 1.0 / 8));
    EXPECT_LT(std::abs(draws[12] - kDraws / 4.0), binomial_bound(kDraws, 1.0 / 4));
    EXPECT_LT(std::abs(draws[14] - kDraws * 5 / 8.0), binomial_bound(kDraws, 5.0 / 8));
  }
}

TEST(SeedOrder, balanced_seeds_come_from_each_class_equally_often) {
  constexpr std::int64_t kEpochs = 2000, kDraws = 10 * kEpochs;
  // nodes 0 to 7 have class 3, 8 and 9 class -1; the others are not seeds
  const at::Tensor classes = ids({3, 3, 3, 3, 3, 3, 3, 3, -1, -1, 5, 5});
  const SeedOrder order = order_of(at::arange(10), 12, {.batch_size = 1, .classes = classes});
  std::map<std::int64_t, double> draws = counts(order, kEpochs);
  for (std::int64_t node = 0; node < 10; ++node) {
    const double rate = node < 8 ? 1.0 / 16 : 1.0 / 4;
    EXPECT_LT(std::abs(draws[node] - kDraws * rate), binomial_bound(kDraws, rate)) << node;
  }
}

TEST(SeedOrder, drawn_epochs_differ_and_repeat_for_equal_seed_and_epoch) {
  const SeedOptions options = {.batch_size = 10, .seed = 2, .weights = at::ones({50})};
  const SeedOrder order = order_of(at::arange(50), 50, options);
  EXPECT_NE(batches_of(order, 0), batches_of(order, 1));
  EXPECT_EQ(batches_of(order, 1), batches_of(order_of(at::arange(50), 50, options), 1));
  EXPECT_EQ(order.epoch(0)->num_batches(), 5);
}

TEST(SeedOrder, what_the_caller_writes_later_does_not_matter) {
  at::Tensor seeds = ids({3, 1, 2});
  const SeedOrder order = order_of(seeds, 4, {});
  seeds.fill_(0);
  EXPECT_EQ(batches_of(order, 0), (std::vector<Ids>{{3, 1, 2}}));
}

TEST(SeedOrder, bad_seeds_and_options_are_named) {
  const auto attempt = [&](const at::Tensor& seeds, const SeedOptions& options) {
    order_of(seeds, 4, options);
  };
  const at::Tensor seeds = ids({3, 1, 2});
  EXPECT_ERROR("batch_size", attempt(seeds, {.batch_size = 0}));
  EXPECT_ERROR("-4", attempt(seeds, {.batch_size = -4}));
  EXPECT_ERROR("seeds", attempt(ids({0, 4}), {}));
  EXPECT_ERROR("-1", attempt(ids({0, -1}), {}));
  EXPECT_ERROR("seeds", attempt(at::ones({3}), {}));
  EXPECT_ERROR("maskof4", attempt(at::ones({3}, at::kBool), {}));
  EXPECT_ERROR("undefined", attempt({}, {}));
  EXPECT_ERROR("seed_weights", attempt(seeds, {.weights = at::ones({4})}));
  EXPECT_ERROR("int64", attempt(seeds, {.weights = seeds}));
  EXPECT_ERROR("above0", attempt(seeds, {.weights = at::zeros({3})}));
  EXPECT_ERROR("position1", attempt(seeds, {.weights = at::tensor({1.0, -2.0, 1.0})}));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_ERROR("position2", attempt(seeds, {.weights = at::tensor({1.0, 1.0, nan})}));
  EXPECT_ERROR("integer", attempt(seeds, {.classes = at::ones({4})}));
  EXPECT_ERROR("4rows", attempt(seeds, {.classes = ids({1, 2, 3})}));
  EXPECT_ERROR("both", attempt(seeds, {.weights = at::ones({3}), .classes = ids({1, 2, 3, 4})}));
}

}  // namespace mezzo::test
