#pragma once

#include <array>
#include <functional>
#include <memory>
#include <utility>

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include "mezzo/amp/autocast/cpu_policy.h"
#include "mezzo/core/export.h"

namespace mezzo::amp {

/// The autocast state of one device type.
struct DeviceAutocast {
  bool enabled = false;
  c10::ScalarType dtype = c10::ScalarType::Undefined;  ///< dtype of products while enabled

  bool operator==(const DeviceAutocast&) const = default;
};

/// A copy of a thread's autocast state: for each device type whether it is enabled and the dtype,
/// the cache flag, and the CPU policy of the PrecisionScope. Autocast regions are per thread and a
/// new thread starts outside them; this copies them to it:
///
///     const amp::Autocast autocast(at::kCPU, at::kBFloat16);
///     const amp::AutocastState state;
///     std::thread worker(state.wrap([&] { forward(part); }));
///
/// run() and wrapped calls run in a region of that state and restore the thread's own state at the
/// end, also after an exception. The state may outlive its region. Gradient and inference mode are
/// not part of it.
///
/// libtorch caches one cast per weight and process. A call outside every region of its thread
/// therefore clears the cache of all threads, and the others cast their weights again: prefer few
/// long calls to many short ones. A call inside a region clears it only if the dtypes differ, as
/// nested regions do.
///
/// A plain value, safe to copy and to share between threads. Does not allocate or synchronise.
class MEZZO_API AutocastState {
 public:
  /// Copies the calling thread's state.
  AutocastState();

  /// The state of a device type. Throws InvalidArgument for one without autocast.
  DeviceAutocast get(c10::DeviceType device) const;

  /// Sets the state of one device type. Throws InvalidArgument as get() does.
  AutocastState& set(c10::DeviceType device, DeviceAutocast autocast);

  /// The CPU policy of the thread's PrecisionScope; kOff outside one.
  CpuPolicy cpu_policy() const { return cpu_policy_; }

  /// Sets it. No effect unless the CPU's autocast is enabled.
  AutocastState& set_cpu_policy(CpuPolicy policy) {
    cpu_policy_ = policy;
    return *this;
  }

  /// Whether casts of weights are cached.
  bool cache() const { return cache_; }

  /// Calls function(args...) on the calling thread in this state and returns its result.
  template <class Function, class... Args>
  decltype(auto) run(Function&& function, Args&&... args) const;

  /// Returns a function that calls `function` in this state, on any thread.
  template <class Function>
  auto wrap(Function function) const {
    return
        [state = *this, function = std::move(function)](auto&&... args) mutable -> decltype(auto) {
          return state.run(function, std::forward<decltype(args)>(args)...);
        };
  }

  bool operator==(const AutocastState&) const = default;

 private:
  class Scope;

  void apply() const;

  std::array<DeviceAutocast, c10::COMPILE_TIME_MAX_DEVICE_TYPES> devices_;
  bool cache_;
  CpuPolicy cpu_policy_;  // of the PrecisionScope that the thread is in
};

class CpuPolicyRegion;

class MEZZO_API AutocastState::Scope {
 public:
  explicit Scope(const AutocastState& state);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  AutocastState previous_;
  std::unique_ptr<CpuPolicyRegion> policy_;
  bool other_dtype_;  // an enclosing region may have cached casts to another dtype
};

template <class Function, class... Args>
decltype(auto) AutocastState::run(Function&& function, Args&&... args) const {
  const Scope scope(*this);
  return std::invoke(std::forward<Function>(function), std::forward<Args>(args)...);
}

}  // namespace mezzo::amp
