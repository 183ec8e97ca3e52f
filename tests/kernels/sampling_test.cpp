#include "mezzo/kernels/sampling.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "mezzo/core/random.h"

#include "kernels/sample.h"
#include "support/statistics.h"

namespace mezzo::kernels {
namespace {

constexpr DrawKey kKey{.seed = 11, .stream = 3};

using test::Rows;
using test::Sample;

template <class Id>
Sample<Id> draw(const Rows<Id>& rows, const std::vector<Id>& nodes, DrawCount count,
                DrawKey key = kKey) {
  Sample<Id> sample(rows, nodes, count);
  draw_uniform<Id>(sample.args(rows, 0, static_cast<std::int64_t>(nodes.size()), key));
  return sample;
}

/// How often `rounds` samples of a row of `degree` contain each entry.
std::vector<std::int64_t> entry_counts(std::int64_t degree, DrawCount count, std::int32_t rounds) {
  const Rows<std::int32_t> rows({degree});
  const std::vector<std::int32_t> nodes(static_cast<std::size_t>(rounds), 0);
  std::vector<std::int64_t> counts(static_cast<std::size_t>(degree));
  for (const std::int32_t entry : draw(rows, nodes, count).entries) {
    ++counts[static_cast<std::size_t>(entry)];
  }
  return counts;
}

TEST(UniformDraws, every_row_has_distinct_ascending_entries_of_its_own) {
  std::vector<std::int64_t> degrees = {0, 1, 2, 5, 63, 64, 65, 66, 100, 500, 4000, 65535, 65536};
  degrees.push_back(70000);
  const Rows<std::int32_t> int32(degrees);
  const Rows<std::int64_t> int64(degrees);
  std::vector<std::int32_t> nodes(degrees.size());
  std::iota(nodes.begin(), nodes.end(), 0);
  const std::vector<std::int64_t> wide_nodes(nodes.begin(), nodes.end());
  for (const std::int64_t fanout : {0, 1, 7, 8, 9, 16, 17, 32, 33, 60, 64, 200, 1000, 100000}) {
    SCOPED_TRACE(fanout);
    const auto sample = draw(int32, nodes, {.fanout = fanout});
    for (std::size_t row = 0; row < degrees.size(); ++row) {
      const auto first = sample.entries.begin() + sample.offsets[row];
      const auto last = sample.entries.begin() + sample.offsets[row + 1];
      ASSERT_EQ(last - first, std::min(fanout, degrees[row]));
      if (first == last) continue;
      EXPECT_TRUE(std::adjacent_find(first, last, std::greater_equal<>()) == last);
      EXPECT_GE(*first, int32.indptr[row]);
      EXPECT_LT(*(last - 1), int32.indptr[row + 1]);
    }
    for (std::size_t i = 0; i < sample.entries.size(); ++i) {
      ASSERT_EQ(sample.neighbors[i], sample.entries[i] * 7 + 1);
    }
    const auto same = draw(int64, wide_nodes, {.fanout = fanout});
    EXPECT_TRUE(std::equal(sample.entries.begin(), sample.entries.end(), same.entries.begin(),
                           same.entries.end()));
  }
}

TEST(UniformDraws, every_entry_is_equally_likely_on_every_path) {
  struct Case {
    std::int64_t degree, fanout;
  };
  constexpr std::int32_t kRounds = 20000;
  // Bits of a word and their complement, registers of three sizes, a bit map, rejected repeats.
  for (const auto& [degree, fanout] : std::vector<Case>{{10, 3},
                                                        {10, 8},
                                                        {64, 20},
                                                        {65, 5},
                                                        {70, 15},
                                                        {300, 15},
                                                        {100, 5},
                                                        {100, 20},
                                                        {100, 31},
                                                        {90, 40},
                                                        {9000, 33}}) {
    SCOPED_TRACE(testing::Message() << fanout << " of " << degree);
    const auto counts = entry_counts(degree, {.fanout = fanout}, kRounds);
    const double share = static_cast<double>(fanout) / static_cast<double>(degree);
    // Samples are without replacement: the variance is (1 - share) of that with replacement.
    const std::vector<double> expected(counts.size(), kRounds * share);
    EXPECT_LT(test::chi_square(counts, expected) / (1 - share),
              test::chi_square_bound(static_cast<double>(degree - 1)));
  }
}

TEST(UniformDraws, every_part_of_a_long_row_is_equally_likely_on_every_path) {
  struct Case {
    std::int64_t degree;
    DrawCount count;
  };
  constexpr std::int32_t kRounds = 5000;
  constexpr std::int64_t kParts = 50;
  // Registers and a bit map with two words per number, rejected repeats with one and two words, and
  // replacement.
  for (const auto& [degree, count] : std::vector<Case>{{70000, {.fanout = 15}},
                                                       {70000, {.fanout = 300}},
                                                       {20000, {.fanout = 40}},
                                                       {70000, {.fanout = 40}},
                                                       {70000, {.fanout = 9, .replace = true}}}) {
    SCOPED_TRACE(testing::Message() << count.fanout << " of " << degree);
    const auto counts = entry_counts(degree, count, kRounds);
    std::vector<std::int64_t> parts(kParts);
    for (std::int64_t entry = 0; entry < degree; ++entry) {
      parts[static_cast<std::size_t>(entry * kParts / degree)] +=
          counts[static_cast<std::size_t>(entry)];
    }
    const std::vector<double> expected(
        kParts, static_cast<double>(kRounds * count.fanout) / static_cast<double>(kParts));
    EXPECT_LT(test::chi_square(parts, expected), test::chi_square_bound(kParts - 1));
  }
}

TEST(UniformDraws, every_set_of_entries_is_equally_likely) {
  struct Case {
    std::int64_t degree, fanout;
    std::size_t sets;
  };
  constexpr std::int32_t kRounds = 60000;
  // 8 of 10 samples the complement.
  for (const auto& [degree, fanout, num_sets] : {Case{5, 2, 10}, Case{10, 8, 45}}) {
    const auto sample = draw(Rows<std::int32_t>({degree}), std::vector<std::int32_t>(kRounds, 0),
                             {.fanout = fanout});
    std::map<int, std::int64_t> sets;
    for (auto entry = sample.entries.begin(); entry != sample.entries.end(); entry += fanout) {
      int set = 0;
      for (std::int64_t i = 0; i < fanout; ++i) set |= 1 << entry[i];
      ++sets[set];
    }
    std::vector<std::int64_t> counts;
    for (const auto& [set, count] : sets) counts.push_back(count);
    ASSERT_EQ(counts.size(), num_sets);
    const auto cells = static_cast<double>(num_sets);
    EXPECT_LT(test::chi_square(counts, std::vector<double>(num_sets, kRounds / cells)),
              test::chi_square_bound(cells - 1));
  }
}

TEST(UniformDraws, neighbouring_entries_are_together_as_often_as_distant_ones) {
  struct Case {
    std::int64_t degree, fanout;
  };
  constexpr std::int32_t kRounds = 40000;
  // 8 of 10 samples the complement. Most rows with fan-out 15 and 20 have repeated numbers.
  for (const auto& [degree, fanout] :
       std::vector<Case>{{10, 8}, {66, 15}, {100, 5}, {100, 15}, {100, 20}, {90, 40}}) {
    SCOPED_TRACE(testing::Message() << fanout << " of " << degree);
    const auto sample = draw(Rows<std::int32_t>({degree}), std::vector<std::int32_t>(kRounds, 0),
                             {.fanout = fanout});
    const double p =
        static_cast<double>(fanout * (fanout - 1)) / static_cast<double>(degree * (degree - 1));
    const std::int64_t last = degree - 1, late = degree - fanout;
    for (const auto& [a, b] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {0, 1}, {0, last}, {last - 1, last}, {late, late + 1}, {late - 1, last}, {0, late}}) {
      double together = 0;
      for (std::int64_t row = 0; row < kRounds; ++row) {
        const auto first = sample.entries.begin() + row * fanout;
        together += std::binary_search(first, first + fanout, a) &&
                            std::binary_search(first, first + fanout, b)
                        ? 1
                        : 0;
      }
      EXPECT_NEAR(together, kRounds * p, test::binomial_bound(kRounds, p)) << a << ' ' << b;
    }
  }
}

TEST(UniformDraws, with_replacement_entries_repeat_as_often_as_chance_says) {
  constexpr std::int32_t kRounds = 20000;
  const auto counts = entry_counts(6, {.fanout = 9, .replace = true}, kRounds);
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}), 9 * kRounds);
  EXPECT_LT(test::chi_square(counts, std::vector<double>(6, 1.5 * kRounds)),
            test::chi_square_bound(5));
  const auto none = draw(Rows<std::int32_t>({0}), {0}, {.fanout = 9, .replace = true});
  EXPECT_TRUE(none.entries.empty());
}

TEST(UniformDraws, a_range_of_rows_is_sampled_as_in_the_whole) {
  const Rows<std::int32_t> rows({40, 90, 300, 3});
  const std::vector<std::int32_t> nodes = {3, 0, 1, 2, 2, 1};
  const DrawCount count{.fanout = 6};
  const auto whole = draw(rows, nodes, count);
  Sample<std::int32_t> parts(rows, nodes, count);
  for (const std::int64_t first : {4, 0, 2}) {
    draw_uniform<std::int32_t>(parts.args(rows, first, first + 2, kKey));
  }
  EXPECT_EQ(parts.entries, whole.entries);
  EXPECT_EQ(parts.neighbors, whole.neighbors);
}

TEST(UniformDraws, another_seed_or_stream_samples_other_entries) {
  const Rows<std::int32_t> rows({1000});
  const auto one = draw(rows, {0}, {.fanout = 20});
  EXPECT_NE(one.entries, draw(rows, {0}, {.fanout = 20}, {.seed = 12, .stream = 3}).entries);
  EXPECT_NE(one.entries, draw(rows, {0}, {.fanout = 20}, {.seed = 11, .stream = 4}).entries);
  EXPECT_EQ(one.entries, draw(rows, {0}, {.fanout = 20}).entries);
}

/// How often each set of entries (as bits) occurs in `rounds` weighted samples.
std::map<int, std::int64_t> weighted_sets(const std::vector<float>& weights, std::int64_t fanout,
                                          std::int64_t rounds) {
  std::vector<RankedEntry> scratch(static_cast<std::size_t>(fanout));
  std::vector<std::int32_t> entries(weights.size());
  std::map<int, std::int64_t> sets;
  for (std::int64_t round = 0; round < rounds; ++round) {
    const DrawRow row{round, 0, static_cast<std::int64_t>(weights.size())};
    const auto size = draw_weighted<std::int32_t>(weights.data(), row, fanout, kKey, scratch.data(),
                                                  entries.data());
    EXPECT_TRUE(std::is_sorted(entries.begin(), entries.begin() + size));
    int set = 0;
    for (std::int64_t i = 0; i < size; ++i) set |= 1 << entries[static_cast<std::size_t>(i)];
    ++sets[set];
  }
  return sets;
}

TEST(WeightedDraws, one_of_a_row_is_sampled_in_proportion) {
  constexpr double kRounds = 30000;
  auto sets = weighted_sets({1, 0, 2, 5}, 1, static_cast<std::int64_t>(kRounds));
  EXPECT_EQ(sets.count(2), 0U);
  EXPECT_LT(
      test::chi_square({sets[1], sets[4], sets[8]}, {kRounds / 8, kRounds / 4, kRounds * 5 / 8}),
      test::chi_square_bound(2));
}

TEST(WeightedDraws, two_of_three_are_successive_draws_in_proportion) {
  constexpr double kRounds = 30000;
  const std::vector<double> p = {0.5, 0.3, 0.2};
  const auto pair = [&](std::size_t a, std::size_t b) {
    return kRounds * p[a] * p[b] * (1 / (1 - p[a]) + 1 / (1 - p[b]));
  };
  auto sets = weighted_sets({5, 3, 2}, 2, static_cast<std::int64_t>(kRounds));
  EXPECT_LT(test::chi_square({sets[3], sets[5], sets[6]}, {pair(0, 1), pair(0, 2), pair(1, 2)}),
            test::chi_square_bound(2));
}

TEST(WeightedDraws, two_of_four_contain_each_as_often_as_successive_draws_do) {
  constexpr double kRounds = 30000;
  const std::vector<double> p = {6.0 / 12, 3.0 / 12, 1.0 / 12, 2.0 / 12};
  const auto sets = weighted_sets({6, 3, 1, 2}, 2, static_cast<std::int64_t>(kRounds));
  for (std::size_t i = 0; i < p.size(); ++i) {
    double expected = p[i], observed = 0;  // sampled first, or after any other
    for (std::size_t j = 0; j < p.size(); ++j) expected += j == i ? 0 : p[j] * p[i] / (1 - p[j]);
    for (const auto& [set, count] : sets) {
      observed += ((set >> i) & 1) != 0 ? static_cast<double>(count) : 0.0;
    }
    EXPECT_NEAR(observed, kRounds * expected, test::binomial_bound(kRounds, expected)) << i;
  }
}

TEST(WeightedDraws, too_few_positive_weights_are_all_sampled) {
  EXPECT_EQ(weighted_sets({0, 1e-30F, 3, 0, 0}, 3, 10), (std::map<int, std::int64_t>{{6, 10}}));
  EXPECT_EQ(weighted_sets({0, 1, 3}, 3, 10), (std::map<int, std::int64_t>{{6, 10}}));
  EXPECT_EQ(weighted_sets({0, 0, 0}, 2, 10), (std::map<int, std::int64_t>{{0, 10}}));
  EXPECT_EQ(weighted_sets({1, 1}, 0, 10), (std::map<int, std::int64_t>{{0, 10}}));
}

TEST(WeightedDraws, with_replacement_counts_are_multinomial) {
  const std::vector<float> weights = {0, 3, 0, 1, 4, 0};
  std::vector<double> scratch(5);
  std::vector<std::int32_t> entries(5);
  std::vector<std::int64_t> counts(6);
  constexpr std::int64_t kRounds = 20000;
  for (std::int64_t round = 0; round < kRounds; ++round) {
    ASSERT_EQ(draw_weighted_replacing<std::int32_t>(weights.data(), {round, 0, 6}, 5, kKey,
                                                    scratch.data(), entries.data()),
              5);
    EXPECT_TRUE(std::is_sorted(entries.begin(), entries.end()));
    for (const std::int32_t entry : entries) ++counts[static_cast<std::size_t>(entry)];
  }
  EXPECT_EQ(counts[0] + counts[2] + counts[5], 0);
  EXPECT_LT(test::chi_square({counts[1], counts[3], counts[4]},
                             {kRounds * 15.0 / 8, kRounds * 5.0 / 8, kRounds * 20.0 / 8}),
            test::chi_square_bound(2));
  const std::vector<float> zeros(3);
  EXPECT_EQ(draw_weighted_replacing<std::int32_t>(zeros.data(), {0, 0, 3}, 5, kKey, scratch.data(),
                                                  entries.data()),
            0);
}

TEST(LaborDraws, a_neighbor_is_sampled_if_its_number_is_below_its_probability) {
  const Rows<std::int64_t> rows({3, 40});
  std::vector<std::int64_t> entries(40), neighbors(40);
  std::vector<float> inverses(40);
  const auto size = draw_labor<std::int64_t>(rows.view(), {1, 3, 40}, 10, kKey, entries.data(),
                                             neighbors.data(), inverses.data());
  std::vector<std::int64_t> expected;
  for (std::int64_t entry = 3; entry < 43; ++entry) {
    const auto node = static_cast<std::uint64_t>(entry * 7 + 1);
    if (random_uniform(kKey.seed, kKey.stream, node) < 0.25) expected.push_back(entry);
  }
  EXPECT_EQ(std::vector<std::int64_t>(entries.begin(), entries.begin() + size), expected);
  for (std::int64_t i = 0; i < size; ++i) {
    EXPECT_EQ(inverses[static_cast<std::size_t>(i)], 4.0F);
    EXPECT_EQ(neighbors[static_cast<std::size_t>(i)], entries[static_cast<std::size_t>(i)] * 7 + 1);
  }
}

/// A row with weights and LABOR's probabilities.
struct LaborCase {
  std::int64_t fanout;
  std::vector<float> weights;
  std::vector<double> probabilities;  ///< min(1, c weight); their sum is the fan-out
};

const std::vector<LaborCase>& labor_cases() {
  static const std::vector<LaborCase> cases = {
      {3, {2, 10, 0, 2, 1}, {0.8, 1, 0, 0.8, 0.4}},  // c = 2 / 5
      {2, {1, 1, 1, 1, 1}, {0.4, 0.4, 0.4, 0.4, 0.4}},
      // Rounding puts the first probability alternately below and above 1.
      {2, {1, 0.5F, 0.5F, 0x1p-52F}, {1, 0.5, 0.5, 0x1p-53}},
      {3, {1e-16F, 0.5F, 1, 0.25F, 0.25F}, {2e-16, 1, 1, 0.5, 0.5}},
  };
  return cases;
}

TEST(LaborDraws, weights_give_probabilities_whose_sum_is_the_fanout) {
  constexpr std::int64_t kRounds = 20000;
  for (const LaborCase& labor : labor_cases()) {
    const std::size_t degree = labor.weights.size();
    const Rows<std::int32_t> rows({static_cast<std::int64_t>(degree)});
    NeighborRows<std::int32_t> view = rows.view();
    view.weights = labor.weights.data();
    std::vector<std::int32_t> entries(degree), neighbors(degree);
    std::vector<float> inverses(degree);
    std::vector<std::int64_t> counts(degree);
    double sum = 0, expected_sum = 0, variance = 0;  // of estimates of the sum of entry + 1
    for (std::int64_t round = 0; round < kRounds; ++round) {
      const DrawKey key{static_cast<std::uint64_t>(round), 1};
      const auto size =
          draw_labor<std::int32_t>(view, {0, 0, static_cast<std::int64_t>(degree)}, labor.fanout,
                                   key, entries.data(), neighbors.data(), inverses.data());
      for (std::size_t i = 0; i < static_cast<std::size_t>(size); ++i) {
        const auto entry = static_cast<std::size_t>(entries[i]);
        ++counts[entry];
        sum += (entries[i] + 1) * static_cast<double>(inverses[i]);
        EXPECT_FLOAT_EQ(inverses[i], static_cast<float>(1 / labor.probabilities[entry]));
      }
    }
    for (std::size_t entry = 0; entry < degree; ++entry) {
      const double p = labor.probabilities[entry], value = static_cast<double>(entry + 1);
      EXPECT_NEAR(static_cast<double>(counts[entry]), kRounds * p,
                  test::binomial_bound(kRounds, p));
      if (counts[entry] == 0) continue;  // too rare to be sampled
      expected_sum += value;
      variance += value * value * (1 - p) / p;
    }
    EXPECT_NEAR(sum / kRounds, expected_sum, 5 * std::sqrt(variance / kRounds));
  }
}

TEST(Renumber, numbers_nodes_in_the_order_in_which_they_come) {
  std::vector<std::int32_t> stamps(10, 4);  // from earlier batches
  std::vector<std::int64_t> ids = {7, 3, 7, 9, 3, 0}, nodes(9);
  const StampTable table{stamps.data(), 5};
  EXPECT_EQ(renumber<std::int64_t>(table, ids.data(), 6, nodes.data(), 0), 4);
  EXPECT_EQ(ids, (std::vector<std::int64_t>{0, 1, 0, 2, 1, 3}));
  std::vector<std::int64_t> more = {0, 5, 9};
  EXPECT_EQ(renumber<std::int64_t>(table, more.data(), 3, nodes.data(), 4), 5);
  EXPECT_EQ(more, (std::vector<std::int64_t>{3, 4, 2}));
  nodes.resize(5);
  EXPECT_EQ(nodes, (std::vector<std::int64_t>{7, 3, 9, 0, 5}));
}

}  // namespace
}  // namespace mezzo::kernels
