#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <future>
#include <optional>
#include <string>

#include <c10/util/intrusive_ptr.h>

#include "mezzo/dist/rendezvous/environment.h"

namespace c10d {
class Store;
}  // namespace c10d

namespace mezzo::dist::detail {

/// How a rank says that it fails only because another has.
inline constexpr const char* kGivenUp = "given up by ";

/// The store at rank 0's address by which processes find each other, compare notes, and tell each
/// other what went wrong. One thread at a time, but for report_fault().
class MeetingPoint {
 public:
  /// Connects; rank 0 opens the port first. Throws IoError that names address, port and time.
  MeetingPoint(Placement place, std::chrono::milliseconds timeout);

  /// Returns when all ranks are here and found to be of one version and of equal `agreement`.
  /// Else every rank throws the same IoError, which names the ranks that are missing or differ.
  void meet(const std::string& agreement);

  /// After meet(): the number of ranks before this one on its machine, unless given.
  std::int64_t local_rank() const { return place_.local_rank; }
  /// After meet(): the number of ranks on this machine.
  std::int64_t local_world_size() const { return local_world_size_; }
  /// After meet(): this machine's address, in numbers, at which the others reach it; empty if
  /// it has none.
  const std::string& local_address() const { return local_address_; }
  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }

  /// Tells the others that this rank gives up, listens for a short time to what they say, and
  /// returns which ranks say nothing; where all speak, what others failed in. A store that is slow
  /// to answer is waited for until `deadline`; the rest takes nine seconds at most. Empty if
  /// nothing is known.
  std::string report_fault(const std::string& text,
                           std::chrono::steady_clock::time_point deadline) noexcept;
  /// What another rank that has given up said, if any. Blocks for a moment; a store that has not
  /// answered then is listened to again by the next call.
  std::optional<std::string> fault_of_another() noexcept;

 private:
  std::string name() const;
  /// The store is gone or silent: the fault of rank 0, unless this process hosts it.
  void lose_store();

  Placement place_;
  std::chrono::milliseconds timeout_;
  std::chrono::steady_clock::time_point deadline_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::string local_address_;
  std::int64_t local_world_size_ = 1;
  std::future<std::string> question_;  ///< of fault_of_another(), until it is answered
  std::atomic<bool> lost_ = false;     ///< the connection to the store has broken
};

/// The first line of an exception, without libtorch's stack of calls.
std::string first_line(const std::exception& error);

}  // namespace mezzo::dist::detail
