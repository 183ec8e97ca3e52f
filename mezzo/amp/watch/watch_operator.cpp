#include "mezzo/amp/watch/watch_operator.h"

#include <algorithm>
#include <array>
#include <exception>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/stack.h>

#include "mezzo/ops/schema.h"
#include "mezzo/runtime/sixteen_bits.h"

namespace mezzo::amp::detail {
namespace {

template <std::size_t N>
bool contains(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Allocations (uninitialized) and constants.
bool makes_constants(std::string_view name) {
  constexpr std::array<std::string_view, 11> kNames{
      "aten::empty_like", "aten::resize_",   "aten::resize_as_", "aten::set_",
      "aten::zeros_like", "aten::zero_",     "aten::ones_like",  "aten::full_like",
      "aten::fill_",      "aten::rand_like", "aten::randn_like"};
  return contains(kNames, name) || name.starts_with("aten::new_");
}

/// Operations whose zeros are exact or underflow: products, quotients, powers and exponentials.
/// They draw no random numbers and keep no state, so they can be repeated.
bool can_underflow(std::string_view name) {
  constexpr std::array<std::string_view, 19> kForward{"aten::mm",
                                                      "aten::addmm",
                                                      "aten::bmm",
                                                      "aten::baddbmm",
                                                      "aten::mul",
                                                      "aten::div",
                                                      "aten::mean",
                                                      "aten::pow",
                                                      "aten::exp",
                                                      "aten::convolution",
                                                      "aten::_softmax",
                                                      "aten::_log_softmax",
                                                      "aten::sigmoid",
                                                      "aten::gelu",
                                                      "aten::silu",
                                                      "aten::elu",
                                                      "aten::leaky_relu",
                                                      "aten::avg_pool2d",
                                                      "aten::_adaptive_avg_pool2d"};
  constexpr std::array<std::string_view, 14> kBackward{"aten::convolution_backward",
                                                       "aten::_softmax_backward_data",
                                                       "aten::_log_softmax_backward_data",
                                                       "aten::sigmoid_backward",
                                                       "aten::tanh_backward",
                                                       "aten::gelu_backward",
                                                       "aten::silu_backward",
                                                       "aten::elu_backward",
                                                       "aten::leaky_relu_backward",
                                                       "aten::native_batch_norm_backward",
                                                       "aten::native_group_norm_backward",
                                                       "aten::native_layer_norm_backward",
                                                       "aten::avg_pool2d_backward",
                                                       "aten::_adaptive_avg_pool2d_backward"};
  return contains(kForward, name) || contains(kBackward, name) ||
         mezzo::detail::is_repeatable(name);
}

bool is_16_bit_dtype(const c10::IValue& value) {
  return value.isInt() && is_16_bit(value.toScalarType());
}

bool has_tensor_argument(const c10::FunctionSchema& schema) {
  return std::any_of(schema.arguments().begin(), schema.arguments().end(),
                     [](const c10::Argument& argument) {
                       return argument.type()->str().find("Tensor") != std::string::npos;
                     });
}

WatchedOperator described(const c10::OperatorHandle& handle) {
  const c10::FunctionSchema& schema = handle.schema();
  const std::string& name = schema.name();
  WatchedOperator op{
      .handle = handle,
      .name = name,
      .makes_numbers = true,
      .is_copy = name == "aten::_to_copy" || name == "aten::copy_" || name == "aten::clone",
      .is_repeatable = false,
      .overwrites = name == "aten::copy_",
      .written = {},
      .is_dtype = {}};
  bool writes = false;
  for (const c10::Argument& argument : schema.arguments()) {
    const bool written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    writes |= written;
    op.overwrites |= written && argument.kwarg_only();
    op.written.push_back(written);
    op.is_dtype.push_back(argument.real_type()->str().starts_with("ScalarType"));
  }
  const bool composite =
      handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
  op.makes_numbers = !composite && !makes_constants(name) && has_tensor_argument(schema);
  op.is_repeatable = !writes && can_underflow(name);
  return op;
}

}  // namespace

bool WatchedOperator::is_autocast_wrapper(c10::ArrayRef<c10::IValue> arguments,
                                          c10::DispatchKeySet excluded) const {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& argument : arguments) append_tensors(argument, tensors);
  return std::any_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
    const c10::DeviceType device = tensor.device().type();
    if (!at::autocast::is_autocast_available(device)) return false;
    const c10::DispatchKey key = at::autocast::get_autocast_dispatch_key_from_device_type(device);
    return !excluded.has(key) && handle.hasKernelForDispatchKey(key);
  });
}

const WatchedOperator* WatchedOperators::find(const c10::OperatorName& name) {
  const auto known = operators_.find(name);
  if (known != operators_.end()) return &known->second;
  const auto handle = c10::Dispatcher::singleton().findOp(name);
  if (!handle) return nullptr;
  return &operators_.emplace(name, described(*handle)).first->second;
}

void append_tensors(const c10::IValue& value, std::vector<at::Tensor>& tensors) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) tensors.push_back(value.toTensor());
  } else if (value.isList()) {  // tensors, optional tensors or numbers
    for (const c10::IValue& item : value.toListRef()) {
      if (!item.isTensor()) return;
      append_tensors(item, tensors);
    }
  }
}

std::int64_t count_flushed(const at::Tensor& output, const at::Tensor& exact) {
  const bool comparable = exact.defined() && exact.sizes() == output.sizes() &&
                          exact.device() == output.device() && output.layout() == at::kStrided &&
                          exact.layout() == at::kStrided;
  if (!comparable) return 0;
  return at::logical_and(output.eq(0), at::logical_and(exact.ne(0), exact.isfinite()))
      .sum()
      .item<std::int64_t>();
}

std::vector<at::Tensor> repeat_in_float32(const WatchedOperator& op,
                                          const std::vector<c10::IValue>& arguments) {
  torch::jit::Stack stack;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& argument = arguments[i];
    if (argument.isTensor() && is_16_bit(argument.toTensor())) {
      stack.emplace_back(argument.toTensor().to(at::kFloat));
    } else if (op.is_dtype[i] && is_16_bit_dtype(argument)) {
      stack.emplace_back(at::kFloat);
    } else {
      stack.push_back(argument);
    }
  }
  try {
    op.handle.callBoxed(stack);
  } catch (const std::exception&) {  // a watch must not abort the program
    return {};
  }
  std::vector<at::Tensor> outputs;
  for (const c10::IValue& output : stack) append_tensors(output, outputs);
  return outputs;
}

}  // namespace mezzo::amp::detail
