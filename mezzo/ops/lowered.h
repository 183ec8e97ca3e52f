#pragma once

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>

// What autocast makes of an operand; internal to message_passing.

namespace mezzo {

/// `t` in the dtype that autocast has for `device_type`, by autocast's cache of casts. `t` itself
/// where autocast leaves it alone: not floating, float64, or on a device of another type.
inline at::Tensor lowered(const at::Tensor& t, at::DeviceType device_type) {
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device_type), t, device_type);
}

/// The same for t's own device where a region of autocast is open for it; else `t` itself.
inline at::Tensor lowered_in_region(const at::Tensor& t) {
  const at::DeviceType device_type = t.device().type();
  return at::autocast::is_autocast_enabled(device_type) ? lowered(t, device_type) : t;
}

}  // namespace mezzo
