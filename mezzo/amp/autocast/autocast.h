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

/// Asks Autocast for a region in which nothing is cast.
inline constexpr Disabled kDisabled{};

/// Options of Autocast.
struct AutocastOptions {
  /// Whether the casts of float32 weights are kept for the rest of the outermost region; unset: as
  /// the enclosing region has it (libtorch's default: on). Turn it off where weights change while a
  /// region is open, under CUDA graph capture, and where several threads share weights in regions
  /// of different dtypes: libtorch keeps one cast per weight and process.
  std::optional<bool> cache;
};

/// A region of automatic mixed precision on one device type: until the end of the scope, libtorch
/// casts the floating arguments of matrix products and convolutions to the 16-bit dtype and runs
/// sensitive operations in float32 (which ones: libtorch's lists, different on CPU and CUDA).
/// float64 tensors, in-place calls and `out=` calls are never cast. The rules are those of Python's
/// torch.autocast:
///
/// - Regions nest. The end of one, also by an exception, restores what was enabled, the dtype and
///   the cache flag. A disabled region casts nothing, and nothing back up: inside it, a 16-bit
///   activation that meets a float32 weight is the caller's to cast.
/// - The end of the outermost region of a thread, disabled or not, clears the cast cache.
/// - Only the calling thread is concerned; a plain new thread starts outside every region.
/// - Run the backward outside: it uses the dtypes that the forward saved.
///
/// The cache holds casts to the region's dtype of float32 leaves that require gradients and are not
/// views, none in inference mode. It does not notice that a weight has changed: GradScaler::step
/// clears it, and after any other change of weights inside an open region clear_cache() does.
///
/// Other than Python: a region whose dtype differs from that of an enclosing one clears the cache
/// at both ends, because libtorch's cache does not ask for the dtype of the cast that it returns;
/// an unsupported dtype is an error on every device, where Python warns and disables.
///
/// AutocastState takes regions to other threads. Lives on the stack and ends on the thread and in
/// the order it began; an end on another thread warns and changes nothing. Neither allocates nor
/// synchronises, but for the first bfloat16 region on CUDA, which tries the device with one number.
class MEZZO_API Autocast {
 public:
  /// Opens a region that computes in `dtype`: at::kHalf or at::kBFloat16. Throws InvalidArgument
  /// for another dtype, for bfloat16 on a CUDA device without it and for a device type that has no
  /// autocast. Where CUDA is asked for and missing, warns and opens a disabled region.
  Autocast(c10::DeviceType device, c10::ScalarType dtype, const AutocastOptions& options = {});

  /// As above with the dtype that the device type has at present: that of the enclosing region, or
  /// libtorch's default (CPU bfloat16, CUDA float16).
  explicit Autocast(c10::DeviceType device, const AutocastOptions& options = {});

  /// Opens a disabled region. Throws InvalidArgument for a device type that has no autocast.
  Autocast(c10::DeviceType device, Disabled disabled, const AutocastOptions& options = {});

  ~Autocast();

  Autocast(const Autocast&) = delete;  // the state belongs to one scope of one thread
  Autocast& operator=(const Autocast&) = delete;
  static void* operator new(std::size_t) = delete;
  static void* operator new[](std::size_t) = delete;

  /// Ends the casts of weights that libtorch has kept, those of every thread: call it after weights
  /// have changed inside an open region. Later products cast again, so that it costs time only.
  /// Thread-safe; works outside every region too.
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
