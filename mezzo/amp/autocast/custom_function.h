#pragma once

#include <optional>
#include <ranges>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/amp/autocast/autocast.h"
#include "mezzo/core/export.h"

namespace torch::autograd {
struct AutogradContext;  // its header costs seconds
}

namespace mezzo::amp {

/// Options of custom_forward.
struct CustomForwardOptions {
  /// The device type of the function's tensors; selects the autocast state.
  c10::DeviceType device = c10::DeviceType::CPU;
  /// The floating dtype to compute in if autocast is enabled; unset: the function runs under
  /// autocast like other code.
  std::optional<c10::ScalarType> cast_inputs;
};

}  // namespace mezzo::amp

namespace mezzo::detail {

/// Whether T is a tensor, or an optional, tuple or container that holds tensors.
template <class T>
constexpr bool holds_tensors();

template <class Tuple, std::size_t... index>
constexpr bool tuple_holds_tensors(std::index_sequence<index...> /*indices*/) {
  return (holds_tensors<std::tuple_element_t<index, Tuple>>() || ...);
}

template <class T>
constexpr bool holds_tensors() {
  using Value = std::remove_cvref_t<T>;
  if constexpr (std::is_base_of_v<at::TensorBase, Value>) {
    return true;
  } else if constexpr (requires { std::tuple_size<Value>::value; }) {
    return tuple_holds_tensors<Value>(std::make_index_sequence<std::tuple_size_v<Value>>());
  } else if constexpr (requires(const Value& value) { value.has_value(), *value; }) {
    return holds_tensors<decltype(*std::declval<const Value&>())>();
  } else if constexpr (std::ranges::range<Value>) {
    using Element = std::ranges::range_value_t<Value>;
    if constexpr (!std::is_same_v<Element, Value>) return holds_tensors<Element>();
    return false;  // a range of itself, like std::filesystem::path
  } else {
    return false;
  }
}

/// The autocast state of custom_forward's function, saved in the context for the backward.
class MEZZO_API CustomForward {
 public:
  CustomForward(torch::autograd::AutogradContext* context,
                const amp::CustomForwardOptions& options);

  const amp::AutocastState& state() const { return state_; }

  /// The argument to pass to the function: tensors cast, also in containers; the rest by reference.
  template <class Arg>
  decltype(auto) argument(Arg& arg) const {
    using Value = std::remove_cv_t<Arg>;
    if constexpr (!holds_tensors<Value>()) {
      return static_cast<Arg&>(arg);
    } else if constexpr (std::is_same_v<Value, at::ArrayRef<at::Tensor>>) {
      return argument_copy(arg.vec());
    } else {
      return argument_copy<Value>(arg);
    }
  }

 private:
  template <class Value>
  Value argument_copy(Value value) const {
    if (dtype_) cast_in_place(value);
    return value;
  }

  template <class Value>
  void cast_in_place(Value& value) const {
    if constexpr (!holds_tensors<Value>()) {
      return;
    } else if constexpr (std::is_same_v<Value, at::Tensor>) {
      value = cast(value);
    } else if constexpr (requires { std::tuple_size<Value>::value; }) {
      std::apply([&](auto&... elements) { (cast_in_place(elements), ...); }, value);
    } else if constexpr (requires { value.has_value(); }) {
      if (value.has_value()) cast_in_place(*value);
    } else if constexpr (requires { typename Value::mapped_type; }) {
      for (auto& [key, element] : value) cast_in_place(element);
    } else {
      static_assert(
          std::is_same_v<std::ranges::range_reference_t<Value>, std::ranges::range_value_t<Value>&>,
          "custom_forward casts tensors, and tensors in optionals, tuples and the "
          "standard library's containers: pass this one as a std::vector");
      for (auto& element : value) cast_in_place(element);
    }
  }

  at::Tensor cast(const at::Tensor& tensor) const;

  amp::AutocastState state_;
  c10::DeviceType device_;
  std::optional<c10::ScalarType> dtype_;  // unset: nothing is cast
};

/// The autocast state during custom_forward's function. Throws LogicError if custom_forward did not
/// run.
MEZZO_API amp::AutocastState custom_backward_state(const torch::autograd::AutogradContext* context);

}  // namespace mezzo::detail

namespace mezzo::amp {

/// Runs the body of a torch::autograd::Function's forward as torch.amp.custom_fwd does, and saves
/// the state for the backward in `context`:
///
///     static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
///                               const at::Tensor& w) {
///       return amp::custom_forward(
///           context, {.device = at::kCPU, .cast_inputs = at::kFloat},
///           [&](const at::Tensor& input, const at::Tensor& weight) {
///             context->save_for_backward({input, weight});
///             return input.mm(weight);
///           },
///           x, w);
///     }
///
/// - With cast_inputs, if autocast is enabled on the device type: floating tensors of that device
///   type in `args`, except float64, are cast to that dtype, also inside optionals, tuples and
///   standard containers. `function` and the backward run with autocast disabled.
/// - Without cast_inputs: `function` and the backward run in the autocast state of the caller, with
///   `args` unchanged.
/// - Outside an enabled region nothing is cast.
///
/// Save the arguments of the lambda, not the outer variables, so that the backward gets the dtypes
/// of the forward. Autograd casts the gradients back. As in Python, second derivatives do not pass
/// through the casts of cast_inputs.
///
/// function: takes tensors by value, a TensorList as a std::vector, anything else by reference; its
/// result is returned by value. Throws InvalidArgument for a null context, a device type without
/// autocast and a dtype that is not floating. Allocates only the casts; does not synchronise.
template <class Function, class... Args>
auto custom_forward(torch::autograd::AutogradContext* context, const CustomForwardOptions& options,
                    Function&& function, Args&&... args) {
  const mezzo::detail::CustomForward forward(context, options);
  return forward.state().run(std::forward<Function>(function), forward.argument(args)...);
}

/// Runs the body of a torch::autograd::Function's backward as torch.amp.custom_bwd does: in the
/// autocast state of the forward, on any thread and inside any region. Returns function()'s result
/// by value. Throws LogicError if the forward did not use custom_forward. Does not synchronise.
template <class Function>
auto custom_backward(torch::autograd::AutogradContext* context, Function&& function) {
  return mezzo::detail::custom_backward_state(context).run(std::forward<Function>(function));
}

}  // namespace mezzo::amp
