#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>

#include <c10/util/intrusive_ptr.h>

#include "mezzo/dist/environment.h"

namespace c10d {
class Store;
}  // namespace c10d

namespace mezzo::dist::detail {

/// Runs `work` on a thread of its own and returns true, or false where it has not come back after
/// `limit`: it then goes on alone, so it has to own all that it uses. Rethrows what it throws.
bool run_within(std::chrono::milliseconds limit, std::function<void()> work);

/// How a rank says that it fails only because another has.
inline constexpr const char* kGivenUp = "given up by ";

/// The store at rank 0's address by which processes find each other, compare notes, and tell each
/// other what went wrong. No member blocks for longer than the time-out it was made with.
class MeetingPoint {
 public:
  /// Connects; rank 0 opens the port first. Throws IoError that names address, port and time.
  MeetingPoint(Placement place, std::chrono::milliseconds timeout);

  /// Returns when all ranks are here and found to be of one version and of equal `agreement`.
  /// Else every rank throws the same IoError, which names the ranks that are missing or differ.
  void meet(const std::string& agreement);

  /// After meet(): the number of ranks before this one on its machine, unless given.
  std::int64_t local_rank() const { return place_.local_rank; }
  /// After meet(): this machine's address, in numbers, at which the others reach it.
  const std::string& local_address() const { return local_address_; }
  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }

  /// Tells the others that this rank gives up, listens for a short time to what they say, and
  /// returns which ranks say nothing; where all speak, what others failed in. Best effort: empty
  /// where nothing is known.
  std::string report_fault(const std::string& text) noexcept;
  /// What another rank that has given up said, if any.
  std::optional<std::string> fault_of_another() noexcept;

 private:
  std::string name() const;

  Placement place_;
  std::chrono::milliseconds timeout_;
  std::chrono::steady_clock::time_point deadline_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::string local_address_;
  bool lost_ = false;  ///< the store has stopped to answer: not asked again
};

/// The first line of an exception, without libtorch's stack of calls.
std::string first_line(const std::exception& error);

}  // namespace mezzo::dist::detail
