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

/// State shared by all handles of a group.
struct ProcessGroup::State {
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
  std::int64_t local_rank = 0;
  std::int64_t local_world_size = 1;
  c10::DeviceIndex gpu = -1;  ///< -1: the current one
  Backend backend = Backend::kGloo;
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  bool checks_collectives = false;  ///< the same on all ranks

  // Null for one process.
  std::unique_ptr<detail::MeetingPoint> meeting = {};
  c10::intrusive_ptr<c10d::Backend> transport = {};
  std::shared_ptr<void> engine = {};

  State() = default;
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// Device of this group's tensors.
  c10::Device device() const;
  /// Starts a collective. Throws IoError if the group fails or has failed before.
  WorkPointer start(const char* operation,
                    const std::function<WorkPointer(c10d::Backend&)>& collective);
  /// Registers work like start() does: the destructor of the group does not wait for it.
  void add(const WorkPointer& work);
  /// Blocks until it is done. Throws IoError on failure, a failed rank or a time-out.
  void finish(const char* operation, const WorkPointer& work);
  /// Reports this rank's failure to the others and throws IoError with the reason. The group's
  /// first failure decides whether another rank caused this process to fail. A slow store can delay
  /// this until a few seconds after `deadline`, the operation's own. Thread-safe.
  [[noreturn]] void fail(const char* operation, const std::exception& error,
                         std::chrono::steady_clock::time_point deadline);
  /// Reports the reason to the others, within some seconds; does nothing if the group has failed.
  /// Thread-safe.
  void give_up(const std::string& reason) noexcept;

 private:
  void forget_finished();
  void abandon();

  std::mutex failing_ = {};
  std::string failure_ = {};
  std::vector<WorkPointer> under_way_ = {};
};

/// Pending collectives and the work that remains after them.
struct Work::State {
  std::shared_ptr<ProcessGroup::State> group = {};
  const char* operation = "";
  std::vector<WorkPointer> parts = {};
  std::function<void()> complete = {};
};

namespace detail {

/// A Work without pending collectives.
std::shared_ptr<Work::State> new_work(const char* operation,
                                      std::shared_ptr<ProcessGroup::State> group);

/// A contiguous copy; the tensor itself if it is contiguous.
at::Tensor packed(const at::Tensor& tensor);

}  // namespace detail
}  // namespace mezzo::dist
