#include "mezzo/amp/autocast/autocast.h"

#include <atomic>

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/util/Exception.h>

#include "mezzo/core/error.h"
#include "mezzo/runtime/sixteen_bits.h"

namespace mezzo::amp {
namespace {

void check_device(c10::DeviceType device) {
  MEZZO_CHECK(at::autocast::is_autocast_available(device),
              "Autocast: expected a device type with autocast (cpu, cuda, ...), got {}",
              c10::DeviceTypeName(device, /*lower_case=*/true));
}

void check_dtype(c10::DeviceType device, c10::ScalarType dtype) {
  MEZZO_CHECK(is_16_bit(dtype),
              "Autocast: expected dtype BFloat16 or Half, which {} supports, got {}; "
              "a float32 region is Autocast(device, kDisabled)",
              c10::DeviceTypeName(device, /*lower_case=*/true), c10::toString(dtype));
}

c10::ScalarType present_dtype(c10::DeviceType device) {
  check_device(device);
  return at::autocast::get_autocast_dtype(device);
}

bool device_is_missing(c10::DeviceType device) {
  return device == at::kCUDA && !at::globalContext().hasCUDA();
}

/// Whether the current CUDA device supports bfloat16, emulated or not. Same test as in Python.
bool cuda_has_bfloat16() {
  static std::atomic<bool> known_to = false;
  if (known_to) return true;
  try {
    at::ones({1}, at::TensorOptions(at::kCUDA).dtype(at::kBFloat16));
    known_to = true;
  } catch (const c10::Error&) {
  }
  return known_to;
}

}  // namespace

Autocast::Autocast(c10::DeviceType device, c10::ScalarType dtype, const AutocastOptions& options)
    : device_(device) {
  check_device(device);
  check_dtype(device, dtype);
  const bool missing = device_is_missing(device);
  if (missing) TORCH_WARN("mezzo: Autocast for cuda, which is not available: disabled");
  MEZZO_CHECK(missing || device != at::kCUDA || dtype != at::kBFloat16 || cuda_has_bfloat16(),
              "Autocast: expected dtype Half, which this cuda device supports, got BFloat16");
  enter(dtype, !missing, options);
}

Autocast::Autocast(c10::DeviceType device, const AutocastOptions& options)
    : Autocast(device, present_dtype(device), options) {}

Autocast::Autocast(c10::DeviceType device, Disabled /*disabled*/, const AutocastOptions& options)
    : device_(device) {
  enter(present_dtype(device), /*enabled=*/false, options);
}

void Autocast::enter(c10::ScalarType dtype, bool enabled, const AutocastOptions& options) {
  thread_ = std::this_thread::get_id();
  previous_enabled_ = at::autocast::is_autocast_enabled(device_);
  previous_dtype_ = at::autocast::get_autocast_dtype(device_);
  previous_cache_ = at::autocast::is_autocast_cache_enabled();

  const bool nested = at::autocast::increment_nesting() > 1;
  other_dtype_ = nested && dtype != previous_dtype_;
  if (other_dtype_) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, enabled);
  at::autocast::set_autocast_dtype(device_, dtype);
  at::autocast::set_autocast_cache_enabled(options.cache.value_or(previous_cache_));
}

Autocast::~Autocast() {
  if (std::this_thread::get_id() != thread_) {
    // Restoring would overwrite the state of the wrong thread.
    try {
      TORCH_WARN(
          "mezzo: an Autocast region ended on another thread than the one that opened it; "
          "it stays open there");
    } catch (...) {  // a warning handler that throws must not end the program
    }
    return;
  }
  if (at::autocast::decrement_nesting() == 0 || other_dtype_) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, previous_enabled_);
  at::autocast::set_autocast_dtype(device_, previous_dtype_);
  at::autocast::set_autocast_cache_enabled(previous_cache_);
}

void Autocast::clear_cache() {
  at::autocast::clear_cache();
}

}  // namespace mezzo::amp
