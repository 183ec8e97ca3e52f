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

/// What autocast does to one device type.
struct DeviceAutocast {
  bool enabled = false;
  c10::ScalarType dtype = c10::ScalarType::Undefined;  ///< while enabled: what products run in

  bool operator==(const DeviceAutocast&) const = default;
};

/// A copy of a thread's autocast state: for each device type whether it is enabled and the dtype,
/// the cache flag, and the CPU policy of the PrecisionScope. Autocast regions are per thread and a
/// new thread starts outside them all; this takes them along:
///
///     const amp::Autocast autocast(at::kCPU, at::kBFloat16);
///     const amp::AutocastState state;
///     std::thread worker(state.wrap([&] { forward(part); }));
///
/// While run() or a wrapped call runs, its thread is in a region of that state; its end, also by
/// an exception, restores what the thread had. The state may outlive the region it was taken from.
/// Gradient and inference mode are not part of it.
///
/// libtorch keeps one cast per weight and process. A call that is the outermost region of its
/// thread therefore ends the casts of every thread, which is never wrong and costs the others a
/// cast of their weights: give a worker few long calls rather than many short ones. A call inside a
/// region of its thread ends them only where the dtypes differ, as nested regions do.
///
/// A plain value, safe to copy and to share between threads. Neither allocates nor synchronises.
class MEZZO_API AutocastState {
 public:
  /// Takes the calling thread's state.
  AutocastState();

  /// What it holds for a device type. Throws InvalidArgument for one that has no autocast.
  DeviceAutocast get(c10::DeviceType device) const;

  /// Changes it for one device type. Throws InvalidArgument as get() does.
  AutocastState& set(c10::DeviceType device, DeviceAutocast autocast);

  /// What becomes of 16-bit operators on the CPU: as in the PrecisionScope that the thread was in,
  /// kOff outside one.
  CpuPolicy cpu_policy() const { return cpu_policy_; }

  /// Changes it. Matters only where the CPU's autocast is enabled.
  AutocastState& set_cpu_policy(CpuPolicy policy) {
    cpu_policy_ = policy;
    return *this;
  }

  /// Whether casts of weights are kept.
  bool cache() const { return cache_; }

  /// Calls function(args...) on the calling thread in this state and returns its result.
  template <class Function, class... Args>
  decltype(auto) run(Function&& function, Args&&... args) const;

  /// A function that calls `function` in this state, on whichever thread it is called.
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
