#include "mezzo/dist/rendezvous/rendezvous.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <future>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "mezzo/core/error.h"
#include "mezzo/dist/rendezvous/failure.h"
#include "mezzo/dist/rendezvous/handshake.h"
#include "mezzo/dist/rendezvous/local_address.h"
#include "mezzo/dist/rendezvous/store_texts.h"

namespace mezzo::dist::detail {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using StorePointer = c10::intrusive_ptr<c10d::Store>;

/// An idle store answers within this time.
constexpr milliseconds kMoment(100);
constexpr std::int64_t kMostQuoted = 3;

/// Waits until the reporting ranks have read who is unresponsive: the store ends with rank 0.
void wait_for_listeners(c10d::Store& store, std::int64_t speakers) {
  const Clock::time_point end = Clock::now() + kPatience;
  while (store.add("heard", 0) < speakers && Clock::now() < end) {
    std::this_thread::sleep_for(kPause);
  }
}

/// Errors of ranks other than `own`, while rank 0 responds; all have reported.
std::string faults_of_others(c10d::Store& store, std::int64_t world_size, std::int64_t own) {
  const std::string follows = fmt::format(": {}", kGivenUp);  // then quotes another rank
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
    // Rank 0 has ended.
  }
  return quotes;
}

/// Runs `work` on a detached thread and returns its future. It must own everything it uses.
template <class Work>
auto start_thread(Work work) {
  std::packaged_task<decltype(work())()> task(std::move(work));
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  return result;
}

/// Whether `work`, run in the same way, returns within `limit`. Rethrows its exception.
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
  // c10d counts whole seconds and reads 0 as "no limit".
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
  // torchrun's agent keeps one store for all groups that its processes create, one after another.
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
    if (!late) {
      if (comes_from_another(error)) lose_store();
      mezzo::detail::raise<IoError>("dist::init: {} cannot be reached: {}", name(), reason);
    }
  }
  if (!in_time) {
    lose_store();
    mezzo::detail::raise<IoError>("dist::init: {} did not answer within {:g} s (this is rank {})",
                                  name(), seconds(timeout_), place_.rank);
  }
  store_ = *opened;
}

std::string MeetingPoint::name() const {
  return fmt::format("rank 0 at {}, port {}", place_.address, place_.port);
}

void MeetingPoint::lose_store() {
  lost_ = true;
  if (!place_.hosts_store) note_failure_of_another();
}

void MeetingPoint::meet(const std::string& agreement, const std::string& gpus) {
  const Route route = find_route(place_.address);
  const auto handshake = std::make_shared<Handshake>(Handshake{.store = store_,
                                                               .place = place_,
                                                               .timeout = timeout_,
                                                               .deadline = deadline_,
                                                               .agreement = agreement,
                                                               .gpus = gpus,
                                                               .target = route.target});
  bool answered = false;
  try {
    answered =
        run_within(time_left(deadline_) + 2 * kPatience, [handshake] { shake_hands(*handshake); });
  } catch (const std::exception& error) {
    if (comes_from_another(error)) lose_store();
    mezzo::detail::raise<IoError>("dist::init: {} has ended: {}", name(), first_line(error));
  }
  if (!answered) {
    lose_store();
    mezzo::detail::raise<IoError>("dist::init: {} stopped answering", name());
  }
  if (!handshake->fault.empty()) {
    if (!handshake->rank_failed) note_failure_of_another();
    mezzo::detail::raise<IoError>("dist::init: {}", handshake->fault);
  }
  const auto rank = static_cast<std::size_t>(place_.rank);
  const std::vector<std::string>& hosts = handshake->hosts;
  const auto mine = hosts.begin() + static_cast<std::ptrdiff_t>(rank);
  if (place_.local_rank < 0) place_.local_rank = std::count(hosts.begin(), mine, *mine);
  local_world_size_ = std::count(hosts.begin(), hosts.end(), *mine);
  machines_ = machines_of(hosts, handshake->gpus_of_ranks);
  std::vector<std::string> targets_elsewhere;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (hosts[i] != *mine) targets_elsewhere.push_back(handshake->targets[i]);
  }
  local_address_ = find_local_address(route.source, targets_elsewhere);
}

std::string MeetingPoint::report_fault(const std::string& text,
                                       Clock::time_point deadline) noexcept {
  if (lost_) return fmt::format("; no answer from {}: dead, gone or stopped", name());
  const auto silent = std::make_shared<std::vector<std::int64_t>>();
  const auto others = std::make_shared<std::string>();
  const auto listen = [silent, others, text, store = store_, place = place_] {
    const std::string own_key = key_of("fault", place.rank);
    set_text(*store, own_key, text);
    set_text(*store, "fault", fmt::format("rank {}: {}", place.rank, text));
    // set() is only buffered by the connection; a reply shows that the store responds and that
    // others can read the value.
    store->check({own_key});
    const Clock::time_point end = Clock::now() + kPatience;
    do {
      std::this_thread::sleep_for(kPause);
      *silent = silent_ranks(*store, place.world_size, "fault");
    } while (!silent->empty() && Clock::now() < end);
    const bool follows = text.find(kGivenUp) != std::string::npos;  // already names the other
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
    // The store was lost during the wait. If only other ranks were silent, rank 0 had reported.
    rank_0_has_spoken = !silent->empty() && silent->front() != 0;
  }
  if (!rank_0_has_spoken) return fmt::format("; no answer from {}: dead or stopped", name());
  if (silent->empty()) return *others;
  return fmt::format("; no answer from {}: dead, gone, stopped or late", ranks_text(*silent));
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
    // Rank 0 may have ended normally, which is not a failure.
    lost_ = true;
  }
  return std::nullopt;
}

}  // namespace mezzo::dist::detail
