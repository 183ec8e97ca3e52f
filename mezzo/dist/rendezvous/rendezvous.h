#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include <c10/util/intrusive_ptr.h>

#include "mezzo/dist/group/nccl.h"
#include "mezzo/dist/rendezvous/environment.h"

namespace c10d {
class Store;
}  // namespace c10d

namespace mezzo::dist::detail {

/// Marks the message of a rank that fails only because another one has failed.
inline constexpr const char* kGivenUp = "given up by ";

/// The store at rank 0's address through which processes find each other, compare metadata and
/// report errors. Only report_fault() may run concurrently with other members.
class MeetingPoint {
 public:
  /// Connects; rank 0 opens the port first. Throws IoError with address, port and time.
  MeetingPoint(Placement place, std::chrono::milliseconds timeout);

  /// Waits until all ranks have joined, with the same version and equal `agreement`. Otherwise
  /// every rank throws the same IoError, which lists the ranks that are missing or differ. `gpus`:
  /// of this rank, for machines().
  void meet(const std::string& agreement, const std::string& gpus);

  /// After meet(): number of lower ranks on this machine, unless set explicitly.
  std::int64_t local_rank() const { return place_.local_rank; }
  /// After meet(): number of ranks on this machine.
  std::int64_t local_world_size() const { return local_world_size_; }
  /// After meet(): the machines of all ranks.
  const std::vector<Machine>& machines() const { return machines_; }
  /// After meet(): the numeric address at which other ranks reach this machine; empty if it has
  /// none.
  const std::string& local_address() const { return local_address_; }
  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }

  /// Reports this rank's failure, waits briefly for the reports of others, and returns the
  /// unresponsive ranks, or the errors of the others if all responded. Waits for a slow store until
  /// `deadline`, and for the rest at most nine seconds. Empty if nothing is known.
  std::string report_fault(const std::string& text,
                           std::chrono::steady_clock::time_point deadline) noexcept;
  /// Returns the error of another rank, if one has reported a failure. Blocks briefly; if the store
  /// has not answered by then, the next call continues to wait.
  std::optional<std::string> fault_of_another() noexcept;

 private:
  std::string name() const;
  /// Handles a lost store: rank 0 has failed, unless this process hosts the store.
  void lose_store();

  Placement place_;
  std::chrono::milliseconds timeout_;
  std::chrono::steady_clock::time_point deadline_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::string local_address_;
  std::int64_t local_world_size_ = 1;
  std::vector<Machine> machines_;
  std::future<std::string> question_;  ///< pending query of fault_of_another()
  std::atomic<bool> lost_ = false;     ///< the connection to the store is broken
};

/// The first line of an exception's message, without libtorch's stack trace.
std::string first_line(const std::exception& error);

}  // namespace mezzo::dist::detail
