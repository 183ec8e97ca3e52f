#include "mezzo/core/random.h"

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "mezzo/core/shuffle.h"

#include "support/statistics.h"

namespace mezzo {
namespace {

using Words = std::array<std::uint32_t, 4>;

constexpr std::uint64_t join(std::uint32_t low, std::uint32_t high) {
  return (std::uint64_t{high} << 32) | low;
}

/// Philox4x32-10 of a counter and a key in words.
Words philox_of_words(const Words& counter, std::uint32_t key0, std::uint32_t key1) {
  return philox(/*seed=*/join(key0, key1), /*stream=*/join(counter[2], counter[3]),
                /*index=*/join(counter[0], counter[1]));
}

// The known answers that the generator's authors publish with Random123 (kat_vectors,
// "philox4x32 10"): for zeros, ones and the digits of pi.
TEST(Philox, known_answers) {
  constexpr std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox_of_words({0, 0, 0, 0}, 0, 0),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox_of_words({ones, ones, ones, ones}, ones, ones),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      philox_of_words({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
      (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, is_usable_in_constant_expressions) {
  static_assert(philox(0, 0, 0)[0] == 0x6627e8d5);
  static_assert(random_bits(0, 0, 0) == 0xe169c58d6627e8d5);
}

TEST(RandomBits, differ_in_each_of_seed_stream_and_index) {
  std::set<std::uint64_t> distinct;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    for (std::uint64_t stream = 0; stream < 8; ++stream) {
      for (std::uint64_t index = 0; index < 8; ++index) {
        distinct.insert(random_bits(seed, stream, index));
      }
    }
  }
  EXPECT_EQ(distinct.size(), 512U);
}

TEST(RandomBits, high_words_of_seed_stream_and_index_count) {
  constexpr std::uint64_t high = std::uint64_t{1} << 40;
  const std::uint64_t plain = random_bits(1, 2, 3);
  EXPECT_NE(random_bits(1 + high, 2, 3), plain);
  EXPECT_NE(random_bits(1, 2 + high, 3), plain);
  EXPECT_NE(random_bits(1, 2, 3 + high), plain);
}

TEST(RandomBelow, stays_below_the_bound) {
  constexpr std::uint64_t largest = ~std::uint64_t{0};
  for (const std::uint64_t bound :
       {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{10}, std::uint64_t{1} << 33, largest}) {
    for (std::uint64_t index = 0; index < 1000; ++index) {
      ASSERT_LT(random_below(bound, 5, 6, index), bound);
    }
  }
}

TEST(RandomBelow, of_one_is_zero) {
  for (std::uint64_t index = 0; index < 100; ++index) EXPECT_EQ(random_below(1, 7, 8, index), 0U);
}

/// Whether `counts` pass a chi-square test for equal probabilities.
bool are_uniform(const std::vector<std::int64_t>& counts, std::int64_t draws) {
  const auto cells = static_cast<double>(counts.size());
  const std::vector<double> expected(counts.size(), static_cast<double>(draws) / cells);
  return test::chi_square(counts, expected) < test::chi_square_bound(cells - 1);
}

TEST(RandomBelow, draws_are_uniform) {
  constexpr std::int64_t draws = 100000;
  for (const std::size_t bound : {2U, 3U, 10U, 97U}) {
    std::vector<std::int64_t> counts(bound);
    for (std::int64_t i = 0; i < draws; ++i) {
      ++counts[random_below(bound, 11, bound, static_cast<std::uint64_t>(i))];
    }
    EXPECT_TRUE(are_uniform(counts, draws)) << "bound " << bound;
  }
}

TEST(RandomBelow, neighbouring_indexes_are_independent) {
  constexpr std::int64_t draws = 100000;
  constexpr std::size_t bound = 8;
  std::vector<std::int64_t> pairs(bound * bound);
  for (std::int64_t i = 0; i < draws; ++i) {
    const auto index = static_cast<std::uint64_t>(2 * i);
    ++pairs[random_below(bound, 1, 1, index) * bound + random_below(bound, 1, 1, index + 1)];
  }
  EXPECT_TRUE(are_uniform(pairs, draws));
}

TEST(RandomUniform, lies_in_the_unit_interval_and_is_uniform) {
  constexpr std::int64_t draws = 100000;
  std::vector<std::int64_t> counts(50);
  for (std::int64_t i = 0; i < draws; ++i) {
    const double u = random_uniform(3, 4, static_cast<std::uint64_t>(i));
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    ++counts[static_cast<std::size_t>(u * 50)];
  }
  EXPECT_TRUE(are_uniform(counts, draws));
}

TEST(Shuffle, every_order_is_as_likely) {
  constexpr std::int64_t draws = 60000;
  std::map<std::array<int, 4>, std::int64_t> orders;
  for (std::int64_t i = 0; i < draws; ++i) {
    std::array<int, 4> values = {0, 1, 2, 3};
    shuffle(std::span<int>(values), 9, static_cast<std::uint64_t>(i));
    ++orders[values];
  }
  ASSERT_EQ(orders.size(), 24U);
  std::vector<std::int64_t> counts;
  for (const auto& [order, count] : orders) counts.push_back(count);
  EXPECT_TRUE(are_uniform(counts, draws));
}

TEST(Shuffle, leaves_none_and_one_as_they_are) {
  shuffle(std::span<int>(), 1, 2);
  std::array<int, 1> one = {7};
  shuffle(std::span<int>(one), 1, 2);
  EXPECT_EQ(one[0], 7);
}

}  // namespace
}  // namespace mezzo
