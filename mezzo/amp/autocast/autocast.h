#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <ATen/Context.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include "mezzo/amp/autocast/cpu_policy.h"
#include "mezzo/core/export.h"

namespace mezzo::amp {

/// The type of kDisabled.
struct Disabled {
  explicit constexpr Disabled() = default;
};

/// Selects an Autocast region without casts.
inline constexpr Disabled kDisabled{};

/// Options of Autocast.
struct AutocastOptions {
  /// Whether to cache the casts of float32 weights until the outermost region ends; unset: the
  /// enclosing region's setting (libtorch's default: on). Turn it off if weights change inside a
  /// region, under CUDA graph capture, and if threads share weights in regions of different dtypes:
  /// libtorch caches one cast per weight and process.
  std::optional<bool> cache;
};

/// A region of automatic mixed precision on one device type: until the end of the scope, libtorch
/// casts the floating arguments of matrix products and convolutions to the 16-bit dtype and runs
/// sensitive operations in float32 (libtorch's lists differ between CPU and CUDA). float64 tensors,
/// in-place calls and `out=` calls are never cast. It follows the rules of Python's torch.autocast:
///
/// - Regions nest. The end of a region restores the enabled flag, the dtype and the cache flag,
///   also after an exception. A disabled region casts nothing: inside it, the caller must cast
///   16-bit activations to the dtype of float32 weights.
/// - The end of the outermost region of a thread, disabled or not, clears the cast cache.
/// - A region affects the calling thread only; a new thread starts outside every region.
/// - Run the backward outside the region: it uses the dtypes of the forward.
///
/// The cache holds casts of float32 leaves that require gradients and are not views; it is unused
/// in inference mode. It does not detect changed weights: GradScaler::step clears it; after other
/// changes inside an open region call clear_cache().
///
/// Differences from Python: a region with another dtype than its enclosing region clears the cache
/// at both ends, because libtorch's cache ignores the dtype; an unsupported dtype is an error on
/// every device (Python warns and disables).
///
/// AutocastState copies regions to other threads. Create regions on the stack and destroy them in
/// reverse order on the same thread; destruction on another thread warns and changes nothing. Does
/// not allocate or synchronise, except that the first bfloat16 region on CUDA tests the device.
class MEZZO_API Autocast {
 public:
  /// Opens a region that computes in `dtype`: at::kHalf or at::kBFloat16. Throws InvalidArgument
  /// for another dtype, for bfloat16 on a CUDA device without it and for a device type that has no
  /// autocast. For CUDA without a CUDA device, warns and opens a disabled region.
  Autocast(c10::DeviceType device, c10::ScalarType dtype, const AutocastOptions& options = {});

  /// As above, with the current dtype of the device type: the enclosing region's, or libtorch's
  /// default (CPU bfloat16, CUDA float16).
  explicit Autocast(c10::DeviceType device, const AutocastOptions& options = {});

  /// Opens a disabled region. Throws InvalidArgument for a device type that has no autocast.
  Autocast(c10::DeviceType device, Disabled disabled, const AutocastOptions& options = {});

  ~Autocast();

  Autocast(const Autocast&) = delete;  // the state belongs to one scope of one thread
  Autocast& operator=(const Autocast&) = delete;
  static void* operator new(std::size_t) = delete;
  static void* operator new[](std::size_t) = delete;

  /// Clears libtorch's cache of weight casts, for all threads. Call it after changing weights
  /// inside an open region. Later products cast again. Thread-safe; also valid outside every
  /// region.
  static void clear_cache();

 private:
  void enter(c10::ScalarType dtype, bool enabled, const AutocastOptions& options);

  c10::DeviceType device_;
  c10::ScalarType previous_dtype_ = c10::ScalarType::Undefined;
  bool previous_enabled_ = false;
  bool previous_cache_ = true;
  bool other_dtype_ = false;  // an enclosing region may have cached casts to another dtype
  std::thread::id thread_;
};

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

/// While this object lives, cuBLAS accumulates libtorch's 16-bit matrix products in float32. By
/// default cuBLAS may add split-K partial sums in 16 bits if a heuristic expects that to be faster:
/// results then change bits, and float16 may overflow in a partial sum although the result is in
/// range. Mezzo's kernels always accumulate in float32; the CPU ignores the switches.
///
/// The switches (libtorch's allowFP16ReductionCuBLAS, allowBF16ReductionCuBLAS and
/// allowFP16AccumulationCuBLAS) are per process. A 16-bit PrecisionScope on CUDA holds one of these
/// objects, its backward() included, and the command `mezzo` one around each of its commands. Open
/// one yourself around 16-bit products elsewhere, as in an Autocast region, and around their
/// backward. Its end restores the switches, also after an exception. Scopes nest; open them on one
/// thread only. Uses no device and does not synchronise.
class MEZZO_API Float32Reductions {
 public:
  Float32Reductions();
  ~Float32Reductions();
  Float32Reductions(const Float32Reductions&) = delete;
  Float32Reductions& operator=(const Float32Reductions&) = delete;

 private:
  at::CuBLASReductionOption float16_, bfloat16_;
  bool float16_accumulation_;
};

}  // namespace mezzo::amp
