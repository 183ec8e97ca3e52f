#include "mezzo/amp/autocast/autocast_state.h"

#include <algorithm>

#include <ATen/autocast_mode.h>

#include "mezzo/amp/autocast/cpu_policy_region.h"
#include "mezzo/core/error.h"
#include "mezzo/runtime/sixteen_bits.h"

namespace mezzo::amp {
namespace {

std::size_t index_of(c10::DeviceType device) {
  MEZZO_CHECK(at::autocast::is_autocast_available(device),
              "AutocastState: expected a device type with autocast (cpu, cuda, ...), got {}",
              c10::DeviceTypeName(device, /*lower_case=*/true));
  return static_cast<std::size_t>(device);
}

}  // namespace

AutocastState::AutocastState()
    : cache_(at::autocast::is_autocast_cache_enabled()), cpu_policy_(current_cpu_policy()) {
  for (const c10::DeviceType device : at::autocast::_AUTOCAST_SUPPORTED_DEVICES) {
    devices_[index_of(device)] = {.enabled = at::autocast::is_autocast_enabled(device),
                                  .dtype = at::autocast::get_autocast_dtype(device)};
  }
}

DeviceAutocast AutocastState::get(c10::DeviceType device) const {
  return devices_[index_of(device)];
}

AutocastState& AutocastState::set(c10::DeviceType device, DeviceAutocast autocast) {
  MEZZO_CHECK(!autocast.enabled || is_16_bit(autocast.dtype),
              "AutocastState::set: expected dtype BFloat16 or Half where enabled, got {}",
              c10::toString(autocast.dtype));
  devices_[index_of(device)] = autocast;
  return *this;
}

void AutocastState::apply() const {
  for (const c10::DeviceType device : at::autocast::_AUTOCAST_SUPPORTED_DEVICES) {
    const DeviceAutocast& autocast = devices_[index_of(device)];
    at::autocast::set_autocast_enabled(device, autocast.enabled);
    at::autocast::set_autocast_dtype(device, autocast.dtype);
  }
  at::autocast::set_autocast_cache_enabled(cache_);
}

AutocastState::Scope::Scope(const AutocastState& state) {
  const bool nested = at::autocast::increment_nesting() > 1;
  const auto same_dtype = [](const DeviceAutocast& a, const DeviceAutocast& b) {
    return a.dtype == b.dtype;
  };
  other_dtype_ = nested && !std::ranges::equal(state.devices_, previous_.devices_, same_dtype);
  if (other_dtype_) at::autocast::clear_cache();
  state.apply();
  try {
    policy_ = std::make_unique<CpuPolicyRegion>(state.cpu_policy_);
  } catch (...) {  // no destructor runs if the constructor throws
    at::autocast::decrement_nesting();
    previous_.apply();
    throw;
  }
}

AutocastState::Scope::~Scope() {
  policy_.reset();
  if (at::autocast::decrement_nesting() == 0 || other_dtype_) at::autocast::clear_cache();
  previous_.apply();
}

}  // namespace mezzo::amp
