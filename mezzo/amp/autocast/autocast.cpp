#include "mezzo/amp/autocast/autocast.h"

#include <algorithm>
#include <atomic>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/util/Exception.h>

#include "mezzo/amp/autocast/cpu_policy_region.h"
#include "mezzo/core/error.h"
#include "mezzo/runtime/sixteen_bits.h"

namespace mezzo::amp {
namespace {

void check_device(const char* caller, c10::DeviceType device) {
  MEZZO_CHECK(at::autocast::is_autocast_available(device),
              "{}: expected a device type with autocast (cpu, cuda, ...), got {}", caller,
              c10::DeviceTypeName(device, /*lower_case=*/true));
}

void check_dtype(c10::DeviceType device, c10::ScalarType dtype) {
  MEZZO_CHECK(is_16_bit(dtype),
              "Autocast: expected dtype BFloat16 or Half for {}, got {}; for float32 use "
              "Autocast(device, kDisabled)",
              c10::DeviceTypeName(device, /*lower_case=*/true), c10::toString(dtype));
}

c10::ScalarType current_dtype(c10::DeviceType device) {
  check_device("Autocast", device);
  return at::autocast::get_autocast_dtype(device);
}

bool is_missing(c10::DeviceType device) {
  return device == at::kCUDA && !at::globalContext().hasCUDA();
}

/// Whether the current CUDA device supports bfloat16, emulated or not. Same test as in Python.
bool cuda_has_bfloat16() {
  static std::atomic<bool> supported = false;
  if (supported) return true;
  try {
    at::ones({1}, at::TensorOptions(at::kCUDA).dtype(at::kBFloat16));
    supported = true;
  } catch (const c10::Error&) {
  }
  return supported;
}

std::size_t index_of(c10::DeviceType device) {
  check_device("AutocastState", device);
  return static_cast<std::size_t>(device);
}

using Reduction = at::CuBLASReductionOption;

bool is_reduced(Reduction option) {
  return option == Reduction::AllowReducedPrecisionWithSplitK;
}

bool has_split_k(Reduction option) {
  return option != Reduction::DisallowReducedPrecisionDisallowSplitK;
}

}  // namespace

Autocast::Autocast(c10::DeviceType device, c10::ScalarType dtype, const AutocastOptions& options)
    : device_(device) {
  check_device("Autocast", device);
  check_dtype(device, dtype);
  const bool missing = is_missing(device);
  if (missing) TORCH_WARN("mezzo: Autocast for cuda, which is not available: disabled");
  MEZZO_CHECK(missing || device != at::kCUDA || dtype != at::kBFloat16 || cuda_has_bfloat16(),
              "Autocast: expected dtype Half, got BFloat16, which this cuda device lacks");
  enter(dtype, !missing, options);
}

Autocast::Autocast(c10::DeviceType device, const AutocastOptions& options)
    : Autocast(device, current_dtype(device), options) {}

Autocast::Autocast(c10::DeviceType device, Disabled /*disabled*/, const AutocastOptions& options)
    : device_(device) {
  enter(current_dtype(device), /*enabled=*/false, options);
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

Float32Reductions::Float32Reductions()
    : float16_(at::globalContext().allowFP16ReductionCuBLAS()),
      bfloat16_(at::globalContext().allowBF16ReductionCuBLAS()),
      float16_accumulation_(at::globalContext().allowFP16AccumulationCuBLAS()) {
  at::Context& context = at::globalContext();
  // Keeps the caller's split-K setting.
  context.setAllowFP16ReductionCuBLAS(false, has_split_k(float16_));
  context.setAllowBF16ReductionCuBLAS(false, has_split_k(bfloat16_));
  context.setAllowFP16AccumulationCuBLAS(false);
}

Float32Reductions::~Float32Reductions() {
  at::Context& context = at::globalContext();
  context.setAllowFP16ReductionCuBLAS(is_reduced(float16_), has_split_k(float16_));
  context.setAllowBF16ReductionCuBLAS(is_reduced(bfloat16_), has_split_k(bfloat16_));
  context.setAllowFP16AccumulationCuBLAS(float16_accumulation_);
}

}  // namespace mezzo::amp
