#include "mezzo/dist/rendezvous/handshake.h"

#include <algorithm>
#include <array>
#include <exception>
#include <string_view>
#include <thread>

#include <fmt/ranges.h>
#include <unistd.h>

#include "mezzo/dist/rendezvous/store_texts.h"
#include "mezzo/version.h"

namespace mezzo::dist::detail {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kAgreed = "agreed";
/// Key that rank 0 writes before the result, with the ranks that failed.
constexpr const char* kFailed = "failed";

/// kAgreed, or the error of the group and the failed ranks.
struct Status {
  std::string text = kAgreed;
  std::vector<std::int64_t> failed_ranks = {};

  bool is_fault() const { return text != kAgreed; }
};

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

bool wait_for(c10d::Store& store, const std::vector<std::string>& keys,
              Clock::time_point deadline) {
  try {
    store.wait(keys, time_left(deadline));
    return true;
  } catch (const std::exception&) {
    return store.check(keys);  // throws if the store is lost
  }
}

std::string missing_text(const std::vector<std::int64_t>& missing, const Handshake& handshake) {
  return fmt::format("{} of {} processes did not come within {:g} s: {}", missing.size(),
                     handshake.place.world_size, seconds(handshake.timeout), ranks_text(missing));
}

/// The first line of `text` that differs from the other text.
std::string_view first_difference(std::string_view text, std::string_view other) {
  std::size_t start = 0;
  const std::size_t common = std::min(text.size(), other.size());
  for (std::size_t i = 0; i < common && text[i] == other[i]; ++i) {
    if (text[i] == '\n') start = i + 1;
  }
  const std::string_view line = text.substr(start);
  return line.substr(0, line.find('\n'));
}

/// Compares the texts under `what` of the joined ranks with rank 0's text.
Status compare_metadata(const Handshake& handshake, const char* what, const char* meaning) {
  c10d::Store& store = *handshake.store;
  const std::string first = get_text(store, key_of(what, 0));
  std::vector<std::int64_t> different;
  std::string example;
  for (std::int64_t rank = 1; rank < handshake.place.world_size; ++rank) {
    const std::string key = key_of(what, rank);
    if (!store.check({key_of("arrived", rank), key})) continue;
    const std::string text = get_text(store, key);
    if (text == first) continue;
    if (different.empty()) example = text;
    different.push_back(rank);
  }
  if (different.empty()) return {};
  return {fmt::format("{} differs: rank 0 has '{}', rank {} has '{}'; not as rank 0: {}", meaning,
                      first_difference(first, example), different[0],
                      first_difference(example, first), ranks_text(different)),
          different};
}

void write_metadata(const Handshake& handshake) {
  c10d::Store& store = *handshake.store;
  const std::int64_t rank = handshake.place.rank;
  set_text(store, key_of("host", rank), host_name());
  set_text(store, key_of("target", rank), handshake.target);
  set_text(store, key_of("gpus", rank), handshake.gpus);
  set_text(store, key_of("process", rank), fmt::format("process {} on {}", getpid(), host_name()));
  set_text(store, key_of("world_size", rank), std::to_string(handshake.place.world_size));
  set_text(store, key_of("version", rank), std::string(kVersion));
  set_text(store, key_of("agreement", rank), handshake.agreement);
  set_text(store, key_of("arrived", rank), "yes");
}

/// Rank 0's check.
Status check_ranks(const Handshake& handshake) {
  c10d::Store& store = *handshake.store;
  const std::int64_t world_size = handshake.place.world_size;
  std::vector<std::string> keys;
  for (std::int64_t rank = 0; rank < world_size; ++rank) keys.push_back(key_of("arrived", rank));
  std::vector<std::int64_t> missing;
  if (!wait_for(store, keys, handshake.deadline))
    missing = silent_ranks(store, world_size, "arrived");
  Status status = compare_metadata(handshake, "version", "the version of mezzo");
  if (!status.is_fault()) {
    status = compare_metadata(handshake, "world_size", "the number of processes");
  }
  if (!status.is_fault() && !missing.empty()) return {missing_text(missing, handshake), missing};
  return status.is_fault() ? status : compare_metadata(handshake, "agreement", "the task");
}

/// The store ends with rank 0, so others must read the result before rank 0 may throw.
void wait_for_readers(c10d::Store& store, std::int64_t world_size) {
  const Clock::time_point end = Clock::now() + kPatience;
  const auto arrived = static_cast<std::int64_t>(static_cast<std::size_t>(world_size) -
                                                 silent_ranks(store, world_size, "arrived").size());
  while (store.add("status_read", 0) < arrived - 1 && Clock::now() < end) {
    std::this_thread::sleep_for(kPause);
  }
}

std::string announce_status(const Handshake& handshake) {
  c10d::Store& store = *handshake.store;
  const Status status = check_ranks(handshake);
  for (const std::int64_t rank : status.failed_ranks) set_text(store, key_of(kFailed, rank), "yes");
  set_text(store, "status", status.text);
  if (status.is_fault()) wait_for_readers(store, handshake.place.world_size);
  return status.text;
}

std::string read_status(Handshake& handshake) {
  c10d::Store& store = *handshake.store;
  // Rank 0's deadline may be a little later.
  const bool decided = wait_for(store, {"status"}, handshake.deadline + kPatience / 3);
  const std::string status = decided ? get_text(store, "status") : std::string();
  if (decided && status != kAgreed) {
    handshake.rank_failed = store.check({key_of(kFailed, handshake.place.rank)});
  }
  store.add("status_read", 1);
  if (decided) return status;
  std::vector<std::int64_t> missing = silent_ranks(store, handshake.place.world_size, "arrived");
  if (missing.empty()) missing = {0};  // it has joined but does not decide
  return missing_text(missing, handshake);
}

}  // namespace

void shake_hands(Handshake& handshake) {
  c10d::Store& store = *handshake.store;
  const std::int64_t rank = handshake.place.rank;
  if (store.add(key_of("taken", rank), 1) > 1) {
    const std::string key = key_of("process", rank);
    handshake.fault = fmt::format("rank {} has been taken by another process{}", rank,
                                  store.check({key}) ? ": " + get_text(store, key) : "");
    handshake.rank_failed = true;
    return;
  }
  write_metadata(handshake);
  const std::string status = rank == 0 ? announce_status(handshake) : read_status(handshake);
  if (status != kAgreed) {
    handshake.fault = status;
    return;
  }
  for (std::int64_t other = 0; other < handshake.place.world_size; ++other) {
    handshake.hosts.push_back(get_text(store, key_of("host", other)));
    handshake.targets.push_back(get_text(store, key_of("target", other)));
    handshake.gpus_of_ranks.push_back(get_text(store, key_of("gpus", other)));
  }
}

}  // namespace mezzo::dist::detail
