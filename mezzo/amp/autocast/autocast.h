#pragma once

#include <cstddef>
#include <optional>
#include <thread>

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

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
/// in-place calls and `out=` calls are never cast. The rules are those of Python's torch.autocast:
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
/// Differences from Python: a region whose dtype differs from that of an enclosing one clears the
/// cache at both ends, because libtorch's cache ignores the dtype; an unsupported dtype is an error
/// on every device (Python warns and disables).
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

  /// As above, with the device type's current dtype: that of the enclosing region, or libtorch's
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

}  // namespace mezzo::amp
