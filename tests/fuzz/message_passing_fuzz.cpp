// Random graphs, operands and messages against the definitions, and invalid ones that must be
// refused.
//
//   message_passing_fuzz [--seconds N] [--seed S]   as many cases as fit in N seconds, from seed S
//   message_passing_fuzz --cases N [--seed S]       the first N cases from seed S, on any machine
//   message_passing_fuzz --case C                   one case again, as a failure names it
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "mezzo/core/error.h"
#include "mezzo/core/random.h"

#include "fuzz/checks.h"
#include "support/draw.h"

namespace mezzo::test {
namespace {

/// A check and its relative frequency.
struct Weighted {
  std::int64_t weight;
  void (*check)(Draw&);
};

constexpr Weighted kChecks[] = {
    {10, check_reduction},       {4, check_some_edges},        {3, check_edge_message},
    {2, check_apply_edges},      {1, check_apply_nodes},       {2, check_softmax},
    {2, check_gat_attention},    {2, check_gatv2_scores},      {1, check_scaled_sum},
    {1, check_segment_reduce},   {1, check_segment_softmax},   {1, check_products},
    {3, check_refused_operands}, {1, check_refused_structure},
};

void run_case(std::uint64_t seed) {
  Draw draw(seed);
  std::int64_t total = 0;
  for (const Weighted& one : kChecks) total += one.weight;
  std::int64_t drawn = draw.below(total);
  for (const Weighted& one : kChecks) {
    if (drawn < one.weight) return one.check(draw);
    drawn -= one.weight;
  }
}

/// Runs a case and returns whether it passes. Prints a failure and how to reproduce it.
bool passes(std::uint64_t seed) {
  try {
    run_case(seed);
    return true;
  } catch (const std::exception& error) {
    fmt::print(stderr, "failed: {}\nto repeat: message_passing_fuzz --case {}\n", error.what(),
               seed);
    return false;
  }
}

struct Options {
  std::int64_t seconds = 10;
  std::optional<std::uint64_t> cases = {};
  std::uint64_t seed = 1;
  std::optional<std::uint64_t> only = {};
};

Options parsed(const std::vector<std::string_view>& words) {
  Options options;
  for (std::size_t i = 0; i < words.size(); i += 2) {
    const std::string_view value = i + 1 < words.size() ? words[i + 1] : "";
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    MEZZO_CHECK(error == std::errc() && end == value.data() + value.size(),
                "expected --seconds N, --cases N, --seed S or --case C, got '{} {}'", words[i],
                value);
    if (words[i] == "--seconds") {
      options.seconds = static_cast<std::int64_t>(number);
    } else if (words[i] == "--cases") {
      options.cases = number;
    } else if (words[i] == "--seed") {
      options.seed = number;
    } else {
      MEZZO_CHECK(words[i] == "--case", "expected --seconds, --cases, --seed or --case, got '{}'",
                  words[i]);
      options.only = number;
    }
  }
  return options;
}

int run(const Options& options) {
  if (options.only) return passes(*options.only) ? 0 : 1;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(options.seconds);
  std::uint64_t cases = 0;
  const auto more = [&] {
    return options.cases ? cases < *options.cases : std::chrono::steady_clock::now() < end;
  };
  for (; more(); ++cases) {
    if (!passes(random_bits(options.seed, 33, cases))) return 1;
  }
  fmt::print("{} cases passed from seed {}\n", cases, options.seed);
  return 0;
}

}  // namespace
}  // namespace mezzo::test

int main(int argc, char** argv) {
  try {
    return mezzo::test::run(mezzo::test::parsed({argv + 1, argv + argc}));
  } catch (const mezzo::InvalidArgument& error) {
    fmt::print(stderr, "message_passing_fuzz: {}\n", error.what());
    return 2;
  }
}
