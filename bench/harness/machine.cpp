#include "bench/harness/machine.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <malloc.h>

#include "mezzo/core/error.h"

namespace mezzo::bench {
namespace {

using Words = std::vector<std::uint64_t>;

/// The sum of the words of some rows, in four chains so that loads, not additions, limit the speed.
std::uint64_t sum_rows(const Words& words, std::size_t row_words, const std::uint32_t* rows,
                       std::size_t count) {
  std::uint64_t a = 0, b = 0, c = 0, d = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t* row = words.data() + rows[i] * row_words;
    for (std::size_t j = 0; j < row_words; j += 4) {
      a += row[j];
      b += row[j + 1];
      c += row[j + 2];
      d += row[j + 3];
    }
  }
  return a + b + c + d;
}

std::uint64_t sum_in_threads(const Words& words, std::size_t row_words,
                             const std::vector<std::uint32_t>& rows, int threads) {
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(threads));
  std::vector<std::jthread> workers;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    workers.emplace_back([&, i] {
      const std::size_t begin = rows.size() * i / sums.size();
      const std::size_t end = rows.size() * (i + 1) / sums.size();
      sums[i] = sum_rows(words, row_words, rows.data() + begin, end - begin);
    });
  }
  workers.clear();  // joins them
  return std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
}

}  // namespace

std::int64_t available_bytes() {
  malloc_trim(0);
  std::ifstream file("/proc/meminfo");
  std::string word;
  while (file >> word) {
    std::int64_t kibibytes = 0;
    if (word == "MemAvailable:" && file >> kibibytes) return kibibytes * 1024;
  }
  return std::numeric_limits<std::int64_t>::max();
}

double read_bandwidth(const ReadPattern& pattern, int passes) {
  constexpr auto kWord = static_cast<std::int64_t>(sizeof(std::uint64_t));
  const auto row_words = static_cast<std::size_t>(pattern.row_bytes / kWord);
  std::vector<std::uint32_t> rows(static_cast<std::size_t>(pattern.bytes / pattern.row_bytes));
  const Words words(rows.size() * row_words, 1);
  std::iota(rows.begin(), rows.end(), 0U);
  if (pattern.shuffled) std::shuffle(rows.begin(), rows.end(), std::mt19937_64(0));

  double best = 0;
  for (int pass = 0; pass < passes; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    const std::uint64_t sum = sum_in_threads(words, row_words, rows, pattern.threads);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (sum != words.size()) mezzo::detail::raise<LogicError>("bandwidth: the sum is {}", sum);
    best =
        std::max(best, static_cast<double>(words.size() * sizeof(std::uint64_t)) / elapsed.count());
  }
  return best;
}

double stream_bandwidth() {
  static const double measured = [] {
    ReadPattern pattern{.threads = at::get_num_threads()};
    pattern.bytes = std::clamp(available_bytes() / 4, std::int64_t{1} << 26, pattern.bytes);
    return read_bandwidth(pattern);
  }();
  return measured;
}

}  // namespace mezzo::bench
