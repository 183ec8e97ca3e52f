#include "mezzo/amp/autocast/custom_function.h"

#include <cstdint>

#include <torch/csrc/autograd/custom_function.h>

#include "mezzo/core/error.h"

namespace mezzo::detail {
namespace {

constexpr auto kSavedState = "mezzo::amp::custom_forward";  // [device, enabled, dtype, CPU policy]

}  // namespace

CustomForward::CustomForward(torch::autograd::AutogradContext* context,
                             const amp::CustomForwardOptions& options)
    : device_(options.device) {
  MEZZO_CHECK(context != nullptr, "custom_forward: expected a context, got a null pointer");
  MEZZO_CHECK(!options.cast_inputs || c10::isFloatingType(*options.cast_inputs),
              "custom_forward: expected a floating dtype for cast_inputs, got {}",
              c10::toString(*options.cast_inputs));
  amp::DeviceAutocast autocast = state_.get(device_);
  if (options.cast_inputs && autocast.enabled) {
    dtype_ = options.cast_inputs;
    autocast.enabled = false;
    state_.set(device_, autocast);
  }
  context->saved_data[kSavedState] = std::vector<std::int64_t>{
      static_cast<std::int64_t>(device_), autocast.enabled ? 1 : 0,
      static_cast<std::int64_t>(autocast.dtype), static_cast<std::int64_t>(state_.cpu_policy())};
}

at::Tensor CustomForward::cast(const at::Tensor& tensor) const {
  const bool eligible = tensor.defined() && tensor.is_floating_point() &&
                        tensor.device().type() == device_ && tensor.scalar_type() != at::kDouble;
  return eligible ? tensor.to(*dtype_) : tensor;
}

amp::AutocastState custom_backward_state(const torch::autograd::AutogradContext* context) {
  MEZZO_CHECK(context != nullptr, "custom_backward: expected a context, got a null pointer");
  const auto saved = context->saved_data.find(kSavedState);
  if (saved == context->saved_data.end()) {
    raise<LogicError>(
        "custom_backward: expected an autocast state saved by the forward, got none; call "
        "custom_forward in it");
  }
  const std::vector<std::int64_t> values = saved->second.toIntVector();
  return amp::AutocastState()
      .set(static_cast<c10::DeviceType>(values[0]),
           {.enabled = values[1] != 0, .dtype = static_cast<c10::ScalarType>(values[2])})
      .set_cpu_policy(static_cast<amp::CpuPolicy>(values[3]));
}

}  // namespace mezzo::detail
