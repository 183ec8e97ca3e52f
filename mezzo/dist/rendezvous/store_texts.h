#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

/// Short texts that ranks exchange through the store. Functions that access the store throw c10d's
/// exception if it is lost.
namespace mezzo::dist::detail {

/// How long a rank waits for the others to read or write before it ends.
inline constexpr std::chrono::milliseconds kPatience(3000);
/// Polling interval of the store.
inline constexpr std::chrono::milliseconds kPause(50);

/// Remaining time, at least 1 ms: c10d reads 0 as "no limit".
std::chrono::milliseconds time_left(std::chrono::steady_clock::time_point deadline);
/// Converts to seconds, for messages.
double seconds(std::chrono::milliseconds time);

/// The key of `what` for a rank.
std::string key_of(const char* what, std::int64_t rank);
std::string get_text(c10d::Store& store, const std::string& key);
void set_text(c10d::Store& store, const std::string& key, const std::string& text);

/// The ranks that have not written `what`.
std::vector<std::int64_t> silent_ranks(c10d::Store& store, std::int64_t world_size,
                                       const char* what);
/// "rank 1", "ranks 1, 2".
std::string ranks_text(const std::vector<std::int64_t>& ranks);

}  // namespace mezzo::dist::detail
