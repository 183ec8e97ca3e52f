#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "mezzo/core/parse.h"
#include "mezzo/ops/arguments.h"
#include "mezzo/ops/device.h"
#include "mezzo/ops/schema.h"
#include "mezzo/runtime/second_derivative.h"

// An operator is a struct of its arguments. Registration derives the schema and kernels from it. An
// operator with a topology is registered in the namespace mezzo, where the topology is an object,
// and in mezzo_traced, where it is a tensor:
//
//   struct Op {
//     ...                                 // the arguments
//     static constexpr auto fields();     // a tuple of Fields
//     static constexpr auto name = "op";  // "_op": internal, called by another operator
//     using Result = at::Tensor;          // or a tuple
//     template <class Device>             // OnCpu or OnCuda
//     Result run() const;
//     Result meta() const;                // empty results on the meta device, of symbolic sizes
//     void lower(at::DeviceType device);  // if autocast casts arguments
//     void check() const;                 // if recording a gradient needs further checks
//     // If it has a gradient: the result, and the gradients in the members of the arguments. A
//     // tuple's backward gets a list of gradients, undefined for results that the loss ignores.
//     static Result forward(Saved<Op>& saved);
//     static Op backward(const Saved<Op>& saved, const at::Tensor& grad);
//     static constexpr bool is_linear = true;      // if the gradient is differentiable
//     static constexpr bool is_repeatable = true;  // see declare_repeatable
//   };
//   const Registration<Op> registration;

namespace mezzo::detail {

using OptionalTensor = std::optional<at::Tensor>;

/// `t` in autocast's dtype for `device_type`, through autocast's cache of casts. `t` itself if it
/// is not floating, is float64, or is on a device of another type.
inline at::Tensor lowered(const at::Tensor& t, at::DeviceType device_type) {
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device_type), t, device_type);
}

/// lowered() for t's own device inside a region of autocast; else `t` itself.
inline at::Tensor lowered_in_region(const at::Tensor& t) {
  const at::DeviceType device_type = t.device().type();
  return at::autocast::is_autocast_enabled(device_type) ? lowered(t, device_type) : t;
}

/// An argument: its name in the schema and its member of the struct.
template <class Op, class T>
struct Field {
  const char* name;
  T Op::*member;
  bool defaults_to_none = false;  ///< in the schema; ignored for a "_op"
};

// Enumerators are strings in the schema. Only this file parses them.
BinaryOps words_of(BinaryOp);
ReduceOps words_of(ReduceOp);
Targets words_of(Target);
NormalizeBys words_of(NormalizeBy);
template <class T>
concept Word = requires(T kind) {
  words_of(kind);
};

/// How libtorch passes a T. traced: in the namespace mezzo_traced.
template <class T, bool traced = false>
struct PassedAs {
  using Type = std::conditional_t<Word<T>, c10::string_view,
                                  std::conditional_t<std::is_trivially_copyable_v<T>, T, const T&>>;
};
template <bool traced>
struct PassedAs<TopologyArgument, traced> {
  using Type = std::conditional_t<traced, const at::Tensor&, const TopologyPtr&>;
};
template <class T, bool traced = false>
using Passed = typename PassedAs<T, traced>::Type;

template <bool traced, class T>
Passed<T, traced> to_passed(const T& value) {
  if constexpr (Word<T>) {
    return name_of(decltype(words_of(value)){}, value);
  } else if constexpr (std::is_same_v<T, TopologyArgument>) {
    if constexpr (traced) {
      return value.tensor();
    } else {
      return value.object();
    }
  } else {
    return value;
  }
}

/// Throws InvalidArgument for an unknown word or an undefined tensor (Python's None). Turns an
/// undefined optional tensor into nullopt.
template <class T, bool traced>
T from_passed(const char* op, const char* name, Passed<T, traced> value) {
  if constexpr (Word<T>) {
    return parse(decltype(words_of(T{})){}, op + std::string(": ") + name, value);
  } else {
    if constexpr (std::is_same_v<T, at::Tensor>) check_defined(op, name, value);
    if constexpr (std::is_same_v<T, OptionalTensor>) {
      if (value && !value->defined()) return std::nullopt;
    }
    return value;
  }
}

/// Calls f(field...).
template <class Op, class F>
decltype(auto) with_fields(const F& f) {
  return std::apply(f, Op::fields());
}

inline const char* namespace_of(bool traced) {
  return traced ? "mezzo_traced" : "mezzo";
}

template <class Op, bool traced>
typename Op::Result dispatch_in_namespace(const Op& op) {
  return with_fields<Op>([&]<class... A, class... T>(const Field<A, T>&... field) {
    static const auto registered = handle<typename Op::Result(Passed<T, traced>...)>(
        (namespace_of(traced) + std::string("::") + Op::name).c_str());
    return registered.call(to_passed<traced>(op.*field.member)...);
  });
}

template <class Op>
concept HasTopology = requires(Op op) {
  op.topology;
};

/// Calls the operator through the dispatcher.
template <class Op>
typename Op::Result dispatch(const Op& op) {
  if constexpr (HasTopology<Op>) {
    if (op.topology.is_tensor()) return dispatch_in_namespace<Op, true>(op);
  }
  return dispatch_in_namespace<Op, false>(op);
}

/// The function that libtorch calls to run `body(op)`, and its schema.
template <class Op, auto body, bool traced = false, class Fields = decltype(Op::fields())>
struct Entry;
template <class Op, auto body, bool traced, class... A, class... T>
struct Entry<Op, body, traced, std::tuple<Field<A, T>...>> {
  static typename Op::Result call(Passed<T, traced>... values) {
    Op op;
    const auto set = [&](const Field<A, T>&... field) {
      ((op.*field.member = from_passed<T, traced>(Op::name, field.name, values)), ...);
    };
    std::apply(set, Op::fields());
    return std::invoke(body, op);
  }

  static c10::FunctionSchema schema() {
    const auto types = c10::inferFunctionSchemaFlattenedReturns<decltype(call)>();
    std::vector<c10::Argument> arguments, results;
    for (const c10::Argument& result : types.returns()) results.emplace_back("", result.type());
    const auto add = [&](const char* name, bool defaults_to_none) {
      const c10::Argument& type = types.arguments()[arguments.size()];
      std::optional<c10::IValue> value;
      if (defaults_to_none && Op::name[0] != '_') value.emplace();
      arguments.emplace_back(name, type.type(), type.real_type(), type.N(), value);
    };
    with_fields<Op>([&](const auto&... field) { (add(field.name, field.defaults_to_none), ...); });
    return {Op::name, "", std::move(arguments), std::move(results)};
  }
};

template <class Op, at::DeviceType device>
typename Op::Result dispatch_lowered(Op& op) {
  op.lower(device);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(
      at::autocast::get_autocast_dispatch_key_from_device_type(device));
  return dispatch(op);
}

/// What a gradient reads: the arguments without the tensors that forward() resets, and the tensors
/// that it adds to `more`.
template <class Op>
struct Saved : torch::CustomClassHolder {
  Op op;
  torch::autograd::variable_list more;
  std::set<std::string_view> needs_grad;  ///< names of the tensors that require a gradient

  /// Calls f(name, tensor) for each argument whose type is Tensor or OptionalTensor.
  template <class F>
  void for_each_tensor(const F& f) {
    const auto visit_one = [&]<class A, class T>(const Field<A, T>& field) {
      if constexpr (std::is_convertible_v<T, OptionalTensor>) f(field.name, op.*field.member);
    };
    with_fields<Op>([&](const auto&... field) { (visit_one(field), ...); });
  }
};

/// An empty tensor on the meta device.
inline at::Tensor meta_tensor(c10::SymIntArrayRef sizes, at::ScalarType type) {
  return at::empty_symint(sizes, at::TensorOptions(at::kMeta).dtype(type));
}

/// A meta tensor with the shape and dtype of `t`, for a gradient that does not read the values.
inline at::Tensor shape_of(const at::Tensor& t) {
  return meta_tensor(t.sym_sizes(), t.scalar_type());
}

/// The same with another size of one dimension.
inline at::Tensor shape_of(const at::Tensor& t, std::int64_t dim, c10::SymInt size) {
  std::vector<c10::SymInt> sizes = t.sym_sizes().vec();
  sizes.at(dim) = std::move(size);
  return meta_tensor(sizes, t.scalar_type());
}

/// The sizes of `t` as numbers, but 1 for the rows, whose number may be symbolic in a traced graph.
inline std::vector<std::int64_t> row_sizes(const at::Tensor& t) {
  std::vector<std::int64_t> sizes;
  for (const c10::SymInt& size : t.sym_sizes()) {
    sizes.push_back(sizes.empty() ? 1 : size.guard_int(__FILE__, __LINE__));
  }
  return sizes;
}

/// An argument as a tensor; undefined if it is absent or not a tensor.
template <class T>
at::Tensor tensor_of(const T& value) {
  if constexpr (std::is_same_v<T, at::Tensor>) return value;
  if constexpr (std::is_same_v<T, OptionalTensor>) return value.value_or(at::Tensor());
  return {};
}

template <class Op>
struct Differentiable : torch::autograd::Function<Differentiable<Op>> {
  using Context = torch::autograd::AutogradContext;
  using Tensors = torch::autograd::variable_list;
  static constexpr bool has_one_result = std::is_same_v<typename Op::Result, at::Tensor>;
  using Output = std::conditional_t<has_one_result, at::Tensor, Tensors>;

  static typename Op::Result call(const Op& op) {
    if constexpr (requires { op.check(); }) op.check();
    const Output output = with_fields<Op>(
        [&](const auto&... field) { return Differentiable::apply(op.*field.member...); });
    if constexpr (has_one_result) {
      return output;
    } else {
      typename Op::Result results;
      std::apply([next = output.begin()](auto&... result) mutable { ((result = *next++), ...); },
                 results);
      return results;
    }
  }

  static Output forward(Context* context, const auto&... values) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto saved = c10::make_intrusive<Saved<Op>>();
    with_fields<Op>([&](const auto&... field) { ((saved->op.*field.member = values), ...); });
    saved->for_each_tensor([&](const char* name, const auto& tensor) {
      if (tensor_of(tensor).requires_grad()) saved->needs_grad.insert(name);
    });
    const typename Op::Result result = Op::forward(*saved);
    Tensors tensors;
    saved->for_each_tensor([&]<class T>(const char* /*name*/, T& tensor) {
      tensors.push_back(tensor_of(std::exchange(tensor, T())));
    });
    tensors.insert(tensors.end(), saved->more.begin(), saved->more.end());
    saved->more.clear();
    context->save_for_backward(std::move(tensors));
    context->saved_data["saved"] = c10::IValue::make_capsule(saved);
    if constexpr (has_one_result) {
      return result;
    } else {
      context->set_materialize_grads(false);
      return std::apply([](const auto&... one) { return Tensors{one...}; }, result);
    }
  }

  static Tensors backward(Context* context, const Tensors& grads) {
    if constexpr (!requires { Op::is_linear; }) refuse_second_derivative(Op::name);
    const auto capsule = context->saved_data["saved"].toCapsule();
    Saved<Op> saved = static_cast<const Saved<Op>&>(*capsule);
    const Tensors tensors = context->get_saved_variables();
    auto next = tensors.begin();
    saved.for_each_tensor([&](const char* /*name*/, auto& tensor) {
      if (next->defined()) tensor = *next;
      ++next;
    });
    saved.more.assign(next, tensors.end());
    const Op gradients = [&] {
      if constexpr (has_one_result) {
        return Op::backward(saved, grads[0]);
      } else {
        return Op::backward(saved, grads);
      }
    }();
    return with_fields<Op>(
        [&](const auto&... field) { return Tensors{tensor_of(gradients.*field.member)...}; });
  }
};

/// Registers operators with libtorch; the destructor removes them.
template <class... Ops>
class Registration {
 public:
  Registration() {
    register_topology_class();
    (add<Ops, false>(), ...);
    (add_traced<Ops>(), ...);
  }

 private:
  template <class Op>
  void add_traced() {
    if constexpr (HasTopology<Op>) add<Op, true>();
  }

  template <class Op, bool traced>
  void add() {
    using OnCpuEntry = Entry<Op, &Op::template run<OnCpu>, traced>;
    const char* const library = namespace_of(traced);
    libraries_.emplace_back(torch::Library::FRAGMENT, library, std::nullopt, __FILE__, __LINE__)
        .def(OnCpuEntry::schema());
    if constexpr (requires { Op::is_repeatable; }) declare_repeatable(Op::name);
    const auto implement = [&](c10::DispatchKey key, auto* function) {
      libraries_.emplace_back(torch::Library::IMPL, library, key, __FILE__, __LINE__)
          .impl(Op::name, function);
    };
    using c10::DispatchKey;
    implement(DispatchKey::CPU, &OnCpuEntry::call);
    implement(DispatchKey::CUDA, &Entry<Op, &Op::template run<OnCuda>, traced>::call);
    if constexpr (traced || !HasTopology<Op>) {
      implement(DispatchKey::Meta, &Entry<Op, &Op::meta, traced>::call);
    }
    if constexpr (requires { &Op::backward; }) {
      implement(DispatchKey::Autograd, &Entry<Op, &Differentiable<Op>::call, traced>::call);
    }
    if constexpr (requires { &Op::lower; }) {
      implement(DispatchKey::AutocastCPU,
                &Entry<Op, &dispatch_lowered<Op, at::kCPU>, traced>::call);
      implement(DispatchKey::Autocast, &Entry<Op, &dispatch_lowered<Op, at::kCUDA>, traced>::call);
    }
  }

  std::vector<torch::Library> libraries_;
};

}  // namespace mezzo::detail
