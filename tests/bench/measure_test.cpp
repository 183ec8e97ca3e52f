#include "bench/harness/measure.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "mezzo/core/error.h"

namespace mezzo {
namespace {

/// A candidate whose result is one number.
bench::Candidate candidate(const std::string& name, bool is_mezzo, double value) {
  return {.name = name, .is_mezzo = is_mezzo, .run = [value]() -> bench::Tensors {
            return {at::full({1}, value, at::kFloat)};
          }};
}

bench::Plan plan_of(std::vector<bench::Candidate> candidates) {
  return {.work = "work", .width = 1, .make = [candidates] {
            return bench::Comparison{.candidates = candidates, .expected = {}};
          }};
}

TEST(Measure, skips_what_would_not_fit_in_memory_and_says_why) {
  constexpr std::int64_t kTooMuch = std::int64_t{1} << 60;
  bench::Candidate large = candidate("large", false, 1);
  large.cost.run_bytes = kTooMuch;
  const auto outcome = bench::measure(plan_of({large, candidate("small", true, 1)}), {.rounds = 3});
  ASSERT_TRUE(outcome.has_value());
  EXPECT_NE(outcome->measurements[0].skipped.find("TiB"), std::string::npos);
  EXPECT_TRUE(outcome->measurements[0].milliseconds.empty());
  EXPECT_EQ(outcome->measurements[1].milliseconds.size(), 3U);

  bench::Plan plan = plan_of({candidate("small", true, 1)});
  plan.bytes = kTooMuch;
  EXPECT_NE(bench::measure(plan, {})->skipped.find("TiB"), std::string::npos);
}

TEST(Measure, skips_a_baseline_that_refuses_or_fails) {
  bench::Candidate failing = candidate("failing", false, 1);
  failing.run = []() -> bench::Tensors { return {at::ones({2}).mm(at::ones({2}))}; };
  const bench::Candidate refusing{.name = "refusing", .refusal = "cannot"};
  const auto outcome =
      bench::measure(plan_of({failing, refusing, candidate("small", true, 1)}), {.rounds = 1});
  EXPECT_FALSE(outcome->measurements[0].skipped.empty());
  EXPECT_EQ(outcome->measurements[1].skipped, "cannot");
  EXPECT_TRUE(outcome->measurements[2].skipped.empty());
}

TEST(Measure, a_wrong_result_of_mezzo_is_an_error_and_of_a_baseline_a_number) {
  const bench::Candidate right = candidate("right", false, 2);
  EXPECT_THROW(bench::measure(plan_of({right, candidate("wrong", true, 4)}), {}), LogicError);
  EXPECT_THROW(bench::measure(plan_of({right, candidate("nan", true, std::nan(""))}), {}),
               LogicError);
  const auto outcome =
      bench::measure(plan_of({right, candidate("wrong", false, 4)}), {.rounds = 1});
  EXPECT_TRUE(std::isnan(outcome->measurements[0].error)) << "it gave the expected result";
  EXPECT_EQ(outcome->measurements[1].error, 1);
}

TEST(Measure, how_far_off_a_result_may_be_depends_on_its_precision) {
  const bench::Candidate truth = candidate("truth", false, 1);
  bench::Candidate rounded = candidate("rounded", true, 1 + 0x1p-7);
  rounded.precision = amp::Precision::kBFloat16;
  EXPECT_NO_THROW(bench::measure(plan_of({truth, rounded}), {.rounds = 1}));
  for (const auto precision : {amp::Precision::kFloat16, amp::Precision::kFloat32}) {
    rounded.precision = precision;
    EXPECT_THROW(bench::measure(plan_of({truth, rounded}), {.rounds = 1}), LogicError);
  }
  // If a 16-bit candidate gives the expected result, its rounding counts too.
  bench::Candidate bfloat16 = candidate("bfloat16", true, 1 + 0x1p-7);
  bfloat16.precision = amp::Precision::kBFloat16;
  EXPECT_NO_THROW(
      bench::measure(plan_of({bfloat16, candidate("float32", true, 1)}), {.rounds = 1}));
}

TEST(Measure, the_largest_error_follows_from_epsilon_and_the_number_of_terms) {
  using amp::Precision;
  const bench::Rounding step{.steps = 1, .terms = 0};
  EXPECT_EQ(bench::largest_error(step, Precision::kFloat32), 0x1p-23);
  EXPECT_EQ(bench::largest_error(step, Precision::kTensorFloat32), 0x1p-10);
  EXPECT_EQ(bench::largest_error(step, Precision::kFloat16), 0x1p-10);
  EXPECT_EQ(bench::largest_error(step, Precision::kBFloat16), 0x1p-7);
  EXPECT_EQ(bench::largest_error({.steps = 0, .terms = 16}, Precision::kBFloat16), 0x1p-21);
  EXPECT_EQ(bench::largest_error({.steps = 1000}, Precision::kBFloat16), 0.1);
}

TEST(Measure, a_few_elements_may_jump_where_gradients_do) {
  const auto measure = [](bool has_jumps, const at::Tensor& result) {
    const bench::Comparison comparison{
        .candidates = {{.name = "mezzo",
                        .is_mezzo = true,
                        .run = [result]() -> bench::Tensors { return {result}; }}},
        .expected = {{at::ones_like(result)}},
        .rounding = {.has_jumps = has_jumps}};
    bench::measure({.work = "work", .width = 1, .make = [comparison] { return comparison; }},
                   {.rounds = 1});
  };
  at::Tensor one_jump = at::ones({1 << 18});
  one_jump[7] = 1.01;  // 2e-5 of the root of the mean square; roundings explain 4e-5
  EXPECT_NO_THROW(measure(true, one_jump));
  EXPECT_THROW(measure(false, one_jump), LogicError);
  EXPECT_THROW(measure(true, at::full({1 << 18}, 1.0001)), LogicError);
}

TEST(Measure, runs_each_candidate_as_often_as_asked) {
  int runs = 0;
  bench::Candidate counted = candidate("counted", true, 1);
  counted.run = [&runs]() -> bench::Tensors { return {at::full({1}, ++runs > 1 ? 2 : 1)}; };
  const bench::MeasureOptions options{.rounds = 4, .repeats = 3, .warm_ups = 2};
  const auto outcome = bench::measure(plan_of({candidate("expected", false, 1), counted}), options);
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->measurements[1].error, 0) << "the first warm-up is checked";
  EXPECT_EQ(outcome->measurements[1].milliseconds.size(), 4U);
  EXPECT_EQ(runs, 2 + 4 * 3);
}

TEST(Measure, stops_when_asked) {
  const bench::MeasureOptions options{.rounds = 1, .should_stop = [] { return true; }};
  EXPECT_FALSE(bench::measure(plan_of({candidate("small", true, 1)}), options).has_value());
}

}  // namespace
}  // namespace mezzo
