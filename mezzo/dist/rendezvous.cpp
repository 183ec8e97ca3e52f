#include "mezzo/dist/rendezvous.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <future>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <unistd.h>

#include "mezzo/core/error.h"
#include "mezzo/dist/local_address.h"
#include "mezzo/version.h"

namespace mezzo::dist::detail {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using StorePointer = c10::intrusive_ptr<c10d::Store>;

/// How long a rank that gives up waits for the words of the others.
constexpr milliseconds kPatience(3000);
constexpr milliseconds kPause(50);
/// In which a store that is not busy answers.
constexpr milliseconds kMoment(100);
constexpr std::int64_t kMostQuoted = 3;
constexpr const char* kAgreed = "agreed";

milliseconds time_left(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
  return std::max(left, milliseconds(1));  // c10d reads 0 as "no limit"
}

double seconds(milliseconds time) {
  return static_cast<double>(time.count()) / 1000.0;
}

std::string key_of(const char* what, std::int64_t rank) {
  return fmt::format("{}/{}", what, rank);
}

std::string ranks_text(const std::vector<std::int64_t>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string get_text(c10d::Store& store, const std::string& key) {
  const std::vector<std::uint8_t> bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}

void set_text(c10d::Store& store, const std::string& key, const std::string& text) {
  store.set(key, std::vector<std::uint8_t>(text.begin(), text.end()));
}

bool wait_for(c10d::Store& store, const std::vector<std::string>& keys,
              Clock::time_point deadline) {
  try {
    store.wait(keys, time_left(deadline));
    return true;
  } catch (const std::exception&) {
    return store.check(keys);  // throws where the store has gone
  }
}

/// The ranks that have not written the key.
std::vector<std::int64_t> silent_ranks(c10d::Store& store, std::int64_t world_size,
                                       const char* what) {
  std::vector<std::int64_t> silent;
  for (std::int64_t rank = 0; rank < world_size; ++rank) {
    if (!store.check({key_of(what, rank)})) silent.push_back(rank);
  }
  return silent;
}

std::string missing_text(const std::vector<std::int64_t>& missing, std::int64_t world_size,
                         milliseconds timeout) {
  return fmt::format("{} of {} processes did not come within {:g} s: {}", missing.size(),
                     world_size, seconds(timeout), ranks_text(missing));
}

/// The first line in which the texts differ, of `text`.
std::string_view first_difference(std::string_view text, std::string_view other) {
  std::size_t start = 0;
  const std::size_t common = std::min(text.size(), other.size());
  for (std::size_t i = 0; i < common && text[i] == other[i]; ++i) {
    if (text[i] == '\n') start = i + 1;
  }
  const std::string_view line = text.substr(start);
  return line.substr(0, line.find('\n'));
}

/// What the ranks that are here wrote under `what`, against rank 0's; empty where it is the same.
std::string compare_notes(c10d::Store& store, std::int64_t world_size, const char* what,
                          const char* meaning) {
  const std::string first = get_text(store, key_of(what, 0));
  std::vector<std::int64_t> different;
  std::string example;
  for (std::int64_t rank = 1; rank < world_size; ++rank) {
    const std::string key = key_of(what, rank);
    if (!store.check({key_of("arrived", rank), key})) continue;
    const std::string text = get_text(store, key);
    if (text == first) continue;
    if (different.empty()) example = text;
    different.push_back(rank);
  }
  if (different.empty()) return {};
  return fmt::format("{} differs: rank 0 has '{}', rank {} has '{}'; not as rank 0: {}", meaning,
                     first_difference(first, example), different[0],
                     first_difference(example, first), ranks_text(different));
}

/// What is handed to the thread that talks to the store.
struct Notes {
  StorePointer store;
  Placement place;
  milliseconds timeout;
  Clock::time_point deadline;
  std::string agreement;
  Route route;
  std::string verdict;
  // By rank: the name of its host, and where it finds rank 0.
  std::vector<std::string> hosts, targets;
};

void write_notes(const Notes& notes) {
  c10d::Store& store = *notes.store;
  const std::int64_t rank = notes.place.rank;
  set_text(store, key_of("host", rank), host_name());
  set_text(store, key_of("target", rank), notes.route.target);
  set_text(store, key_of("process", rank), fmt::format("process {} on {}", getpid(), host_name()));
  set_text(store, key_of("world_size", rank), std::to_string(notes.place.world_size));
  set_text(store, key_of("version", rank), std::string(kVersion));
  set_text(store, key_of("agreement", rank), notes.agreement);
  set_text(store, key_of("arrived", rank), "yes");
}

/// Rank 0's: what is wrong with the group, or kAgreed.
std::string judge(const Notes& notes) {
  c10d::Store& store = *notes.store;
  const std::int64_t world_size = notes.place.world_size;
  std::vector<std::string> keys;
  for (std::int64_t rank = 0; rank < world_size; ++rank) keys.push_back(key_of("arrived", rank));
  const bool all_here = wait_for(store, keys, notes.deadline);
  std::string fault = compare_notes(store, world_size, "version", "the version of mezzo");
  if (fault.empty()) {
    fault = compare_notes(store, world_size, "world_size", "the number of processes");
  }
  if (fault.empty() && !all_here) {
    return missing_text(silent_ranks(store, world_size, "arrived"), world_size, notes.timeout);
  }
  if (fault.empty()) fault = compare_notes(store, world_size, "agreement", "the task");
  return fault.empty() ? kAgreed : fault;
}

/// The store ends with rank 0, so a verdict has to be read before rank 0 may throw.
void wait_for_readers(c10d::Store& store, std::int64_t world_size) {
  const Clock::time_point end = Clock::now() + kPatience;
  const auto arrived = static_cast<std::int64_t>(static_cast<std::size_t>(world_size) -
                                                 silent_ranks(store, world_size, "arrived").size());
  while (store.add("verdict_read", 0) < arrived - 1 && Clock::now() < end) {
    std::this_thread::sleep_for(kPause);
  }
}

std::string read_verdict(const Notes& notes) {
  c10d::Store& store = *notes.store;
  // Rank 0's own time may have begun a little later.
  const bool decided = wait_for(store, {"verdict"}, notes.deadline + kPatience / 3);
  const std::string verdict = decided ? get_text(store, "verdict") : std::string();
  store.add("verdict_read", 1);
  if (decided) return verdict;
  std::vector<std::int64_t> missing = silent_ranks(store, notes.place.world_size, "arrived");
  if (missing.empty()) missing = {0};  // it came, but does not decide
  return missing_text(missing, notes.place.world_size, notes.timeout);
}

void exchange_notes(Notes& notes) {
  c10d::Store& store = *notes.store;
  const std::int64_t rank = notes.place.rank;
  if (store.add(key_of("taken", rank), 1) > 1) {
    const std::string key = key_of("process", rank);
    notes.verdict = fmt::format("rank {} has been taken by another process{}", rank,
                                store.check({key}) ? ": " + get_text(store, key) : "");
    return;
  }
  write_notes(notes);
  if (rank == 0) {
    notes.verdict = judge(notes);
    set_text(store, "verdict", notes.verdict);
    if (notes.verdict != kAgreed) wait_for_readers(store, notes.place.world_size);
  } else {
    notes.verdict = read_verdict(notes);
  }
  if (notes.verdict != kAgreed) return;
  for (std::int64_t other = 0; other < notes.place.world_size; ++other) {
    notes.hosts.push_back(get_text(store, key_of("host", other)));
    notes.targets.push_back(get_text(store, key_of("target", other)));
  }
}

/// Returns when the ranks that have spoken have heard who has not: the store ends with rank 0.
void wait_for_listeners(c10d::Store& store, std::int64_t speakers) {
  const Clock::time_point end = Clock::now() + kPatience;
  while (store.add("heard", 0) < speakers && Clock::now() < end) {
    std::this_thread::sleep_for(kPause);
  }
}

/// What other ranks than `own` failed in, as far as rank 0 still answers; all have spoken.
std::string faults_of_others(c10d::Store& store, std::int64_t world_size, std::int64_t own) {
  const std::string follows = fmt::format(": {}", kGivenUp);  // behind it words of another rank
  std::string quotes;
  std::int64_t quoted = 0;
  try {
    for (std::int64_t rank = 0; rank < world_size && quoted < kMostQuoted; ++rank) {
      if (rank == own) continue;
      const std::string text = get_text(store, key_of("fault", rank));
      quotes += fmt::format("; rank {} failed in {}", rank, text.substr(0, text.find(follows)));
      ++quoted;
    }
  } catch (const std::exception&) {
    // Rank 0 has ended meanwhile.
  }
  return quotes;
}

/// What `work` gives, on a thread of its own, which goes on though nobody waits for it: it has to
/// own all that it uses.
template <class Work>
auto start_thread(Work work) {
  std::packaged_task<decltype(work())()> task(std::move(work));
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  return result;
}

/// Whether `work`, likewise, has come back within `limit`. Rethrows what it throws.
template <class Work>
bool run_within(milliseconds limit, Work work) {
  std::future<void> done = start_thread(std::move(work));
  if (done.wait_for(limit) != std::future_status::ready) return false;
  done.get();
  return true;
}

StorePointer open_store(const Placement& place, milliseconds timeout, std::int64_t number) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(place.port);
  options.isServer = place.hosts_store;
  options.waitWorkers = false;
  // Whole seconds count, and c10d reads 0 as "no limit".
  options.timeout = std::max(timeout, milliseconds(1000));
  auto store = c10::make_intrusive<c10d::TCPStore>(place.address, options);
  return c10::make_intrusive<c10d::PrefixStore>(fmt::format("mezzo/{}/{}", place.attempt, number),
                                                std::move(store));
}

}  // namespace

std::string first_line(const std::exception& error) {
  const auto* of_libtorch = dynamic_cast<const c10::Error*>(&error);
  const std::string_view text =
      of_libtorch != nullptr ? of_libtorch->what_without_backtrace() : error.what();
  return std::string(text.substr(0, text.find('\n')));
}

MeetingPoint::MeetingPoint(Placement place, milliseconds timeout)
    : place_(std::move(place)), timeout_(timeout), deadline_(Clock::now() + timeout) {
  // A torchrun's agent keeps one store for all groups that its processes make in turn.
  static std::atomic<std::int64_t> groups = 0;
  const std::int64_t number = groups++;
  const auto opened = std::make_shared<StorePointer>();
  bool in_time = false;
  try {
    in_time = run_within(timeout_, [opened, number, timeout, where = place_] {
      *opened = open_store(where, timeout, number);
    });
  } catch (const std::exception& error) {
    const std::string reason = first_line(error);
    if (place_.hosts_store && reason.find("in use") != std::string::npos) {
      mezzo::detail::raise<IoError>("dist::init: rank 0 cannot open port {} of {}: it is in use",
                                    place_.port, place_.address);
    }
    const bool late = Clock::now() >= deadline_;
    if (!late)
      mezzo::detail::raise<IoError>("dist::init: {} cannot be reached: {}", name(), reason);
  }
  if (!in_time) {
    mezzo::detail::raise<IoError>("dist::init: {} did not answer within {:g} s (this is rank {})",
                                  name(), seconds(timeout_), place_.rank);
  }
  store_ = *opened;
}

std::string MeetingPoint::name() const {
  return fmt::format("rank 0 at {}, port {}", place_.address, place_.port);
}

void MeetingPoint::meet(const std::string& agreement) {
  const auto notes = std::make_shared<Notes>();
  notes->store = store_;
  notes->place = place_;
  notes->timeout = timeout_;
  notes->deadline = deadline_;
  notes->agreement = agreement;
  notes->route = find_route(place_.address);
  bool answered = false;
  try {
    answered =
        run_within(time_left(deadline_) + 2 * kPatience, [notes] { exchange_notes(*notes); });
  } catch (const std::exception& error) {
    lost_ = true;
    mezzo::detail::raise<IoError>("dist::init: {} has ended: {}", name(), first_line(error));
  }
  if (!answered) {
    lost_ = true;
    mezzo::detail::raise<IoError>("dist::init: {} has stopped to answer", name());
  }
  if (notes->verdict != kAgreed) mezzo::detail::raise<IoError>("dist::init: {}", notes->verdict);
  const auto rank = static_cast<std::size_t>(place_.rank);
  const std::vector<std::string>& hosts = notes->hosts;
  const auto mine = hosts.begin() + static_cast<std::ptrdiff_t>(rank);
  if (place_.local_rank < 0) place_.local_rank = std::count(hosts.begin(), mine, *mine);
  std::vector<std::string> targets_elsewhere;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (hosts[i] != *mine) targets_elsewhere.push_back(notes->targets[i]);
  }
  local_address_ = find_local_address(notes->route.source, targets_elsewhere);
}

std::string MeetingPoint::report_fault(const std::string& text,
                                       Clock::time_point deadline) noexcept {
  if (lost_) return fmt::format("; no word from {}: dead, gone or stopped", name());
  const auto silent = std::make_shared<std::vector<std::int64_t>>();
  const auto others = std::make_shared<std::string>();
  const auto listen = [silent, others, text, store = store_, place = place_] {
    const std::string own_key = key_of("fault", place.rank);
    set_text(*store, own_key, text);
    set_text(*store, "fault", fmt::format("rank {}: {}", place.rank, text));
    // What is set waits in the connection; an answer shows that the store is listening, and that
    // the others may hear.
    store->check({own_key});
    const Clock::time_point end = Clock::now() + kPatience;
    do {
      std::this_thread::sleep_for(kPause);
      *silent = silent_ranks(*store, place.world_size, "fault");
    } while (!silent->empty() && Clock::now() < end);
    const bool follows = text.find(kGivenUp) != std::string::npos;  // names the other already
    if (silent->empty() && !follows) {
      *others = faults_of_others(*store, place.world_size, place.rank);
    }
    const auto speakers = place.world_size - static_cast<std::int64_t>(silent->size());
    store->add("heard", 1);
    if (place.hosts_store) wait_for_listeners(*store, speakers);
  };
  bool rank_0_has_spoken = true;
  try {
    rank_0_has_spoken = run_within(time_left(deadline) + 3 * kPatience, listen);
  } catch (const std::exception&) {
    lost_ = true;
    // Gone while this rank listened. Known before: rank 0 spoke, and left without the silent ones.
    rank_0_has_spoken = !silent->empty() && silent->front() != 0;
  }
  if (!rank_0_has_spoken) return fmt::format("; no word from {}: dead or stopped", name());
  if (silent->empty()) return *others;
  return fmt::format("; no word from {}: dead, gone, stopped or late", ranks_text(*silent));
}

std::optional<std::string> MeetingPoint::fault_of_another() noexcept {
  if (lost_) return std::nullopt;
  try {
    if (!question_.valid()) {
      question_ = start_thread([store = store_] {
        return store->check({"fault"}) ? get_text(*store, "fault") : std::string();
      });
    }
    if (question_.wait_for(kMoment) != std::future_status::ready) return std::nullopt;
    const std::string text = question_.get();
    return text.empty() ? std::nullopt : std::optional<std::string>(text);
  } catch (const std::exception&) {
    // Rank 0 may have ended as it should: no fault.
    lost_ = true;
  }
  return std::nullopt;
}

}  // namespace mezzo::dist::detail
