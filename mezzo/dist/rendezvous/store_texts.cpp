#include "mezzo/dist/rendezvous/store_texts.h"

#include <algorithm>

#include <fmt/ranges.h>

namespace mezzo::dist::detail {

std::chrono::milliseconds time_left(std::chrono::steady_clock::time_point deadline) {
  using std::chrono::milliseconds;
  const auto now = std::chrono::steady_clock::now();
  return std::max(std::chrono::duration_cast<milliseconds>(deadline - now), milliseconds(1));
}

double seconds(std::chrono::milliseconds time) {
  return static_cast<double>(time.count()) / 1000.0;
}

std::string key_of(const char* what, std::int64_t rank) {
  return fmt::format("{}/{}", what, rank);
}

std::string get_text(c10d::Store& store, const std::string& key) {
  const std::vector<std::uint8_t> bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}

void set_text(c10d::Store& store, const std::string& key, const std::string& text) {
  store.set(key, std::vector<std::uint8_t>(text.begin(), text.end()));
}

std::vector<std::int64_t> silent_ranks(c10d::Store& store, std::int64_t world_size,
                                       const char* what) {
  std::vector<std::int64_t> silent;
  for (std::int64_t rank = 0; rank < world_size; ++rank) {
    if (!store.check({key_of(what, rank)})) silent.push_back(rank);
  }
  return silent;
}

std::string ranks_text(const std::vector<std::int64_t>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

}  // namespace mezzo::dist::detail
