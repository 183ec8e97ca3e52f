#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "mezzo/dist/group/process_group.h"
#include "mezzo/dist/rendezvous/rendezvous.h"

namespace mezzo::dist {

using WorkPointer = c10::intrusive_ptr<c10d::Work>;

/// What all handles of a group share.
struct ProcessGroup::State {
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
  std::int64_t local_rank = 0;
  std::int64_t local_world_size = 1;
  c10::DeviceIndex gpu = -1;  ///< -1: the current one
  Backend backend = Backend::kGloo;
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  bool checks_collectives = false;  ///< the same on all ranks

  // None of these for one process.
  std::unique_ptr<detail::MeetingPoint> meeting = {};
  c10::intrusive_ptr<c10d::Backend> transport = {};
  std::shared_ptr<void> engine = {};

  State() = default;
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// Where tensors of this group live.
  c10::Device device() const;
  /// Sets something off. Throws IoError if the group has failed, now or before.
  WorkPointer start(const char* operation,
                    const std::function<WorkPointer(c10d::Backend&)>& collective);
  /// Counts it among what start() has set off: the end of the group does not wait for it.
  void add(const WorkPointer& work);
  /// Blocks until it is done; IoError if it fails, another rank gives up or the time is over.
  void finish(const char* operation, const WorkPointer& work);
  /// Tells the other ranks that this one gives up, and throws IoError with the reason; the first
  /// one of a group decides whether this process has failed with another. Where the store is slow
  /// to answer that takes until `deadline`, in which the operation was to be done, and some
  /// seconds. From any thread.
  [[noreturn]] void fail(const char* operation, const std::exception& error,
                         std::chrono::steady_clock::time_point deadline);
  /// Tells them the reason, within some seconds; nothing in a group that has failed. From any
  /// thread.
  void give_up(const std::string& reason) noexcept;

 private:
  void forget_finished();
  void abandon();

  std::mutex failing_ = {};
  std::string failure_ = {};
  std::vector<WorkPointer> under_way_ = {};
};

/// Collectives under way, and what is left to do when they are done.
struct Work::State {
  std::shared_ptr<ProcessGroup::State> group = {};
  const char* operation = "";
  std::vector<WorkPointer> parts = {};
  std::function<void()> complete = {};
};

namespace detail {

/// A Work of which nothing is under way.
std::shared_ptr<Work::State> new_work(const char* operation,
                                      std::shared_ptr<ProcessGroup::State> group);

/// The same numbers one behind the other; the tensor itself if they are so already.
at::Tensor packed(const at::Tensor& tensor);

}  // namespace detail
}  // namespace mezzo::dist
