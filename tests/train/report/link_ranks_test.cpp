#include "mezzo/train/report/link_ranks.h"

#include <algorithm>
#include <set>
#include <vector>

#include <ATen/Parallel.h>

#include "mezzo/core/random.h"

#include "support/special_numbers.h"
#include "support/tolerance.h"

namespace mezzo::link_ranks_test {
namespace {

using test::kNaN;

/// Small integers, so that products are exact and there are ties.
at::Tensor integers(std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  at::Tensor numbers = at::empty({rows, columns});
  auto* number = numbers.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < numbers.numel(); ++i) {
    number[i] = static_cast<float>(random_below(5, seed, 1, static_cast<std::uint64_t>(i))) - 2;
  }
  return numbers;
}

/// The definition: the mean of the best and the worst place among equal scores.
double rank_of(const std::vector<double>& scores, std::int64_t answer,
               const std::set<std::int64_t>& left_out) {
  double best = 1, worst = 0;
  for (std::size_t node = 0; node < scores.size(); ++node) {
    if (left_out.contains(static_cast<std::int64_t>(node))) continue;
    best += scores[node] > scores[static_cast<std::size_t>(answer)] ? 1 : 0;
    worst += scores[node] >= scores[static_cast<std::size_t>(answer)] ? 1 : 0;
  }
  return (best + worst) / 2;
}

TEST(LinkRanks, are_the_mean_places_with_and_without_the_known_answers) {
  constexpr std::int64_t kQueries = 40, kCandidates = 23, kWidth = 3;
  const at::Tensor queries = integers(kQueries, kWidth, 1),
                   nodes = integers(kCandidates, kWidth, 2);
  std::vector<std::int64_t> answers, offsets = {0}, known;
  std::vector<double> raw, filtered;
  for (std::int64_t i = 0; i < kQueries; ++i) {
    const auto draw = [i](std::uint64_t k) {
      return static_cast<std::int64_t>(
          random_below(kCandidates, 3, k, static_cast<std::uint64_t>(i)));
    };
    answers.push_back(draw(0));
    std::set<std::int64_t> others = {draw(1), draw(2), draw(3)};
    others.erase(answers.back());
    if (i == 7) others.clear();
    known.insert(known.end(), others.begin(), others.end());
    offsets.push_back(static_cast<std::int64_t>(known.size()));
    std::vector<double> scores;
    for (std::int64_t node = 0; node < kCandidates; ++node) {
      scores.push_back((queries[i] * nodes[node]).sum().item<double>());
    }
    raw.push_back(rank_of(scores, answers.back(), {}));
    filtered.push_back(rank_of(scores, answers.back(), others));
  }
  const int threads = at::get_num_threads();
  for (const int count : {1, 3}) {
    at::set_num_threads(count);
    const LinkRanks ranks = link_ranks(
        queries, nodes, at::tensor(answers, at::kLong),
        {.offsets = at::tensor(offsets, at::kLong), .nodes = at::tensor(known, at::kLong)});
    EXPECT_TRUE(at::equal(ranks.raw, at::tensor(raw, at::kDouble)));
    EXPECT_TRUE(at::equal(ranks.filtered, at::tensor(filtered, at::kDouble)));
  }
  at::set_num_threads(threads);
}

TEST(LinkRanks, nan_is_above_the_answer_and_an_answer_that_is_nan_the_last) {
  const at::Tensor query = at::ones({1, 1}),
                   nodes = at::tensor({1.0F, static_cast<float>(kNaN), 0.0F, 2.0F}).view({4, 1});
  const KnownAnswers known{.offsets = at::tensor({0, 2}, at::kLong),
                           .nodes = at::tensor({2, 3}, at::kLong)};
  const auto ranks = [&](std::int64_t answer) {
    const LinkRanks both = link_ranks(query, nodes, at::full({1}, answer, at::kLong), known);
    return std::pair(both.raw.item<double>(), both.filtered.item<double>());
  };
  EXPECT_EQ(ranks(0), std::pair(3.0, 2.0));
  EXPECT_EQ(ranks(1), std::pair(4.0, 2.0));
}

TEST(LinkRanks, are_those_of_the_definition_among_others) {
  const at::Tensor scores = integers(40, 1, 4), others = integers(40, 9, 5);
  std::vector<double> expected;
  for (std::int64_t i = 0; i < scores.size(0); ++i) {
    const at::Tensor all = at::cat({scores[i], others[i]}).to(at::kDouble).contiguous();
    const double* const first = all.const_data_ptr<double>();
    expected.push_back(rank_of({first, first + all.numel()}, 0, {}));
  }
  EXPECT_TRUE(at::equal(ranks_among(scores.squeeze(1), others), at::tensor(expected, at::kDouble)));
  const auto nan = static_cast<float>(kNaN);
  EXPECT_TRUE(at::equal(ranks_among(at::tensor({1.0F, nan}),
                                    at::tensor({nan, 0.0F, 2.0F, nan, 0.0F, 2.0F}).view({2, 3})),
                        at::tensor({3.0, 4.0}, at::kDouble)));
}

TEST(LinkRanks, hits_are_above_one_of_the_others) {
  const at::Tensor scores = integers(40, 1, 6).squeeze(1);
  at::Tensor others = integers(1, 30, 7).flatten();
  std::vector<float> best(others.const_data_ptr<float>(), others.const_data_ptr<float>() + 30);
  std::sort(best.rbegin(), best.rend());
  for (const std::int64_t count : {1, 10, 30}) {
    const float least = best[static_cast<std::size_t>(count - 1)];
    EXPECT_EQ(hits_above(scores, others, count),
              scores.gt(least).to(at::kDouble).sum().item<double>() / 40);
  }
  EXPECT_EQ(hits_above(scores, others, 31), 1);
  const auto nan = static_cast<float>(kNaN);
  EXPECT_EQ(hits_above(at::tensor({1.0F, nan}), at::tensor({0.0F, -1.0F}), 1), 0.5);
  EXPECT_EQ(hits_above(at::tensor({1.0F, nan}), at::tensor({nan, -1.0F}), 1), 0);
}

TEST(LinkRanks, have_the_same_mean_for_any_number_of_threads) {
  const at::Tensor ranks = at::arange(1, 300'001, at::kDouble);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const double alone = mean_reciprocal_rank(ranks);
  at::set_num_threads(3);
  EXPECT_EQ(mean_reciprocal_rank(ranks), alone);
  at::set_num_threads(threads);
}

TEST(LinkRanks, have_a_mean_reciprocal_and_hits) {
  const at::Tensor ranks = at::tensor({1.0, 4.0, 10.0, 10.5}, at::kDouble);
  EXPECT_TRUE(test::near_number(mean_reciprocal_rank(ranks),
                                (1 + 1.0 / 4 + 1.0 / 10 + 2.0 / 21) / 4, /*steps=*/8));
  EXPECT_EQ(hits_at(ranks, 10), 0.75);
  EXPECT_EQ(hits_at(ranks, 1), 0.25);
}

}  // namespace
}  // namespace mezzo::link_ranks_test
