#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace mezzo::bench {

/// One way to do the work of a comparison.
struct Contender {
  std::string name;
  std::function<void()> run;
  std::vector<double> milliseconds = {};

  double minimum() const { return *std::min_element(milliseconds.begin(), milliseconds.end()); }
  double median() const {
    std::vector<double> sorted = milliseconds;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

/// Runs the contenders in turn, `rounds` times after one warm-up each, so that a drift of the
/// machine's speed meets them alike.
inline void interleave(std::vector<Contender>& contenders, int rounds) {
  for (Contender& c : contenders) c.run();
  for (int round = 0; round < rounds; ++round) {
    for (Contender& c : contenders) {
      const auto start = std::chrono::steady_clock::now();
      c.run();
      const std::chrono::duration<double, std::milli> elapsed =
          std::chrono::steady_clock::now() - start;
      c.milliseconds.push_back(elapsed.count());
    }
  }
}

/// Prints one line a contender: minimum and median, and how often as fast as the first one (by
/// minimum) it is.
inline void print(const std::string& work, const std::vector<Contender>& contenders) {
  for (const Contender& c : contenders) {
    std::printf("%-44s %-28s min %9.2f ms  median %9.2f ms  %6.2fx\n", work.c_str(), c.name.c_str(),
                c.minimum(), c.median(), contenders.front().minimum() / c.minimum());
  }
}

}  // namespace mezzo::bench
